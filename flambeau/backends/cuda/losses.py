"""Cross entropy and negative log-likelihood."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous, copied
from .driver import machine
from .launch import launch, plan_of
from .pointwise import STORED
from .rows import WIDE, is_real, plan, typed, wide
from .table import kernel as enter

_ROWS = """
#include "faults.cuh"
struct Classes { Rows s; long ignored; };

extern "C" __launch_bounds__(THREADS) __global__ void cross_entropy(
        const Classes f, A *values, A *kept, A *inverse, const A *x, const T *target, const A *weight, long address,
        long site) {
    for (Line l(f.s); l.more(); l.next()) {
        Share<A> a(x, l);
        W top, total, v[RUN];
        powers(a, l, top, total);
        const long t = l.real ? (long)target[l.row] : 0;
        const bool counts = t != f.ignored;
        if (KEEP) l.each([&](int k) {
            a.get(v, l, k);
            FOR_RUN v[j] = power(v[j] - top);
            stored(kept, l, k, v);
        });
        if (l.lane || !l.real) continue;
        const long at = counts ? checked({address, site}, t, f.s.n, false) : -1;
        inverse[l.row] = counts ? 1 / total : 0;
        const W scale = WEIGHT && at >= 0 ? (W)value_of(weight[at]) : 1;
        values[l.row] = at < 0 ? 0 : scale * (logarithm(total) + (top - (W)value_of(x[l.base + at])));
    }
}

extern "C" __launch_bounds__(THREADS) __global__ void cross_entropy_backward(
        const Classes f, A *o, const A *grad, const A *kept, const A *inverse, const T *target, const A *weight,
        const A *total) {
    for (Line l(f.s); l.more(); l.next()) {
        const Share<A> a(kept, l);
        const long t = l.real ? (long)target[l.row] : 0;
        const bool counts = l.real && t != f.ignored && (unsigned long)t < (unsigned long)f.s.n;
        W factor = counts ? grad[EACH ? l.row : 0] / total[0] : 0;
        if (WEIGHT && counts) factor *= weight[t];
        const W scale = l.real ? factor * inverse[l.row] : 0;
        W v[RUN];
        l.each([&](int k) {
            a.get(v, l, k);
            FOR_RUN v[j] = v[j] * scale - (l.at(k) + j == t ? factor : 0);
            stored(o, l, k, v);
        });
    }
}
"""
_CLASSES = """
#include "faults.cuh"
typedef {a} A;
typedef {t} T;
typedef {p} P;
typedef {w} W;
enum {{ WEIGHT = {weight}, EACH = {each}, THREADS = 256 }};
struct Classes {{ long batch, classes, places, ignored, chunks, reduction; }}; // x is (batch, classes, places)

extern "C" __global__ void picked(const Classes f, V *values, const A *x, const T *target, const P *weight, long address,
                                  long site) {{
    const long count = f.batch * f.places;
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x) {{
        const long t = target[i], at = t == f.ignored ? -1 : checked({{address, site}}, t, f.classes, false);
        const long n = i / f.places;
        values[i] = to<V>(at < 0 ? (W)0 : -(W)value_of(x[(n * f.classes + at) * f.places + (i - n * f.places)])
                                              * (WEIGHT ? (W)value_of(weight[at]) : 1));
    }}
}}

extern "C" __global__ void spread(const Classes f, A *o, const A *grad, const T *target, const P *weight, const A *total) {{
    const long count = f.batch * f.classes * f.places;
    const W share = f.reduction == 1 ? 1 / (W)value_of(total[0]) : 1;
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x) {{
        const long q = i / f.places, n = q / f.classes, c = q - n * f.classes, at = n * f.places + (i - q * f.places);
        const long t = target[at];
        o[i] = to<A>(t == c && t != f.ignored ? -(W)value_of(grad[EACH ? at : 0]) * share
                                                    * (WEIGHT ? (W)value_of(weight[c]) : 1) : (W)0);
    }}
}}

// The sum of values and that of weights, or of what counts; parts: (2, chunks).
extern "C" __global__ void joined(const Classes f, A *loss, A *total, W *parts, const V *values, const T *target,
                                  const P *weight) {{
    __shared__ W first[THREADS], second[THREADS];
    const long count = f.batch * f.places, share = (count + f.chunks - 1) / f.chunks;
    const long from = blockIdx.x * share, till = from + share < count ? from + share : count;
    W sum = 0, weights = 0;
    #pragma unroll 4
    for (long i = from + threadIdx.x; i < till; i += THREADS) {{
        const long t = target[i];
        sum += (W)value_of(values[i]);
        if (t != f.ignored && (unsigned long)t < (unsigned long)f.classes) weights += WEIGHT ? (W)value_of(weight[t]) : (W)1;
    }}
    first[threadIdx.x] = sum, second[threadIdx.x] = weights;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {{
        if (threadIdx.x < half) {{
            first[threadIdx.x] += first[threadIdx.x + half];
            second[threadIdx.x] += second[threadIdx.x + half];
        }}
        __syncthreads();
    }}
    if (threadIdx.x) return;
    if (f.chunks > 1) {{
        parts[blockIdx.x] = first[0], parts[f.chunks + blockIdx.x] = second[0];
        return;
    }}
    loss[0] = to<A>(f.reduction == 1 ? first[0] / second[0] : first[0]);
    total[0] = to<A>(second[0]);
}}

