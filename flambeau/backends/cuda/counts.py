"""Counting: bincount and histc, by sums of whole numbers, the same in any order; and searching in sorted rows."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous
from .launch import launch
from .places import INT64, REPORTED, add, checked, positions, zeros
from .pointwise import COMPUTED, STORED
from .rules import blank
from .table import kernel as enter

_F64 = np.dtype(np.float64)
_TEXT = """
#include "index.cuh"
typedef {a} A;
typedef {w} W;
struct Bins {{ long count, bins; double low, high; }};

extern "C" __global__ void counted(const Bins f, unsigned long long *o, const long *at) {{
    FOR_ALL(e, f.count)
        if (at[e] >= 0) atomicAdd(o + at[e], 1ULL);
}}

extern "C" __global__ void binned(const Bins f, long *o, const A *x) {{
    const W low = (W)f.low, high = (W)f.high;
    FOR_ALL(e, f.count) {{
        const W v = (W)value_of(x[e]);
        const long at = v >= low && v <= high ? (long)((v - low) / (high - low) * (W)f.bins) : -1;
        o[e] = at < f.bins ? at : f.bins - 1;
    }}
}}
"""
_SEARCH = """
#include "index.cuh"
typedef {a} A;
typedef {r} R;
struct Search {{ long count, edges, each, right; }}; // each: values that share a row of edges

extern "C" __global__ void searched(const Search f, R *o, const A *edges, const A *values) {{
    FOR_ALL(e, f.count) {{
        const A *row = edges + (f.each ? e / f.each * f.edges : 0);
        const auto v = value_of(values[e]);
        long low = 0, high = f.edges;
        while (low < high) {{
            const long middle = (low + high) / 2;
            const auto at = value_of(row[middle]);
            // not-a-number is behind all others
            const bool below = at == at && (v != v || at < v), equal = at == v || (at != at && v != v);
            if (below || (equal && f.right)) low = middle + 1;
            else high = middle;
        }}
        o[e] = (R)low;
    }}
}}
"""
_BOXES = """
#include "index.cuh"
typedef {a} A;
struct Boxes {{ long count, step, edges; }};

// The box of each point, by one more of its coordinates: -1 is outside. The last box is closed.
extern "C" __global__ void boxed(const Boxes f, long *o, const A *x, const A *edges) {{
    FOR_ALL(e, f.count) {{
        const auto v = value_of(x[e * f.step]);
        long low = 0, high = f.edges;
        while (low < high) {{
            const long middle = (low + high) / 2;
            if (value_of(edges[middle]) <= v) low = middle + 1;
            else high = middle;
        }}
        const bool inside = v >= value_of(edges[0]) && v <= value_of(edges[f.edges - 1]);
        const long at = low - 1 < f.edges - 2 ? low - 1 : f.edges - 2;
        o[e] = o[e] < 0 || !inside ? -1 : o[e] * (f.edges - 1) + at;
    }}
}}
"""


def _text(dtype: np.dtype) -> str:
    return _TEXT.format(a=STORED[dtype], w="float" if COMPUTED[dtype] == "f32" else "double")


def _counted(at: CudaArray, bins: int) -> CudaArray:
    """How often each position comes; -1 is none."""
    out = zeros((bins,), INT64)
    if at.size:
        launch(_text(INT64), "counted", "pp", at.size, struct.pack("2q2d", at.size, bins, 0, 0), device_index(at)).run(out, at)
    return out


@enter("bincount")
def bincount(x: CudaArray, weights: CudaArray | None, minlength: int) -> Any:
    """The number of bins is a matter of values: this waits for the device."""
    at = positions(x)
    least, most = (int(call(name, (at, None, False)).item()) for name in ("amin", "amax")) if at.size else (0, -1)
    if least < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    bins = max(most + 1, minlength)
    if weights is None:
        return _counted(at, bins)
    kind = weights.dtype if weights.dtype.char == "f" else np.dtype(np.float64)
    out = zeros((bins,), np.dtype(np.float64))
    add(out, checked(at, bins, False, REPORTED), weights, (1, bins, 1))
    return out if kind == out.dtype else out.astype(kind)


@enter("histc")
def histc(x: CudaArray, bins: int, low: float, high: float) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    if low == high and x.size:
        low, high = (float(call(name, (x, None, False)).item()) for name in ("amin", "amax"))
    if low == high:
        low, high = low - 1, high + 1
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    x, at = contiguous(x), windows.empty((x.size,), INT64)
    if x.size:
        launch(_text(x.dtype), "binned", "pp", x.size, struct.pack("2q2d", x.size, bins, low, high), device_index(x)).run(at, x)
    return _counted(at, bins).astype(x.dtype)


@enter("histogramdd")
def histogramdd(x: CudaArray, edges: Any, weight: CudaArray | None, density: bool) -> Any:
    """Counts, or sums of weights, of points in boxes; x is (points, dimensions)."""
    if x.dtype not in COMPUTED:
        return NotImplemented
    at, shape = zeros((x.shape[0],), INT64), tuple([e.size - 1 for e in edges])
    bins = math.prod(shape)
    for d, edge in enumerate(edges):
        if at.size and bins:
            column = x[:, d]
            fixed = struct.pack("3q", at.size, column.strides[0] // x.itemsize, edge.size)
            plan = launch(_BOXES.format(a=STORED[x.dtype]), "boxed", "ppp", at.size, fixed, device_index(x))
            plan.run(at, column, contiguous(edge))
    if weight is None:
        total = _counted(at, bins).astype(_F64)
    else:
        total = zeros((bins,), _F64)
        add(total, at, weight, (1, bins, 1))
    total = total.reshape(shape)
    if density:
        total = call("div", (total, call("sum", (total, None, False, None))))
        for d, edge in enumerate(edges):
            wide = edge.astype(_F64)
            total = call("div", (total, call("sub", (wide[1:], wide[:-1])).reshape(
                [-1 if k == d else 1 for k in range(len(edges))])))
    return total.astype(x.dtype)


@enter("searchsorted")
def searchsorted(edges: CudaArray, values: CudaArray, right: bool, order: CudaArray | None, small: bool) -> Any:
    if edges.dtype != values.dtype or edges.dtype not in COMPUTED:
        return NotImplemented
    out = blank("searchsorted", edges, values, right, order, small)
    if order is not None:
        edges = call("gather", (edges, edges.ndim - 1, order))
    if not out.size:
        return out
    edges, values = contiguous(edges), contiguous(values)
    each = 0 if edges.ndim == 1 else values.shape[-1]
    source = _SEARCH.format(a=STORED[edges.dtype], r=STORED[out.dtype])
    launch(source, "searched", "ppp", values.size, struct.pack("4q", values.size, edges.shape[-1], each, right),
           device_index(edges)).run(out, edges, values)
    return out
