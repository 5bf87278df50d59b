"""Elements where a mask holds, and triangles of matrices. How many a mask picks only the device knows: that is waited for."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, download, windows
from .backend import contiguous, copied, fill
from .launch import launch, plan_of
from .places import BOOL, INT64, REPORTED, UNITS, apart, changing, move, single, steps_of, taken, zeros
from .pointwise import COMPUTED, STORED, _walked
from .rules import blank
from .table import kernel as enter

_MASKS = """
#include "index.cuh"
typedef {a} A;
struct Masks {{ long count, dims, size[DIMS]; }}; // innermost first
enum {{ THREADS = 256, EACH = 8 }};

static __device__ inline int held(const A *x, long from, long count) {{ // of a thread's EACH elements, as bits
    int made = 0;
    #pragma unroll
    for (int k = 0; k < EACH; k++)
        if (from + k < count && value_of(x[from + k]) != 0) made |= 1 << k;
    return made;
}}
static __device__ inline int ones(int bits) {{
    int n = 0;
    #pragma unroll
    for (int k = 0; k < EACH; k++) n += bits >> k & 1;
    return n;
}}
// Running sums over a block; the last thread's is the block's.
static __device__ inline int running(int n) {{
    __shared__ int met[THREADS];
    met[threadIdx.x] = n;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {{
        const int more = threadIdx.x >= step ? met[threadIdx.x - step] : 0;
        __syncthreads();
        met[threadIdx.x] = n += more;
        __syncthreads();
    }}
    return n;
}}

extern "C" __global__ void counted(const Masks m, long *counts, const A *x) {{
    const int n = running(ones(held(x, ((long)blockIdx.x * THREADS + threadIdx.x) * EACH, m.count)));
    if (threadIdx.x == THREADS - 1) counts[blockIdx.x] = n;
}}

// Where each block's begin; behind them, how many there are.
extern "C" __global__ void starts(const Masks m, long *counts) {{
    __shared__ long met[THREADS];
    long before = 0;
    for (long from = 0; from < m.count; from += THREADS) {{
        const long at = from + threadIdx.x, own = at < m.count ? counts[at] : 0;
        long sum = own;
        met[threadIdx.x] = own;
        __syncthreads();
        for (int step = 1; step < THREADS; step *= 2) {{
            const long more = threadIdx.x >= step ? met[threadIdx.x - step] : 0;
            __syncthreads();
            met[threadIdx.x] = sum += more;
            __syncthreads();
        }}
        if (at < m.count) counts[at] = before + sum - own;
        before += met[THREADS - 1];
        __syncthreads();
    }}
    if (!threadIdx.x) counts[m.count] = before;
}}

