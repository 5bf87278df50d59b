"""Reductions that fold elements one by one (facts.FOLDS): sums, means, extremes, norms, over any dimensions of any strides.

A block folds for a tile of totals side by side, whose elements lie next to each other in memory, or for one; its threads meet
in shared memory. Few large totals are folded in chunks by many blocks, and the chunks by a second kernel, always in the same
order: results do not change from run to run.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ..cpu.pointwise import loops
from ..facts import FOLDS, Fold
from .arrays import CudaArray, device_index, windows
from .columns import column_plan, joining_plan
from .driver import machine
from .launch import Plan, kernel
from .pointwise import COMPUTED, STORED
from .rules import blank

_DIMS = 12
_THREADS = 256
_LEAST = 2048    # elements of a chunk, at least
_HEAD = """
#include "elements.cuh"
typedef {stored} A;
typedef {result} R;
typedef {wide} W;
typedef {kind} T;
static __device__ inline W joined(W x, W y) {{ return {join}; }}
static __device__ inline R finished(W total, double divisor) {{ return to<R>({finish}); }}
static __device__ inline W term(A element) {{
    const T a = (T)value_of(element);
    return (W)({value});
}}
"""
_TEXT = _HEAD + """
struct Folding {{ long totals, elements, chunks, tile; double divisor; Walk<2> kept, away; }};
static __device__ inline long place(const Walk<2> &w, int array, long at) {{
    long found = 0;
    #pragma unroll
    for (int d = 0; d < DIMS; d++) {{
        if (d == w.dims) break;
        const long next = at / w.size[d];
        found += (at - next * w.size[d]) * w.step[array][d];
        at = next;
    }}
    return found;
}}

extern "C" __global__ void fold(const Folding f, R *o, const A *x, W *parts) {{
    __shared__ W met[{threads}];
    const int tile = (int)f.tile, lanes = blockDim.x / tile;
    const int column = threadIdx.x % tile, lane = threadIdx.x / tile;
    const long tiles = (f.totals + tile - 1) / tile, share = ((f.elements + f.chunks - 1) / f.chunks + 15) / 16 * 16;
    for (long task = blockIdx.x; task < tiles * f.chunks; task += gridDim.x) {{
        const long chunk = task / tiles, number = task % tiles * tile + column;
        const long from = chunk * share, to_ = from + share < f.elements ? from + share : f.elements;
        W total = {start};
        if (number < f.totals) {{
            const A *at = x + place(f.kept, 0, number);
            if (f.away.dims == 1 && f.away.step[0][0] == 1 && tile == 1 && (unsigned long)(at + from) % 16 == 0) {{
                const Run<A, {run}> *runs = (const Run<A, {run}> *)(at + from);
                const long count = (to_ - from) / {run};
                W parts_[{run}];
                #pragma unroll
                for (int k = 0; k < {run}; k++) parts_[k] = {start};
                long i = lane;
                for (; i + 3 * lanes < count; i += 4 * lanes) {{
                    const Run<A, {run}> r0 = runs[i], r1 = runs[i + lanes], r2 = runs[i + 2 * lanes], r3 = runs[i + 3 * lanes];
                    #pragma unroll
                    for (int k = 0; k < {run}; k++)
                        parts_[k] = joined(parts_[k], joined(joined(term(r0.at[k]), term(r1.at[k])),
                                                             joined(term(r2.at[k]), term(r3.at[k]))));
                }}
                for (; i < count; i += lanes) {{
                    const Run<A, {run}> r = runs[i];
                    #pragma unroll
                    for (int k = 0; k < {run}; k++) parts_[k] = joined(parts_[k], term(r.at[k]));
                }}
                for (long j = from + count * {run} + lane; j < to_; j += lanes) total = joined(total, term(at[j]));
                #pragma unroll
                for (int k = 0; k < {run}; k++) total = joined(total, parts_[k]);
            }} else if (f.away.dims == 1) {{
                const long step = f.away.step[0][0];
                W second = {start}, third = {start}, fourth = {start};
                long i = from + lane;
                for (; i + 3 * lanes < to_; i += 4 * lanes) {{
                    const A a0 = at[i * step], a1 = at[(i + lanes) * step], a2 = at[(i + 2 * lanes) * step],
                            a3 = at[(i + 3 * lanes) * step];
                    total = joined(total, term(a0)), second = joined(second, term(a1));
                    third = joined(third, term(a2)), fourth = joined(fourth, term(a3));
                }}
                for (; i < to_; i += lanes) total = joined(total, term(at[i * step]));
                total = joined(joined(total, second), joined(third, fourth));
            }} else {{
                for (long i = from + lane; i < to_; i += lanes) total = joined(total, term(at[place(f.away, 0, i)]));
            }}
        }}
        met[threadIdx.x] = total;
        __syncthreads();
        for (int half = lanes / 2; half; half /= 2) {{
            if (lane < half) met[threadIdx.x] = joined(met[threadIdx.x], met[threadIdx.x + half * tile]);
            __syncthreads();
        }}
        if (lane == 0 && number < f.totals) {{
            if (f.chunks == 1) o[place(f.kept, 1, number)] = finished(met[column], f.divisor);
            else parts[chunk * f.totals + number] = met[column];
        }}
        __syncthreads();
    }}
}}

