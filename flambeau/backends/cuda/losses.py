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
from .launch import Plan, kernel, launch, plan_of
from .pointwise import STORED
from .rows import BLOCK, WARP, WIDE, Sharing, is_real, text, typed, wide
from .table import LEAN, Lean
from .table import kernel as enter

_ROWS = """
#include "faults.cuh"
// Logits (rows, n), whose rows are `step` elements apart; what is written has rows that are `wide` apart.
struct Logits { long rows, n, step, wide, ignored; };

template <int N> struct Some { constexpr __device__ operator int() const { return N; } };
typedef Some<1> One;
typedef Some<RUN> Whole;
#define FOR_COUNT _Pragma("unroll") for (int j = 0; j < count; j++)
struct Larger { __device__ W operator()(W x, W y) const { return x < y ? y : x; } };
static __device__ inline float least(float) { return -largest_f32(); } // what is less than that adds nothing to a sum of powers
static __device__ inline double least(double) { return -largest_f64(); }

// exp(x), of x up to 0: a few units in the last place off, as x itself is, a difference
static __device__ inline float exp_of(float x) { return exp2_quick(x * (float)M_LOG2E); }
static __device__ inline double exp_of(double x) { return exp_f64(x); }

template <class R> static __device__ inline void put(R *o, const W *v, One) { o[0] = to<R>(v[0]); }
template <class R> static __device__ inline void put(R *o, const W *v, Whole) { put_run(o, v); }

// How many elements of a row come before its first whole run; all of them where what is read and written has none in common.
template <class A, class R> static __device__ inline int before_runs(const A *x, const R *o, int n) {
    const int head = (int)((16 - (unsigned long)o % 16) % 16 / sizeof(R)) % RUN;
    return head < n && (unsigned long)(x + head) % (sizeof(A) * RUN) == 0 ? head : n;
}
// Takes a row apart: some(first, values, count) for the thread's elements; AHEAD runs are loaded together.
enum { AHEAD = 4 };
template <class A, class F> static __device__ inline void apart(const A *x, int n, int head, int lane, int lanes, F some) {
    const int end = head + (n - head) / RUN * RUN, hop = lanes * RUN;
    W v[AHEAD][RUN];
    for (int i = lane; i < head; i += lanes) v[0][0] = (W)value_of(x[i]), some(i, v[0], One());
    int i = head + lane * RUN;
    for (; i + (AHEAD - 1) * hop < end; i += AHEAD * hop) {
        #pragma unroll
        for (int k = 0; k < AHEAD; k++) fetched(x + i + k * hop, v[k]);
        #pragma unroll
        for (int k = 0; k < AHEAD; k++) some(i + k * hop, v[k], Whole());
    }
    for (; i < end; i += hop) fetched(x + i, v[0]), some(i, v[0], Whole());
    for (int i = end + lane; i < n; i += lanes) v[0][0] = (W)value_of(x[i]), some(i, v[0], One());
}
#define FOR_ROWS(row, real) \\
    const int lane = MODE == WARP ? threadIdx.x % 32 : threadIdx.x, lanes = MODE == WARP ? 32 : THREADS; \\
    const int together = THREADS / lanes; \\
    for (long row = (long)blockIdx.x * together + (MODE == WARP ? threadIdx.x / 32 : 0), real = row < f.rows; \\
         row - (MODE == WARP ? threadIdx.x / 32 : 0) < f.rows; row += (long)gridDim.x * together, real = row < f.rows)

extern "C" __launch_bounds__(THREADS) __global__ void cross_entropy(
        const Logits f, W *values, W *tops, W *inverse, W *kept, const A *x, const T *target, const P *weight, long address,
        long site) {
    FOR_ROWS(row, real) {
        const A *own = x + (real ? row : 0) * f.step;
        const int n = real ? (int)f.n : 0, head = before_runs(own, own, n);
        W top = least(W()), total = 0;
        apart(own, n, head, lane, lanes, [&](int, const W *v, auto count) { // the sum so far is scaled when a larger one comes
            W high = top;
            FOR_COUNT high = high < v[j] ? v[j] : high;
            if (high != top) total *= exp_of(top - high), top = high;
            FOR_COUNT total += exp_of(v[j] - top);
        });
        const W mine = top;
        top = across(top, Larger());
        total = across(total * exp_of(mine - top), Add());
        W *powers = kept + row * f.n;
        if (KEEP) apart(own, n, before_runs(own, powers, n), lane, lanes, [&](int i, W *v, auto count) {
            FOR_COUNT v[j] = exp_of(v[j] - top);
            put(powers + i, v, count);
        });
        if (lane || !real) continue;
        const long t = (long)target[row];
        const bool counts = t != f.ignored;
        const long at = counts ? checked({address, site}, t, f.n, false) : -1;
        tops[row] = top, inverse[row] = counts ? 1 / total : 0;
        const W scale = WEIGHT && at >= 0 ? (W)value_of(weight[at]) : 1;
        values[row] = at < 0 ? 0 : scale * (logarithm(total) + (top - (W)value_of(own[at])));
    }
}

// x: powers where the forward pass KEEPs them, else logits.
extern "C" __launch_bounds__(THREADS) __global__ void cross_entropy_backward(
        const Logits f, R *o, const W *grad, const A *x, const W *tops, const W *inverse, const T *target, const P *weight,
        const W *total) {
    FOR_ROWS(row, real) {
        if (!real) continue;
        const A *own = x + row * f.step;
        R *to_ = o + row * f.wide;
        const long t = (long)target[row];
        const bool counts = t != f.ignored && (unsigned long)t < (unsigned long)f.n;
        W factor = counts ? grad[EACH ? row : 0] / total[0] : 0;
        if (WEIGHT && counts) factor *= (W)value_of(weight[t]);
        const W scale = factor * inverse[row], top = KEEP ? 0 : tops[row];
        const int n = (int)f.n, hit = counts ? (int)t : -1;
        apart(own, n, before_runs(own, to_, n), lane, lanes, [&](int i, W *v, auto count) {
            FOR_COUNT v[j] = (KEEP ? v[j] : exp_of(v[j] - top)) * scale;
            if ((unsigned)(hit - i) < count) {
                FOR_COUNT v[j] -= i + j == hit ? factor : 0;
            }
            put(to_ + i, v, count);
        });
        for (int i = n + lane; i < (int)f.wide; i += lanes) to_[i] = to<R>((W)0);
    }
}
"""
_CLASSES = """
#include "faults.cuh"
typedef {a} A;
typedef {t} T;
typedef {p} P;
typedef {w} W;
enum {{ WEIGHT = {weight}, EACH = {each}, THREADS = {threads} }};
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

// The two sums over a block's threads, of which the first has them.
static __device__ inline void met(W &sum, W &weights) {{
    __shared__ W first[THREADS], second[THREADS];
    first[threadIdx.x] = sum, second[threadIdx.x] = weights;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {{
        if (threadIdx.x < half) {{
            first[threadIdx.x] += first[threadIdx.x + half];
            second[threadIdx.x] += second[threadIdx.x + half];
        }}
        __syncthreads();
    }}
    sum = first[0], weights = second[0];
}}

// The sum of values and that of weights, or of what counts; parts: (2, chunks).
extern "C" __global__ void joined(const Classes f, A *loss, A *total, W *parts, const V *values, const T *target,
                                  const P *weight) {{
    const long count = f.batch * f.places, share = (count + f.chunks - 1) / f.chunks;
    const long from = blockIdx.x * share, till = from + share < count ? from + share : count;
    W sum = 0, weights = 0;
    #pragma unroll 8
    for (long i = from + threadIdx.x; i < till; i += THREADS) {{
        const long t = target[i];
        sum += (W)value_of(values[i]);
        if (t != f.ignored && (unsigned long)t < (unsigned long)f.classes) weights += WEIGHT ? (W)value_of(weight[t]) : (W)1;
    }}
    met(sum, weights);
    if (threadIdx.x) return;
    if (f.chunks > 1) {{
        parts[blockIdx.x] = sum, parts[f.chunks + blockIdx.x] = weights;
        return;
    }}
    loss[0] = to<A>(f.reduction == 1 ? sum / weights : sum);
    total[0] = to<A>(weights);
}}

extern "C" __global__ void last(const Classes f, A *loss, A *total, const W *parts) {{
    W sum = 0, weights = 0;
    for (long k = threadIdx.x; k < f.chunks; k += THREADS) sum += parts[k], weights += parts[f.chunks + k];
    met(sum, weights);
    if (threadIdx.x) return;
    loss[0] = to<A>(f.reduction == 1 ? sum / weights : sum);
    total[0] = to<A>(weights);
}}
"""
_MANY = 1 << 15  # elements from which several blocks add up
_THREADS = 512   # of a block that does
_OUT_OF_BOUNDS = "Target {} is out of bounds."


