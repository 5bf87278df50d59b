"""Where the largest and smallest elements are. Of equal ones the first; not-a-number is larger and smaller than all others."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous
from .driver import machine
from .launch import Plan, kernel
from .pointwise import COMPUTED, STORED
from .rows import along
from .rules import blank
from .table import kernel as enter

_INT64 = np.dtype(np.int64)
_TEXT = """
#include "elements.cuh"
typedef {a} A;
struct Picking {{ long rows, n, inner, chunks, tile; }}; // rows along n of (outer, n, inner)

// Whether an element at place j comes before the one that was the best, at place i; -1: there was none.
static __device__ inline bool better(A x, long i, A y, long j) {{
    if (i < 0 || j < 0) return i < 0 && j >= 0;
    const auto a = value_of(x), b = value_of(y);
    if (a != a || b != b) return b != b && (a == a || j < i);
    return b {than} a || (b == a && j < i);
}}

extern "C" __global__ void picked(const Picking f, A *values, long *places, const A *x) {{
    __shared__ A best[256];
    __shared__ long where[256];
    const int tile = (int)f.tile, column = threadIdx.x % tile, lane = threadIdx.x / tile, lanes = blockDim.x / tile;
    const long tiles = (f.rows + tile - 1) / tile, share = (f.n + f.chunks - 1) / f.chunks;
    for (long task = blockIdx.x; task < tiles * f.chunks; task += gridDim.x) {{
        const long chunk = task / tiles, row = task % tiles * tile + column;
        const long from = chunk * share, till = from + share < f.n ? from + share : f.n;
        A value = A();
        long place = -1;
        if (row < f.rows) {{
            const A *at = x + row / f.inner * f.n * f.inner + row % f.inner;
            #pragma unroll 4
            for (long i = from + lane; i < till; i += lanes) {{
                const A now = at[i * f.inner];
                if (better(value, place, now, i)) value = now, place = i;
            }}
        }}
        best[threadIdx.x] = value, where[threadIdx.x] = place;
        __syncthreads();
        for (int half = lanes / 2; half; half /= 2) {{
            const int other = threadIdx.x + half * tile;
            if (lane < half && better(best[threadIdx.x], where[threadIdx.x], best[other], where[other]))
                best[threadIdx.x] = best[other], where[threadIdx.x] = where[other];
            __syncthreads();
        }}
        if (!lane && row < f.rows) values[chunk * f.rows + row] = best[column], places[chunk * f.rows + row] = where[column];
        __syncthreads();
    }}
}}

extern "C" __global__ void last(const Picking f, A *values, long *places, const A *parts, const long *part_places) {{
    for (long row = (long)blockIdx.x * blockDim.x + threadIdx.x; row < f.rows; row += (long)gridDim.x * blockDim.x) {{
        A value = parts[row];
        long place = part_places[row];
        for (long k = 1; k < f.chunks; k++) {{
            const A now = parts[k * f.rows + row];
            const long at = part_places[k * f.rows + row];
            if (better(value, place, now, at)) value = now, place = at;
        }}
        values[row] = value, places[row] = place;
    }}
}}
"""


@functools.lru_cache(4096)
def _plans(dtype: np.dtype, least: bool, rows: int, n: int, inner: int, device: int) -> tuple[Plan, Plan, int]:
    tile = 32 if inner > 1 else 1
    tiles, most = -(-rows // tile), 8 * machine().attribute("multiprocessors", device)
    chunks = max(min(n * tile // 4096, most // tiles), 1)
    fixed = struct.pack("5q", rows, n, inner, chunks, tile)
    source = _TEXT.format(a=STORED[dtype], than="<" if least else ">")
    threads = 256 if n * tile > 128 else max(32, tile)
    return (Plan(kernel(source, "picked", device), device, min(tiles * chunks, most * 16), threads, "ppp", fixed),
            Plan(kernel(source, "last", device), device, min(-(-rows // 256), most), 256, "pppp", fixed), chunks)


def _picked(x: CudaArray, values: CudaArray, places: CudaArray, sizes: tuple[int, int, int], least: bool) -> None:
    """x and the results are dense; sizes: rows, n, inner."""
    if not values.size:
        return
    first, last, chunks = _plans(x.dtype, least, *sizes, device_index(x))
    if chunks == 1:
        first.run(values, places, x)
        return
    parts, part_places = windows.empty((chunks, sizes[0]), x.dtype), windows.empty((chunks, sizes[0]), _INT64)
    first.run(parts, part_places, x)
    last.run(values, places, parts, part_places)


def _dim(name: str, least: bool, x: CudaArray, axis: int, keepdim: bool = False) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    values, places = blank(name, x, axis, keepdim)
    dense = contiguous(x)
    _picked(dense, values, places, along(dense, axis % x.ndim) if x.ndim else (1, 1, 1), least)
    return values, places


def _place(name: str, least: bool, x: CudaArray, axis: int | None = None, keepdim: bool = False) -> Any:
    if x.dtype not in COMPUTED or not x.size:
        return NotImplemented
    places, dense = blank(name, x, axis, keepdim), contiguous(x)
    sizes = (1, x.size, 1) if axis is None or not x.ndim else along(dense, axis % x.ndim)
    _picked(dense, windows.empty(places.shape, x.dtype), places, sizes, least)
    return places


for _least, _names in enumerate((("max_dim", "argmax"), ("min_dim", "argmin"))):
    for _name, _function in zip(_names, (_dim, _place)):
        enter(_name, repeatable=True)(functools.partial(_function, _name, bool(_least)))


@enter("aminmax", repeatable=True)
def aminmax(x: CudaArray, axes: Any = None, keepdim: bool = False) -> Any:
    return call("amin", (x, axes, keepdim)), call("amax", (x, axes, keepdim))
