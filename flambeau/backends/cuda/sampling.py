"""Dropout, permutations and choices by weight on the device, drawn as PyTorch's CUDA kernels draw them (random.py)."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu.memory import dense_order
from . import pointwise
from .arrays import CudaArray, device_index, download, windows
from .backend import call, copied
from .launch import plan_of
from .philox import advance
from .pointwise import COMPUTED, STORED
from .random import blocks_of, draw_into, used_words
from .table import kernel

_THREADS = 256
_LONG = np.dtype(np.int64)

# ------------------------------------------------------------------------------------------------------------- dropout
_DROPOUT = """// dropout, {vec} elements at a time
#include "elements.cuh"
#include "philox.cuh"
typedef {stored} R;
typedef {wide} T;
extern "C" __global__ void dropped(const long count, R *o, bool *mask, const R *x, unsigned long seed, unsigned long offset,
                                   double keep) {{
    const long thread = (long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long)gridDim.x * blockDim.x;
    const T chance = (T)keep, scale = (T)(1.0 / chance);
    Stream stream = stream_of(seed, thread, offset);
    {loop}
}}
"""
# Elements that lie side by side; a pair takes the first two of four words.
_SIDE_BY_SIDE = """for (long at = thread * {vec}; at < count; at += threads * {vec}) {{
        const Run<R, {vec}> from = *(const Run<R, {vec}> *)(x + at);
        Run<R, {vec}> made;
        Run<bool, {vec}> kept;
        #pragma unroll
        for (int k = 0; k < {vec}; k += 4) {{
            const Words words = stream.next();
            #pragma unroll
            for (int j = 0; j < ({vec} < 4 ? {vec} : 4); j++) {{
                kept.at[k + j] = unit(words.at[j]) < chance;
                made.at[k + j] = to<R>((T)value_of(from.at[k + j]) * (T)kept.at[k + j] * scale);
            }}
        }}
        store(o + at, made);
        store(mask + at, kept);
    }}"""
_FAR_APART = """for (long at = thread; at < count; at += threads * 4) {
        const Words words = stream.next();
        for (int k = 0; k < 4; k++) {
            const long i = at + threads * k;
            if (i >= count) break;
            mask[i] = unit(words.at[k]) < chance;
            o[i] = to<R>((T)value_of(x[i]) * (T)mask[i] * scale);
        }
    }"""


def _vector(x: CudaArray) -> int:
    """How many elements PyTorch takes at once: as many as the address and the count allow, up to 16 bytes."""
    for vec in (8, 4, 2):
        if vec * x.itemsize <= 16 and x.ctypes.data % (vec * x.itemsize) == 0 and x.size % vec == 0:
            return vec
    return 1


@functools.cache
def _dropout_text(vec: int, dtype: np.dtype) -> str:
    loop = _FAR_APART if vec == 1 else _SIDE_BY_SIDE.format(vec=vec)
    return _DROPOUT.format(vec=vec, stored=STORED[dtype], wide="double" if dtype.char == "d" else "float", loop=loop)


@kernel("draw_dropout")
def draw_dropout(words: ndarray, x: CudaArray, p: float) -> tuple[CudaArray, CudaArray]:
    """(x where it is kept, divided by 1 - p; where it is kept)."""
    dense = x.flags.c_contiguous or dense_order(x) is not None
    source = x if dense else copied(x, windows.empty(x.shape, x.dtype))
    vec, device = _vector(source) if dense else 1, device_index(x)
    text = _dropout_text(vec, x.dtype)
    made, mask = windows.like(source, x.dtype), windows.like(source, np.dtype(bool))
    blocks = blocks_of(x.size, device)
    plan = plan_of(text, "dropped", device, blocks, _THREADS, "ppplld", x.size.to_bytes(8, "little"))
    plan.run(made, mask, source, *advance(words, used_words(x.size, blocks, 4)), 1 - p)
    return made, mask


@kernel("masked_scale")
def masked_scale(x: CudaArray, mask: CudaArray, scale: float) -> CudaArray:
    """x * mask * scale in one pass."""
    out = windows.like(mask, x.dtype)
    if not out.size:
        return out
    key = (x.dtype, x.shape, x.strides, mask.strides, device_index(x))
    plan = _scales.get(key)
    if plan is None:
        operands = [pointwise._Operand("a", x.dtype), pointwise._Operand("m", mask.dtype), pointwise._Operand("s", None)]
        text = pointwise.text("masked_scale", "a * (T)m * s", COMPUTED[x.dtype], x.dtype, operands)
        plan = _scales[key] = pointwise.launched(text, out, [x, mask], "d")
    plan.run(out, x, mask, scale)
    return out


_scales: dict[Any, Any] = {}


# -------------------------------------------------------------------------------------------------------- permutations
_ORDERED = """// places in the order of keys, each found by counting
#include "elements.cuh"
extern "C" __global__ void ordered(const long count, long *sorted, long *places, const long *keys) {
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const long key = keys[i];
    long before = 0;
    for (long j = 0; j < count; j++) before += keys[j] < key || (keys[j] == key && j < i);
    sorted[before] = key, places[before] = i;
}
"""
_SHUFFLED = """// places whose keys are equal, shuffled: the first of them does it for all
#include "elements.cuh"
#include "philox.cuh"
extern "C" __global__ void shuffled(const long count, long *places, const long *keys, unsigned long seed,
                                    unsigned long offset) {
    const long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count - 1 || keys[i] != keys[i + 1] || (i && keys[i] == keys[i - 1])) return;
    long equal = 2;
    while (i + equal < count && keys[i + equal] == keys[i]) equal++;
    Stream stream = stream_of(seed, i, offset);
    Words words;
    for (long last = equal - 1, used = 0; last > 0; last--, used++) {
        if (used % 4 == 0) words = stream.next();
        const long other = words.at[used % 4] % (last + 1), kept = places[i + last];
        places[i + last] = places[i + other], places[i + other] = kept;
    }
}
"""
_FEW = 1 << 14


@kernel("draw_permutation")
def draw_permutation(words: ndarray, n: int, dtype: np.dtype) -> CudaArray:
    """The places 0 to n - 1 in the order of random keys, of which only so many bits count that few are equal."""
    if not n:
        return windows.empty((0,), dtype)
    bits = min(64, math.ceil(math.log2(n - (6.0 * n * n + 1) / (12 * math.log(0.9)))))
    most = 31 if bits <= 32 else 63
    keys = windows.empty((n,), np.dtype(np.int32 if most == 31 else np.int64))
    draw_into(words, keys, "draw_int", (-1 << most, (1 << most) - 1))
    keys = copied(keys, windows.empty((n,), _LONG))
    if bits <= most:
        keys = call("bitwise_and", (keys, np.asarray((1 << bits) - 1, _LONG)))
    device, size = device_index(keys), n.to_bytes(8, "little")
    if n <= _FEW:
        ranked, places = windows.empty((n,), _LONG), windows.empty((n,), _LONG)
        plan_of(_ORDERED, "ordered", device, -(-n // 128), 128, "ppp", size).run(ranked, places, keys)
    else:
        ranked, places = call("sort", (keys, 0, False))
    plan = plan_of(_SHUFFLED, "shuffled", device, -(-n // _THREADS), _THREADS, "ppll", size)
    plan.run(places, ranked, *advance(words, n))
    return places if dtype == _LONG else copied(places, windows.empty((n,), dtype))


# ---------------------------------------------------------------------------------------------------- choices by weight
_SUMS = """// the sums of weights up to each, in parts of their total, row by row
#include "elements.cuh"
#include "philox.cuh"
typedef {stored} R;
typedef {wide} T;
struct Rows {{ long rows, columns; }};
extern "C" __global__ void sums(const Rows r, T *o, const R *x) {{
    __shared__ T parts[{threads}];
    for (long row = blockIdx.x; row < r.rows; row += gridDim.x) {{
        const R *weights = x + row * r.columns;
        const long share = (r.columns + blockDim.x - 1) / blockDim.x, from = share * threadIdx.x;
        const long end = from + share < r.columns ? from + share : r.columns;
        T sum = 0;
        for (long i = from; i < end; i++) sum += (T)value_of(weights[i]);
        parts[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x == 0) for (int i = 1; i < blockDim.x; i++) parts[i] += parts[i - 1];
        __syncthreads();
        const T total = parts[blockDim.x - 1];
        sum = threadIdx.x ? parts[threadIdx.x - 1] : 0;
        for (long i = from; i < end; i++) sum += (T)value_of(weights[i]), o[row * r.columns + i] = sum / total;
        __syncthreads();
    }}
}}
struct Choice {{ long rows, columns, samples, threads; }};
extern "C" __global__ void chosen(const Choice c, long *o, const T *sums, const R *x, unsigned long seed,
                                  unsigned long offset) {{
    const long step = (long)gridDim.x * blockDim.x;
    for (long at = (long)blockIdx.x * blockDim.x + threadIdx.x; at < c.rows * c.samples; at += step) {{
        const long row = at / c.samples, sample = at % c.samples;
        Stream stream = stream_of(seed, row % 65535 * c.threads + sample, offset);
        stream.far += row / 65535;
        const T wanted = (T)unit(stream.next().at[0]);
        long low = 0, high = c.columns;
        while (low < high) {{
            const long middle = low + (high - low) / 2;
            if (sums[row * c.columns + middle] < wanted) low = middle + 1;
            else high = middle;
        }}
        if (low == c.columns) low--;
        while (low > 0 && value_of(x[row * c.columns + low]) == 0) low--;
        o[at] = low;
    }}
}}
"""


@kernel("draw_multinomial")
def draw_multinomial(words: ndarray, x: CudaArray, count: int, replacement: bool) -> CudaArray:
    """Without replacement, and for one sample: the largest weights over exponential numbers; else a search in their sums."""
    _check_weights(x)
    if count == 1 or not replacement:
        race = windows.empty(x.shape, x.dtype)
        draw_into(words, race, "draw_exponential", (1.0,))
        race = call("div", (x if x.flags.c_contiguous else copied(x, windows.empty(x.shape, x.dtype)), race))
        return call("argmax", (race, x.ndim - 1, True)) if count == 1 else call("topk", (race, count, x.ndim - 1, True))[1]
    return _chosen(words, x, count)


def _chosen(words: ndarray, x: CudaArray, count: int) -> CudaArray:
    columns, device = x.shape[-1], device_index(x)
    rows = x.size // columns
    weights = x if x.flags.c_contiguous else copied(x, windows.empty(x.shape, x.dtype))
    wide = np.dtype(np.float64 if x.dtype.char == "d" else np.float32)
    text = _SUMS.format(stored=STORED[x.dtype], wide=STORED[wide], threads=_THREADS)
    sums, out = windows.empty(x.shape, wide), windows.empty((*x.shape[:-1], count), _LONG)
    plan_of(text, "sums", device, min(rows, 1 << 16), _THREADS, "pp", struct.pack("2q", rows, columns)).run(
        sums, weights)
    threads = -(-count // 128) * 128
    plan = plan_of(text, "chosen", device, min(-(-rows * count // 128), 1 << 16), 128, "pppll",
                struct.pack("4q", rows, columns, count, threads))
    plan.run(out, sums, weights, *advance(words, ((rows - 1) // 65535 + 1) * 4))
    return out


def _check_weights(x: CudaArray) -> None:
    least, most = (download(call(name, (x, tuple(range(x.ndim)), False))).astype(np.float64) for name in ("amin", "amax"))
    if not (least >= 0 and most < np.inf):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if not download(call("amax", (x, (x.ndim - 1,), False))).astype(np.float64).all():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


# ------------------------------------------------------------------------------------------------- what is drawn elsewhere
@kernel("drawn")
def drawn(x: Any, values: CudaArray) -> CudaArray:
    return values


@kernel("drawn_third")
def drawn_third(a: Any, b: Any, values: CudaArray) -> CudaArray:
    return values
