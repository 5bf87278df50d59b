"""Images at the points of a grid (ops/layers/resample.py says which elements count how much): a thread per element made."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, windows
from .backend import contiguous
from .pointwise import COMPUTED, STORED
from .sliding import index_type, run
from .table import kernel

_TEXT = """#include "elements.cuh"
typedef {index} I;
typedef {stored} A;
typedef {wide} W;
// size: of the image, slowest dimension first, as many as DIMS.
struct Points {{ I count, channels, points, size[3], align; }};
enum {{ DIMENSIONS = {dims}, MODE = {mode}, PADDING = {padding} }};  // bilinear, nearest, bicubic; zeros, border, reflection
static __device__ inline W confined(W at, I n, bool align) {{
    if (PADDING == 0) return at;
    if (PADDING == 2) {{
        const W low = align ? 0 : -1, high = align ? 2 * (n - 1) : 2 * n - 1;
        if (low == high) at = 0;
        else {{
            const W start = low / 2, span = (high - low) / 2, away = fabs_{suffix}(at - start);
            const W rest = fmod_{suffix}(away, span), flips = floor_{suffix}(away / span);
            at = fmod_{suffix}(flips, 2) == 0 ? rest + start : span - rest + start;
        }}
    }}
    return at != at ? (W)0 : at < 0 ? (W)0 : at > n - 1 ? (W)(n - 1) : at;
}}
// The element at whole positions, 0 outside.
static __device__ inline W fetched(const A *x, const W *at, const Points &p) {{
    I place = 0;
    for (int d = 0; d < DIMENSIONS; d++) {{
        if (!(at[d] >= 0 && at[d] <= p.size[d] - 1)) return 0;
        place = place * p.size[d] + (I)at[d];
    }}
    return (W)value_of(x[place]);
}}
static __device__ inline W near_(W x) {{ return ((W)1.25 * x - (W)2.25) * x * x + 1; }}
static __device__ inline W far_(W x) {{ return (((W)-0.75 * x + (W)3.75) * x - 6) * x + 3; }}
extern "C" __global__ void sample(const Points p, A *out, const A *x, const A *grid) {{
    I volume = 1;
    for (int d = 0; d < DIMENSIONS; d++) volume *= p.size[d];
    for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += (I)gridDim.x * blockDim.x) {{
        const I row = i / p.points;
        const A *image = x + row * volume, *point = grid + (row / p.channels * p.points + i % p.points) * DIMENSIONS;
        W at[3], low[3], here[3], total = 0;
        for (int d = 0; d < DIMENSIONS; d++) {{  // the grid has (x, y, z)
            const W g = (W)value_of(point[DIMENSIONS - 1 - d]);
            at[d] = p.align ? (g + 1) / 2 * (p.size[d] - 1) : ((g + 1) * p.size[d] - 1) / 2;
            if (MODE != 2) at[d] = confined(at[d], p.size[d], p.align);
            low[d] = MODE == 1 ? rint_{suffix}(at[d]) : floor_{suffix}(at[d]);
        }}
        if (MODE == 1) total = fetched(image, low, p);
        else if (MODE == 0)
            for (int corner = 0; corner < 1 << DIMENSIONS; corner++) {{
                W weight = 1;
                for (int d = 0; d < DIMENSIONS; d++) {{
                    const int bit = corner >> d & 1;
                    weight *= bit ? at[d] - low[d] : 1 - (at[d] - low[d]);
                    here[d] = low[d] + bit;
                }}
                total += fetched(image, here, p) * weight;
            }}
        else {{
            W weights[2][4];
            for (int d = 0; d < 2; d++) {{
                const W part = at[d] - low[d];
                weights[d][0] = far_(part + 1), weights[d][1] = near_(part);
                weights[d][2] = near_(1 - part), weights[d][3] = far_(2 - part);
            }}
            for (int a = 0; a < 4; a++)
                for (int b = 0; b < 4; b++) {{
                    here[0] = confined(low[0] + (a - 1), p.size[0], p.align);
                    here[1] = confined(low[1] + (b - 1), p.size[1], p.align);
                    total += fetched(image, here, p) * (weights[0][a] * weights[1][b]);
                }}
        }}
        out[i] = to<A>(total);
    }}
}}
"""


@functools.cache
def _text(dtype: np.dtype, index: str, dims: int, mode: int, padding: int) -> str:
    suffix = COMPUTED[dtype]
    return _TEXT.format(index=index, stored=STORED[dtype], wide="double" if suffix == "f64" else "float", suffix=suffix,
                        dims=dims, mode=mode, padding=padding)


@kernel("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: CudaArray, grid: CudaArray, mode: int, padding: int, align: bool) -> Any:
    if x.dtype.kind not in "fV":
        return NotImplemented
    dims, points = x.ndim - 2, math.prod(grid.shape[1:-1])
    out = windows.empty((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    index = index_type(x.size, out.size, grid.size)
    numbers = out.size, x.shape[1], points, *x.shape[2:], *(1,) * (3 - dims), align
    fixed = struct.pack(f"7{'i' if index == 'int' else 'q'}", *numbers)
    run(_text(x.dtype, index, dims, mode, padding), "sample", out.size, fixed, out, contiguous(x), contiguous(grid))
    return out