extern "C" __global__ void last(const Folding f, R *o, const W *parts) {{
    __shared__ W met[{threads}];
    for (long number = blockIdx.x; number < f.totals; number += gridDim.x) {{
        W total = {start};
        for (long chunk = threadIdx.x; chunk < f.chunks; chunk += blockDim.x)
            total = joined(total, parts[chunk * f.totals + number]);
        met[threadIdx.x] = total;
        __syncthreads();
        for (int half = blockDim.x / 2; half; half /= 2) {{
            if (threadIdx.x < half) met[threadIdx.x] = joined(met[threadIdx.x], met[threadIdx.x + half]);
            __syncthreads();
        }}
        if (threadIdx.x == 0) o[place(f.kept, 1, number)] = finished(met[0], f.divisor);
        __syncthreads();
    }}
}}
"""
# Of a matrix, column by column; columns.cuh comes first.
_COLUMNS = _HEAD + """
struct Folded {{ Columns s; double divisor; }};
struct Joining {{ __device__ W operator()(W x, W y) const {{ return joined(x, y); }} }};

extern "C" __launch_bounds__(THREADS) __global__ void columns(const Folded f, R *o, const A *x, W *parts) {{
    for (Task t(f.s); t.more(); t.next()) {{
        W total[OWN];
        FOR_OWN total[j] = {start};
        t.each([&](long at, long) {{
            const Run<A, OWN> r = *(const Run<A, OWN> *)(x + at);
            FOR_OWN total[j] = joined(total[j], term(r.at[j]));
        }});
        t.meet(total, Joining());
        if (!t.first()) continue;
        FOR_OWN {{
            if (f.s.chunks == 1) o[t.c + j] = finished(total[j], f.divisor);
            else parts[t.chunk * f.s.columns + t.c + j] = total[j];
        }}
    }}
}}

extern "C" __launch_bounds__(LAST) __global__ void last_columns(const Folded f, R *o, const W *parts) {{
    const long n = f.s.columns;
    FOR_LAST(c, n) {{
        const W total = together(parts + c, c < n, f.s.chunks, n, (W)({start}), Joining());
        if (c < n && threadIdx.x < EIGHT) o[c] = finished(total, f.divisor);
    }}
}}
"""
_WIDE = {"f32": "float", "f64": "double"}


class _Own(NamedTuple):
    """A reduction that is no fold of the CPU's: C for its start, the join of two, an element; whether it is a whole number."""

    start: str
    join: str
    of: str
    whole: bool


_OWN: dict[str, _Own] = {}


def _enter(name: str, start: str, join: str, of: str, whole: bool) -> None:
    _OWN[name] = _Own(start, join, of, whole)


_enter("any", "0", "x | y", "a != 0", True)
_enter("all", "1", "x & y", "a != 0", True)
_enter("count_nonzero", "0", "x + y", "a != 0", True)
_enter("hash_tensor", "0", "x ^ y", "bits_of(a)", True)
_enter("prod", "1", "x * y", "a", False)
_enter("nansum", "0", "x + y", "a != a ? (T)0 : a", False)
_plans: dict[Any, Any] = {}


