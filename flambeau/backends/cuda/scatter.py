"""gather and scatter: one position along a dimension for every element (places.py)."""

from __future__ import annotations

import struct
from typing import Any

from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import _raw, copied
from .launch import launch
from .places import INT64, add, apart, can_add, changing, filled_in, out_of_bounds, positions, single, steps_of, zeros
from .rules import blank
from .table import kernel as enter

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


def _along(name: str, first: CudaArray, at: CudaArray, last: Any, dim: int, size: int, step: int, dims: Any, kinds: str,
           unit: int, one: bool = False) -> Any:
    """dims: (size, steps of the three arrays) of the dimensions of the positions."""
    sizes, steps = dims
    pad = [0] * (12 - len(sizes))
    fixed = struct.pack(f"{4 + 4 * 12}q", size, step, at.size, len(sizes), *sizes[::-1], *pad,
                        *[n for s in steps for n in (*s[::-1], *pad)])
    site = faults.site(RuntimeError, out_of_bounds(dim, size))
    plan = launch(filled_in(_ALONG, unit, one), name, kinds, at.size, fixed, device_index(first))
    plan.run(*[a for a in (first, at, last) if a is not None], faults.address(), site)


def _bits(x: CudaArray) -> CudaArray:
    return x if x.itemsize == 16 else _raw(x)  # those of 16 bytes are moved as they are (places.UNITS)


@enter("gather", repeatable=True)
def gather(x: CudaArray, dim: int, at: CudaArray) -> CudaArray:
    out = blank("gather", x, dim, at)
    if not at.size:
        return out
    at = positions(at)
    if not x.ndim or not at.ndim:
        x, at_, out_ = x.reshape(x.shape or (1,)), at.reshape(at.shape or (1,)), out.reshape(out.shape or (1,))
    else:
        at_, out_ = at, out
    own = steps_of(x, at_.ndim)
    step, size = own[dim], x.shape[dim]
    own[dim] = 0
    dims = list(at_.shape), [steps_of(out_, 0), steps_of(at_, 0), own]
    _along("gathered", _bits(out_), at_, _bits(x), dim, size, step, dims, "pppll", x.itemsize)
    return out


def _scatter_parts(x: CudaArray, dim: int, at: CudaArray) -> tuple[CudaArray, CudaArray, list[int], int, int]:
    """(x, positions, steps of x without the dimension's, its step and size), with dimensions."""
    x, at = x.reshape(x.shape or (1,)), at.reshape(at.shape or (1,))
    own = steps_of(x, at.ndim)
    step, own[dim] = own[dim], 0
    return x, positions(at), own, step, x.shape[dim]


def _matching(source: CudaArray, at: CudaArray) -> CudaArray:
    """The part of a source that positions speak of."""
    source = source.reshape(source.shape or (1,))
    return source if source.shape == at.shape else source[tuple([slice(n) for n in at.shape])]


@changing("scatter")
def scatter(x: CudaArray, dim: int, at: CudaArray, source: Any) -> None:
    if not at.size:
        return
    x, at, own, step, size = _scatter_parts(x, dim, at)
    one = not (type(source) is CudaArray and source.ndim) and not (type(source) is CudaArray and at.shape == (1,))
    if one:
        source = single(source, x.dtype)
        steps = [0] * at.ndim
    else:
        source = _matching(apart(source, x), at)
        source = source if source.dtype == x.dtype else copied(source, windows.empty(source.shape, x.dtype))
        steps = steps_of(source, 0)
    _along("scattered", _bits(x), at, _bits(source), dim, size, step, (list(at.shape), [own, steps_of(at, 0), steps]), "pppll",
           x.itemsize, one)


def _scatter_by(x: CudaArray, dim: int, at: CudaArray, source: Any, reduce: str, own_value: bool) -> Any:
    if not can_add(x.dtype, reduce):
        return NotImplemented
    if not at.size:
        return None
    x, at, own, step, size = _scatter_parts(x, dim, at)
    if type(source) is CudaArray and (source.ndim or at.shape == (1,)):
        source = _matching(apart(source, x), at)
    else:
        source = copied(single(source, x.dtype), windows.empty(at.shape, x.dtype))
    places = windows.empty((at.size,), INT64)
    _along("places", places, at, None, dim, size, step, (list(at.shape), [own, steps_of(at, 0), [0] * at.ndim]), "ppll", 8)
    add(x, places, source, (1, x.size, 1), reduce, own_value)
    return None


@changing("scatter_add")
def scatter_add(x: CudaArray, dim: int, at: CudaArray, source: CudaArray) -> Any:
    return _scatter_by(x, dim, at, source, "sum", True)


@changing("scatter_with")
def scatter_with(x: CudaArray, dim: int, at: CudaArray, source: Any, reduce: str) -> Any:
    return _scatter_by(x, dim, at, source, {"add": "sum", "multiply": "prod"}[reduce], True)


@changing("scatter_reduce")
def scatter_reduce(x: CudaArray, dim: int, at: CudaArray, source: CudaArray, reduce: str, include_self: bool) -> Any:
    return _scatter_by(x, dim, at, source, reduce, include_self)


@enter("scatter_added", repeatable=True)
def scatter_added(source: CudaArray, dim: int, at: CudaArray, shape: Any) -> Any:
    out = zeros(shape, source.dtype)
    return out if _scatter_by(out, dim, at, source, "sum", True) is not NotImplemented else NotImplemented
