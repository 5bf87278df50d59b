"""Picking, replacing and adding up elements by position.

Positions are checked by the kernels that use them (faults.py). Adding goes over sorted positions, so that each place adds up what
comes to it in one order: results do not change from run to run. Where several elements are written to one place it is open, as in
PyTorch, which of them stays.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu.index.indexing import _common_shape
from ..geometry import broadcasts_to, indexed_shape, placed, value_shape_error
from . import faults
from .arrays import CudaArray, device_index, download, windows
from .backend import _raw, copied, fill
from .driver import machine
from .launch import Plan, kernel
from .pointwise import COMPUTED, STORED, _walked
from .rows import is_real, plain
from .rules import blank
from .sorts import sorted_rows
from .table import kernel as enter

_INT64, _BOOL = np.dtype(np.int64), np.dtype(bool)
_UNITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long", 16: "Run<unsigned, 4>"}
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
_ALONG = """
#include "index.cuh"
typedef {unit} U;
enum {{ ONE = {one} }};
struct Along {{ long size, step; Walk<3> w; }}; // of what is indexed: the size and step of the dimension that positions name

extern "C" __global__ void gathered(const Along f, U *o, const long *at, const U *x, long address, long site) {{
    FOR_ALL(e, f.w.count) {{
        long k[3];
        walked(f.w, e, k);
        const long p = checked({{address, site}}, at[k[1]], f.size, false);
        o[k[0]] = p < 0 ? U() : x[k[2] + p * f.step];
    }}
}}

extern "C" __global__ void scattered(const Along f, U *x, const long *at, const U *source, long address, long site) {{
    FOR_ALL(e, f.w.count) {{
        long k[3];
        walked(f.w, e, k);
        const long p = checked({{address, site}}, at[k[1]], f.size, false);
        if (p >= 0) x[k[0] + p * f.step] = source[ONE ? 0 : k[2]];
    }}
}}

// Where in x elements go, in the order of the positions; -1: nowhere.
extern "C" __global__ void places(const Along f, long *o, const long *at, long address, long site) {{
    FOR_ALL(e, f.w.count) {{
        long k[3];
        walked(f.w, e, k);
        const long p = checked({{address, site}}, at[k[1]], f.size, false);
        o[e] = p < 0 ? -1 : k[0] + p * f.step;
    }}
}}
"""
_SMALL = """
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

