"""Where elements are, elements at places, their order, and which different ones there are."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau

from ..tensors.tensor import Tensor
from .dtypes import same_dtype

__all__ = ["argmax", "argmin", "argsort", "isin", "nonzero", "searchsorted", "sort", "take", "take_along_axis", "unique_all",
           "unique_counts", "unique_inverse", "unique_values", "where"]


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The place of the first largest element, along an axis or in the flattened array."""
    return _place(flambeau.argmax, x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The place of the first smallest element, along an axis or in the flattened array."""
    return _place(flambeau.argmin, x, axis, keepdims)


def _place(function: Any, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is not None:
        return function(x, axis, keepdims)
    return function(x).reshape((1,) * x.ndim) if keepdims else function(x)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of all elements that are not zero, one array per axis."""
    if not x.ndim:
        raise ValueError("nonzero needs an array of at least one dimension")
    return tuple(flambeau.nonzero(x, as_tuple=True))


def searchsorted(x1: Tensor, x2: Any, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where the elements of x2 belong in the sorted (or by `sorter` sorted) x1."""
    x1, x2 = same_dtype(x1, x2)
    return flambeau.searchsorted(x1, x2, side=side, sorter=None if sorter is None else sorter.to(flambeau.int64))


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """The elements of x1 where the condition is true, those of x2 elsewhere."""
    return flambeau.where(condition, *same_dtype(x1, x2))


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is one of x2."""
    return flambeau.isin(*same_dtype(x1, x2), invert=invert)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The elements at the given places along an axis."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take: axis must be given for an array of {x.ndim} dimensions")
        axis = 0
    return x[(slice(None),) * (axis % x.ndim) + (indices.to(flambeau.int64),)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements at places that are given for each line along an axis."""
    indices = indices.to(flambeau.int64)
    return flambeau.take_along_dim(x, flambeau.where(indices < 0, indices + x.shape[axis], indices), axis)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis."""
    return flambeau.sort(x, dim=axis, descending=descending, stable=stable).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of the elements in their order along an axis."""
    return flambeau.sort(x, dim=axis, descending=descending, stable=stable).indices


class UniqueAll(NamedTuple):
    """Of `unique_all`."""
    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Of `unique_counts`."""
    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Of `unique_inverse`."""
    values: Tensor
    inverse_indices: Tensor


def _order(flat: Tensor) -> Tensor:
    """Places in which equal elements are neighbours, the first of them first. Complex numbers: by real, then imaginary part."""
    if not flat.is_complex():
        return argsort(flat)
    by_imag = argsort(flat.imag)
    return by_imag[argsort(flat.real[by_imag])]


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements, where each is first, which of them each element is, and how many there are. Each nan is one."""
    flat = x.flatten()
    order = _order(flat)
    ordered = flat[order]
    starts = flambeau.ones(flat.shape, dtype=flambeau.bool, device=x.device)
    starts[1:] = ordered[1:] != ordered[:-1]
    inverse = flambeau.empty_like(order)
    inverse[order] = flambeau.cumsum(starts, 0) - 1
    places = starts.nonzero().flatten()
    ends = flambeau.cat([places[1:], places.new_full((min(len(places), 1),), len(flat))])
    return UniqueAll(ordered[places], order[places], inverse.reshape(x.shape), ends - places)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements, and how many there are of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements."""
    return unique_all(x).values
