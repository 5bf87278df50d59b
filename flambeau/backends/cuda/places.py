"""Positions and what is done with rows at them: picked, replaced, added up. The heart of indexing.py, scatter.py, masks.py.

Positions are checked by the kernels that use them (faults.py). Adding goes over sorted positions, so that each place adds up
what comes to it in one order: results do not change from run to run. Where several elements are written to one place it is
open, as in PyTorch, which of them stays.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np

from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import _parts, call, contiguous, copied, fill, host_array
from .driver import machine
from .launch import Plan, launch, plan_of
from .pointwise import COMPUTED, STORED
from .sorts import sorted_rows
from .table import kernel as enter

INT64, BOOL = np.dtype(np.int64), np.dtype(bool)
UNITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long", 16: "Run<unsigned, 4>"}
_MOVES = """
#include "index.cuh"
struct Moves {{ long outer, size, count, inner, wrap; }}; // x is (outer, size, inner), what is moved (outer, count, inner)
typedef {unit} U;
enum {{ ONE = {one} }}; // a single element goes to all places

extern "C" __global__ void taken(const Moves m, U *o, const U *x, const long *at, long address, long site) {{
    const long total = m.outer * m.count * m.inner;
    const bool small = total <= 0x7fffffff;
    FOR_ALL(e, total) {{
        const long q = divided(e, m.inner, small), r = divided(q, m.count, small);
        const long p = checked({{address, site}}, at[q - r * m.count], m.size, m.wrap);
        o[e] = p < 0 ? U() : x[(r * m.size + p) * m.inner + (e - q * m.inner)];
    }}
}}

extern "C" __global__ void put(const Moves m, U *x, const U *source, const long *at, long address, long site) {{
    const long total = m.outer * m.count * m.inner;
    const bool small = total <= 0x7fffffff;
    FOR_ALL(e, total) {{
        const long q = divided(e, m.inner, small), r = divided(q, m.count, small);
        const long p = checked({{address, site}}, at[q - r * m.count], m.size, m.wrap);
        if (p >= 0) x[(r * m.size + p) * m.inner + (e - q * m.inner)] = source[ONE ? 0 : e];
    }}
}}
"""
SMALL = """
#include "index.cuh"
struct Positions { long count, size, skipped, wrap; };

extern "C" __global__ void joined(const Positions f, long *o, const long *before, const long *at, long address, long site) {
    FOR_ALL(e, f.count) {
        const long p = checked({address, site}, at[e], f.size, true);
        o[e] = before[e] < 0 || p < 0 ? -1 : before[e] * f.size + p;
    }
}
extern "C" __global__ void settled(const Positions f, long *o, const long *at, long address, long site) {
    FOR_ALL(e, f.count) o[e] = at[e] == f.skipped ? -1 : checked({address, site}, at[e], f.size, f.wrap);
}
extern "C" __global__ void one_hot(const Positions f, long *o, const long *at, long address, long site) {
    FOR_ALL(e, f.count * f.size) {
        const long i = divided(e, f.size, f.count * f.size <= 0x7fffffff), c = e - i * f.size;
        if (!c) checked({address, site}, at[i], f.size, false);
        o[e] = at[i] == c;
    }
}
"""
_ADDED = """
#include "index.cuh"
typedef {a} A;
typedef {w} W;
// x is (outer, size, inner); source (outer, count, inner) goes to the sorted positions `at`, in the order of `from`.
struct Added {{ long outer, size, count, inner, own, scaled; double alpha; }};
static __device__ inline W join(W x, W y) {{ return {join}; }}

// A place's elements are summed in pieces of PIECE, each from its first sorted position on; then the pieces.
enum {{ PIECE = 128 }};
struct Spot {{ long row, i, j, place; }};
static __device__ inline Spot spot_of(const Added &f, long e, const long *at) {{
    const bool small = f.outer * f.count * f.inner <= 0x7fffffff;
    const long q = divided(e, f.inner, small), r = divided(q, f.count, small), i = q - r * f.count;
    return {{r, i, e - q * f.inner, at[i]}};
}}