extern "C" __global__ void added(const Added f, A *x, const A *source, const long *at, const long *from) {{
    const long total = f.outer * f.count * f.inner;
    const bool small = total <= 0x7fffffff;
    FOR_ALL(e, total) {{
        const long q = divided(e, f.inner, small), r = divided(q, f.count, small), i = q - r * f.count, j = e - q * f.inner;
        const long p = at[i];
        if (p < 0 || (i && at[i - 1] == p)) continue; // the first of each place works for all
        long end = i + 1;
        while (end < f.count && at[end] == p) end++;
        A *place = x + (r * f.size + p) * f.inner + j;
        const A *come = source + r * f.count * f.inner + j;
        W made = f.own ? (W)value_of(*place) : {start};
        #pragma unroll 4
        for (long k = i; k < end; k++) made = join(made, (W)value_of(come[from[k] * f.inner]) * ({alpha}));
        const long number = end - i;
        if (f.scaled == 1) made = {mean};
        if (f.scaled == 2) made = made / (W)number;
        *place = to<A>(made);
    }}
}}
"""


def positions(at: CudaArray) -> CudaArray:
    """Dense positions of int64."""
    if at.dtype == _INT64 and at.flags.c_contiguous:
        return at
    return copied(at, windows.empty(at.shape, _INT64))


@functools.lru_cache(4096)
def _launch(source: str, name: str, kinds: str, count: int, fixed: bytes, device: int, otherwise: Plan | None = None) -> Plan:
    most = 32 * machine().attribute("multiprocessors", device)
    return Plan(kernel(source, name, device), device, min(-(-count // 256), most), 256, kinds, fixed, otherwise=otherwise)


@functools.lru_cache(64)
def _text(template: str, unit: int, one: bool) -> str:
    return template.format(unit=_UNITS[unit], one=int(one))


_RANGE = "index out of range in self"
_REPORTED = 0  # the site of positions that were looked at before


def _wrong(dim: int, size: int) -> str:
    return f"index {{}} is out of bounds for dimension {dim} with size {size}"


# ------------------------------------------------------------------------------------------------ whole rows of a dimension
def _move(name: str, one_of: CudaArray, other: CudaArray, at: CudaArray, sizes: tuple[int, int, int, int], wrap: bool, site: int,
          one: bool = False) -> None:
    """taken(out, x) or put(x, source): arrays of one dtype, dense. sizes: outer, size, count, inner in elements."""
    outer, size, count, inner = sizes
    if not outer * count * inner:
        return
    nbytes, device = one_of.itemsize, device_index(one_of)
    if nbytes == 16:
        inner, nbytes = inner * 2, 8
    total, packed = outer * count * inner, 16 // nbytes

    def launch(unit: int, inner: int, otherwise: Plan | None) -> Plan:
        return _launch(_text(_MOVES, unit, one), name, "pppll", outer * count * inner,
                       struct.pack("5q", outer, size, count, inner, wrap), device, otherwise)

    plan = launch(nbytes, inner, None)
    if inner % packed == 0 and not one and total > 1 << 12:
        plan = launch(16, inner // packed, plan)
    plan.run(one_of, other, at, faults.address(), site)


def _taken(x: CudaArray, dim: int, at: CudaArray, wrap: bool, site: int) -> CudaArray:
    """x[:, ..., at] at one dimension."""
    x, at = plain(x), positions(at)
    out = windows.empty((*x.shape[:dim], *at.shape, *x.shape[dim + 1:]), x.dtype)
    sizes = math.prod(x.shape[:dim]), x.shape[dim], at.size, math.prod(x.shape[dim + 1:])
    _move("taken", out, x, at, sizes, wrap, site)
    return out


@enter("embedding")
def embedding(weight: CudaArray, indices: CudaArray, *options: Any) -> CudaArray:
    return _taken(weight, 0, indices, False, faults.site(IndexError, _RANGE))


@enter("index_select")
def index_select(x: CudaArray, dim: int, at: CudaArray) -> CudaArray:
    site = faults.site(IndexError, _RANGE)
    if not x.ndim:
        return _taken(x.reshape((1,)), 0, at.reshape((-1,)), False, site).reshape(())
    return _taken(x, dim, at.reshape((-1,)), False, site)


@enter("take")
def take(x: CudaArray, at: CudaArray) -> CudaArray:
    site = faults.site(IndexError, f"out of range: tried to access index {{}} on a tensor of {x.size} elements.")
    return _taken(plain(x).reshape((x.size,)), 0, at, True, site)


# ------------------------------------------------------------------------------------------------------ adding up at places
_JOINS = {"sum": ("x + y", "0"), "prod": ("x * y", "1"), "amax": ("x != x ? x : x > y ? x : y", "{least}"),
          "amin": ("x != x ? x : x < y ? x : y", "{most}")}


@functools.lru_cache(256)
def _added_text(dtype: np.dtype, reduce: str, alpha: bool) -> str:
    floating = COMPUTED.get(dtype) in ("f32", "f64")
    wide = ("double" if dtype.char == "d" else "float") if floating else "long"
    join, start = _JOINS["sum" if reduce == "mean" else reduce]
    if dtype == _BOOL:
        join, start = {"sum": ("x || y", "0"), "prod": ("x && y", "1"), "mean": ("x || y", "0")}.get(reduce, (join, start))
    least, most = ("-INFINITY", "INFINITY") if floating else ("(-9223372036854775807L - 1)", "9223372036854775807L")
    mean = "made / (W)(number + f.own)" if floating else "made / (number + f.own) - (made % (number + f.own) < 0)"
    return _ADDED.format(a=STORED[dtype], w=wide, join=join, start=start.format(least=least, most=most), mean=mean,
                         alpha="(W)f.alpha" if alpha else "(W)1")


def _checked(at: CudaArray, size: int, wrap: bool, site: int, skipped: int = 1 << 62) -> CudaArray:
    """Positions in range; -1 for those that are not, and for the one to skip."""
    at = positions(at)
    made = windows.empty((at.size,), _INT64)
    if at.size:
        _launch(_SMALL, "settled", "ppll", at.size, struct.pack("4q", at.size, size, skipped, wrap), device_index(at)).run(
            made, at, faults.address(), site)
    return made


def _add(x: CudaArray, at: CudaArray, source: CudaArray, sizes: tuple[int, int, int], reduce: str = "sum", own: bool = True,
         alpha: Any = 1, by_count: bool = False) -> None:
    """Into x (outer, size, inner), dense: source (outer, count, inner) at checked positions."""
    outer, size, inner = sizes
    if not source.size or not x.size:
        return
    if source.dtype != x.dtype or not source.flags.c_contiguous:
        source = copied(source, windows.empty(source.shape, x.dtype))
    ordered, order = sorted_rows(at)
    total = outer * at.size * inner
    scaled = 2 if by_count else int(reduce == "mean")
    fixed = struct.pack("6qd", outer, size, at.size, inner, own, scaled, float(alpha))
    _launch(_added_text(x.dtype, reduce, alpha != 1), "added", "pppp", total, fixed, device_index(x)).run(
        x, source, ordered, order)


def _zeros(shape: Any, dtype: np.dtype) -> CudaArray:
    out = windows.empty(tuple(shape), dtype)
    fill(out, 0)
    return out


@enter("embedding_dense_backward")
def embedding_dense_backward(grad: CudaArray, indices: CudaArray, count: int, padding_idx: int, scale_grad_by_freq: bool) -> Any:
    if grad.dtype not in COMPUTED:
        return NotImplemented
    out = _zeros((count, grad.shape[-1]), grad.dtype)
    skipped = padding_idx if padding_idx >= 0 else 1 << 62
    at = _checked(indices, count, False, faults.site(IndexError, _RANGE), skipped)
    _add(out, at, grad, (1, count, grad.shape[-1]), own=False, by_count=scale_grad_by_freq)
    return out


@enter("added_rows")
def added_rows(source: CudaArray, at: CudaArray, shape: Any) -> Any:
    if source.dtype not in COMPUTED:
        return NotImplemented
    out = _zeros(shape, source.dtype)
    at = _checked(at, shape[0], True, faults.site(IndexError, _wrong(0, shape[0])))
    _add(out, at, source, (1, shape[0], math.prod(shape[1:])), own=False)
    return out


def _into(name: str) -> Any:
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


def _apart(source: Any, x: CudaArray) -> Any:
    """A source that does not lie in the memory that is changed."""
    if type(source) is CudaArray and windows.owner(source) is windows.owner(x):
        return copied(source, windows.empty(source.shape, source.dtype))
    return source


def _split(x: CudaArray, dim: int) -> tuple[int, int, int]:
    return (math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1:])) if x.ndim else (1, 1, 1)


@_into("index_add")
def index_add(x: CudaArray, dim: int, at: CudaArray, source: CudaArray, alpha: Any) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    at = _checked(at, _split(x, dim)[1], False, faults.site(IndexError, _RANGE))
    _add(x, at, _apart(source, x), _split(x, dim), alpha=alpha)
    return None


@_into("index_copy")
def index_copy(x: CudaArray, dim: int, at: CudaArray, source: CudaArray) -> None:
    outer, size, inner = _split(x, dim)
    site = faults.site(IndexError, f"index_copy_(): index {{}} is out of bounds for dimension {dim} with size {size}")
    source = plain(_apart(source, x))
    at = positions(at)
    _move("put", x, source, at, (outer, size, at.size, inner), False, site)


@_into("index_fill")
def index_fill(x: CudaArray, dim: int, at: CudaArray, value: Any) -> None:
    outer, size, inner = _split(x, dim)
    at = positions(at)
    _move("put", x, _one(value, x.dtype), at, (outer, size, at.size, inner), True, faults.site(IndexError, _wrong(dim, size)), True)


def _one(value: Any, dtype: np.dtype) -> CudaArray:
    """A number, which may be an array of any device, as an array without dimensions."""
    made = windows.empty((), dtype)
    if type(value) is CudaArray:
        return copied(value.reshape(()), made)
    fill(made, value)
    return made


# -------------------------------------------------------------------------------------------------- positions along a dimension
def _along(name: str, first: CudaArray, at: CudaArray, last: Any, dim: int, size: int, step: int, dims: Any, kinds: str,
           unit: int, one: bool = False) -> Any:
    """dims: (size, steps of the three arrays) of the dimensions of the positions."""
    sizes, steps = dims
    pad = [0] * (12 - len(sizes))
    fixed = struct.pack(f"{4 + 4 * 12}q", size, step, at.size, len(sizes), *sizes[::-1], *pad,
                        *[n for s in steps for n in (*s[::-1], *pad)])
    site = faults.site(RuntimeError, _wrong(dim, size))
    plan = _launch(_text(_ALONG, unit, one), name, kinds, at.size, fixed, device_index(first))
    plan.run(*[a for a in (first, at, last) if a is not None], faults.address(), site)


def _steps(x: CudaArray, dims: int) -> list[int]:
    return [s // x.itemsize for s in x.strides] if x.ndim else [0] * dims


def _bits(x: CudaArray) -> CudaArray:
    if x.itemsize == 16:
        raise NotImplementedError(f"gather and scatter of {x.dtype} on a CUDA device")
    return _raw(x)


@enter("gather")
def gather(x: CudaArray, dim: int, at: CudaArray) -> CudaArray:
    out = blank("gather", x, dim, at)
    if not at.size:
        return out
    at = positions(at)
    if not x.ndim or not at.ndim:
        x, at_, out_ = x.reshape(x.shape or (1,)), at.reshape(at.shape or (1,)), out.reshape(out.shape or (1,))
    else:
        at_, out_ = at, out
    own = _steps(x, at_.ndim)
    step, size = own[dim], x.shape[dim]
    own[dim] = 0
    dims = list(at_.shape), [_steps(out_, 0), _steps(at_, 0), own]
    _along("gathered", _bits(out_), at_, _bits(x), dim, size, step, dims, "pppll", x.itemsize)
    return out


def _scatter_parts(x: CudaArray, dim: int, at: CudaArray) -> tuple[CudaArray, CudaArray, list[int], int, int]:
    """(x, positions, steps of x without the dimension's, its step and size), with dimensions."""
    x, at = x.reshape(x.shape or (1,)), at.reshape(at.shape or (1,))
    own = _steps(x, at.ndim)
    step, own[dim] = own[dim], 0
    return x, positions(at), own, step, x.shape[dim]


def _matching(source: CudaArray, at: CudaArray) -> CudaArray:
    """The part of a source that positions speak of."""
    source = source.reshape(source.shape or (1,))
    return source if source.shape == at.shape else source[tuple([slice(n) for n in at.shape])]


@_into("scatter")
def scatter(x: CudaArray, dim: int, at: CudaArray, source: Any) -> None:
    if not at.size:
        return
    x, at, own, step, size = _scatter_parts(x, dim, at)
    one = not (type(source) is CudaArray and source.ndim) and not (type(source) is CudaArray and at.shape == (1,))
    if one:
        source = _one(source, x.dtype)
        steps = [0] * at.ndim
    else:
        source = _matching(_apart(source, x), at)
        source = source if source.dtype == x.dtype else copied(source, windows.empty(source.shape, x.dtype))
        steps = _steps(source, 0)
    _along("scattered", _bits(x), at, _bits(source), dim, size, step, (list(at.shape), [own, _steps(at, 0), steps]), "pppll",
           x.itemsize, one)


def _scatter_by(x: CudaArray, dim: int, at: CudaArray, source: Any, reduce: str, own_value: bool) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    if not at.size:
        return None
    x, at, own, step, size = _scatter_parts(x, dim, at)
    if type(source) is CudaArray and (source.ndim or at.shape == (1,)):
        source = _matching(_apart(source, x), at)
    else:
        source = copied(_one(source, x.dtype), windows.empty(at.shape, x.dtype))
    places = windows.empty((at.size,), _INT64)
    _along("places", places, at, None, dim, size, step, (list(at.shape), [own, _steps(at, 0), [0] * at.ndim]), "ppll", 8)
    _add(x, places, source, (1, x.size, 1), reduce, own_value)
    return None


@_into("scatter_add")
def scatter_add(x: CudaArray, dim: int, at: CudaArray, source: CudaArray) -> Any:
    return _scatter_by(x, dim, at, source, "sum", True)


@_into("scatter_with")
def scatter_with(x: CudaArray, dim: int, at: CudaArray, source: Any, reduce: str) -> Any:
    return _scatter_by(x, dim, at, source, {"add": "sum", "multiply": "prod"}[reduce], True)


@_into("scatter_reduce")
def scatter_reduce(x: CudaArray, dim: int, at: CudaArray, source: CudaArray, reduce: str, include_self: bool) -> Any:
    return _scatter_by(x, dim, at, source, reduce, include_self)


@_into("index_reduce")
def index_reduce(x: CudaArray, dim: int, at: CudaArray, source: CudaArray, reduce: str, include_self: bool) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    at = _checked(at, _split(x, dim)[1], False, faults.site(IndexError, _RANGE))
    _add(x, at, _apart(source, x), _split(x, dim), reduce, include_self)
    return None


@enter("scatter_added")
def scatter_added(source: CudaArray, dim: int, at: CudaArray, shape: Any) -> Any:
    out = _zeros(shape, source.dtype)
    return out if _scatter_by(out, dim, at, source, "sum", True) is not NotImplemented else NotImplemented


# -------------------------------------------------------------------------------------------------- x[i, j, mask], x[i] = v
def _expanded(shape: tuple[int, ...], indices: Any) -> list[Any]:
    """One array of positions or None per dimension: masks become the positions where they hold."""
    out: list[Any] = []
    for a in indices:
        if a is None or a.dtype.kind != "b" and a.dtype.char != "B":
            out.append(a if a is None or type(a) is CudaArray else copied(a, windows.empty(a.shape, _INT64)))
            continue
        if type(a) is not CudaArray:
            a = copied(a, windows.empty(a.shape, a.dtype))
        at = len(out)
        for k in range(a.ndim):
            if at + k >= len(shape) or a.shape[k] != shape[at + k]:
                raise IndexError(f"The shape of the mask {list(a.shape)} at index {k} does not match the shape "
                                 f"of the indexed tensor {list(shape)} at index {at + k}")
        found = nonzero(a)
        out.extend([found[:, d] for d in range(a.ndim)] if a.ndim else [_zeros((found.shape[0],), _INT64)])
    if len(out) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {len(out)})")
    return out