def folds(name: str) -> bool:
    return name in FOLDS or name in _OWN


def run(name: str, args: tuple[Any, ...]) -> CudaArray | None:
    """What a reduction makes; None where it does not fold, or not elements of this type."""
    x = args[0]
    if type(x) is not CudaArray or not folds(name):
        return None
    if not x.size and (name in _OWN or (name in FOLDS and getattr(FOLDS[name], "by", "") == "sum")):
        return _of_nothing(name, args)
    key = (name, x.dtype, x.shape, x.strides, device_index(x), *map(_hashed, args[1:]))
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _planned(name, args, key[4]) or False
    if plan is False:
        return None
    first, second, shape, result, stride, parts, wide = plan
    out = windows.empty(shape, result) if stride is None else windows.empty_strided(shape, stride, result)
    scratch = windows.empty((parts,), wide) if second is not None else out
    first.run(out, x, scratch)
    if second is not None:
        second.run(out, scratch)
    return out


def _of_nothing(name: str, args: tuple[Any, ...]) -> CudaArray:
    """What a sum, a product or a test of no elements is."""
    out = blank(name, *args)
    out.fill(math.nan if name in FOLDS and FOLDS[name].total == "mean" else int(_OWN[name].start) if name in _OWN else 0)
    return out


def _hashed(value: Any) -> Any:
    return tuple(value) if value.__class__ is list else value


