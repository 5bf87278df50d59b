"""Layer, RMS, group and batch norm, and their derivatives.

The first three normalise rows (rows.cuh). Their gradients' sums over rows, for weight and bias, are added up by the kernel that
has the rows in its registers anyway. Other sums over columns, and all of batch norm (moments.py), go over arrays (outer,
columns, inner) as columns.cuh says. Both leave parts behind, which a second kernel joins in order: results do not change
from run to run.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import contiguous
from .columns import column_plan, joining_plan
from .driver import machine
from .launch import Plan, kernel
from .rows import WARP, WIDE, is_real, plan, sharing, text, typed, wide
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
                                                                const P *weight, const P *bias, const G *more, A *sums) {
    const W n = (W)f.s.n;
    for (Line l(f.s); l.more(); l.next()) {
        Share<A> a(x, l);
        if (MORE) a.add(more, sums, l);
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

// SUMS: what the gradients of weight and bias add up over the block's rows goes to parts, (2, blocks, n). A thread has the same
// columns in every row, and its sums in shared memory: registers are for rows. RESIDENT: blocks that a multiprocessor has at
// once. MORE: what is added to the input's gradient; TWICE: it is written in another type, too.
enum { OWN = ITEMS * RUN, RESIDENT = !SUMS ? 1 : MODE == BLOCK ? 3 : OWN <= 12 ? 8 : OWN <= 24 ? 6 : 4 };
extern "C" __launch_bounds__(THREADS, RESIDENT) __global__ void norm_rows_grad(
        const Norm f, R *o, const G *g, const A *x, const S *mean, const S *inverse, const P *weight, const R *more, H *twice,
        W *parts) {
    const W n = (W)f.s.n;
    __shared__ W sums[SUMS ? OWN : 1][THREADS], dots[SUMS ? OWN : 1][THREADS];
    if (SUMS) {
        #pragma unroll
        for (int i = 0; i < OWN; i++) sums[i][threadIdx.x] = dots[i][threadIdx.x] = 0;
    }
    for (Line l(f.s); l.more(); l.next()) {
        const Share<A> a(x, l);
        const Share<G> grad(g, l);
        const W middle = CENTRED && l.real ? (W)value_of(mean[l.row]) : 0, over = l.real ? (W)value_of(inverse[l.row]) : 0;
        W v[RUN], d[RUN], w[RUN], along = 0, sum = 0;
        l.each([&](int k) {
            a.get(v, l, k), grad.get(d, l, k);
            if (WEIGHT) weights(w, weight, f, l, k);
            FOR_RUN {
                const W t = WEIGHT ? d[j] * w[j] : d[j], normal = (v[j] - middle) * over;
                along += t * normal, sum += t;
                if (SUMS) sums[k * RUN + j][threadIdx.x] += d[j], dots[k * RUN + j][threadIdx.x] += d[j] * normal;
            }
        });
        if (!WANTED) continue;
        along = across(along, Add()) / n;
        sum = CENTRED ? across(sum, Add()) / n : 0;
        l.each([&](int k) {
            a.get(v, l, k), grad.get(d, l, k);
            if (WEIGHT) weights(w, weight, f, l, k);
            FOR_RUN v[j] = ((WEIGHT ? d[j] * w[j] : d[j]) - (v[j] - middle) * over * along - sum) * over;
            if (MORE) {
                fetch(d, more + l.base, l, k);
                FOR_RUN v[j] = plain_sum(d[j], (W)value_of(to<R>(v[j])));
            }
            stored(o, l, k, v);
            if (TWICE) stored(twice, l, k, v);
        });
    }
    if (!SUMS) return;
    __syncthreads();
    W *first = parts + blockIdx.x * f.s.n, *second = first + gridDim.x * f.s.n;
    const int lanes = MODE == WARP ? 32 : THREADS;
    for (int i = threadIdx.x; i < (int)f.s.n; i += THREADS) { // of all warps, one after the other
        const int run = i / RUN, row = run / lanes * RUN + i % RUN;
        W sum = 0, dot = 0;
        for (int t = run % lanes; t < THREADS; t += lanes) sum += sums[row][t], dot += dots[row][t];
        first[i] = sum, second[i] = dot;
    }
}
"""
_COLUMNS = """
// The statistics of column c in row r are at r * by_row + c / each, or at c (not BY_ROW).
struct Dots { Columns s; long by_row, each; };
struct Add { __device__ W operator()(W x, W y) const { return x + y; } };

extern "C" __launch_bounds__(THREADS) __global__ void dots(const Dots f, W *parts, const G *g, const A *x, const S *mean,
                                                           const S *inverse) {
    for (Task t(f.s); t.more(); t.next()) {
        W sum[RUN], dot[RUN], middle[OWN], over[OWN];
        FOR_RUN sum[j] = dot[j] = 0;
        if (!BY_ROW && t.real) {
            FOR_OWN {
                middle[j] = CENTRED ? (W)value_of(mean[t.c + j]) : 0;
                over[j] = (W)value_of(inverse[t.c + j]);
            }
        }
        t.each([&](long at, long r) {
            W d[RUN], v[RUN];
            fetch_run(g + at, d), fetch_run(x + at, v);
            FOR_RUN {
                const long k = BY_ROW ? r * f.by_row + (t.c + (SIDE ? j : 0)) / f.each : 0;
                sum[j] += d[j];
                dot[j] += !BY_ROW ? d[j] * (v[j] - middle[SIDE ? j : 0])
                                  : d[j] * ((v[j] - (CENTRED ? (W)value_of(mean[k]) : 0)) * (W)value_of(inverse[k]));
            }
        });
        if (!SIDE) for (int j = 1; j < RUN; j++) sum[0] += sum[j], dot[0] += dot[j];
        t.meet(sum, Add()), t.meet(dot, Add());
        if (t.first()) {
            FOR_OWN {
                parts[t.chunk * f.s.columns + t.c + j] = sum[j];
                parts[(f.s.chunks + t.chunk) * f.s.columns + t.c + j] = BY_ROW ? dot[j] : dot[j] * over[j];
            }
        }
    }
}

// sums: (2, columns), of the gradients and of their products with what was normalised.
extern "C" __launch_bounds__(LAST) __global__ void totals(const Dots f, W *sums, P *dw, P *db, const W *parts) {
    const long n = f.s.columns;
    FOR_LAST(c, n) {
        const bool real = c < n;
        const W sum = together(parts + c, real, f.s.chunks, n, (W)0, Add());
        const W dot = together(parts + f.s.chunks * n + c, real, f.s.chunks, n, (W)0, Add());
        if (!real || threadIdx.x >= EIGHT) continue;
        sums[c] = sum, sums[n + c] = dot;
        if (WEIGHT) dw[c] = to<P>(dot);
        if (BIAS) db[c] = to<P>(sum);
    }
}
"""
_HALF = 16  # bytes of a load


