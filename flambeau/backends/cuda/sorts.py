"""Sorting, and what follows from it: the largest k, order statistics. Stable; not-a-number is the largest (keys.cuh).

A block sorts a tile in shared memory; longer rows are tiles that are merged, runs twice as long each time.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous, copied
from .driver import machine
from .launch import Plan, kernel
from .pointwise import COMPUTED, STORED
from .rules import blank
from .table import kernel as enter

_INT64, _INT32 = np.dtype(np.int64), np.dtype(np.int32)
_TEXT = """
struct Sorting { long rows, n, run; };

// The tiles of all rows, sorted. Where a row is one tile, values and places are final; else keys and places go to scratch.
extern "C" __global__ void tiles(const Sorting s, A *values, long *places, K *keys, int *order, const A *x) {
    __shared__ K key[TILE];
    __shared__ int place[TILE];
    const long each = (s.n + TILE - 1) / TILE;
    for (long task = blockIdx.x; task < s.rows * each; task += gridDim.x) {
        const long row = task / each, from = task % each * TILE;
        const int count = (int)(s.n - from < TILE ? s.n - from : TILE);
        const A *at = x + row * s.n;
        for (int i = threadIdx.x; i < TILE; i += blockDim.x) {
            key[i] = i < count ? key_of(at[from + i]) : (K)~(K)0;
            place[i] = i < count ? (int)(from + i) : 0x7fffffff;
        }
        __syncthreads();
        for (int size = 2; size <= TILE; size *= 2)
            for (int half = size / 2; half; half /= 2) {
                for (int t = threadIdx.x; t < TILE / 2; t += blockDim.x) {
                    const int i = 2 * t - (t & (half - 1)), j = i + half;
                    const bool up = !(i & size);
                    if (before(key[j], place[j], key[i], place[i]) == up) {
                        const K k = key[i];
                        const int p = place[i];
                        key[i] = key[j], place[i] = place[j];
                        key[j] = k, place[j] = p;
                    }
                }
                __syncthreads();
            }
        for (int i = threadIdx.x; i < count; i += blockDim.x) {
            const long to = row * s.n + from + i;
            if (each == 1) {
                values[to] = at[place[i]];
                places[to] = place[i];
            } else {
                keys[to] = key[i];
                order[to] = place[i];
            }
        }
        __syncthreads();
    }
}

// Pairs of sorted runs become one: each element finds its place among those of the other run.
extern "C" __global__ void merged(const Sorting s, K *keys, int *order, const K *from, const int *from_order) {
    const long count = s.rows * s.n;
    for (long e = (long)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += (long)gridDim.x * blockDim.x) {
        const long row = e / s.n, i = e - row * s.n, number = i / s.run;
        const K *k = from + row * s.n;
        const K mine = k[i];
        const bool left = number % 2 == 0;
        const long start = left ? (number + 1) * s.run : (number - 1) * s.run, first = left ? number * s.run : start;
        long low = start < s.n ? start : s.n, high = low + s.run < s.n ? low + s.run : s.n;
        const long begin = low;
        while (low < high) {
            const long middle = (low + high) / 2;
            if (left ? k[middle] < mine : k[middle] <= mine) low = middle + 1;
            else high = middle;
        }
        const long to = row * s.n + first + (i - number * s.run) + (low - begin);
        keys[to] = mine;
        order[to] = from_order[e];
    }
}

// s.run: whether only numbers count.
extern "C" __global__ void middles(const Sorting s, long *o, const A *x) {
    for (long row = (long)blockIdx.x * blockDim.x + threadIdx.x; row < s.rows; row += (long)gridDim.x * blockDim.x) {
        long low = 0, high = s.n; // not-a-number is behind all others
        while (low < high) {
            const long middle = (low + high) / 2;
            const auto v = value_of(x[row * s.n + middle]);
            if (v == v) low = middle + 1;
            else high = middle;
        }
        o[row] = s.run ? (low ? (low - 1) / 2 : 0) : low < s.n ? low : (s.n - 1) / 2;
    }
}