def _planned(name: str, args: tuple[Any, ...], device: int) -> Any:
    x, fold = args[0], FOLDS.get(name, _ALL)
    if not hasattr(fold, "by"):
        fold = fold(*args)
    if fold is None or not x.size:
        return None
    axes, sample = _axes(fold, x, args), blank(name, *args)
    source, wide = (_own_source if name in _OWN else _source)(name, fold, x.dtype, sample.dtype)
    if source is None:
        return None
    fields, title = source
    kept = [d for d in range(x.ndim) if d not in axes]
    totals, elements = math.prod([x.shape[d] for d in kept]), math.prod([x.shape[d] for d in axes])
    steps = [s // x.itemsize for s in x.strides]
    final = [(n, s // sample.itemsize) for n, s in zip(sample.shape, sample.strides) if n != 1]  # those that are kept, in order
    out_steps = iter([s for _, s in final])
    away = _joined([(x.shape[d], steps[d], 0) for d in axes])
    inner = _joined([(x.shape[d], steps[d], next(out_steps)) for d in kept if x.shape[d] != 1])
    if max(len(away), len(inner)) > _DIMS:
        return None
    divisor = elements if fold.total == "mean" else 1
    stride = None if sample.flags.c_contiguous else [s // sample.itemsize for s in sample.strides]
    made = sample.shape, sample.dtype, stride
    if inner == [(totals, 1, 1)] and away == [(elements, totals, 0)]:
        return *_matrix(title + _COLUMNS.format(**fields), elements, totals, 16 // x.itemsize, divisor, device, made), wide
    source = title + _TEXT.format(**fields)
    tile = 32 if inner and inner[0][1] == 1 and totals > 1 and not (away and away[0][1] == 1) else 1
    blocks, most = -(-totals // tile), 8 * machine().attribute("multiprocessors", device)
    chunks = max(min(elements // (_LEAST // tile), most // blocks), 1)
    fixed = struct.pack("4qd", totals, elements, chunks, tile, divisor) + _walk(totals, inner) + _walk(elements, away)
    threads = _THREADS if elements * tile >= _THREADS else max(1 << (elements * tile - 1).bit_length(), tile, 32)
    first = Plan(kernel(source, "fold", device), device, min(blocks * chunks, most * 16), threads, "ppp", fixed)
    second = None if chunks == 1 else Plan(kernel(source, "last", device), device, min(totals, most), 256, "pp", fixed)
    return first, second, *made, totals * chunks, wide


def _matrix(body: str, rows: int, columns: int, run: int, divisor: float, device: int, made: Any) -> Any:
    """The plans of sums over the rows of a dense matrix."""
    sizes, numbers = (rows, columns, 1), struct.pack("d", divisor)
    first, chunks = column_plan(body, "columns", (), (), "ppp", sizes, run, numbers, device)
    second = None if chunks == 1 else joining_plan(body, "last_columns", (), (), "pp", columns, chunks, numbers, device)
    return first, second, *made, columns * chunks


def _axes(fold: Any, x: ndarray, args: tuple[Any, ...]) -> list[int]:
    """The dimensions that are folded."""
    axes = args[fold.axes] if len(args) > fold.axes else None
    axes = range(x.ndim) if axes is None or axes == () else [axes] if axes.__class__ is int else axes
    return sorted([a % x.ndim for a in axes]) if x.ndim else []


_ALL = Fold("sum")


def _own_source(name: str, fold: Any, dtype: np.dtype, result: np.dtype) -> tuple[tuple[dict[str, Any], str] | None, Any]:
    own = _OWN[name]
    if dtype not in COMPUTED or result not in STORED or (result.char == "?" and not own.whole):
        return None, None
    floating = COMPUTED.get(result) in ("f32", "f64") and not own.whole
    wide = ("double" if result.char == "d" else "float") if floating else "long"
    kind = np.dtype({"double": np.float64, "float": np.float32, "long": np.int64}[wide])
    suffix = COMPUTED[dtype]
    fields = dict(stored=STORED[dtype], result=STORED[result], wide=wide, kind=loops.C_TYPES.get(suffix, "bool"), join=own.join,
                  start=own.start, finish="total", value=own.of, threads=_THREADS, run=16 // dtype.itemsize)
    return (fields, f"// {name}\n"), kind


def _source(name: str, fold: Any, dtype: np.dtype, result: np.dtype) -> tuple[tuple[dict[str, Any], str] | None, Any]:
    if dtype not in COMPUTED or result not in STORED:
        return None, None
    suffix = COMPUTED[dtype]
    floating = suffix in ("f32", "f64")
    if fold.by == "sum":
        wide, kind = ("double" if result.char == "d" else "float", result.char == "d") if floating else ("long", None)
        kind = np.dtype(np.float64 if wide == "double" else np.float32 if floating else np.int64)
        start, join = "0", "x + y"
    else:
        if not floating:
            wide, kind = "long", np.dtype(np.int64)
            start = "(-9223372036854775807L - 1)" if fold.by == "max" else "9223372036854775807L"
            join = f"x {'>' if fold.by == 'max' else '<'} y ? x : y"
        else:
            wide, kind = _WIDE[suffix], np.dtype(np.float32 if suffix == "f32" else np.float64)
            start = "-INFINITY" if fold.by == "max" else "INFINITY"
            join = f"{fold.by}_{suffix}(x, y)"
    if not floating and (fold.of != "a" or fold.total):
        return None, None
    finish = {"": "total", "root": "sqrt(total)", "mean": "total / (W)divisor"}[fold.total]
    value = loops.to_c(fold.of, suffix, {}) if fold.of != "a" else "a"
    fields = dict(stored=STORED[dtype], result=STORED[result], wide=wide, kind=loops.C_TYPES[suffix], join=join, start=start,
                  finish=finish, value=value, threads=_THREADS, run=16 // dtype.itemsize)
    return (fields, f"// {name}\n"), kind


def _joined(dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(size, step of the elements, step of the totals) of dimensions, outermost first, as few as can be; innermost first."""
    made: list[tuple[int, int, int]] = []
    for n, step, total in reversed(dims):
        if n == 1:
            continue
        size, inner, outer = made[-1] if made else (0, 0, 0)
        if made and size * inner == step and size * outer == total:
            made[-1] = size * n, inner, outer
        else:
            made.append((n, step, total))
    return made


def _walk(count: int, dims: list[tuple[int, int, int]]) -> bytes:
    pad = [0] * (_DIMS - len(dims))
    columns = [n for column in range(3) for n in (*[d[column] for d in dims], *pad)]
    return struct.pack(f"{2 + 3 * _DIMS}q", count, len(dims), *columns)