class _Spot:
    """Where index arrays point: x seen as (outer, size, inner) with one position for all indexed dimensions."""

    def __init__(self, x: CudaArray, indices: Any):
        arrays = _expanded(x.shape, indices)
        given, self.front = placed(arrays)
        self.arrays, self.given = arrays, given
        self.common = _common_shape(arrays) if given else ()
        self.shape = indexed_shape(x.shape, arrays, self.common) if given else x.shape
        together = bool(given) and given[-1] - given[0] + 1 == len(given)
        rest = [d for d in range(x.ndim) if d not in given]
        self.order = None if together else [*given, *rest]
        first = given[0] if together else 0
        moved = x.shape if together else tuple([x.shape[d] for d in self.order])
        self.sizes = (math.prod(moved[:first]), math.prod(moved[first:first + len(given)]), math.prod(moved[first + len(given):]))
        self.at = self._positions(x)

    def _positions(self, x: CudaArray) -> CudaArray:
        made = None
        for d in self.given:
            at, size = self.arrays[d], x.shape[d]
            at = at if at.shape == self.common and at.dtype == _INT64 and at.flags.c_contiguous else copied(
                at, windows.empty(self.common, _INT64))
            site = faults.site(IndexError, _wrong(d, size) if size else "index is out of bounds for dimension with size 0")
            if made is None:
                made = _checked(at, size, True, site)
            elif at.size:
                before, made = made, windows.empty((at.size,), _INT64)
                _launch(_SMALL, "joined", "pppll", at.size, struct.pack("4q", at.size, size, 0, 1), device_index(x)).run(
                    made, before, at, faults.address(), site)
        return made

    def seen(self, x: CudaArray) -> CudaArray:
        return x if self.order is None else x.transpose(self.order)


