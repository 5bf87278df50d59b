"""Arrays in other shapes and orders, joined and taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau

from ..tensors.tensor import Tensor
from .dtypes import same_dtype

__all__ = ["broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
           "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack"]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of the given ones broadcast to."""
    return tuple(flambeau.broadcast_shapes(*shapes))


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The arrays, each broadcast to the shape of all."""
    return tuple(flambeau.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The array broadcast to a shape."""
    return flambeau.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after the other along an axis; axis=None flattens them first."""
    arrays = same_dtype(*arrays)
    return flambeau.cat(arrays, axis) if axis is not None else flambeau.cat([x.flatten() for x in arrays])


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays side by side along a new axis."""
    return flambeau.stack(same_dtype(*arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The pieces of an array along an axis, without that axis."""
    return tuple(flambeau.unbind(x, axis))


def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """The array with a new axis of size 1."""
    return flambeau.unsqueeze(x, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """The array without the given axes, whose size must be 1."""
    for a in (axis,) if isinstance(axis, int) else axis:
        if x.shape[a] != 1:
            raise ValueError(f"squeeze: axis {a} has size {x.shape[a]}, not 1")
    return flambeau.squeeze(x, axis)


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The array with the order of its elements reversed along the given axes, or along all."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return flambeau.flip(x, axes)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """The array with axes moved to other places; the rest keeps its order."""
    return flambeau.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The array with its axes in another order."""
    return flambeau.permute(x, axes)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated along an axis, or those of the flattened array."""
    if isinstance(repeats, Tensor):
        repeats = repeats.to(flambeau.int64)
    return flambeau.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in another shape; copy=True always copies, copy=False raises where it cannot be avoided."""
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(f"reshape with copy=False: {error}") from None
    made = x.reshape(shape)
    return made.clone() if copy else made


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """The elements moved on along the given axes, those that fall off coming in again at the other end."""
    if isinstance(shift, int) and isinstance(axis, tuple):
        shift = (shift,) * len(axis)
    return x.clone() if axis == () else flambeau.roll(x, shift, axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole array repeated along each axis."""
    return flambeau.tile(x, repetitions)
