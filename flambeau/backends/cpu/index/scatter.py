"""gather and scatter: one position along a dimension for every element.

All of them address the flattened array: `positions` turns an index array into flat positions once, and the rest is a
one-dimensional take, assignment or ufunc.at (which NumPy runs fast for one-dimensional arrays).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory
from ..table import KERNELS, add, kernel
from .rows import accumulation, dense_positions, in_range, picked_rows

_INT64 = np.dtype(np.int64)
_UFUNCS = {"sum": np.add, "mean": np.add, "add": np.add, "prod": np.multiply, "multiply": np.multiply,
           "amax": np.maximum, "amin": np.minimum}


def check_range(index: ndarray, size: int, dim: int) -> None:
    if not in_range(index, size):
        low, high = int(index.min()), int(index.max())
        raise RuntimeError(f"index {low if low < 0 else high} is out of bounds for dimension {dim} with size {size}")


def positions(shape: tuple[int, ...], dim: int, index: ndarray) -> ndarray:
    """Flat positions, in a C-contiguous array of `shape`, of the elements that `index` means along `dim`."""
    if index.size:
        check_range(index, shape[dim] if shape else 1, dim)
    if not shape:
        return np.zeros(index.shape, _INT64)
    if not index.ndim or (index.ndim == 1 and index.dtype == _INT64):
        return index
    steps = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        steps[d] = steps[d + 1] * shape[d + 1]
    flat = np.multiply(index, steps[dim], dtype=_INT64) if steps[dim] != 1 else index
    for d in range(len(shape)):
        if d != dim and index.shape[d] > 1:
            grid = (np.arange(index.shape[d]) * steps[d]).reshape([-1 if k == d else 1 for k in range(index.ndim)])
            flat = flat + grid if flat is index else np.add(flat, grid, out=flat)
    return flat


def add_at(flat: ndarray, at: ndarray, source: ndarray) -> None:
    """flat[at] += source, one-dimensional, with repeated positions."""
    ufunc_at(np.add, flat, at, source)


def ufunc_at(ufunc: np.ufunc, flat: ndarray, at: ndarray, source: ndarray) -> None:
    if flat.dtype.kind == "b":
        ufunc = {np.add: np.logical_or, np.multiply: np.logical_and}.get(ufunc, ufunc)
    compute = accumulation(flat.dtype)
    if compute is not flat.dtype:
        exact = flat.astype(compute)
        ufunc.at(exact, at, source.astype(compute))
        flat[...] = exact
        return
    ufunc.at(flat, at, source.astype(flat.dtype) if source.dtype != flat.dtype else source)


# ------------------------------------------------------------------------------------------------------- native code
def split(x: tuple[int, ...], dim: int, index: tuple[int, ...]) -> tuple[int, int, int, int] | None:
    """(outer, size, count, inner): index (outer, count, inner) into x (at least outer, size, inner). None: not so simple."""
    if not x or len(x) != len(index) or x[dim + 1:] != index[dim + 1:] or (dim and x[1:dim] != index[1:dim]):
        return None
    return math.prod(index[:dim]), x[dim], index[dim], math.prod(index[dim + 1:])


def _natively(name: str, x: ndarray, dim: int, index: ndarray, others: tuple[Any, ...], *more: Any) -> bool:
    """A native function over x, positions and other arrays; False if it cannot work or a position is out of range."""
    functions = library("index") if index.size and x.flags.c_contiguous else None
    sizes = split(x.shape, dim, index.shape) if functions is not None else None
    if sizes is None:
        return False
    index = dense_positions(index)
    return not getattr(functions, name)(x, index, *others, *sizes, *more)


# `base`: x holds nothing yet and starts as a copy of that; `fresh` without a base: as zeros.
def _scatter_natively(x: ndarray, dim: int, index: ndarray, source: Any, base: ndarray | None = None) -> bool:
    if x.itemsize > 8:
        return False
    one = not (isinstance(source, ndarray) and source.ndim)
    source = np.asarray(source).astype(x.dtype) if one else np.ascontiguousarray(source, x.dtype)
    return _natively(f"fl_scatter_{8 * x.itemsize}", x, dim, index, (source, base), 0 if base is None else x.size, one)


def _scatter_add_natively(x: ndarray, dim: int, index: ndarray, source: ndarray, base: ndarray | None = None,
                       fresh: bool = False) -> bool:
    if x.dtype.char not in "fd" or source.shape != index.shape:
        return False
    return _natively("fl_scatter_add_f32" if x.dtype.char == "f" else "fl_scatter_add_f64", x, dim, index,
                  (np.ascontiguousarray(source, x.dtype), base), 0 if base is None and not fresh else x.size)


_NATIVE = {"scatter": _scatter_natively, "scatter_add": _scatter_add_natively}


# ----------------------------------------------------------------------------------------------------------- kernels
@kernel
def gather(x: ndarray, dim: int, index: ndarray) -> ndarray:
    out = memory.empty(index.shape, x.dtype)
    if x.itemsize <= 8 and _natively(f"fl_gather_{8 * x.itemsize}", x, dim, index, (out,)):
        return out
    if index.size:
        at = positions(x.shape, dim, index)
        np.take(x.reshape(-1), at, out=out, mode="clip")
    return out


def _on_flat(into: Any) -> Any:
    """Turns work on (flat array, flat positions, ...) into the kernels `name_into` and `name`."""
    name = into.__name__.removesuffix("_flat")
    natively = _NATIVE.get(name)

    def name_into(x: ndarray, dim: int, index: ndarray, source: Any, *rest: Any) -> None:
        if isinstance(source, ndarray) and source.ndim:
            source = source[tuple([slice(n) for n in index.shape])] if source.shape != index.shape else source
            source = source.copy() if np.may_share_memory(source, x) else source
        if natively is not None and natively(x, dim, index, source):
            return
        at = positions(x.shape, dim, index).reshape(-1)
        if isinstance(source, ndarray) and source.ndim:
            source = source.reshape(-1)
        elif isinstance(source, ndarray):
            source = source.reshape(-1)
        flat = x.reshape(-1)
        into(flat, at, source, *rest)
        if not np.may_share_memory(flat, x):
            x[...] = flat.reshape(x.shape)

    def out_of_place(x: ndarray, *args: Any) -> ndarray:
        out = memory.empty(x.shape, x.dtype)
        if natively is not None and x.flags.c_contiguous and not (isinstance(args[2], ndarray) and args[2].ndim and
                                                               args[2].shape != args[1].shape) and natively(out, *args, x):
            return out
        np.copyto(out, x)
        name_into(out, *args)
        return out

    KERNELS[name + "_into"], KERNELS[name] = name_into, out_of_place
    return into


@_on_flat
def scatter_flat(flat: ndarray, at: ndarray, source: Any) -> None:
    flat[at] = source


@_on_flat
def scatter_add_flat(flat: ndarray, at: ndarray, source: ndarray) -> None:
    ufunc_at(np.add, flat, at, source)


@_on_flat
def scatter_with_flat(flat: ndarray, at: ndarray, source: Any, reduce: str) -> None:
    """The old scatter(reduce="add" or "multiply")."""
    if not isinstance(source, ndarray):
        source = np.full(at.shape, source, flat.dtype)
    ufunc_at(_UFUNCS[reduce], flat, at, source)


@kernel
def scatter_added(source: ndarray, dim: int, index: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Zeros of a shape with source added at the positions of index along dim: the gradient of gather."""
    out = memory.empty(tuple(shape), source.dtype)
    if not _scatter_add_natively(out, dim, index, source, None, True):
        out.fill(0)
        KERNELS["scatter_add_into"](out, dim, index, source)
    return out