@enter("index")
def index(x: CudaArray, indices: Any) -> Any:
    spot = _Spot(x, indices)
    if not spot.given:
        return copied(x, windows.empty(x.shape, x.dtype))
    out, source = windows.empty(spot.shape, x.dtype), plain(spot.seen(x))
    outer, size, inner = spot.sizes
    _move("taken", out, source, spot.at, (outer, size, spot.at.size, inner), False, _REPORTED)
    return out


@_into("index_put")
def index_put(x: CudaArray, indices: Any, values: CudaArray, accumulate: bool) -> Any:
    if accumulate and x.dtype not in COMPUTED:
        return NotImplemented
    spot, values = _Spot(x, indices), _apart(values, x)
    if not broadcasts_to(values.shape, spot.shape):
        raise value_shape_error(values.shape, spot.shape)
    if type(values) is not CudaArray:
        values = copied(values, windows.empty(values.shape, x.dtype))
    if values.shape != spot.shape or values.dtype != x.dtype or not values.flags.c_contiguous:
        values = copied(values, windows.empty(spot.shape, x.dtype))
    if not spot.given:
        raise NotImplementedError("index_put without indices on a CUDA device")
    target = plain(spot.seen(x))
    outer, size, inner = spot.sizes
    if accumulate:
        _add(target, spot.at, values, spot.sizes)
    else:
        _move("put", target, values, spot.at, (outer, size, spot.at.size, inner), False, _REPORTED)
    if spot.order is not None:
        copied(target, spot.seen(x))
    return None


