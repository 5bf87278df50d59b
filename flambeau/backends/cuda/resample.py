"""Resizing, adaptive averages and padding by an array's own values: along each dimension an element of the result is a weighted
sum of a few of the source. The sums are tables, made on the host once per geometry (cpu/layers/resample.py says which weights);
gradients go by the transposed tables, so they are gathered too."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu.layers import pooling as _pooling
from ..cpu.layers import resample as _weights
from .arrays import CudaArray, device_index, upload, windows
from .backend import _parts, _raw, call, contiguous, copied
from .pointwise import COMPUTED, STORED
from .sliding import index_type, run
from .table import kernel

Ints = "tuple[int, ...]"
# x (rows, *from, inner) -> o (rows, *to, inner). Row r of dimension d takes entries starts[begin[d] + r] to the next one's.
_PRELUDE = """#include "elements.cuh"
typedef {index} I;
struct Along {{ I count, from[3], to[3], begin[3], inner; }};
typedef {stored} A;
typedef {wide} W;
#define EACH(i, n) for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (I)gridDim.x * blockDim.x)
#define PLACES \\
    I rest = i / a.inner; \\
    const I own = i % a.inner; \\
    const I r2 = rest % a.to[2]; rest /= a.to[2]; \\
    const I r1 = rest % a.to[1]; rest /= a.to[1]; \\
    const I r0 = rest % a.to[0], row = rest / a.to[0]; \\
    const int *const s0 = starts + a.begin[0] + r0, *const s1 = starts + a.begin[1] + r1, *const s2 = starts + a.begin[2] + r2;