def _start(dtype: np.dtype, reduce: str) -> Any:
    """What changes nothing: where the positions of a reduction begin when their own value is left out."""
    if reduce == "prod":
        return 1
    if reduce in ("sum", "mean"):
        return 0
    if dtype.kind == "b":
        return reduce == "amin"
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if reduce == "amax" else np.iinfo(dtype).max
    return -np.inf if reduce == "amax" else np.inf


@_on_flat
def scatter_reduce_flat(flat: ndarray, at: ndarray, source: ndarray, reduce: str, include_self: bool) -> None:
    compute = accumulation(flat.dtype)
    exact = flat if compute is flat.dtype else flat.astype(compute)
    if not include_self:
        exact[at] = _start(compute, reduce)
    ufunc_at(_UFUNCS[reduce], exact, at, source)
    if reduce == "mean":
        counts = np.bincount(at, minlength=flat.size)
        counts = counts + 1 if include_self else np.maximum(counts, 1)
        if flat.dtype.kind in "iub":
            exact[...] = np.floor_divide(exact, counts)
        else:
            exact /= counts.astype(compute)
    if exact is not flat:
        flat[...] = exact


def index_reduce_into(x: ndarray, dim: int, index: ndarray, source: ndarray, reduce: str, include_self: bool) -> None:
    index = picked_rows(index.reshape(-1), x.shape[dim] if x.ndim else 1, "index out of range in self")
    if x.ndim:
        index = index.reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        source = source.reshape(source.shape or (1,) * x.ndim)
    else:
        index, source, x = index, source.reshape(-1), x.reshape(1)
    KERNELS["scatter_reduce_into"](x, dim, np.broadcast_to(index, source.shape), source, reduce, include_self)


def index_reduce(x: ndarray, *args: Any) -> ndarray:
    out = x.copy()
    index_reduce_into(out, *args)
    return out


add(index_reduce=index_reduce, index_reduce_into=index_reduce_into)