// Positions, a column of all for each dimension; without dimensions, positions in x as it lies in memory.
extern "C" __global__ void found(const Masks m, long *o, const A *x, const long *counts, long total) {{
    const long from = ((long)blockIdx.x * THREADS + threadIdx.x) * EACH;
    const int bits = held(x, from, m.count), n = ones(bits);
    long to = counts[blockIdx.x] + running(n) - n;
    for (int k = 0; k < EACH; k++) {{
        if (!(bits >> k & 1)) continue;
        long rest = from + k;
        if (!m.dims) o[to] = rest;
        for (int d = 0; d < m.dims; d++) {{
            const long next = rest / m.size[d];
            o[(m.dims - 1 - d) * total + to] = rest - next * m.size[d];
            rest = next;
        }}
        to++;
    }}
}}
"""


def _found(x: CudaArray, columns: bool) -> CudaArray:
    """(dimensions, number of elements that are not zero) positions, or (number,) in order; this waits for the device."""
    x = contiguous(x)
    if not x.size:
        return windows.empty((x.ndim, 0) if columns else (0,), INT64)
    if x.dtype not in COMPUTED:
        raise NotImplementedError(f"nonzero of {x.dtype} on a CUDA device")
    device, blocks = device_index(x), -(-x.size // 2048)
    source = _MASKS.format(a=STORED[x.dtype])
    dims = list(x.shape[::-1]) if columns else []
    fixed = struct.pack("14q", x.size, len(dims), *dims, *[0] * (12 - len(dims)))
    counts = windows.empty((blocks + 1,), INT64)
    plan_of(source, "counted", device, blocks, 256, "pp", fixed).run(counts, x)
    plan_of(source, "starts", device, 1, 256, "p", struct.pack("14q", blocks, *[0] * 13)).run(counts)
    total = int(download(counts[blocks:])[0])
    out = windows.empty((x.ndim, total) if columns else (total,), INT64)
    if total:
        plan_of(source, "found", device, blocks, 256, "pppl", fixed).run(out, x, counts, total)
    return out


@enter("nonzero")
def nonzero(x: CudaArray) -> CudaArray:
    if not x.ndim:
        return windows.empty((_found(x.reshape((1,)), False).size, 0), INT64)
    return _found(x, True).T  # column by column, as PyTorch lays it out


@enter("nonzero_static")
def nonzero_static(x: CudaArray, size: int, fill_value: int) -> CudaArray:
    out, found = windows.empty((size, x.ndim), INT64), nonzero(x)[:size]
    fill(out, fill_value)
    copied(found, out[:found.shape[0]])
    return out


@enter("masked_select")
def masked_select(x: CudaArray, mask: CudaArray) -> CudaArray:
    shape = np.broadcast_shapes(x.shape, mask.shape)
    x, mask = (a if a.shape == shape else copied(a, windows.empty(shape, a.dtype)) for a in (x, mask))
    return taken(contiguous(x).reshape((x.size,)), 0, _found(mask, False), False, REPORTED)


_FILLED = """
#include "index.cuh"
typedef {unit} U;
struct Filled {{ Walk<3> w; }};
extern "C" __global__ void filled(const Filled f, U *o, const U *x, const bool *mask, const U *value) {{
    FOR_ALL(e, f.w.count) {{
        long k[3];
        walked(f.w, e, k);
        o[k[0]] = mask[k[2]] ? *value : x[k[1]];
    }}
}}
"""


def _masked_fill(x: CudaArray, mask: CudaArray, value: Any, out: CudaArray) -> CudaArray:
    if not out.size:
        return out
    one = single(value, x.dtype)
    if mask.dtype != BOOL:
        mask = copied(mask, windows.empty(mask.shape, BOOL))
    sizes, steps = _walked(out, [x, mask])
    pad = [0] * (12 - len(sizes))
    walk = [n for s in (sizes, *steps) for n in (*s[::-1], *pad)]
    fixed = struct.pack(f"{2 + 4 * 12}q", out.size, len(sizes), *walk)
    launch(_FILLED.format(unit=UNITS[x.itemsize]), "filled", "pppp", out.size, fixed, device_index(x)).run(out, x, mask, one)
    return out


@enter("masked_fill", repeatable=True)
def masked_fill(x: CudaArray, mask: CudaArray, value: Any) -> Any:
    return NotImplemented if x.itemsize == 16 else _masked_fill(x, mask, value, blank("masked_fill", x, mask, value))


@enter("masked_fill_into")
def masked_fill_into(x: CudaArray, mask: CudaArray, value: Any) -> Any:
    if x.itemsize == 16:
        return NotImplemented
    _masked_fill(x, mask, value, x)
    return None


@changing("masked_scatter")
def masked_scatter(x: CudaArray, mask: CudaArray, source: CudaArray) -> None:
    mask = mask if mask.shape == x.shape else copied(mask, windows.empty(x.shape, mask.dtype))
    at = _found(mask, False)
    if at.size > source.size:
        raise RuntimeError(f"masked_scatter: Number of elements of source < number of ones in mask ({source.size} < {at.size})")
    move("put", x, contiguous(apart(source, x)), at, (1, x.size, at.size, 1), False, REPORTED)


@enter("masked_scatter_backward")
def masked_scatter_backward(grad: CudaArray, mask: CudaArray, shape: Any) -> CudaArray:
    out = zeros((math.prod(shape),), grad.dtype)
    picked = masked_select(grad, mask)
    copied(picked, out[:picked.size])
    return out.reshape(shape)


# -------------------------------------------------------------------------------------------------------------- triangles
_TRIANGLE = """
#include "index.cuh"
typedef {unit} U;
struct Triangle {{ long diagonal, columns, rows; Walk<2> w; }};
extern "C" __global__ void triangle(const Triangle f, U *o, const U *x) {{
    const bool small = f.w.count <= 0x7fffffff;
    FOR_ALL(e, f.w.count) {{
        long k[2];
        walked(f.w, e, k);
        const long q = divided(e, f.columns, small), c = e - q * f.columns, r = q - divided(q, f.rows, small) * f.rows;
        o[k[0]] = {kept} ? x[k[1]] : U();
    }}
}}
"""


def _triangle(name: str, kept: str) -> None:
    @enter(name)
    def triangle(x: CudaArray, diagonal: int) -> Any:
        if x.itemsize == 16:
            return NotImplemented
        out = blank(name, x, diagonal)
        if not out.size:
            return out
        pad = [0] * (12 - x.ndim)
        fixed = struct.pack(f"{5 + 3 * 12}q", diagonal, x.shape[-1], x.shape[-2], x.size, x.ndim, *x.shape[::-1], *pad,
                            *[n for a in (out, x) for n in (*steps_of(a, 0)[::-1], *pad)])
        launch(_TRIANGLE.format(unit=UNITS[x.itemsize], kept=kept), "triangle", "pp", x.size, fixed, device_index(x)).run(
            out, x)
        return out


_triangle("tril", "c - r <= f.diagonal")
_triangle("triu", "c - r >= f.diagonal")
