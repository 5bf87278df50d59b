"""Functions that fold axes, and those that run along one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau

from ..tensors.tensor import Tensor
from .dtypes import DType, isdtype, same_dtype

__all__ = ["all", "any", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std",
           "sum", "var"]
Axes = int | tuple[int, ...] | None


def _fold(x: Tensor, axis: Axes, keepdims: bool, fold: Callable[[Tensor, tuple[int, ...], bool], Tensor]) -> Tensor:
    """Folds the axes, all for None. No axes at all mean to PyTorch all of them: here one of size 1 stands in."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return fold(x, axes, keepdims) if axes else fold(x.unsqueeze(0), (0,), False)


def _dtype_of_sum(x: Tensor, dtype: DType | None) -> DType:
    """The widest integer of the same sign for integers, the array's own dtype for the rest."""
    if dtype is not None:
        return dtype
    if isdtype(x.dtype, "unsigned integer"):
        return flambeau.uint64
    return flambeau.int64 if isdtype(x.dtype, ("bool", "signed integer")) else x.dtype


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are true, along the axes."""
    return _fold(x != 0, axis, keepdims, flambeau.all)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element is true, along the axes."""
    return _fold(x != 0, axis, keepdims, flambeau.any)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero, along the axes."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along the axes; nan where there is one."""
    return _fold(x, axis, keepdims, flambeau.amax)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element along the axes; nan where there is one."""
    return _fold(x, axis, keepdims, flambeau.amin)


def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The sum along the axes."""
    dtype = _dtype_of_sum(x, dtype)
    return _fold(x, axis, keepdims, lambda x, axes, keep: flambeau.sum(x, axes, keep, dtype=dtype))


def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """The product along the axes."""
    dtype = _dtype_of_sum(x, dtype)

    def fold(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        for axis in sorted((a % x.ndim for a in axes), reverse=True):
            x = flambeau.prod(x, axis, keep, dtype=dtype)
        return x
    return _fold(x, axis, keepdims, fold)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean along the axes."""
    return _fold(x, axis, keepdims, flambeau.mean)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance along the axes: squares of the distances from the mean, over their number less `correction`."""
    if correction == int(correction):
        return _fold(x, axis, keepdims, lambda x, axes, keep: flambeau.var(x, axes, correction=int(correction), keepdim=keep))

    def fold(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        number = 1
        for axis in axes:
            number *= x.shape[axis]
        made = flambeau.var(x, axes, correction=0, keepdim=keep) * number
        return made / (number - correction if number > correction else 0.0)
    return _fold(x, axis, keepdims, fold)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation along the axes."""
    return flambeau.sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def _cumulative(function: Any, first: int, x: Tensor, axis: int | None, dtype: DType | None, include_initial: bool) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"axis must be given for an array of {x.ndim} dimensions")
        axis = 0
    made = function(x if x.ndim else x.unsqueeze(0), axis, dtype=_dtype_of_sum(x, dtype))
    if include_initial:
        edge = list(made.shape)
        edge[axis] = 1
        made = flambeau.cat([flambeau.full(edge, first, dtype=made.dtype, device=made.device), made], axis)
    return made


def cumulative_sum(x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None,
                   include_initial: bool = False) -> Tensor:
    """The sums of the elements so far, along an axis; include_initial=True puts a 0 in front."""
    return _cumulative(flambeau.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None,
                    include_initial: bool = False) -> Tensor:
    """The products of the elements so far, along an axis; include_initial=True puts a 1 in front."""
    return _cumulative(flambeau.cumprod, 1, x, axis, dtype, include_initial)


def diff(x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The differences of neighbours along an axis, taken n times."""
    parts = same_dtype(*[part for part in (prepend, x, append) if part is not None])
    return flambeau.diff(flambeau.cat(parts, axis), n, axis)
