"""Largest and smallest elements, and where they are; large contiguous arrays natively (reduce.c)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ...geometry import reduced_shape
from .. import memory
from ..halves import FLOAT32, narrow, wide
from ..layouts import contiguous
from ..parallel import SPLIT, split
from ..table import kernel
from .reductions import INT64, Axes, axes_of, empty_within, grid, one_axis


def _native_extremes(x: ndarray, sizes: tuple[int, int, int], least: bool, shape: tuple[int, ...], values: bool,
                     places: bool) -> tuple[ndarray | None, ndarray | None]:
    made = memory.empty(shape, x.dtype) if values else None
    index = memory.empty(shape, INT64) if places else None
    native = library("reduce")
    function = native.fl_extreme_f32 if x.dtype is FLOAT32 else native.fl_extreme_f64
    function(x, made, index, *sizes, least)
    return made, index


def _extreme(x: ndarray, axes: Axes, keepdim: bool, pick: np.ufunc) -> Any:
    sizes = grid(x, axes)
    if sizes is not None:
        return _native_extremes(x, sizes, pick is np.minimum, reduced_shape(x.shape, axes, keepdim), True, False)[0]
    a = wide(x)
    if a.size >= 2 * SPLIT and axes is not None and 0 not in axes and a.shape[0] > 1:
        out = np.empty(reduced_shape(a.shape, axes, keepdim), a.dtype)
        split(a.shape[0], lambda i, j: pick.reduce(a[i:j], axis=axes, keepdims=keepdim, out=out[i:j]))
    else:
        out = contiguous(pick.reduce(a, axis=axes_of(a, axes), keepdims=keepdim), x)
    return narrow(out, x.dtype)


@kernel
def amax(x: ndarray, axes: Axes = None, keepdim: bool = False) -> Any:
    return _extreme(x, axes, keepdim, np.maximum)


@kernel
def amin(x: ndarray, axes: Axes = None, keepdim: bool = False) -> Any:
    return _extreme(x, axes, keepdim, np.minimum)


@kernel
def aminmax(x: ndarray, axes: Axes = None, keepdim: bool = False) -> tuple[Any, Any]:
    return np.asarray(amin(x, axes, keepdim)), np.asarray(amax(x, axes, keepdim))


def _picked(x: ndarray, index: ndarray, axis: int, keepdim: bool) -> tuple[ndarray, ndarray]:
    """(x at the index, the index) along an axis; the index comes with that axis kept."""
    if axis == x.ndim - 1 and x.flags.c_contiguous and x.size:
        values = x.reshape(-1).take(index.reshape(-1) + np.arange(0, x.size, x.shape[axis]))
        shape = index.shape if keepdim else index.shape[:-1]
        return values.reshape(shape), index.reshape(shape)
    values, index = contiguous(np.take_along_axis(x, index, axis), x), contiguous(index, x)
    return (values, index) if keepdim else (values.squeeze(axis), index.squeeze(axis))


def _zero_dim(x: ndarray) -> tuple[ndarray, ndarray]:
    return x.copy(), np.zeros((), INT64)


def _extreme_dim(x: ndarray, axis: int, keepdim: bool, least: bool) -> tuple[ndarray, ndarray]:
    if not x.ndim:
        return _zero_dim(x)
    sizes = grid(x, (axis,))
    if sizes is not None:
        return _native_extremes(x, sizes, least, reduced_shape(x.shape, (axis,), keepdim), True, True)
    a = wide(x)
    return _picked(x, a.argmin(axis, keepdims=True) if least else a.argmax(axis, keepdims=True), axis, keepdim)


def extreme_one(x: ndarray, axis: int, least: bool) -> tuple[ndarray, ndarray]:
    """max_dim, or min_dim, of floats over one axis that is longer than one, in the ordinary case without a look at others."""
    native = library("reduce")
    if native is None or not x.flags.c_contiguous:
        return _extreme_dim(x, axis, False, least)
    outer, n, inner, out = one_axis(x, axis)
    values, index = empty_within(x, out, x.dtype), empty_within(x, out, INT64)
    (native.fl_extreme_f32 if x.dtype is FLOAT32 else native.fl_extreme_f64)(x, values, index, outer, n, inner, least)
    return values, index


def _place(x: ndarray, axis: int | None, keepdim: bool, least: bool) -> Any:
    if not x.ndim:
        return np.zeros((), INT64)
    axes = None if axis is None else (axis,)
    sizes = grid(x, axes)
    if sizes is not None:
        return _native_extremes(x, sizes, least, reduced_shape(x.shape, axes, keepdim), False, True)[1]
    a = wide(x)
    return contiguous(np.asarray(a.argmin(axis, keepdims=keepdim) if least else a.argmax(axis, keepdims=keepdim)), x)


@kernel
def max_dim(x: ndarray, axis: int, keepdim: bool = False) -> tuple[ndarray, ndarray]:
    return _extreme_dim(x, axis, keepdim, False)


@kernel
def min_dim(x: ndarray, axis: int, keepdim: bool = False) -> tuple[ndarray, ndarray]:
    return _extreme_dim(x, axis, keepdim, True)


@kernel
def argmax(x: ndarray, axis: int | None = None, keepdim: bool = False) -> Any:
    return _place(x, axis, keepdim, False)


@kernel
def argmin(x: ndarray, axis: int | None = None, keepdim: bool = False) -> Any:
    return _place(x, axis, keepdim, True)
