"""Scaled dot-product attention and its gradients (names as in cpu/layers/attention.py): in half precision tile by tile (flash),
else by products over some heads, or some rows of one head, at a time: scores take no more than a fixed amount of memory.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Iterator

import numpy as np

from . import flash
from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous, copied, fill
from .launch import plan_of
from .pointwise import STORED
from .products import multiply
from .rules import blank
from .table import kernel

_FLOAT32 = np.dtype(np.float32)
_SCORES = 1 << 26   # scores at a time
_TEXT = """#include "elements.cuh"
typedef {kind} T;
typedef {mask} M;
// Of the heads and rows at hand: rows and columns of each head, the first head and row among all, heads of a sample.
struct Part {{ long rows, columns, head, row, heads, causal, masked, mask[4]; }};
static __device__ inline T masked(T score, const Part &p, const M *mask, long head, long row, long column) {{
    if (p.causal && column > row) return -INFINITY;
    if (!p.masked) return score;
    const M m = mask[head / p.heads * p.mask[0] + head % p.heads * p.mask[1] + row * p.mask[2] + column * p.mask[3]];
    return p.masked == 1 ? value_of(m) != 0 ? score : -INFINITY : score + (T)value_of(m);
}}
static __device__ T all_of(T x, T *met, bool largest) {{
    met[threadIdx.x] = x;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {{
        if (threadIdx.x < half) {{
            const T y = met[threadIdx.x + half];
            met[threadIdx.x] = largest ? max_{suffix}(met[threadIdx.x], y) : met[threadIdx.x] + y;
        }}
        __syncthreads();
    }}
    const T made = met[0];
    __syncthreads();
    return made;
}}
// A block per row: scores become weights, and the log-sum-exp is noted.
extern "C" __global__ void weigh(const Part p, T *scores, T *statistic, const M *mask) {{
    __shared__ T met[256];
    T *own = scores + blockIdx.x * p.columns;
    const long head = p.head + blockIdx.x / p.rows, row = p.row + blockIdx.x % p.rows;
    T top = -INFINITY, total = 0;
    for (long c = threadIdx.x; c < p.columns; c += blockDim.x)
        top = max_{suffix}(top, own[c] = masked(own[c], p, mask, head, row, c));
    top = all_of(top, met, true);
    const T less = top == -INFINITY ? (T)0 : top;
    for (long c = threadIdx.x; c < p.columns; c += blockDim.x) total += own[c] = exp_{suffix}(own[c] - less);
    total = all_of(total, met, false);
    for (long c = threadIdx.x; c < p.columns; c += blockDim.x) own[c] = total == 0 ? (T)0 : own[c] / total;
    if (!threadIdx.x) statistic[blockIdx.x] = total == 0 ? (T)INFINITY : less + log_{suffix}(total);
}}
// Scores become weights again, the gradients of weights those of scores. between: sums of the gradient times the result.
extern "C" __global__ void weigh_back(const Part p, T *scores, T *grads, const T *statistic, const T *between, const M *mask) {{
    const long head = p.head + blockIdx.x / p.rows, row = p.row + blockIdx.x % p.rows, at = blockIdx.x * p.columns;
    const T norm = statistic[blockIdx.x], less = between[blockIdx.x];
    for (long c = threadIdx.x; c < p.columns; c += blockDim.x) {{
        const T weight = exp_{suffix}(masked(scores[at + c], p, mask, head, row, c) - norm);
        scores[at + c] = weight, grads[at + c] = weight * (grads[at + c] - less);
    }}
}}
"""


# ----------------------------------------------------------------------------------------------------------- geometry
def _as_four(x: CudaArray) -> CudaArray:
    """(..., rows, columns) as (batch, heads, rows, columns), whose columns lie densely."""
    if x.strides[-1] != x.itemsize and x.shape[-1] > 1:
        x = contiguous(x)
    if x.ndim > 4:
        return contiguous(x).reshape((-1, *x.shape[-3:]))
    return x if x.ndim == 4 else x[:, None] if x.ndim == 3 else x[None, None]


def _mask_of(mask: CudaArray | None, scores: tuple[int, ...]) -> CudaArray | None:
    """The mask as (batch, heads, rows, columns), steps 0 where it broadcasts."""
    if mask is None:
        return None
    whole = windows.view(np.broadcast_to(windows.bare(mask), scores))
    if len(scores) > 4:
        return copied(whole, windows.empty(scores, mask.dtype)).reshape((-1, *scores[-3:]))
    return whole if len(scores) == 4 else whole[:, None] if len(scores) == 3 else whole[None, None]


def _wide(x: CudaArray) -> CudaArray:
    """(heads of all samples, rows, columns), contiguous, in single precision or double."""
    dtype = x.dtype if x.dtype.char in "fd" else _FLOAT32
    made = x if x.flags.c_contiguous and x.dtype == dtype else copied(x, windows.empty(x.shape, dtype))
    return made.reshape((-1, *x.shape[2:]))


class _Scores:
    """The work by products: which pieces it comes in, and the kernels on scores."""

    def __init__(self, q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool, scale: float):
        self.mask = _mask_of(mask, (*q.shape[:-1], k.shape[-2]))
        q, k, v = map(_as_four, (q, k, v))
        self.heads = q.shape[1]
        self.q, self.k, self.v = map(_wide, (q, k, v))
        self.causal, self.scale, self.dtype = causal, scale, self.q.dtype

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """(heads, rows) at a time: whole heads, or rows of one."""
        count, rows, columns = len(self.q), self.q.shape[1], self.k.shape[1]
        some = max(_SCORES // max(rows * columns, 1), 1)
        step = rows if rows * columns <= _SCORES else max(_SCORES // columns, 1)
        for h in range(0, count, some):
            for r in range(0, rows, step):
                yield slice(h, min(h + some, count)), slice(r, min(r + step, rows))

    def scores(self, h: slice, r: slice) -> CudaArray:
        return multiply(self.q[h, r], self.k[h].transpose(0, 2, 1), alpha=self.scale)

    def run(self, name: str, h: slice, r: slice, scores: CudaArray, *arrays: CudaArray) -> None:
        mask, rows = self.mask, r.stop - r.start
        kind = 0 if mask is None else 1 if mask.dtype.kind == "b" else 2
        fixed = struct.pack("11q", rows, scores.shape[-1], h.start, r.start, self.heads, self.causal, kind,
                            *([0] * 4 if mask is None else [s // mask.itemsize for s in mask.strides]))
        text = _text(self.dtype, "bool" if mask is None else STORED[mask.dtype])
        blocks = rows * (h.stop - h.start)
        plan = plan_of(text, name, device_index(scores), blocks, 256, "p" * (2 + len(arrays)), fixed)
        plan.run(scores, *arrays, scores if mask is None else mask)


@functools.cache
def _text(dtype: np.dtype, mask: str) -> str:
    return _TEXT.format(kind=STORED[dtype], mask=mask, suffix="f32" if dtype.char == "f" else "f64")


# ------------------------------------------------------------------------------------------------------------ kernels
@kernel("attention", repeatable=True)
def attention(q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool,
              scale: float) -> tuple[CudaArray, CudaArray]:
    """(softmax(q k^T * scale + mask) v, the log-sum-exp of each row of scores). Leading dimensions are equal."""
    out, statistic = blank("attention", q, k, v, mask, causal, scale)
    if not out.size:
        return out, statistic
    if not k.size:
        fill(out, 0)
        fill(statistic, math.inf)
        return out, statistic
    if flash.serves(q, k, v):
        target = out if out.strides[-1] == out.itemsize and out.ndim <= 4 else windows.empty(out.shape, out.dtype)
        flash.forward(*map(_as_four, (q, k, v)), _mask_of(mask, (*q.shape[:-1], k.shape[-2])), causal, scale, _as_four(target),
                      statistic)
        return (out if target is out else copied(target, out)), statistic
    work = _Scores(q, k, v, mask, causal, scale)
    made, noted = windows.empty((*work.q.shape[:2], v.shape[-1]), work.dtype), statistic.reshape(work.q.shape[:2])
    for h, r in work.blocks():
        scores = work.scores(h, r)
        work.run("weigh", h, r, scores, noted[h, r])
        multiply(scores, work.v[h], made[h, r])
    return copied(made.reshape(out.shape), out), statistic


@kernel("attention_backward", repeatable=True, into=True)
def attention_backward(grad: CudaArray, q: CudaArray, k: CudaArray, v: CudaArray, mask: CudaArray | None, causal: bool,
                       scale: float, out: CudaArray, statistic: CudaArray,
                       into: list[CudaArray] | None = None) -> tuple[CudaArray, ...]:
    if not q.size or not k.size or not v.size:
        made = blank("attention_backward", grad, q, k, v) if into is None else tuple(into)
        for m in made:
            fill(m, 0)
        return made
    made = tuple([_heads_inside(x) for x in (q, k, v)] if into is None or q.ndim > 4 else map(_as_four, into))
    if flash.serves(grad, q, k, v):
        flash.backward(*map(_as_four, (grad, q, k, v)), _mask_of(mask, (*q.shape[:-1], k.shape[-2])), causal, scale,
                       _as_four(out), statistic, made)
        return tuple([m.reshape(x.shape) for m, x in zip(made, (q, k, v))])
    work = _Scores(q, k, v, mask, causal, scale)
    g, o = (_wide(_as_four(x)) for x in (grad, out))
    noted = statistic.reshape(g.shape[:2])
    between = call("sum", (call("mul", (g, o)), (2,), False, None))
    dq, dk, dv = (windows.empty(x.shape, work.dtype) for x in (work.q, work.k, work.v))
    for h, r in work.blocks():
        scores, grads = work.scores(h, r), multiply(g[h, r], work.v[h].transpose(0, 2, 1))
        work.run("weigh_back", h, r, scores, grads, noted[h, r], between[h, r])
        more = 1 if r.start else 0  # the rows before have their part in it
        multiply(scores.transpose(0, 2, 1), g[h, r], dv[h], beta=more)
        multiply(grads.transpose(0, 2, 1), work.q[h, r], dk[h], alpha=scale, beta=more)
        multiply(grads, work.k[h], dq[h, r], alpha=scale)
    return tuple([copied(d.reshape(m.shape), m).reshape(x.shape) for d, m, x in zip((dq, dk, dv), made, (q, k, v))])


def _heads_inside(x: CudaArray) -> CudaArray:
    """Room for a gradient, laid out as (batch, rows, heads, columns): the layer in front merges the heads."""
    batch, heads, rows, columns = _as_four(x).shape
    return windows.empty((batch, rows, heads, columns), x.dtype).swapaxes(1, 2)
