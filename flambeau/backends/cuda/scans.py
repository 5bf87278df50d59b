"""Running sums, products and extremes along a dimension.

A block runs through a row tile by tile and carries what it has; few long rows are cut into chunks, of which a first pass
makes the totals. Where rows lie side by side, each thread runs through one.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import contiguous
from .driver import machine
from .launch import Plan, kernel
from .pointwise import COMPUTED, STORED
from .rows import along, is_real
from .rules import blank
from .table import kernel as enter

_INT64 = np.dtype(np.int64)
_TEXT = """
#include "elements.cuh"
typedef {a} A;
typedef {r} R;
typedef {w} W;
enum {{ THREADS = 256, EACH = 4, PLACES = {places} }};
struct Scan {{ long rows, n, inner, chunks, reversed; }};
struct State {{ W value; long place; }};

static __device__ inline W logarithm_of_sum(W x, W y) {{
    const W high = x > y || x != x ? x : y, low = x > y || x != x ? y : x;
    return high - high != 0 && high == low ? high : high + log1p_f64(exp_f64(low - high));
}}
// Of an earlier and a later part.
static __device__ inline State joined(State x, State y) {{
    if (x.place < 0 || y.place < 0) return x.place < 0 ? y : x;
    {join}
}}

// Running states over a block; `total`: the last one's.
static __device__ inline State running(State own, State &total) {{
    __shared__ State met[THREADS];
    met[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {{
        const State before = threadIdx.x >= step ? met[threadIdx.x - step] : State{{0, -1}};
        __syncthreads();
        met[threadIdx.x] = own = joined(before, own);
        __syncthreads();
    }}
    total = met[THREADS - 1];
    const State before = threadIdx.x ? met[threadIdx.x - 1] : State{{0, -1}};
    __syncthreads();
    return before;
}}

// writes 0: the totals of all chunks.
extern "C" __global__ void scanned(const Scan f, R *o, long *places, State *totals, const A *x, long writes) {{
    const long share = ((f.n + f.chunks - 1) / f.chunks + THREADS * EACH - 1) / (THREADS * EACH) * (THREADS * EACH);
    for (long task = blockIdx.x; task < f.rows * f.chunks; task += gridDim.x) {{
        const long row = task / f.chunks, chunk = task % f.chunks;
        const long from = chunk * share, till = from + share < f.n ? from + share : f.n;
        State carry = {{0, -1}};
        if (writes)
            for (long k = 0; k < chunk; k++) carry = joined(carry, totals[row * f.chunks + k]);
        for (long tile = from; tile < till; tile += THREADS * EACH) {{
            State held[EACH], own = {{0, -1}}, total;
            for (int k = 0; k < EACH; k++) {{
                const long i = tile + threadIdx.x * EACH + k;
                if (i < till) own = joined(own, State{{(W)value_of(x[row * f.n + (f.reversed ? f.n - 1 - i : i)]), i}});
                held[k] = own;
            }}
            const State before = joined(carry, running(own, total));
            for (int k = 0; k < EACH && writes; k++) {{
                const long i = tile + threadIdx.x * EACH + k, to_ = row * f.n + (f.reversed ? f.n - 1 - i : i);
                if (i >= till) continue;
                const State made = joined(before, held[k]);
                o[to_] = to<R>(made.value);
                if (PLACES) places[to_] = made.place;
            }}
            carry = joined(carry, total);
        }}
        if (!writes && !threadIdx.x) totals[task] = carry;
    }}
}}

extern "C" __global__ void side_by_side(const Scan f, R *o, long *places, const A *x) {{
    for (long row = (long)blockIdx.x * blockDim.x + threadIdx.x; row < f.rows; row += (long)gridDim.x * blockDim.x) {{
        const long base = row / f.inner * f.n * f.inner + row % f.inner;
        State made = {{0, -1}};
        for (long i = 0; i < f.n; i++) {{
            const long at = base + (f.reversed ? f.n - 1 - i : i) * f.inner;
            made = joined(made, State{{(W)value_of(x[at]), i}});
            o[at] = to<R>(made.value);
            if (PLACES) places[at] = made.place;
        }}
    }}
}}
"""
_EXTREME = ("if (y.value != y.value) return y;\n    if (x.value != x.value) return x;\n"
            "    return y.value {} x.value ? y : x;")
_SUM, _PRODUCT = "return {x.value + y.value, y.place};", "return {x.value * y.value, y.place};"
_MOST, _LEAST = _EXTREME.format(">="), _EXTREME.format("<=")
_LOGARITHM = "return {logarithm_of_sum(x.value, y.value), y.place};"


@functools.lru_cache(4096)
def _plans(join: str, a: np.dtype, r: np.dtype, rows: int, n: int, inner: int, reversed_: bool, device: int) -> Any:
    """(first pass or None, the pass that writes, number of chunks)."""
    floating = r.kind == "f" or COMPUTED.get(r) == "f32"
    places = join in (_MOST, _LEAST)
    source = _TEXT.format(a=STORED[a], r=STORED[r], w="double" if floating else "long", places=int(places), join=join)
    most = 8 * machine().attribute("multiprocessors", device)
    if inner > 1:
        fixed = struct.pack("5q", rows, n, inner, 1, reversed_)
        return None, Plan(kernel(source, "side_by_side", device), device, min(-(-rows // 128), most * 16), 128, "ppp", fixed), 1
    chunks = max(min(n // 8192, most // rows), 1)
    fixed = struct.pack("5q", rows, n, 1, chunks, reversed_)
    plan = Plan(kernel(source, "scanned", device), device, min(rows * chunks, most * 16), 256, "ppppl", fixed)
    return plan, plan, chunks


def _run(name: str, join: str, x: CudaArray, axis: int, *args: Any, reversed_: bool = False) -> Any:
    made = blank(name, x, axis, *args)
    out, places = made if isinstance(made, tuple) else (made, made)
    if x.dtype not in COMPUTED or (out.dtype not in COMPUTED) or out.dtype.kind == "b":
        return NotImplemented
    if not x.size:
        return made
    if args and args[0] is not None and x.dtype != out.dtype:  # it is cast first
        x = x.astype(out.dtype)
    x = contiguous(x)
    first, last, chunks = _plans(join, x.dtype, out.dtype, *(along(x, axis % x.ndim) if x.ndim else (1, 1, 1)), reversed_,
                                 device_index(x))
    if first is None:
        last.run(out, places, x)
        return made
    totals = windows.empty((2 * chunks * max(x.size // max(x.shape[axis], 1), 1),), _INT64) if chunks > 1 else places
    if chunks > 1:
        first.run(out, places, totals, x, 0)
    last.run(out, places, totals, x, 1)
    return made


for _name, _join in (("cumsum", _SUM), ("cumprod", _PRODUCT), ("cummax", _MOST), ("cummin", _LEAST)):
    enter(_name, repeatable=True)(functools.partial(_run, _name, _join))
enter("cumsum_from_end", repeatable=True)(functools.partial(_run, "cumsum_from_end", _SUM, reversed_=True))


@enter("logcumsumexp", repeatable=True)
def logcumsumexp(x: CudaArray, axis: int) -> Any:
    return _run("logcumsumexp", _LOGARITHM, x, axis) if is_real(x) else NotImplemented