// Of sorted rows: how many elements that are equal to it come before each.
extern "C" __global__ void repeated(const Sorting s, long *o, const A *x) {
    const long count = s.rows * s.n;
    for (long e = (long)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += (long)gridDim.x * blockDim.x) {
        const A *row = x + e / s.n * s.n;
        const auto v = value_of(x[e]);
        long low = 0, high = v == v ? e % s.n : 0;
        while (low < high) {
            const long middle = (low + high) / 2;
            if (value_of(row[middle]) < v) low = middle + 1;
            else high = middle;
        }
        o[e] = v == v ? e % s.n - low : 0;
    }
}

extern "C" __global__ void finished(const Sorting s, A *values, long *places, const int *order, const A *x) {
    const long count = s.rows * s.n;
    for (long e = (long)blockIdx.x * blockDim.x + threadIdx.x; e < count; e += (long)gridDim.x * blockDim.x) {
        values[e] = x[e / s.n * s.n + order[e]];
        places[e] = order[e];
    }
}
"""
_TILES = (64, 512, 2048)  # elements that a block sorts


@functools.lru_cache(256)
def text(dtype: np.dtype, tile: int, descending: bool) -> str:
    key = "unsigned" if dtype.itemsize <= 4 else "unsigned long"
    return (f'#include "elements.cuh"\ntypedef {STORED[dtype]} A;\ntypedef {key} K;\n'
            f'enum {{ TILE = {tile}, DESCENDING = {int(descending)} }};\n#include "keys.cuh"\n' + _TEXT)


@functools.lru_cache(4096)
def _plan(source: str, name: str, kinds: str, blocks: int, threads: int, device: int, rows: int, n: int, run: int) -> Plan:
    most = 64 * machine().attribute("multiprocessors", device)
    return Plan(kernel(source, name, device), device, min(blocks, most), threads, kinds, struct.pack("3q", rows, n, run))


def sorted_rows(x: CudaArray, descending: bool = False) -> tuple[CudaArray, CudaArray]:
    """(elements, their places) of a dense array whose last dimension is sorted."""
    n, device = x.shape[-1], device_index(x)
    values, places = windows.empty(x.shape, x.dtype), windows.empty(x.shape, _INT64)
    if not x.size:
        return values, places
    if n >= 1 << 31:
        raise NotImplementedError(f"sorting {n} elements on a CUDA device: at most 2**31 - 1 can be")
    rows = x.size // n
    tile = next((t for t in _TILES if n <= t), _TILES[-1])
    source, tiles = text(x.dtype, tile, descending), -(-n // tile)
    first = _plan(source, "tiles", "ppppp", rows * tiles, min(tile // 2, 512), device, rows, n, 0)
    if tiles == 1:
        first.run(values, places, places, places, x)
        return values, places
    kind = np.dtype(np.uint32 if x.itemsize <= 4 else np.uint64)
    keys, order, other_keys, other_order = (windows.empty(x.shape, d) for d in (kind, _INT32, kind, _INT32))
    first.run(values, places, keys, order, x)
    run, blocks = tile, -(-x.size // 256)
    while run < n:
        _plan(source, "merged", "pppp", blocks, 256, device, rows, n, run).run(other_keys, other_order, keys, order)
        keys, order, other_keys, other_order, run = other_keys, other_order, keys, order, 2 * run
    _plan(source, "finished", "pppp", blocks, 256, device, rows, n, 0).run(values, places, order, x)
    return values, places


def _sortable(x: CudaArray) -> bool:
    return x.dtype in COMPUTED or x.dtype.kind == "u"


def _last(x: CudaArray, dim: int) -> CudaArray:
    """Dense, with a dimension moved to the end."""
    dim %= x.ndim
    return contiguous(x.transpose([*[d for d in range(x.ndim) if d != dim], dim]))


def _back(rows: CudaArray, dim: int) -> CudaArray:
    """Dense, with the last dimension moved to where it belongs."""
    dim %= rows.ndim
    order = list(range(rows.ndim - 1))
    order.insert(dim, rows.ndim - 1)
    return contiguous(rows.transpose(order))


def _single(x: CudaArray) -> tuple[CudaArray, CudaArray]:
    place = windows.empty((), _INT64)
    place.fill(0)
    return x.copy(), place


@enter("sort")
def sort(x: CudaArray, dim: int, descending: bool) -> Any:
    if not _sortable(x):
        return NotImplemented
    if not x.ndim:
        return _single(x)
    made = [_back(m, dim) for m in sorted_rows(_last(x, dim), descending)]
    if x.flags.c_contiguous:
        return tuple(made)
    return tuple([copied(m, wanted) for m, wanted in zip(made, blank("sort", x, dim, descending))])


@enter("topk")
def topk(x: CudaArray, k: int, dim: int, largest: bool) -> Any:
    if not _sortable(x):
        return NotImplemented
    if not x.ndim:
        return _single(x) if k else (windows.empty((0,), x.dtype), windows.empty((0,), _INT64))
    made = sorted_rows(_last(x, dim), largest)
    return tuple([_back(m[..., :k], dim) for m in made])


def _at(made: tuple[CudaArray, ...], k: int, dim: int, keepdim: bool) -> Any:
    """The k-th of the sorted last dimension, which becomes `dim` again or goes."""
    if keepdim:
        return tuple([_back(m[..., k:k + 1], dim) for m in made])
    return tuple([copied(m[..., k], windows.empty(m.shape[:-1], m.dtype)) for m in made])


@enter("kthvalue")
def kthvalue(x: CudaArray, k: int, dim: int, keepdim: bool) -> Any:
    if not _sortable(x):
        return NotImplemented
    return _at(sorted_rows(_last(x, dim)), k - 1, dim, keepdim) if x.ndim else _single(x)


def _middle(values: CudaArray, ignore_nan: bool) -> CudaArray:
    """Of each sorted row the place of its lower middle element: the first not-a-number, or that of the numbers alone."""
    n, made = values.shape[-1], windows.empty((*values.shape[:-1], 1), _INT64)
    rows, source = made.size, text(values.dtype, _TILES[0], False)
    _plan(source, "middles", "pp", -(-rows // 256), 256, device_index(values), rows, n, int(ignore_nan)).run(made, values)
    return made


@enter("median_dim")
def median_dim(x: CudaArray, axis: int, keepdim: bool = False, ignore_nan: bool = False) -> Any:
    if not _sortable(x):
        return NotImplemented
    if not x.ndim:
        return _single(x)
    made = sorted_rows(_last(x, axis))
    if COMPUTED.get(x.dtype) not in ("f32", "f64"):
        return _at(made, (x.shape[axis] - 1) // 2, axis, keepdim)
    middle = _middle(made[0], ignore_nan)
    return _at(tuple([call("gather", (m, m.ndim - 1, middle)) for m in made]), 0, axis, keepdim)


@enter("median")
def median(x: CudaArray, ignore_nan: bool = False) -> Any:
    if not _sortable(x) or not x.size:
        return NotImplemented
    return median_dim(contiguous(x).reshape((x.size,)), 0, False, ignore_nan)[0]


@enter("mode")
def mode(x: CudaArray, axis: int, keepdim: bool = False) -> Any:
    """The most frequent value, the smallest of several, and where it comes last."""
    if not _sortable(x):
        return NotImplemented
    if not x.ndim:
        return _single(x)
    values, places = sorted_rows(_last(x, axis))
    before, n = windows.empty(values.shape, _INT64), values.shape[-1]
    if x.size:
        source, rows = text(x.dtype, _TILES[0], False), x.size // n
        _plan(source, "repeated", "pp", -(-x.size // 256), 256, device_index(x), rows, n, 0).run(before, values)
    at = call("argmax", (before, before.ndim - 1, True))  # the last of the longest run
    return _at(tuple([call("gather", (m, m.ndim - 1, at)) for m in (values, places)]), 0, axis, keepdim)