extern "C" __global__ void pieces(const Added f, W *parts, const A *source, const long *at, const long *from) {{
    FOR_ALL(e, f.outer * f.count * f.inner) {{
        const Spot s = spot_of(f, e, at);
        if (s.place < 0 || (s.i % PIECE && at[s.i - 1] == s.place)) continue; // the first of each piece works for all
        const A *come = source + s.row * f.count * f.inner + s.j;
        W made = {start};
        const long end = (s.i / PIECE + 1) * PIECE < f.count ? (s.i / PIECE + 1) * PIECE : f.count;
        #pragma unroll 4
        for (long k = s.i; k < end && at[k] == s.place; k++)
            made = join(made, (W)value_of(come[from[k] * f.inner]) * ({alpha}));
        parts[e] = made;
    }}
}}

extern "C" __global__ void added(const Added f, A *x, const W *parts, const long *at, const long *from) {{
    FOR_ALL(e, f.outer * f.count * f.inner) {{
        const Spot s = spot_of(f, e, at);
        if (s.place < 0 || (s.i && at[s.i - 1] == s.place)) continue;
        A *place = x + (s.row * f.size + s.place) * f.inner + s.j;
        W made = f.own ? (W)value_of(*place) : {start};
        long end = s.i;
        while (end < f.count && at[end] == s.place) {{
            made = join(made, parts[e + (end - s.i) * f.inner]);
            end = (end / PIECE + 1) * PIECE;
        }}
        if (f.scaled) {{ // by how many there are: the end of the place's elements is in the last piece
            end = end < f.count ? end : f.count;
            while (at[end - 1] != s.place) end--;
            const long number = end - s.i;
            made = f.scaled == 1 ? {mean} : made / (W)number;
        }}
        *place = to<A>(made);
    }}
}}
"""

# Into few places: x is (size, inner), source (count, inner). No sort: a block has 32 columns and a chunk of the rows, each of
# its warps a table of all places, to which it adds its rows in their order.
_FEW = """
#include "index.cuh"
typedef {a} A;
typedef {w} W;
struct Few {{ long size, count, inner, chunks; }};
enum {{ SIZE = {size}, WARPS = {warps}, AHEAD = 8 }};

