"""Layer, RMS, group and batch norm, and their derivatives.

The first three normalise rows (rows.cuh). Sums over columns - for the gradients of weights, and for all of batch norm - go over
arrays (outer, columns, inner): a block has 32 columns side by side, or one where the elements of one lie side by side. Few
columns are cut into chunks, whose sums are joined in order by a second kernel: results do not change from run to run.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import contiguous
from .driver import machine
from .launch import Plan, kernel
from .rows import WIDE, is_real, plan, typed, wide
from .rules import blank
from .table import kernel as enter

_ROWS = """
// Row r's element i has weight (r % groups) * each + i / per.
struct Norm { Rows s; double eps; long groups, each, per; };

static __device__ inline void weights(W *v, const P *weight, const Norm &f, const Line &l, int k) {
    const P *at = weight + (f.groups == 1 ? 0 : l.row % f.groups * f.each);
    if (PER == 1 && MODE != TILE) return fetched(at + l.at(k), v);
    FOR_RUN v[j] = (W)value_of(at[(unsigned)(l.at(k) + j) / (unsigned)f.per]);
}

extern "C" __launch_bounds__(THREADS) __global__ void norm_rows(const Norm f, R *o, S *mean, S *inverse, const A *x,
                                                                const P *weight, const P *bias) {
    const W n = (W)f.s.n;
    for (Line l(f.s); l.more(); l.next()) {
        const Share<A> a(x, l);
        W v[RUN], w[RUN], b[RUN], middle = 0, squares = 0;
        if (CENTRED) {
            l.each([&](int k) { a.get(v, l, k); FOR_RUN middle += v[j]; });
            middle = across(middle, Add()) / n;
        }
        l.each([&](int k) { a.get(v, l, k); FOR_RUN squares += (v[j] - middle) * (v[j] - middle); });
        const W over = 1 / sqrt(across(squares, Add()) / n + (W)f.eps);
        l.each([&](int k) {
            a.get(v, l, k);
            if (WEIGHT) weights(w, weight, f, l, k);
            if (BIAS) weights(b, bias, f, l, k);
            FOR_RUN v[j] = (v[j] - middle) * over * (WEIGHT ? w[j] : 1) + (BIAS ? b[j] : 0);
            stored(o, l, k, v);
        });
        if (!l.lane && l.real) {
            if (CENTRED) mean[l.row] = to<S>(middle);
            inverse[l.row] = to<S>(over);
        }
    }
}

extern "C" __launch_bounds__(THREADS) __global__ void norm_rows_grad(const Norm f, R *o, const G *g, const A *x, const S *mean,
                                                                const S *inverse, const P *weight) {
    const W n = (W)f.s.n;
    for (Line l(f.s); l.more(); l.next()) {
        const Share<A> a(x, l);
        const Share<G> grad(g, l);
        const W middle = CENTRED && l.real ? (W)value_of(mean[l.row]) : 0, over = l.real ? (W)value_of(inverse[l.row]) : 0;
        W v[RUN], d[RUN], w[RUN], along = 0, sum = 0;
        l.each([&](int k) {
            a.get(v, l, k), grad.get(d, l, k);
            if (WEIGHT) weights(w, weight, f, l, k);
            FOR_RUN {
                const W t = WEIGHT ? d[j] * w[j] : d[j];
                along += t * ((v[j] - middle) * over), sum += t;
            }
        });
        along = across(along, Add()) / n;
        sum = CENTRED ? across(sum, Add()) / n : 0;
        l.each([&](int k) {
            a.get(v, l, k), grad.get(d, l, k);
            if (WEIGHT) weights(w, weight, f, l, k);
            FOR_RUN v[j] = ((WEIGHT ? d[j] * w[j] : d[j]) - (v[j] - middle) * over * along - sum) * over;
            stored(o, l, k, v);
        });
    }
}
"""
_COLUMNS = """
#include "elements.cuh"
// An array (outer, columns, inner). The statistics of column c in row r are at r * by_row + c / each.
struct Columns { long outer, columns, inner, chunks, by_row, each; };