@functools.lru_cache(256)
def _class_text(a: np.dtype, values: np.dtype, t: np.dtype, p: np.dtype | None, each: bool) -> str:
    text = _CLASSES.format(a=STORED[a], t=STORED[t], p=STORED[a if p is None else p], w=wide(a), weight=int(p is not None),
                           each=int(each), threads=_THREADS)
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
    plan_of(text, "joined", device, chunks, _THREADS, "pppppp", fixed).run(
        loss, total, parts, values, target, values if weight is None else weight)
    if chunks > 1:
        plan_of(text, "last", device, 1, _THREADS, "ppp", fixed).run(loss, total, parts)
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


# -------------------------------------------------------------------------------------------------------- cross entropy
_SHORT = 2048  # classes that a warp reads; more are a block's


@functools.lru_cache(4096)
def _rows(name: str, types: Any, flags: Any, rows: int, classes: int, run: int, kinds: str, fixed: bytes, device: int) -> Plan:
    share = Sharing(*((WARP, 0, run, 128) if classes <= _SHORT else (BLOCK, 0, run, 256)))
    blocks = min(-(-rows // (4 if classes <= _SHORT else 1)), 512 * machine().attribute("multiprocessors", device))
    return Plan(kernel(text(_ROWS, share, types, flags), name, device), device, blocks, share.threads, kinds, fixed)


def _in_rows(x: CudaArray) -> CudaArray:
    """Logits whose rows are dense, wherever these lie."""
    return x if x.strides[1] == x.itemsize and not x.strides[0] % x.itemsize else contiguous(x)


def _sized(x: CudaArray, pitch: int, ignored: int) -> bytes:
    return struct.pack("5q", *x.shape, x.strides[0] // x.itemsize, pitch, ignored)


def _types(x: CudaArray, result: np.dtype, target: CudaArray, weight: CudaArray | None) -> Any:
    w = wide(x.dtype)
    return *typed(A=x.dtype, R=result, T=target.dtype, P=WIDE[w] if weight is None else weight.dtype), ("W", w)


def _flags(weight: CudaArray | None, keep: bool, each: bool) -> Any:
    return ("WEIGHT", int(weight is not None)), ("KEEP", int(keep)), ("EACH", int(each))


def _forward(x: CudaArray, target: CudaArray, weight: CudaArray | None, reduction: int, ignore_index: int,
             keep: bool) -> tuple[CudaArray, CudaArray, CudaArray, CudaArray, CudaArray]:
    """The loss; of each row the powers exp(x - largest) if they are kept, the largest and one over the powers' sum; what the
    loss was divided by. All in the type of sums."""
    x, target, weight = _in_rows(x), contiguous(target), None if weight is None else contiguous(weight)
    (count, classes), dtype = x.shape, WIDE[wide(x.dtype)]
    values, tops, inverse = (windows.empty((count,), dtype) for _ in range(3))
    kept = windows.empty((count, classes) if keep else (0, 0), dtype)
    _rows("cross_entropy", _types(x, dtype, target, weight), _flags(weight, keep, False), count, classes, 16 // x.itemsize,
          "pppppppll", _sized(x, classes, ignore_index), device_index(x)).run(
        values, tops, inverse, kept if keep else values, x, target, x if weight is None else weight, faults.address(),
        faults.site(IndexError, _OUT_OF_BOUNDS))
    if not reduction:
        total = windows.empty((), dtype)
        total.fill(1)
        return values, kept, tops, inverse, total
    loss, total = _summed(values, target, weight, (count, classes, 1), ignore_index, reduction, dtype)
    if reduction != 1:
        total.fill(1)
    return loss, kept, tops, inverse, total


def _backward(grad: CudaArray, x: CudaArray, tops: CudaArray | None, inverse: CudaArray, target: CudaArray,
              weight: CudaArray | None, total: CudaArray, ignore_index: int, dtype: np.dtype, pitch: int,
              out: CudaArray | None = None) -> Any:
    """x: logits, or without tops the powers. The result has rows that are `pitch` elements apart, zeros between them; it may
    lie where x lies."""
    if not grad.dtype == inverse.dtype == total.dtype == WIDE[wide(x.dtype)]:
        return NotImplemented
    x, grad, target, weight = _in_rows(x), contiguous(grad), contiguous(target), None if weight is None else contiguous(weight)
    count, classes = x.shape
    if out is None or out.strides[0] != pitch * dtype.itemsize:
        out = windows.empty((count, pitch), dtype)[:, :classes]
    _rows("cross_entropy_backward", _types(x, dtype, target, weight), _flags(weight, tops is None, grad.ndim), count, classes,
          16 // max(x.itemsize, dtype.itemsize), "pppppppp", _sized(x, pitch, ignore_index), device_index(x)).run(
        out, grad, x, inverse if tops is None else tops, inverse, target, x if weight is None else weight, total)
    return out


@enter("cross_entropy", repeatable=True)
def cross_entropy(x: CudaArray, target: CudaArray, weight: CudaArray | None, reduction: int, ignore_index: int,
                  keep: bool) -> Any:
    """The loss, and for its derivative: exp(x - largest), one over their sums, and what the loss was divided by."""
    loss, kept, _, inverse, total = _forward(x, target, weight, reduction, ignore_index, keep)
    return loss, kept, inverse, total


@enter("cross_entropy_backward", repeatable=True)
def cross_entropy_backward(grad: CudaArray, powers: CudaArray, inverse: CudaArray, target: CudaArray, weight: CudaArray | None,
                           total: CudaArray, ignore_index: int) -> Any:
    return _backward(grad, powers, None, inverse, target, weight, total, ignore_index, powers.dtype, powers.shape[1])


@enter("logits_loss", repeatable=True, narrow=(0,))
def logits_loss(x: CudaArray, target: CudaArray, weight: CudaArray | None, reduction: int, ignore_index: int) -> Any:
    """cross_entropy whose derivative comes from the logits, which nobody changes until then: a compiled program knows that.
    They may be of half precision; the loss, and for its derivative the rows' largest, one over the sums of their powers and
    what the loss was divided by are in single precision, as if the logits had been converted first."""
    loss, _, tops, inverse, total = _forward(x, target, weight, reduction, ignore_index, False)
    return loss, tops, inverse, total


@enter("logits_loss_backward", repeatable=True, into=True, narrow=(1,), typed=8, pitched=9, over=1)
def logits_loss_backward(grad: CudaArray, x: CudaArray, tops: CudaArray, inverse: CudaArray, target: CudaArray,
                         weight: CudaArray | None, total: CudaArray, ignore_index: int, dtype: Any, pitch: int,
                         into: Any = None) -> Any:
    """The gradient of the logits in a dtype, computed in that of the sums and rounded once; pitch: elements from one of its
    rows to the next (between them are zeros), so that rows can start at multiples of 16 bytes."""
    return _backward(grad, x, tops, inverse, target, weight, total, ignore_index, np.dtype(dtype), pitch,
                     None if into is None else into[0])


LEAN["cross_entropy"] = Lean(
    "cross_entropy_backward", kept=1, size=lambda shape: shape[:1],
    forward=lambda args: ("logits_loss", args[:5]),
    backward=lambda args, logits, tops, out: ("logits_loss_backward", [
        args[0], logits, tops, *args[2:], out.dtype, out.shape[1]]))
