"""Bags of embeddings, their gradients, and rows of an embedding that are kept short."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import contiguous
from .launch import launch
from .places import INT64, RANGE, add, positions, zeros
from .pointwise import STORED
from .rows import WIDE, is_real, wide
from .rules import blank
from .table import kernel as enter

_BAGS = """
#include "index.cuh"
typedef {a} A;
typedef {w} W;
// columns: of a row; rows: of the weight; last: whether the offsets end with where the last bag ends
struct Bags {{ long count, bags, columns, rows, last, padding, mode, weighted; }};

static __device__ inline long end_of(const Bags &f, long bag, const long *offsets) {{
    const long end = bag + 1 < f.bags + f.last ? offsets[bag + 1] : f.count;
    return end < f.count ? end : f.count;
}}

// Of each index: its bag, or -1 for padding and what lies behind the last bag.
extern "C" __global__ void bag_of(const Bags f, long *o, const long *at, const long *offsets, long address, long site) {{
    FOR_ALL(e, f.count) {{
        long low = 0, high = f.bags;
        while (low < high) {{
            const long middle = (low + high) / 2;
            if (offsets[middle] <= e) low = middle + 1;
            else high = middle;
        }}
        const bool known = checked({{address, site}}, at[e], f.rows, false) >= 0;
        o[e] = !known || at[e] == f.padding || !low || e >= end_of(f, f.bags - 1, offsets) ? -1 : low - 1;
    }}
}}

extern "C" __global__ void bagged(const Bags f, A *o, long *sizes, long *winners, const A *x, const long *at,
                                  const long *offsets, const A *weights) {{
    FOR_ALL(e, f.bags * f.columns) {{
        const long bag = e / f.columns, c = e - bag * f.columns, end = end_of(f, bag, offsets);
        long found = 0, winner = 0;
        W made = 0;
        for (long i = offsets[bag]; i < end; i++) {{
            const long row = at[i];
            if (row == f.padding || (unsigned long)row >= (unsigned long)f.rows) continue;
            W v = (W)value_of(x[row * f.columns + c]);
            if (f.weighted) v *= (W)value_of(weights[i]);
            if (f.mode != 2) made += v;
            else if (!found || v > made || v != v) made = v, winner = row;
            found++;
        }}
        o[e] = to<A>(f.mode == 1 && found ? made / (W)found : made);
        if (f.mode == 2) winners[e] = winner;
        if (!c) sizes[bag] = found;
    }}
}}

// The gradient of each index's row, and where it goes.
extern "C" __global__ void shares(const Bags f, W *o, long *places, const A *grad, const long *at, const long *bags,
                                  const long *sizes, const A *weights) {{
    FOR_ALL(e, f.count * f.columns) {{
        const long i = e / f.columns, c = e - i * f.columns, bag = bags[i];
        W v = bag < 0 ? (W)0 : (W)value_of(grad[bag * f.columns + c]);
        if (f.weighted) v *= (W)value_of(weights[i]);
        if (f.mode == 1 && bag >= 0) v /= (W)sizes[bag];
        o[e] = v;
        if (!c) places[i] = bag < 0 ? -1 : at[i];
    }}
}}

extern "C" __global__ void won(const Bags f, long *places, const long *winners, const long *sizes) {{
    FOR_ALL(e, f.bags * f.columns) {{
        const long bag = e / f.columns;
        places[e] = sizes[bag] ? winners[e] * f.columns + (e - bag * f.columns) : -1;
    }}
}}
"""
_SHORT = """
#include "index.cuh"
typedef {a} A;
typedef {w} W;
struct Short {{ long count, rows, columns; double most, order; }};

extern "C" __global__ void used(const Short f, bool *o, const long *at, long address, long site) {{
    FOR_ALL(e, f.count) {{
        const long row = checked({{address, site}}, at[e], f.rows, false);
        if (row >= 0) o[row] = true;
    }}
}}

static __device__ inline W joined(W x, W y, double order) {{
    return order == INFINITY ? (x > y ? x : y) : order == -INFINITY ? (x < y ? x : y) : x + y;
}}
static __device__ inline W term(W x, double order) {{
    x = x < 0 ? -x : x;
    return order == 2 ? x * x : order == 0 ? (W)(x != 0) : order == 1 || order - order != 0 ? x : (W)pow((double)x, order);
}}