// What a thread walks through: column(c, from, to, step, f) with f(address, row) for the elements of a chunk of column c.
template <class F> static __device__ inline void down(const Columns &s, long c, long chunk, int lane, int lanes, F f) {
    const long count = TILED ? s.outer : s.outer * s.inner, share = (count + s.chunks - 1) / s.chunks;
    const long from = chunk * share, till = from + share < count ? from + share : count;
    if (TILED) {
        #pragma unroll 4
        for (long r = from + lane; r < till; r += lanes) f(r * s.columns + c, r);
    } else {
        #pragma unroll 4
        for (long e = from + lane; e < till; e += lanes) {
            const long r = count <= 0x7fffffff ? (long)((unsigned)e / (unsigned)s.inner) : e / s.inner;
            f((r * s.columns + c) * s.inner + (e - r * s.inner), r);
        }
    }
}

extern "C" __global__ void dots(const Columns s, W *parts, const G *g, const A *x, const S *mean, const S *inverse) {
    __shared__ W first[256], second[256];
    const int tile = TILED ? 32 : 1, column = threadIdx.x % tile, lane = threadIdx.x / tile, lanes = 256 / tile;
    const long tiles = (s.columns + tile - 1) / tile;
    for (long task = blockIdx.x; task < tiles * s.chunks; task += gridDim.x) {
        const long chunk = task / tiles, c = task % tiles * tile + column;
        W sum = 0, dot = 0;
        if (c < s.columns)
            down(s, c, chunk, lane, lanes, [&](long at, long r) {
                const W grad = (W)value_of(g[at]);
                const long k = r * s.by_row + c / s.each;
                sum += grad;
                dot += grad * (((W)value_of(x[at]) - (CENTRED ? (W)value_of(mean[k]) : 0)) * (W)value_of(inverse[k]));
            });
        first[threadIdx.x] = sum, second[threadIdx.x] = dot;
        __syncthreads();
        for (int half = lanes / 2; half; half /= 2) {
            if (lane < half) {
                first[threadIdx.x] += first[threadIdx.x + half * tile];
                second[threadIdx.x] += second[threadIdx.x + half * tile];
            }
            __syncthreads();
        }
        if (!lane && c < s.columns) {
            parts[chunk * s.columns + c] = first[column];
            parts[(s.chunks + chunk) * s.columns + c] = second[column];
        }
        __syncthreads();
    }
}