def _flags(**flags: Any) -> tuple[tuple[str, int], ...]:
    return tuple([(name, int(value)) for name, value in flags.items()])


def _row_types(x: CudaArray, grad: np.dtype, result: np.dtype, saved: np.dtype, weight: CudaArray | None,
               twice: CudaArray | None = None) -> Any:
    return (*typed(A=x.dtype, R=result, G=grad, S=saved, P=x.dtype if weight is None else weight.dtype,
                   H=result if twice is None else twice.dtype), ("W", wide(x.dtype)))


def _run(*dtypes: np.dtype) -> int:
    """Elements of a load; weights in a wider type come in several."""
    return _HALF // max([d.itemsize for d in dtypes])


def _forward(name: str, args: tuple[Any, ...], x: CudaArray, n: int, groups: int, per: int, weight: Any, bias: Any, eps: float,
             centred: bool, dtype: Any = None, more: CudaArray | None = None) -> Any:
    """more: what is added to x before; the sum is then the last result."""
    if not all([a is None or is_real(a) for a in (x, weight, bias)]) or (
            weight is not None and bias is not None and weight.dtype != bias.dtype):
        return NotImplemented
    out, *saved = blank(name, *args)
    out = out if dtype is None else windows.empty(out.shape, dtype)
    mean, inverse = saved if centred else (saved[0], saved[0])
    if not x.size:
        for s, value in ((mean, 0), (inverse, 1 / math.sqrt(eps) if eps else math.inf)):
            s.fill(value)
        return (out, *saved, *(() if more is None else (windows.empty(x.shape, x.dtype),)))
    x, sums = contiguous(x), () if more is None else (windows.empty(x.shape, x.dtype),)
    weight, bias = (None if a is None else contiguous(a) for a in (weight, bias))
    given = weight if weight is not None else bias
    flags = _flags(CENTRED=centred, WEIGHT=weight is not None, BIAS=bias is not None, PER=1 if per == 1 else 0, SUMS=0,
                   WANTED=1, MORE=more is not None, TWICE=0)
    more = x if more is None else contiguous(more)
    plan(_ROWS, "norm_rows", _row_types(x, more.dtype, out.dtype, inverse.dtype, given), flags, x.size // n, n, 1,
         _run(x.dtype, out.dtype, more.dtype), "p" * 8, struct.pack("d3q", eps, groups, n // per, per), device_index(x)).run(
        out, mean, inverse, x, x if weight is None else weight, x if bias is None else bias, more, *(sums or (x,)))
    return (out, *saved, *sums)


@enter("layer_norm", repeatable=True, narrow=(0,), typed=5, plus=6)
def layer_norm(x: CudaArray, dims: int, weight: Any, bias: Any, eps: float, dtype: Any = None,
               more: CudaArray | None = None) -> Any:
    """dtype: of the result, where that is rounded to another one than x has; more: what is added to x before, which gives a
    last result, the sum; likewise below."""
    shape = x.shape[x.ndim - dims:]
    return _forward("layer_norm_shaped", (x, shape, weight, bias, eps), x, math.prod(shape), 1, 1, weight, bias, eps, True,
                    dtype, more)


@enter("layer_norm_shaped", repeatable=True, narrow=(0,), typed=5, plus=6)
def layer_norm_shaped(x: CudaArray, shape: Any, weight: Any, bias: Any, eps: float, dtype: Any = None,
                      more: CudaArray | None = None) -> Any:
    return layer_norm(x, len(shape), weight, bias, eps, dtype, more)


@enter("rms_norm", repeatable=True, narrow=(0,), typed=4, plus=5)
def rms_norm(x: CudaArray, dims: int, weight: Any, eps: float, dtype: Any = None, more: CudaArray | None = None) -> Any:
    return _forward("rms_norm", (x, dims, weight, eps), x, math.prod(x.shape[x.ndim - dims:]), 1, 1, weight, None, eps, False,
                    dtype, more)


@enter("group_norm", repeatable=True)
def group_norm(x: CudaArray, groups: int, weight: Any, bias: Any, eps: float) -> Any:
    per = math.prod(x.shape[2:])
    return _forward("group_norm", (x, groups, weight, bias, eps), x, x.shape[1] // groups * per, groups, per, weight, bias, eps,
                    True)


# -------------------------------------------------------------------------------------------------- sums over columns
def _totals(parts: CudaArray, chunks: int, columns: int, types: Any, dw: CudaArray | None, db: CudaArray | None) -> CudaArray:
    """(2, columns) of parts (2, chunks, columns): sums of g, and of g times normalised x; they go to db and dw too."""
    flags = _flags(CENTRED=0, BY_ROW=0, WEIGHT=dw is not None, BIAS=db is not None)
    sums = windows.empty((2, columns), parts.dtype)
    joining_plan(_COLUMNS, "totals", types, flags, "pppp", columns, chunks, struct.pack("2q", 0, 1), device_index(parts)).run(
        sums, sums if dw is None else dw, sums if db is None else db, parts)
    return sums


def _column_types(g: CudaArray, x: CudaArray, inverse: CudaArray, dw: CudaArray | None, db: CudaArray | None) -> Any:
    given = dw if dw is not None else db
    return (*typed(A=x.dtype, G=g.dtype, S=inverse.dtype, P=x.dtype if given is None else given.dtype), ("W", wide(x.dtype)))


def column_sums(g: CudaArray, x: CudaArray, mean: CudaArray | None, inverse: CudaArray, sizes: tuple[int, int, int],
                by_row: int, each: int, dw: CudaArray | None, db: CudaArray | None) -> CudaArray:
    """(2, columns): sums of g, and of g times normalised x, over (outer, columns, inner); they go to db and dw too."""
    types = _column_types(g, x, inverse, dw, db)
    flags = _flags(CENTRED=mean is not None, BY_ROW=by_row, WEIGHT=0, BIAS=0)
    first, chunks = column_plan(_COLUMNS, "dots", types, flags, "ppppp", sizes, _run(g.dtype, x.dtype),
                                struct.pack("2q", by_row, each), device_index(x))
    parts = windows.empty((2, chunks, sizes[1]), WIDE[wide(x.dtype)])
    first.run(parts, g, x, inverse if mean is None else mean, inverse)
    return _totals(parts, chunks, sizes[1], types, dw, db)


_SUMS = 48 << 10  # bytes of shared memory for what a block adds up


@functools.lru_cache(4096)
def _summing_plan(types: Any, flags: Any, rows: int, n: int, run: int, device: int) -> tuple[Plan, int] | None:
    """The launch of norm_rows_grad with sums of columns, and how many blocks share them; None where rows are too long."""
    each = 2 * WIDE[dict(types)["W"]].itemsize
    if any([not s.items or s.items * s.run * s.threads * each > _SUMS for s in (sharing(n, 1, run), sharing(n, 1, 1))]):
        return None
    mode, items, each, _ = sharing(n, 1, run)
    at_once, resident = (4, 8 if items * each <= 12 else 6 if items * each <= 24 else 4) if mode == WARP else (1, 3)
    blocks = min(-(-rows // at_once), resident * machine().attribute("multiprocessors", device))

    def made(run: int, otherwise: Plan | None) -> Plan:
        share = sharing(n, 1, run)
        return Plan(kernel(text(_ROWS, share, types, flags), "norm_rows_grad", device), device, blocks, share.threads, "p" * 9,
                    struct.pack("3qd3q", rows, n, 1, 0, 1, n, 1), otherwise=otherwise)
    return made(run, None if sharing(n, 1, run).run == 1 else made(1, None)), blocks


def _row_gradients(made: list[Any], g: CudaArray, x: CudaArray, n: int, groups: int, per: int, mean: CudaArray | None,
                   inverse: CudaArray, weight: CudaArray | None, more: CudaArray | None = None,
                   twice: CudaArray | None = None) -> Any:
    """Gradients of input, weight and bias of a norm over rows, into those of `made` that are there. more: what is added to the
    first; twice: where it is written once more."""
    dx, dw, db = made
    if not x.size:
        for d in (dw, db):
            if d is not None:
                d.fill(0)
        return tuple(made)
    g, x, inverse, device = contiguous(g), contiguous(x), contiguous(inverse), device_index(x)
    mean, weight = (None if a is None else contiguous(a) for a in (mean, weight))
    result, wanted = g.dtype if dx is None else dx.dtype, dw is not None or db is not None
    types, run = _row_types(x, g.dtype, result, inverse.dtype, weight, twice), _run(x.dtype, g.dtype, result)
    flags = functools.partial(_flags, CENTRED=mean is not None, WEIGHT=weight is not None, BIAS=0, PER=1 if per == 1 else 0,
                              MORE=more is not None, TWICE=twice is not None)
    first = g if dx is None else dx
    arrays = (first, g, x, inverse if mean is None else mean, inverse, x if weight is None else weight,
              first if more is None else contiguous(more), first if twice is None else twice)
    found = _summing_plan(types, flags(SUMS=1, WANTED=dx is not None), x.size // n, n, run, device) if (
        wanted and groups == per == 1) else None
    if found is not None:
        whole, blocks = found
        parts = windows.empty((2, blocks, n), WIDE[wide(x.dtype)])
        whole.run(*arrays, parts)
        _totals(parts, blocks, n, _column_types(g, x, inverse, dw, db), dw, db)
        return tuple(made)
    if dx is not None:
        plan(_ROWS, "norm_rows_grad", types, flags(SUMS=0, WANTED=1), x.size // n, n, 1, run, "p" * 9,
             struct.pack("d3q", 0, groups, n // per, per), device).run(*arrays, dx)
    if wanted:
        columns = n * groups // per
        column_sums(g, x, mean, inverse, (x.size // (columns * per), columns, per), groups, columns // groups, dw, db)
    return tuple(made)


def _given(made: list[Any], dtype: Any) -> list[Any]:
    """The same with a gradient of the input in another dtype."""
    if dtype is None or made[0] is None:
        return made
    return [windows.empty(made[0].shape, dtype), *made[1:]]


@enter("layer_norm_grad", repeatable=True, narrow=(0, 1), typed=7, added=8, twice=9)
def layer_norm_grad(g: CudaArray, x: CudaArray, dims: int, mean: CudaArray, inverse: CudaArray, weight: Any, needs: Any,
                    dtype: Any = None, more: CudaArray | None = None, also: Any = None) -> Any:
    """dtype: of the input's gradient; the incoming one's without it. g and x may be of different ones. more: what is added to
    the input's gradient; also: a dtype that this is given in once more, as the last result."""
    if not is_real(x) or not is_real(g):
        return NotImplemented
    made = _given(blank("layer_norm_grad", g, x, dims, mean, inverse, weight, needs), dtype)
    twice = None if also is None else windows.empty(x.shape, also)
    made = _row_gradients(made, g, x, math.prod(x.shape[x.ndim - dims:]), 1, 1, mean, inverse, weight, more, twice)
    return made if twice is None else (*made, twice)


@enter("rms_norm_grad", repeatable=True, narrow=(0, 1), typed=6)
def rms_norm_grad(g: CudaArray, x: CudaArray, dims: int, inverse: CudaArray, weight: Any, needs: Any, dtype: Any = None) -> Any:
    if not is_real(x) or not is_real(g):
        return NotImplemented
    made = _given(blank("rms_norm_grad", g, x, dims, inverse, weight, needs), dtype)
    return _row_gradients([*made, None], g, x, math.prod(x.shape[x.ndim - dims:]), 1, 1, None, inverse, weight)[:2]


@enter("group_norm_grad", repeatable=True)
def group_norm_grad(g: CudaArray, x: CudaArray, groups: int, mean: CudaArray, inverse: CudaArray, weight: Any,
                    needs: Any) -> Any:
    if not is_real(x) or not is_real(g):
        return NotImplemented
    made, per = blank("group_norm_grad", g, x, groups, mean, inverse, weight, needs), math.prod(x.shape[2:])
    return _row_gradients(made, g, x, x.shape[1] // groups * per, groups, per, mean, inverse, weight)