extern "C" __launch_bounds__(32 * WARPS) __global__ void few(const Few f, W *parts, const A *source, const long *at) {{
    __shared__ W table[WARPS][SIZE][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long tiles = (f.inner + 31) / 32, chunk = blockIdx.x / tiles, j = blockIdx.x % tiles * 32 + lane;
    const long share = (f.count + f.chunks * WARPS - 1) / (f.chunks * WARPS), from = (chunk * WARPS + warp) * share;
    const long till = from + share < f.count ? from + share : f.count;
    for (int p = 0; p < f.size; p++) table[warp][p][lane] = 0;
    for (long k = from; k < till; k += AHEAD) {{
        W v[AHEAD];
        int place[AHEAD];
        #pragma unroll
        for (int i = 0; i < AHEAD; i++) {{
            place[i] = k + i < till ? (int)at[k + i] : -1;
            v[i] = place[i] >= 0 && j < f.inner ? (W)value_of(source[(k + i) * f.inner + j]) : 0;
        }}
        #pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (place[i] >= 0) table[warp][place[i]][lane] += v[i];
    }}
    __syncthreads();
    for (int p = warp; p < f.size; p += WARPS) {{
        W made = 0;
        for (int k = 0; k < WARPS; k++) made += table[k][p][lane];
        if (j < f.inner) parts[(chunk * f.size + p) * f.inner + j] = made;
    }}
}}

extern "C" __global__ void few_joined(const Few f, A *x, const W *parts) {{
    const long total = f.size * f.inner;
    FOR_ALL(e, total) {{
        W made = (W)value_of(x[e]);
        #pragma unroll 8
        for (long k = 0; k < f.chunks; k++) made += parts[k * total + e];
        x[e] = to<A>(made);
    }}
}}
"""
_TABLES = 48 << 10  # bytes of a block's tables


def positions(at: CudaArray) -> CudaArray:
    """Dense positions of int64."""
    if type(at) is not CudaArray:
        raise host_array()
    if at.dtype == INT64 and at.flags.c_contiguous:
        return at
    return copied(at, windows.empty(at.shape, INT64))


@functools.lru_cache(64)
def filled_in(template: str, unit: int, one: bool) -> str:
    return template.format(unit=UNITS[unit], one=int(one))


RANGE = "index out of range in self"
REPORTED = 0  # the site of positions that were looked at before


def out_of_bounds(dim: int, size: int) -> str:
    return f"index {{}} is out of bounds for dimension {dim} with size {size}"


# ------------------------------------------------------------------------------------------------ whole rows of a dimension
def move(name: str, one_of: CudaArray, other: CudaArray, at: CudaArray, sizes: tuple[int, int, int, int], wrap: bool, site: int,
          one: bool = False) -> None:
    """taken(out, x) or put(x, source): arrays of one dtype, dense. sizes: outer, size, count, inner in elements."""
    outer, size, count, inner = sizes
    if not outer * count * inner:
        return
    nbytes, device = one_of.itemsize, device_index(one_of)
    if nbytes == 16:
        inner, nbytes = inner * 2, 8
    total, packed = outer * count * inner, 16 // nbytes

    def planned(unit: int, inner: int, otherwise: Plan | None) -> Plan:
        return launch(filled_in(_MOVES, unit, one), name, "pppll", outer * count * inner,
                       struct.pack("5q", outer, size, count, inner, wrap), device, otherwise)

    plan = planned(nbytes, inner, None)
    if inner % packed == 0 and not one and total > 1 << 12:
        plan = planned(16, inner // packed, plan)
    plan.run(one_of, other, at, faults.address(), site)


def taken(x: CudaArray, dim: int, at: CudaArray, wrap: bool, site: int) -> CudaArray:
    """x[:, ..., at] at one dimension."""
    x, at = contiguous(x), positions(at)
    out = windows.empty((*x.shape[:dim], *at.shape, *x.shape[dim + 1:]), x.dtype)
    sizes = math.prod(x.shape[:dim]), x.shape[dim], at.size, math.prod(x.shape[dim + 1:])
    move("taken", out, x, at, sizes, wrap, site)
    return out


# ------------------------------------------------------------------------------------------------------ adding up at places
_JOINS = {"sum": ("x + y", "0"), "prod": ("x * y", "1"), "amax": ("x != x ? x : x > y ? x : y", "{least}"),
          "amin": ("x != x ? x : x < y ? x : y", "{most}")}


@functools.lru_cache(256)
def _added_text(dtype: np.dtype, reduce: str, alpha: bool) -> str:
    floating = COMPUTED.get(dtype) in ("f32", "f64")
    wide = {"d": "double", "f": "float"}.get(_sum_type(dtype).char, "long")
    join, start = _JOINS["sum" if reduce == "mean" else reduce]
    if dtype == BOOL:
        join, start = {"sum": ("x || y", "0"), "prod": ("x && y", "1"), "mean": ("x || y", "0")}.get(reduce, (join, start))
    least, most = ("-INFINITY", "INFINITY") if floating else ("(-9223372036854775807L - 1)", "9223372036854775807L")
    mean = "made / (W)(number + f.own)" if floating else "made / (number + f.own) - (made % (number + f.own) < 0)"
    return _ADDED.format(a=STORED[dtype], w=wide, join=join, start=start.format(least=least, most=most), mean=mean,
                         alpha="(W)f.alpha" if alpha else "(W)1")


def checked(at: CudaArray, size: int, wrap: bool, site: int, skipped: int = 1 << 62) -> CudaArray:
    """Positions in range; -1 for those that are not, and for the one to skip."""
    at = positions(at)
    made = windows.empty((at.size,), INT64)
    if at.size:
        launch(SMALL, "settled", "ppll", at.size, struct.pack("4q", at.size, size, skipped, wrap), device_index(at)).run(
            made, at, faults.address(), site)
    return made


def can_add(dtype: np.dtype, reduce: str = "sum") -> bool:
    """Whether `add` knows elements of this type."""
    return dtype in COMPUTED or (dtype.kind == "c" and reduce in ("sum", "mean"))


def add(x: CudaArray, at: CudaArray, source: CudaArray, sizes: tuple[int, int, int], reduce: str = "sum", own: bool = True,
         alpha: Any = 1, by_count: bool = False) -> None:
    """Into x (outer, size, inner), dense: source (outer, count, inner) at checked positions."""
    outer, size, inner = sizes
    if not source.size or not x.size:
        return
    if source.dtype != x.dtype or not source.flags.c_contiguous:
        source = copied(source, windows.empty(source.shape, x.dtype))
    if x.dtype.kind == "c":  # sums of pairs
        if isinstance(alpha, complex):
            source, alpha = (source, alpha.real) if not alpha.imag else (call("mul", (source, np.asarray(alpha, x.dtype))), 1)
        return add(_parts(x), at, _parts(source), (outer, size, 2 * inner), reduce, own, alpha, by_count)
    if outer == 1 and reduce == "sum" and own and alpha == 1 and not by_count and COMPUTED[x.dtype] in ("f32", "f64") and (
            32 * -(-size // 32) * 32 * _sum_type(x.dtype).itemsize <= _TABLES):
        return _add_few(x, at, source, size, inner)
    ordered, order = sorted_rows(at)
    total, device = outer * at.size * inner, device_index(x)
    fixed = struct.pack("6qd", outer, size, at.size, inner, own, 2 if by_count else int(reduce == "mean"), float(alpha))
    text, parts = _added_text(x.dtype, reduce, alpha != 1), windows.empty((total,), _sum_type(x.dtype))
    launch(text, "pieces", "pppp", total, fixed, device).run(parts, source, ordered, order)
    launch(text, "added", "pppp", total, fixed, device).run(x, parts, ordered, order)


def _add_few(x: CudaArray, at: CudaArray, source: CudaArray, size: int, inner: int) -> None:
    wide, device = _sum_type(x.dtype), device_index(x)
    room = 32 * -(-size // 32)
    warps = min(_TABLES // (room * 32 * wide.itemsize), 8)
    tiles, most = -(-inner // 32), 4 * machine().attribute("multiprocessors", device)
    chunks = max(min(at.size // (16 * warps), most // tiles), 1)
    text = _FEW.format(a=STORED[x.dtype], w="double" if wide.char == "d" else "float", size=room, warps=warps)
    parts, fixed = windows.empty((chunks, size, inner), wide), struct.pack("4q", size, at.size, inner, chunks)
    plan_of(text, "few", device, tiles * chunks, 32 * warps, "ppp", fixed).run(parts, source, at)
    launch(text, "few_joined", "pp", size * inner, fixed, device).run(x, parts)


def _sum_type(dtype: np.dtype) -> np.dtype:
    floating = COMPUTED.get(dtype) in ("f32", "f64")
    return np.dtype((np.float64 if dtype.char == "d" else np.float32) if floating else np.int64)


def zeros(shape: Any, dtype: np.dtype) -> CudaArray:
    out = windows.empty(tuple(shape), dtype)
    fill(out, 0)
    return out


def changing(name: str) -> Any:
    """Enters `name_into`, which changes its first array, and `name`, which works on a copy."""
    def entered(function: Any) -> Any:
        def changed(x: CudaArray, *args: Any) -> Any:
            if x.flags.c_contiguous:
                return function(x, *args)
            dense = copied(x, windows.empty(x.shape, x.dtype))
            made = function(dense, *args)
            if made is not NotImplemented:
                copied(dense, x)
            return made

        def out_of_place(x: CudaArray, *args: Any) -> Any:
            out = copied(x, windows.empty(x.shape, x.dtype))
            return out if function(out, *args) is not NotImplemented else NotImplemented
        enter(f"{name}_into")(changed)
        enter(name)(out_of_place)
        return function
    return entered


def apart(source: Any, x: CudaArray) -> Any:
    """A source that does not lie in the memory that is changed."""
    if type(source) is CudaArray and windows.owner(source) is windows.owner(x):
        return copied(source, windows.empty(source.shape, source.dtype))
    return source


def around(x: CudaArray, dim: int) -> tuple[int, int, int]:
    return (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1:])) if x.ndim else (1, 1, 1)


def single(value: Any, dtype: np.dtype) -> CudaArray:
    """A number, which may be an array of any device, as an array without dimensions."""
    made = windows.empty((), dtype)
    if type(value) is CudaArray:
        return copied(value.reshape(()), made)
    fill(made, value)
    return made


def steps_of(x: CudaArray, dims: int) -> list[int]:
    return [s // x.itemsize for s in x.strides] if x.ndim else [0] * dims