// sums: (2, columns), of the gradients and of their products with what was normalised.
extern "C" __global__ void totals(const Columns s, W *sums, P *dw, P *db, const W *parts) {
    for (long c = (long)blockIdx.x * blockDim.x + threadIdx.x; c < s.columns; c += (long)gridDim.x * blockDim.x) {
        W sum = 0, dot = 0;
        for (long k = 0; k < s.chunks; k++) sum += parts[k * s.columns + c], dot += parts[(s.chunks + k) * s.columns + c];
        sums[c] = sum, sums[s.columns + c] = dot;
        if (WEIGHT) dw[c] = to<P>(dot);
        if (BIAS) db[c] = to<P>(sum);
    }
}
"""
_HALF = 16  # bytes of a load


def _flags(**flags: Any) -> tuple[tuple[str, int], ...]:
    return tuple([(name, int(value)) for name, value in flags.items()])


def _row_types(x: CudaArray, grad: np.dtype, result: np.dtype, saved: np.dtype, weight: CudaArray | None) -> Any:
    return (*typed(A=x.dtype, R=result, G=grad, S=saved, P=x.dtype if weight is None else weight.dtype), ("W", wide(x.dtype)))


def _run(*dtypes: np.dtype) -> int:
    """Elements of a load; weights in a wider type come in several."""
    return _HALF // max([d.itemsize for d in dtypes])


def _forward(name: str, args: tuple[Any, ...], x: CudaArray, n: int, groups: int, per: int, weight: Any, bias: Any, eps: float,
             centred: bool) -> Any:
    if not all([a is None or is_real(a) for a in (x, weight, bias)]) or (
            weight is not None and bias is not None and weight.dtype != bias.dtype):
        return NotImplemented
    out, *saved = blank(name, *args)
    mean, inverse = saved if centred else (saved[0], saved[0])
    if not x.size:
        for s, value in ((mean, 0), (inverse, 1 / math.sqrt(eps) if eps else math.inf)):
            s.fill(value)
        return (out, *saved)
    x = contiguous(x)
    weight, bias = (None if a is None else contiguous(a) for a in (weight, bias))
    given = weight if weight is not None else bias
    flags = _flags(CENTRED=centred, WEIGHT=weight is not None, BIAS=bias is not None, PER=1 if per == 1 else 0)
    plan(_ROWS, "norm_rows", _row_types(x, x.dtype, out.dtype, inverse.dtype, given), flags, x.size // n, n, 1, _run(x.dtype),
         "pppppp", struct.pack("d3q", eps, groups, n // per, per), device_index(x)).run(
        out, mean, inverse, x, x if weight is None else weight, x if bias is None else bias)
    return (out, *saved)


@enter("layer_norm", repeatable=True)
def layer_norm(x: CudaArray, dims: int, weight: Any, bias: Any, eps: float) -> Any:
    shape = x.shape[x.ndim - dims:]
    return _forward("layer_norm_shaped", (x, shape, weight, bias, eps), x, math.prod(shape), 1, 1, weight, bias, eps, True)


@enter("layer_norm_shaped", repeatable=True)
def layer_norm_shaped(x: CudaArray, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return layer_norm(x, len(shape), weight, bias, eps)


@enter("rms_norm", repeatable=True)
def rms_norm(x: CudaArray, dims: int, weight: Any, eps: float) -> Any:
    return _forward("rms_norm", (x, dims, weight, eps), x, math.prod(x.shape[x.ndim - dims:]), 1, 1, weight, None, eps, False)


@enter("group_norm", repeatable=True)
def group_norm(x: CudaArray, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    per = math.prod(x.shape[2:])
    return _forward("group_norm", (x, groups, weight, bias, eps), x, x.shape[1] // groups * per, groups, per, weight, bias, eps,
                    True)


# -------------------------------------------------------------------------------------------------- sums over columns
@functools.lru_cache(1024)
def column_text(body: str, types: Any, flags: Any) -> str:
    constants = ", ".join([f"{name} = {value}" for name, value in flags])
    return f"enum {{ {constants} }};\n" + body.replace(
        '#include "elements.cuh"\n', '#include "elements.cuh"\n' + "".join([f"typedef {c} {letter};\n" for letter, c in types]))


@functools.lru_cache(4096)
def column_plans(body: str, first: str, second: str, types: Any, flags: Any, kinds: tuple[str, str], outer: int, columns: int,
                 inner: int, numbers: bytes, device: int) -> tuple[Plan, Plan, int]:
    """(what makes the parts, what joins them, into how many chunks columns are cut)."""
    tiles = -(-columns // 32) if inner == 1 else columns
    most = 8 * machine().attribute("multiprocessors", device)
    least = 64 if inner == 1 else 4096  # elements of a chunk
    chunks = max(min(outer * inner // least, most // tiles), 1)
    fixed = struct.pack("4q", outer, columns, inner, chunks) + numbers
    source = column_text(body, types, (*flags, ("TILED", int(inner == 1))))
    return (Plan(kernel(source, first, device), device, min(tiles * chunks, most * 4), 256, kinds[0], fixed),
            Plan(kernel(source, second, device), device, min(-(-columns // 256), most), 256, kinds[1], fixed), chunks)




def _sums(g: CudaArray, x: CudaArray, mean: CudaArray | None, inverse: CudaArray, sizes: tuple[int, int, int], by_row: int,
          each: int, dw: CudaArray | None, db: CudaArray | None) -> CudaArray:
    """(2, columns): sums of g, and of g times normalised x, over (outer, columns, inner); they go to db and dw too."""
    device, w = device_index(x), wide(x.dtype)
    given = dw if dw is not None else db
    types = (*typed(A=x.dtype, G=g.dtype, S=inverse.dtype, P=x.dtype if given is None else given.dtype), ("W", w))
    flags = _flags(CENTRED=mean is not None, WEIGHT=dw is not None, BIAS=db is not None)
    first, second, chunks = column_plans(_COLUMNS, "dots", "totals", types, flags, ("ppppp", "pppp"), *sizes,
                                         struct.pack("2q", by_row, each), device)
    parts, sums = windows.empty((2 * chunks, sizes[1]), WIDE[w]), windows.empty((2, sizes[1]), WIDE[w])
    first.run(parts, g, x, inverse if mean is None else mean, inverse)
    second.run(sums, sums if dw is None else dw, sums if db is None else db, parts)
    return sums


def _row_gradients(made: list[Any], g: CudaArray, x: CudaArray, n: int, groups: int, per: int, mean: CudaArray | None,
                   inverse: CudaArray, weight: CudaArray | None) -> Any:
    """Gradients of input, weight and bias of a norm over rows, into those of `made` that are there."""
    dx, dw, db = made
    if not x.size:
        for d in (dw, db):
            if d is not None:
                d.fill(0)
        return tuple(made)
    g, x, inverse = contiguous(g), contiguous(x), contiguous(inverse)
    mean = None if mean is None else contiguous(mean)
    if dx is not None:
        weight = None if weight is None else contiguous(weight)
        flags = _flags(CENTRED=mean is not None, WEIGHT=weight is not None, BIAS=0, PER=1 if per == 1 else 0)
        plan(_ROWS, "norm_rows_grad", _row_types(x, g.dtype, dx.dtype, inverse.dtype, weight), flags, x.size // n, n, 1,
             _run(x.dtype, g.dtype, dx.dtype), "pppppp", struct.pack("d3q", 0, groups, n // per, per), device_index(x)).run(
            dx, g, x, inverse if mean is None else mean, inverse, x if weight is None else weight)
    if dw is not None or db is not None:
        columns = n * groups // per
        _sums(g, x, mean, inverse, (x.size // (columns * per), columns, per), groups, columns // groups, dw, db)
    return tuple(made)


@enter("layer_norm_grad", repeatable=True)
def layer_norm_grad(g: CudaArray, x: CudaArray, dims: int, mean: CudaArray, inverse: CudaArray, weight: Any, needs: Any) -> Any:
    if not is_real(x) or not is_real(g):
        return NotImplemented
    made = blank("layer_norm_grad", g, x, dims, mean, inverse, weight, needs)
    return _row_gradients(made, g, x, math.prod(x.shape[x.ndim - dims:]), 1, 1, mean, inverse, weight)


@enter("rms_norm_grad", repeatable=True)
def rms_norm_grad(g: CudaArray, x: CudaArray, dims: int, inverse: CudaArray, weight: Any, needs: Any) -> Any:
    if not is_real(x) or not is_real(g):
        return NotImplemented
    made = blank("rms_norm_grad", g, x, dims, inverse, weight, needs)
    return _row_gradients([*made, None], g, x, math.prod(x.shape[x.ndim - dims:]), 1, 1, None, inverse, weight)[:2]


@enter("group_norm_grad", repeatable=True)
def group_norm_grad(g: CudaArray, x: CudaArray, groups: int, mean: CudaArray, inverse: CudaArray, weight: Any,
                    needs: Any) -> Any:
    if not is_real(x) or not is_real(g):
        return NotImplemented
    made, per = blank("group_norm_grad", g, x, groups, mean, inverse, weight, needs), math.prod(x.shape[2:])
    return _row_gradients(made, g, x, x.shape[1] // groups * per, groups, per, mean, inverse, weight)