@_into("put")
def put(x: CudaArray, at: CudaArray, source: CudaArray, accumulate: bool) -> Any:
    site = faults.site(IndexError, f"out of range: tried to access index {{}} on a tensor of {x.size} elements.")
    source = plain(_apart(source, x))
    if accumulate:
        if x.dtype not in COMPUTED:
            return NotImplemented
        _add(x, _checked(at, x.size, True, site), source, (1, x.size, 1))
    else:
        at = positions(at)
        _move("put", x, source, at, (1, x.size, at.size, 1), True, site)
    return None


@enter("one_hot")
def one_hot(indices: CudaArray, classes: int) -> CudaArray:
    out, at = windows.empty((*indices.shape, classes), _INT64), positions(indices)
    if out.size:
        _launch(_SMALL, "one_hot", "ppll", out.size, struct.pack("4q", at.size, classes, 0, 0), device_index(at)).run(
            out, at, faults.address(), faults.site(RuntimeError, "Class values must be smaller than num_classes."))
    return out


# ----------------------------------------------------------------------------------------------------------------- masks
_MASKS = """
#include "index.cuh"
typedef {a} A;
struct Masks {{ long count, dims, size[DIMS]; }}; // innermost first
enum {{ THREADS = 256, EACH = 8 }};

static __device__ inline int held(const A *x, long from, long count) {{ // of a thread's EACH elements, as bits
    int made = 0;
    #pragma unroll
    for (int k = 0; k < EACH; k++)
        if (from + k < count && value_of(x[from + k]) != 0) made |= 1 << k;
    return made;
}}
static __device__ inline int ones(int bits) {{
    int n = 0;
    #pragma unroll
    for (int k = 0; k < EACH; k++) n += bits >> k & 1;
    return n;
}}
// Running sums over a block; the last thread's is the block's.
static __device__ inline int running(int n) {{
    __shared__ int met[THREADS];
    met[threadIdx.x] = n;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {{
        const int more = threadIdx.x >= step ? met[threadIdx.x - step] : 0;
        __syncthreads();
        met[threadIdx.x] = n += more;
        __syncthreads();
    }}
    return n;
}}

extern "C" __global__ void counted(const Masks m, long *counts, const A *x) {{
    const int n = running(ones(held(x, ((long)blockIdx.x * THREADS + threadIdx.x) * EACH, m.count)));
    if (threadIdx.x == THREADS - 1) counts[blockIdx.x] = n;
}}

// Where each block's begin; behind them, how many there are.
extern "C" __global__ void starts(const Masks m, long *counts) {{
    __shared__ long met[THREADS];
    long before = 0;
    for (long from = 0; from < m.count; from += THREADS) {{
        const long at = from + threadIdx.x, own = at < m.count ? counts[at] : 0;
        long sum = own;
        met[threadIdx.x] = own;
        __syncthreads();
        for (int step = 1; step < THREADS; step *= 2) {{
            const long more = threadIdx.x >= step ? met[threadIdx.x - step] : 0;
            __syncthreads();
            met[threadIdx.x] = sum += more;
            __syncthreads();
        }}
        if (at < m.count) counts[at] = before + sum - own;
        before += met[THREADS - 1];
        __syncthreads();
    }}
    if (!threadIdx.x) counts[m.count] = before;
}}

// Positions, a column of all for each dimension; without dimensions, positions in x as it lies in memory.
extern "C" __global__ void found(const Masks m, long *o, const A *x, const long *counts, long total) {{
    const long from = ((long)blockIdx.x * THREADS + threadIdx.x) * EACH;
    const int bits = held(x, from, m.count), n = ones(bits);
    long to = counts[blockIdx.x] + running(n) - n;
    for (int k = 0; k < EACH; k++) {{
        if (!(bits >> k & 1)) continue;
        long rest = from + k;
        if (!m.dims) o[to] = rest;
        for (int d = 0; d < m.dims; d++) {{
            const long next = rest / m.size[d];
            o[(m.dims - 1 - d) * total + to] = rest - next * m.size[d];
            rest = next;
        }}
        to++;
    }}
}}
"""