// A block measures a row, and shortens it where it is too long.
extern "C" __global__ void shortened(const Short f, A *x, const bool *used) {{
    __shared__ W met[256];
    for (long row = blockIdx.x; row < f.rows; row += gridDim.x) {{
        if (!used[row]) continue;
        A *at = x + row * f.columns;
        W total = f.order == -INFINITY ? (W)INFINITY : (W)0;
        for (long c = threadIdx.x; c < f.columns; c += blockDim.x)
            total = joined(total, term((W)value_of(at[c]), f.order), f.order);
        met[threadIdx.x] = total;
        __syncthreads();
        for (int half = blockDim.x / 2; half; half /= 2) {{
            if (threadIdx.x < half) met[threadIdx.x] = joined(met[threadIdx.x], met[threadIdx.x + half], f.order);
            __syncthreads();
        }}
        const bool plain = f.order == 0 || f.order == 1 || f.order - f.order != 0;
        const W norm = f.order == 2 ? (W)sqrt(met[0]) : plain ? met[0] : (W)pow((double)met[0], 1 / f.order);
        if (norm > (W)f.most)
            for (long c = threadIdx.x; c < f.columns; c += blockDim.x)
                at[c] = to<A>((W)value_of(at[c]) * (W)(f.most / (norm + 1e-7)));
        __syncthreads();
    }}
}}
"""


def _text(template: str, dtype: np.dtype) -> str:
    return template.format(a=STORED[dtype], w=wide(dtype))


@enter("embedding_bag")
def embedding_bag(weight: CudaArray, indices: CudaArray, offsets: CudaArray, mode: int, include_last: bool, padding_idx: int,
                  sample_weights: CudaArray | None, scale_grad_by_freq: bool, sparse: bool) -> Any:
    """(bags, bag of each index (-1: padding), sizes of the bags, for max: which index won)."""
    if not is_real(weight):
        return NotImplemented
    out, bags, _, winners = blank("embedding_bag", weight, indices, offsets, mode, include_last)
    weight, at, offsets, device = contiguous(weight), positions(indices), positions(offsets), device_index(weight)
    samples = weight if sample_weights is None else contiguous(sample_weights)
    sizes, text = zeros((out.shape[0],), INT64), _text(_BAGS, weight.dtype)
    fixed = struct.pack("8q", at.size, *out.shape, weight.shape[0], include_last, padding_idx, mode, sample_weights is not None)
    if at.size and not out.shape[0]:
        bags.fill(-1)
    elif at.size:
        site = faults.site(RuntimeError, "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}")
        launch(text, "bag_of", "pppll", at.size, fixed, device).run(bags, at, offsets, faults.address(), site)
    if out.size:
        launch(text, "bagged", "ppppppp", out.size, fixed, device).run(
            out, sizes, winners if mode == 2 else sizes, weight, at, offsets, samples)
    return out, bags, sizes, winners


@enter("embedding_bag_backward")
def embedding_bag_backward(grad: CudaArray, indices: CudaArray, bags: CudaArray, sizes: CudaArray, winners: CudaArray,
                           mode: int, count: int, scale_grad_by_freq: bool, sample_weights: CudaArray | None) -> Any:
    if not is_real(grad):
        return NotImplemented
    grad, at, bags, sizes, winners = contiguous(grad), positions(indices), positions(bags), positions(sizes), positions(winners)
    columns, text, device = grad.shape[1], _text(_BAGS, grad.dtype), device_index(grad)
    out = zeros((count, columns), WIDE[wide(grad.dtype)])
    fixed = struct.pack("8q", at.size, *grad.shape, count, 0, -1, mode, sample_weights is not None)
    if mode == 2 and grad.size:
        places = windows.empty((grad.size,), INT64)
        launch(text, "won", "ppp", grad.size, fixed, device).run(places, winners, sizes)
        add(out, places, grad, (1, count * columns, 1), own=False)
    elif mode != 2 and at.size and columns:
        rows, places = windows.empty((at.size, columns), out.dtype), windows.empty((at.size,), INT64)
        launch(text, "shares", "ppppppp", rows.size, fixed, device).run(
            rows, places, grad, at, bags, sizes, grad if sample_weights is None else contiguous(sample_weights))
        add(out, places, rows, (1, count, columns), own=False, by_count=scale_grad_by_freq)
    return out if out.dtype == grad.dtype else out.astype(grad.dtype)


@enter("embedding_renorm")
def embedding_renorm(weight: CudaArray, indices: CudaArray, max_norm: float, norm_type: float) -> Any:
    """Every used row whose norm is above max_norm is shrunk, in place."""
    if not is_real(weight) or not weight.flags.c_contiguous:
        return NotImplemented
    at, used, device = positions(indices), zeros((weight.shape[0],), np.dtype(bool)), device_index(weight)
    if not at.size or not weight.size:
        return weight
    text = _text(_SHORT, weight.dtype)
    fixed = struct.pack("3q2d", at.size, *weight.shape, max_norm, norm_type)
    launch(text, "used", "ppll", at.size, fixed, device).run(used, at, faults.address(), faults.site(IndexError, RANGE))
    launch(text, "shortened", "pp", weight.shape[0] * 256, fixed, device).run(weight, used)
    return weight
