"""Variance and standard deviation, median and mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ...dtypes import PARTS
from ...geometry import reduced_shape
from .. import memory
from ..layouts import contiguous
from ..parallel import large
from ..table import kernel
from .extremes import _picked, _zero_dim
from .reductions import (
    FLOAT32,
    FLOAT64,
    NARROW,
    SMALL,
    Axes,
    add_up,
    axes_of,
    count_of,
    empty_within,
    grid,
    narrow,
    one_axis,
    wide,
)


# ------------------------------------------------------------------------------------------------ variance
@kernel
def var_mean(x: ndarray, axes: Axes, correction: float, keepdim: bool) -> tuple[Any, Any]:
    """Two passes, with the rounding of the mean corrected for; short ones in float64, as PyTorch has it throughout."""
    if x.dtype.kind == "W":
        parts = x[..., None].view(PARTS[x.dtype])
        (real, re), (imag, im) = [var_mean(parts[..., i], axes, correction, keepdim) for i in (0, 1)]
        return np.asarray(real + imag), (re.astype(np.complex64) + 1j * im.astype(np.complex64)).astype(x.dtype)
    if x.dtype.kind == "c":
        real, mean_real = var_mean(x.real, axes, correction, keepdim)
        imag, mean_imag = var_mean(x.imag, axes, correction, keepdim)
        middle = np.empty(np.shape(mean_real), x.dtype)
        middle.real, middle.imag = mean_real, mean_imag
        return np.asarray(real + imag), middle
    sizes = grid(x, axes, 1)
    if sizes is not None:
        return _native_var_mean(x, sizes, correction, reduced_shape(x.shape, axes, keepdim), False)
    if x.size < SMALL:
        return _var_mean_small(x, axes_of(x, axes), correction, keepdim)
    a = wide(x)
    n = count_of(a, axes)
    middle = np.asarray(add_up(a, axes, True) / a.dtype.type(n))
    apart = large(np.subtract, a, middle if axes is not None or not a.ndim else middle.reshape(-1)[0].item())
    rest = np.asarray(add_up(apart, axes, True))
    apart = large(np.multiply, apart, apart, out=apart)
    free = max(n - correction, 0)
    spread = (np.asarray(add_up(apart, axes, True)) - rest * rest / a.dtype.type(n)) / a.dtype.type(free)
    shape = reduced_shape(x.shape, axes, keepdim)
    return contiguous(narrow(spread.reshape(shape), x.dtype), x), contiguous(narrow(middle.reshape(shape), x.dtype), x)


def _native_var_mean(x: ndarray, sizes: tuple[int, int, int], correction: float, shape: tuple[int, ...],
                     root: bool) -> tuple[ndarray, ndarray]:
    spread, middle = memory.empty(shape, x.dtype), memory.empty(shape, x.dtype)
    native = library("reduce")
    function = native.fl_var_mean_f32 if x.dtype is FLOAT32 else native.fl_var_mean_f64
    function(x, spread, middle, *sizes, max(sizes[1] - correction, 0), root)
    return spread, middle


def _var_mean_small(x: ndarray, axes: Axes, correction: float, keepdim: bool) -> tuple[Any, Any]:
    n = count_of(x, axes)
    a = x.astype(FLOAT64)
    middle = np.add.reduce(a, axis=axes, keepdims=True) / FLOAT64.type(n)
    a -= middle
    a *= a
    free = FLOAT64.type(max(n - correction, 0))
    spread = (np.add.reduce(a, axis=axes, keepdims=keepdim) / free).astype(x.dtype)
    if not keepdim:
        middle = middle.reshape(spread.shape)
    return contiguous(np.asarray(spread), x), contiguous(np.asarray(middle, x.dtype), x)


@kernel
def var(x: ndarray, axes: Axes, correction: float, keepdim: bool) -> Any:
    return var_mean(x, axes, correction, keepdim)[0]


@kernel
def std(x: ndarray, axes: Axes, correction: float, keepdim: bool) -> Any:
    return std_mean(x, axes, correction, keepdim)[0]


def spread_one(x: ndarray, axis: int, root: bool) -> ndarray:
    """var, or its root, of floats over one axis, in the ordinary case without a look at others."""
    native = library("reduce")
    if native is None or not x.flags.c_contiguous:
        return np.asarray((std if root else var)(x, (axis,), 1, False))
    outer, n, inner, out = one_axis(x, axis)
    spread, middle = empty_within(x, out, x.dtype), empty_within(x, out, x.dtype)
    (native.fl_var_mean_f32 if x.dtype is FLOAT32 else native.fl_var_mean_f64)(x, spread, middle, outer, n, inner, n - 1, root)
    return spread


@kernel
def std_mean(x: ndarray, axes: Axes, correction: float, keepdim: bool) -> tuple[Any, Any]:
    if x.dtype.num in NARROW:
        spread, middle = var_mean(x.astype(FLOAT32), axes, correction, keepdim)
        return np.sqrt(spread).astype(x.dtype), middle.astype(x.dtype)
    sizes = grid(x, axes, 1)
    if sizes is not None:
        return _native_var_mean(x, sizes, correction, reduced_shape(x.shape, axes, keepdim), True)
    spread, middle = var_mean(x, axes, correction, keepdim)
    return np.asarray(np.sqrt(spread)), middle


# ------------------------------------------------------------------------------------------ order statistics
@kernel
def median(x: ndarray, ignore_nan: bool = False) -> Any:
    """The lower of the two middle elements of all; NaN wins unless ignored."""
    flat = wide(x).reshape(-1)
    if not flat.size:
        if x.dtype.kind in "fV":
            return np.asarray(math.nan, x.dtype)
        return np.asarray(np.iinfo(x.dtype).min if x.dtype.itemsize > 2 else 0, x.dtype)  # what C makes of a NaN
    if flat.dtype.kind == "f":
        bad = np.isnan(flat)
        if bad.any():
            if not ignore_nan or bad.all():
                return np.asarray(math.nan, x.dtype)
            flat = flat[~bad]
    k = (flat.size - 1) // 2
    return np.asarray(np.partition(flat, k)[k]).astype(x.dtype)


@kernel
def median_dim(x: ndarray, axis: int, keepdim: bool = False, ignore_nan: bool = False) -> tuple[ndarray, ndarray]:
    if not x.ndim:
        return _zero_dim(x)
    a = wide(x)
    n = a.shape[axis]
    order = np.argsort(a, axis=axis, kind="stable")  # NaN last
    middle: Any = np.array((n - 1) // 2)
    if a.dtype.kind == "f":
        bad = np.isnan(a)
        if bad.any():
            numbers = n - bad.sum(axis=axis, keepdims=True)
            if ignore_nan:
                middle = np.maximum((numbers - 1) // 2, 0)
            else:
                middle = np.where(numbers < n, numbers, middle)  # the first NaN
    shape = tuple(1 if i == axis else m for i, m in enumerate(x.shape))
    index = np.take_along_axis(order, np.broadcast_to(middle, shape), axis)
    return _picked(x, index, axis, keepdim)


@kernel
def mode(x: ndarray, axis: int, keepdim: bool = False) -> tuple[ndarray, ndarray]:
    """The most frequent value, the smallest of several, and where it comes last."""
    if not x.ndim:
        return _zero_dim(x)
    a = np.moveaxis(wide(x), axis, -1)
    order = np.argsort(a, axis=-1, kind="stable")
    ordered = np.take_along_axis(a, order, -1)
    n = a.shape[-1]
    starts = np.ones(a.shape, bool)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    place = np.arange(n)
    run = place - np.maximum.accumulate(np.where(starts, place, 0), axis=-1)  # how often it came before
    at = run.argmax(axis=-1, keepdims=True)
    index = np.take_along_axis(order, at, -1)
    return _picked(x, np.moveaxis(index, -1, axis).copy(), axis, keepdim)