@functools.lru_cache(1024)
def _mask_plan(source: str, name: str, kinds: str, blocks: int, fixed: bytes, device: int) -> Plan:
    return Plan(kernel(source, name, device), device, blocks, 256, kinds, fixed)


def _found(x: CudaArray, columns: bool) -> CudaArray:
    """(dimensions, number of elements that are not zero) positions, or (number,) in order; this waits for the device."""
    x = plain(x)
    if not x.size:
        return windows.empty((x.ndim, 0) if columns else (0,), _INT64)
    if x.dtype not in COMPUTED:
        raise NotImplementedError(f"nonzero of {x.dtype} on a CUDA device")
    device, blocks = device_index(x), -(-x.size // 2048)
    source = _MASKS.format(a=STORED[x.dtype])
    dims = list(x.shape[::-1]) if columns else []
    fixed = struct.pack("14q", x.size, len(dims), *dims, *[0] * (12 - len(dims)))
    counts = windows.empty((blocks + 1,), _INT64)
    _mask_plan(source, "counted", "pp", blocks, fixed, device).run(counts, x)
    _mask_plan(source, "starts", "p", 1, struct.pack("14q", blocks, *[0] * 13), device).run(counts)
    total = int(download(counts[blocks:])[0])
    out = windows.empty((x.ndim, total) if columns else (total,), _INT64)
    if total:
        _mask_plan(source, "found", "pppl", blocks, fixed, device).run(out, x, counts, total)
    return out


@enter("nonzero")
def nonzero(x: CudaArray) -> CudaArray:
    if not x.ndim:
        return windows.empty((_found(x.reshape((1,)), False).size, 0), _INT64)
    return _found(x, True).T  # column by column, as PyTorch lays it out


@enter("nonzero_static")
def nonzero_static(x: CudaArray, size: int, fill_value: int) -> CudaArray:
    out, found = windows.empty((size, x.ndim), _INT64), nonzero(x)[:size]
    fill(out, fill_value)
    copied(found, out[:found.shape[0]])
    return out


@enter("masked_select")
def masked_select(x: CudaArray, mask: CudaArray) -> CudaArray:
    shape = np.broadcast_shapes(x.shape, mask.shape)
    x, mask = (a if a.shape == shape else copied(a, windows.empty(shape, a.dtype)) for a in (x, mask))
    return _taken(plain(x).reshape((x.size,)), 0, _found(mask, False), False, _REPORTED)


_FILLED = """
#include "index.cuh"
typedef {unit} U;
struct Filled {{ Walk<3> w; }};
extern "C" __global__ void filled(const Filled f, U *o, const U *x, const bool *mask, const U *value) {{
    FOR_ALL(e, f.w.count) {{
        long k[3];
        walked(f.w, e, k);
        o[k[0]] = mask[k[2]] ? *value : x[k[1]];
    }}
}}
"""


def _masked_fill(x: CudaArray, mask: CudaArray, value: Any, out: CudaArray) -> CudaArray:
    if not out.size:
        return out
    one = _one(value, x.dtype)
    if mask.dtype != _BOOL:
        mask = copied(mask, windows.empty(mask.shape, _BOOL))
    sizes, steps = _walked(out, [x, mask])
    pad = [0] * (12 - len(sizes))
    fixed = struct.pack(f"{2 + 4 * 12}q", out.size, len(sizes), *sizes[::-1], *pad, *[n for s in steps for n in (*s[::-1], *pad)])
    _launch(_FILLED.format(unit=_UNITS[x.itemsize]), "filled", "pppp", out.size, fixed, device_index(x)).run(out, x, mask, one)
    return out


@enter("masked_fill")
def masked_fill(x: CudaArray, mask: CudaArray, value: Any) -> Any:
    return NotImplemented if x.itemsize == 16 else _masked_fill(x, mask, value, blank("masked_fill", x, mask, value))


@enter("masked_fill_into")
def masked_fill_into(x: CudaArray, mask: CudaArray, value: Any) -> Any:
    if x.itemsize == 16:
        return NotImplemented
    _masked_fill(x, mask, value, x)
    return None


@_into("masked_scatter")
def masked_scatter(x: CudaArray, mask: CudaArray, source: CudaArray) -> None:
    mask = mask if mask.shape == x.shape else copied(mask, windows.empty(x.shape, mask.dtype))
    at = _found(mask, False)
    if at.size > source.size:
        raise RuntimeError(f"masked_scatter: Number of elements of source < number of ones in mask ({source.size} < {at.size})")
    _move("put", x, plain(_apart(source, x)), at, (1, x.size, at.size, 1), False, _REPORTED)


@enter("masked_scatter_backward")
def masked_scatter_backward(grad: CudaArray, mask: CudaArray, shape: Any) -> CudaArray:
    out = _zeros((math.prod(shape),), grad.dtype)
    picked = masked_select(grad, mask)
    copied(picked, out[:picked.size])
    return out.reshape(shape)


# -------------------------------------------------------------------------------------------------------------- triangles
_TRIANGLE = """
#include "index.cuh"
typedef {unit} U;
struct Triangle {{ long diagonal, columns, rows; Walk<2> w; }};
extern "C" __global__ void triangle(const Triangle f, U *o, const U *x) {{
    const bool small = f.w.count <= 0x7fffffff;
    FOR_ALL(e, f.w.count) {{
        long k[2];
        walked(f.w, e, k);
        const long q = divided(e, f.columns, small), c = e - q * f.columns, r = q - divided(q, f.rows, small) * f.rows;
        o[k[0]] = {kept} ? x[k[1]] : U();
    }}
}}
"""


def _triangle(name: str, kept: str) -> None:
    @enter(name)
    def triangle(x: CudaArray, diagonal: int) -> Any:
        if x.itemsize == 16:
            return NotImplemented
        out = blank(name, x, diagonal)
        if not out.size:
            return out
        pad = [0] * (12 - x.ndim)
        fixed = struct.pack(f"{5 + 3 * 12}q", diagonal, x.shape[-1], x.shape[-2], x.size, x.ndim, *x.shape[::-1], *pad,
                            *[n for a in (out, x) for n in (*_steps(a, 0)[::-1], *pad)])
        _launch(_TRIANGLE.format(unit=_UNITS[x.itemsize], kept=kept), "triangle", "pp", x.size, fixed, device_index(x)).run(out, x)
        return out


_triangle("tril", "c - r <= f.diagonal")
_triangle("triu", "c - r >= f.diagonal")