"""
_SUMS = _PRELUDE + """
extern "C" __global__ void along(const Along a, A *o, const A *x, const int *starts, const int *places, const W *weights) {{
    EACH(i, a.count) {{
        PLACES
        W total = 0;
        for (int j0 = s0[0]; j0 < s0[1]; j0++) {{
            W plane = 0;
            for (int j1 = s1[0]; j1 < s1[1]; j1++) {{
                const A *line = x + ((row * a.from[0] + places[j0]) * a.from[1] + places[j1]) * a.from[2] * a.inner + own;
                W part = 0;
                for (int j2 = s2[0]; j2 < s2[1]; j2++) part += weights[j2] * (W)value_of(line[places[j2] * a.inner]);
                plane += weights[j1] * part;
            }}
            total += weights[j0] * plane;
        }}
        o[i] = to<A>(total);
    }}
}}
"""
_PICKED = _PRELUDE + """
extern "C" __global__ void picked(const Along a, A *o, const A *x, const int *starts, const int *places) {{
    EACH(i, a.count) {{
        PLACES
        const I line = (row * a.from[0] + places[*s0]) * a.from[1] + places[*s1];
        o[i] = x[(line * a.from[2] + places[*s2]) * a.inner + own];
    }}
}}
"""
_EDGES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


# ----------------------------------------------------------------------------------------------------------- tables
def _entries(kind: str, n: int, out: int, *rest: Any) -> tuple[Any, Any, Any]:
    """(row, column, weight) of all entries of the matrix from n elements to `out`."""
    rows = np.arange(out)
    if kind == "same":
        return rows, rows, np.ones(out)
    if kind == "edge":
        mode, before, after = rest
        return rows, np.pad(np.arange(n), (before, after), mode=_EDGES[mode]), np.ones(out)
    if kind.startswith("nearest"):
        factor, char, image = rest
        return rows, _weights._nearest(n, out, kind == "nearest-exact", factor, np.dtype(char), image), np.ones(out)
    if kind == "mean":
        matrix = _pooling._averaging(n, out, np.dtype(np.float64))
    else:
        matrix = _weights._matrix(kind, n, out, *rest)
    if not isinstance(matrix, ndarray):
        columns, values = matrix.columns, matrix.values
        return np.repeat(rows, columns.shape[1]), columns.ravel(), values.ravel()
    rows, columns = np.nonzero(matrix)
    return rows, columns, matrix[rows, columns]


@functools.lru_cache(512)
def _tables(device: int, keys: tuple[Any, ...], transposed: bool, double: bool) -> tuple[CudaArray, CudaArray, CudaArray, Ints]:
    """The matrices of three dimensions on a device: (starts, places, weights, where each one's starts begin)."""
    starts, places, weights, begins = [], [], [], []
    for key in keys:
        rows, columns, values = _entries(*key)
        count = key[2]
        if transposed:
            rows, columns, count = columns, rows, key[1]
        order = np.argsort(rows, kind="stable")
        begins.append(sum(map(len, starts)))
        starts.append(np.searchsorted(rows[order], np.arange(count + 1)) + sum(map(len, places)))
        places.append(columns[order])
        weights.append(values[order])
    made = [np.concatenate(parts).astype(kind) for parts, kind in (
        (starts, np.int32), (places, np.int32), (weights, np.float64 if double else np.float32))]
    return (*map(upload, made), tuple(begins))


# ------------------------------------------------------------------------------------------------------------ kernels
@functools.cache
def _text(form: str, stored: str, wide: str, index: str) -> str:
    return form.format(stored=stored, wide=wide, index=index)


def _apply(x: CudaArray, axis: int, keys: list[Any], transposed: bool = False, pick: bool = False) -> CudaArray:
    """x with a matrix applied along up to three dimensions from `axis` on. pick: each row has one entry, elements just move."""
    fill = [("same", 1, 1)] * (3 - len(keys))
    sizes = [(key[2], key[1]) if transposed else (key[1], key[2]) for key in (*fill, *keys)]
    shape = (*x.shape[:axis], *[to for _, to in sizes[len(fill):]], *x.shape[axis + len(keys):])
    out, x = windows.empty(shape, x.dtype), contiguous(x)
    source, target = (_raw(x), _raw(out)) if pick else (x, out)
    inner = math.prod(source.shape[axis + len(keys):])
    if not pick and x.dtype not in COMPUTED:
        raise NotImplementedError(f"resizing of {x.dtype} on a CUDA device")
    double = x.dtype.char == "d"
    starts, places, weights, begins = _tables(device_index(x), (*fill, *keys), transposed, double)
    index = index_type(source.size, target.size)
    fixed = struct.pack(f"11{'i' if index == 'int' else 'q'}", target.size, *[n for n, _ in sizes], *[n for _, n in sizes],
                        *begins, inner)
    if pick:
        text = _text(_PICKED, STORED[source.dtype], "float", index)
        run(text, "picked", target.size, fixed, target, source, starts, places)
    else:
        text = _text(_SUMS, STORED[x.dtype], "double" if double else "float", index)
        run(text, "along", target.size, fixed, target, source, starts, places, weights)
    return out


def _resizing(mode: str, size: Ints, out: Ints, align: bool, factors: Any, dtype: np.dtype) -> list[Any]:
    """The matrix of each dimension."""
    if mode.startswith("nearest"):
        char = "d" if dtype.char == "d" else "f"
        return [(mode, n, o, f, char, len(size) == 2) for n, o, f in zip(size, out, factors)]
    return [("same", n, n) if n == o and not mode.endswith("_aa") and _weights._same_grid(f, align) else (mode, n, o, align, f)
            for n, o, f in zip(size, out, factors)]


@kernel("upsample", repeatable=True)
def upsample(x: CudaArray, mode: str, out_size: Ints, align: bool, factors: Any) -> Any:
    nearest = mode.startswith("nearest")
    if not nearest and x.dtype.kind == "u":  # bytes are rounded after each dimension
        return NotImplemented
    return _apply(x, 2, _resizing(mode, x.shape[2:], out_size, align, factors, x.dtype), pick=nearest)


@kernel("upsample_grad", repeatable=True)
def upsample_grad(g: CudaArray, mode: str, size: Ints, align: bool, factors: Any) -> CudaArray:
    return _apply(g, 2, _resizing(mode, size, g.shape[2:], align, factors, g.dtype), transposed=True)


@kernel("adaptive_avg_pool", repeatable=True)
def adaptive_avg_pool(x: CudaArray, out_size: Ints) -> CudaArray:
    axis = x.ndim - len(out_size)
    if all([n == 1 for n in out_size]) and x.size:
        return call("mean", (x, tuple(range(axis, x.ndim)), True, None))
    return _apply(x, axis, [("mean", n, o) for n, o in zip(x.shape[axis:], out_size)])


@kernel("adaptive_avg_pool_grad", repeatable=True)
def adaptive_avg_pool_grad(g: CudaArray, size: Ints) -> CudaArray:
    axis = g.ndim - len(size)
    return _apply(g, axis, [("mean", n, o) for n, o in zip(size, g.shape[axis:])], transposed=True)


# ------------------------------------------------------------------------------------------------------------ padding
def _edges(x: CudaArray, pads: Any, mode: str, backward: bool) -> CudaArray:
    """One run per three dimensions that are padded, the last ones first."""
    padded = [d for d, pad in enumerate(pads) if any(pad)]
    if not padded:
        return copied(x, windows.empty(x.shape, x.dtype))
    while padded:
        end = padded[-1] + 1
        axis = max(end - 3, 0)
        keys = []
        for d in range(axis, end):
            before, after = pads[d]
            n = x.shape[d] - before - after if backward else x.shape[d]
            keys.append(("edge", n, n + before + after, mode, before, after))
        x = _apply(x, axis, keys, transposed=backward, pick=not backward)
        padded = [d for d in padded if d < axis]
    return x


@kernel("pad_edges", repeatable=True)
def pad_edges(x: CudaArray, pads: Any, mode: str) -> CudaArray:
    return _edges(x, pads, mode, False)


@kernel("pad_edges_backward", repeatable=True)
def pad_edges_backward(grad: CudaArray, pads: Any, mode: str) -> CudaArray:
    if grad.dtype.kind != "c":
        return _edges(grad, pads, mode, True)
    grad = contiguous(grad)
    made = _edges(_parts(grad), (*pads, (0, 0)), mode, True)
    return ndarray.view(made, grad.dtype)[..., 0]


# -------------------------------------------------------------------------------------------------------- rearranging
def _moved(x: CudaArray, shape: Ints, order: Ints, made: Ints) -> CudaArray:
    """x in another shape, its dimensions in another order, and that in a third shape."""
    seen = contiguous(x).reshape(shape).transpose(order)
    return copied(seen, windows.empty(seen.shape, x.dtype)).reshape(made)


@kernel("pixel_shuffle", repeatable=True)
def pixel_shuffle(x: CudaArray, factor: int) -> CudaArray:
    *lead, c, h, w = x.shape
    r, kept = factor, len(lead)
    return _moved(x, (*lead, c // (r * r), r, r, h, w), (*range(kept + 1), kept + 3, kept + 1, kept + 4, kept + 2),
                  (*lead, c // (r * r), h * r, w * r))


@kernel("pixel_unshuffle", repeatable=True)
def pixel_unshuffle(x: CudaArray, factor: int) -> CudaArray:
    *lead, c, h, w = x.shape
    r, kept = factor, len(lead)
    return _moved(x, (*lead, c, h // r, r, w // r, r), (*range(kept + 1), kept + 2, kept + 4, kept + 1, kept + 3),
                  (*lead, c * r * r, h // r, w // r))


@kernel("channel_shuffle", repeatable=True)
def channel_shuffle(x: CudaArray, groups: int) -> CudaArray:
    n, c = x.shape[:2]
    order = (0, 2, 1, *range(3, x.ndim + 1))
    return _moved(x, (n, groups, c // groups, *x.shape[2:]), order, x.shape)