extern "C" __global__ void last(const Classes f, A *loss, A *total, const W *parts) {{
    W sum = 0, weights = 0;
    for (long k = 0; k < f.chunks; k++) sum += parts[k], weights += parts[f.chunks + k];
    loss[0] = to<A>(f.reduction == 1 ? sum / weights : sum);
    total[0] = to<A>(weights);
}}
"""
_MANY = 1 << 15  # elements from which several blocks add up
_OUT_OF_BOUNDS = "Target {} is out of bounds."


@functools.lru_cache(256)
def _class_text(a: np.dtype, values: np.dtype, t: np.dtype, p: np.dtype | None, each: bool) -> str:
    text = _CLASSES.format(a=STORED[a], t=STORED[t], p=STORED[a if p is None else p], w=wide(a), weight=int(p is not None),
                           each=int(each))
    return text.replace("typedef", f"typedef {STORED[values]} V;\ntypedef", 1)


def _known(x: CudaArray, target: CudaArray, weight: CudaArray | None) -> bool:
    return is_real(x) and target.dtype.char in "lqBi" and (weight is None or is_real(weight))


def _sizes(shape: Any) -> tuple[int, int, int]:
    return (1, shape[0], 1) if len(shape) == 1 else (shape[0], shape[1], math.prod(shape[2:]))


def _summed(values: CudaArray, target: CudaArray, weight: CudaArray | None, sizes: tuple[int, int, int], ignored: int,
            reduction: int, dtype: np.dtype) -> tuple[CudaArray, CudaArray]:
    """(sum or mean of the values, sum of weights)."""
    count, device, w = sizes[0] * sizes[2], device_index(values), WIDE[wide(dtype)]
    chunks = min(count // (_MANY // 4), 256) if count > _MANY else 1
    text = _class_text(dtype, values.dtype, target.dtype, None if weight is None else weight.dtype, False)
    loss, total, parts = windows.empty((), dtype), windows.empty((), dtype), windows.empty((2 * chunks,), w)
    chunks = min(chunks, 32 * machine().attribute("multiprocessors", device))
    fixed = struct.pack("6q", *sizes, ignored, chunks, reduction)
    plan_of(text, "joined", device, chunks, 256, "pppppp", fixed).run(
        loss, total, parts, values, target, values if weight is None else weight)
    if chunks > 1:
        plan_of(text, "last", device, 1, 1, "ppp", fixed).run(loss, total, parts)
    return loss, total


@enter("nll_loss", repeatable=True)
def nll_loss(x: CudaArray, target: CudaArray, weight: CudaArray | None, reduction: int, ignore_index: int) -> Any:
    if not _known(x, target, weight):
        return NotImplemented
    sizes, kept, dtype = _sizes(x.shape), target.shape, x.dtype
    x, target, weight = contiguous(x), contiguous(target), None if weight is None else contiguous(weight)
    values = windows.empty(kept, dtype if not reduction else WIDE[wide(dtype)])
    if values.size:
        text = _class_text(dtype, values.dtype, target.dtype, None if weight is None else weight.dtype, False)
        site = faults.site(IndexError, _OUT_OF_BOUNDS)
        fixed = struct.pack("6q", *sizes, ignore_index, 1, reduction)
        launch(text, "picked", "ppppll", values.size, fixed, device_index(x)).run(
            values, x, target, x if weight is None else weight, faults.address(), site)
    if not reduction:
        total = windows.empty((), dtype)
        total.fill(0)
        return values, total
    return _summed(values, target, weight, sizes, ignore_index, reduction, dtype)


@enter("nll_loss_backward", repeatable=True)
def nll_loss_backward(grad: CudaArray, shape: Any, target: CudaArray, weight: CudaArray | None, reduction: int,
                      ignore_index: int, total: CudaArray) -> Any:
    if not _known(grad, target, weight) or total.dtype != grad.dtype:
        return NotImplemented
    out = windows.empty(tuple(shape), grad.dtype)
    if not out.size:
        return out
    grad, target, weight = contiguous(grad), contiguous(target), None if weight is None else contiguous(weight)
    text = _class_text(grad.dtype, grad.dtype, target.dtype, None if weight is None else weight.dtype, not reduction)
    fixed = struct.pack("6q", *_sizes(out.shape), ignore_index, 1, reduction)
    launch(text, "spread", "ppppp", out.size, fixed, device_index(grad)).run(
        out, grad, target, grad if weight is None else weight, total)
    return out


def _smoothed(x: CudaArray, target: CudaArray, weight: CudaArray | None, ignore_index: int) -> CudaArray:
    """Of every place that counts, the (weighted) sum of x over the classes."""
    by_class = x if weight is None else call("mul", (x, weight.reshape((-1, *(1,) * (x.ndim - 2)))))
    spread = call("sum", (by_class, (1,), False, None))
    ignored = call("eq", (target, np.asarray(ignore_index, target.dtype)))
    return call("masked_fill", (spread, ignored, 0))


@enter("smoothed_nll", repeatable=True)
def smoothed_nll(x: CudaArray, target: CudaArray, weight: CudaArray | None, reduction: int, ignore_index: int,
                 smoothing: float) -> Any:
    made = nll_loss(x, target, weight, reduction, ignore_index)
    if made is NotImplemented:
        return made
    loss, total = made
    spread = _smoothed(x, target, weight, ignore_index)
    if reduction:
        spread = call("sum", (spread, None, False, None))
    if reduction == 1:
        spread = call("div", (spread, total))
    own = call("mul", (loss, np.asarray(1 - smoothing, x.dtype)))
    return call("sub", (own, call("mul", (spread, np.asarray(smoothing / x.shape[1], x.dtype))))), total


@enter("smoothed_nll_backward", repeatable=True)
def smoothed_nll_backward(grad: CudaArray, shape: Any, target: CudaArray, weight: CudaArray | None, reduction: int,
                          ignore_index: int, total: CudaArray, smoothing: float) -> Any:
    number = functools.partial(np.asarray, dtype=grad.dtype)
    own = call("mul", (grad, number(1 - smoothing)))
    out = nll_loss_backward(own, shape, target, weight, reduction, ignore_index, total)
    if out is NotImplemented:
        return out
    share = call("mul", (grad, number(-smoothing / shape[1])))
    share = call("div", (share, total)) if reduction == 1 else share
    share = copied(share, windows.empty(target.shape, grad.dtype))
    share = call("masked_fill", (share, call("eq", (target, np.asarray(ignore_index, target.dtype))), 0))[:, None]
    if weight is not None:
        share = call("mul", (share, weight.reshape((-1, *(1,) * (len(shape) - 2)))))
    return call("add", (out, share))


def _class_flags(**flags: Any) -> tuple[tuple[str, int], ...]:
    return tuple([(name, int(value)) for name, value in {"KEEP": 0, "EACH": 0, **flags}.items()])


@enter("cross_entropy", repeatable=True)
def cross_entropy(x: CudaArray, target: CudaArray, weight: CudaArray | None, reduction: int, ignore_index: int,
                  keep: bool) -> Any:
    """The loss, and for its derivative: exp(x - largest), one over their sums, and what the loss was divided by."""
    x, target, weight = contiguous(x), contiguous(target), None if weight is None else contiguous(weight)
    (count, classes), dtype = x.shape, x.dtype
    values, inverse = windows.empty((count,), dtype), windows.empty((count,), dtype)
    kept = windows.empty((count, classes) if keep else (0, 0), dtype)
    types = (*typed(A=dtype, T=target.dtype), ("W", wide(dtype)))
    plan(_ROWS, "cross_entropy", types, _class_flags(KEEP=keep, WEIGHT=weight is not None), count, classes, 1, 16 // x.itemsize,
         "ppppppll", struct.pack("q", ignore_index), device_index(x)).run(
        values, kept if keep else values, inverse, x, target, x if weight is None else weight, faults.address(),
        faults.site(IndexError, _OUT_OF_BOUNDS))
    if not reduction:
        total = windows.empty((), dtype)
        total.fill(1)
        return values, kept, inverse, total
    loss, total = _summed(values, target, weight, (count, classes, 1), ignore_index, reduction, dtype)
    if reduction != 1:
        total.fill(1)
    return loss, kept, inverse, total


@enter("cross_entropy_backward", repeatable=True)
def cross_entropy_backward(grad: CudaArray, powers: CudaArray, inverse: CudaArray, target: CudaArray, weight: CudaArray | None,
                           total: CudaArray, ignore_index: int) -> Any:
    if grad.dtype != powers.dtype:
        return NotImplemented
    grad, target, weight = contiguous(grad), contiguous(target), None if weight is None else contiguous(weight)
    out, (count, classes) = windows.empty(powers.shape, powers.dtype), powers.shape
    types = (*typed(A=powers.dtype, T=target.dtype), ("W", wide(powers.dtype)))
    plan(_ROWS, "cross_entropy_backward", types, _class_flags(EACH=grad.ndim, WEIGHT=weight is not None), count, classes, 1,
         16 // powers.itemsize, "ppppppp", struct.pack("q", ignore_index), device_index(powers)).run(
        out, grad, powers, inverse, target, powers if weight is None else weight, total)
    return out
