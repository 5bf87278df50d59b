"""`BatchedArray`: the array of a tensor inside `vmap`. It shows one example; its `whole` has the batch as first dimension.

Nested calls of vmap give arrays whose whole is batched too: the innermost level (the highest number) is outermost here.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import Any

import numpy as np
from numpy import ndarray

from .. import registry

_next_number = itertools.count(1).__next__
_ALL = slice(None)
_counting = threading.RLock()  # a level may end while another one begins, in one thread or in two
INPLACE = ("vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a Tensor `other` in extra_args "
           "that has more elements than `self`. This happened due to `other` being vmapped over but `self` not being vmapped "
           "over in a vmap. Please try to use out-of-place operators instead of inplace arithmetic. If said operator is being "
           "called inside the PyTorch framework, please file a bug report instead.")
ITEM = ("vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, "
        "please try to rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch "
        "internals, please file a bug report.")


class Level:
    """One call of vmap. `alive` counts those that some array still belongs to: then a backward pass may meet such arrays."""

    __slots__ = ("number", "position", "randomness", "size")
    alive = 0
    run_function: Any = None  # how a custom autograd Function runs at a level (func/functions.py)

    def __init__(self, size: int, randomness: str = "error"):
        self.number, self.size, self.randomness = _next_number(), size, randomness
        self.position = 1  # among the transformations under way, counted from the outermost
        with _counting:
            Level.alive += 1

    def __del__(self) -> None:
        with _counting:
            Level.alive -= 1


class Marked(tuple):
    """A shape that remembers at which levels the array was batched."""

    levels: tuple[Level, ...] = ()


class BatchedArray:
    """One example of a batch, to those who look at it. Rules use NumPy's methods on it as on any whole array."""

    __slots__ = ("dtype", "examples", "level", "ndim", "shape")
    __array_ufunc__ = None
    base = None

    def __init__(self, level: Level, examples: Any):
        self.level, self.examples = level, examples
        self.shape = shape = examples.shape[1:]
        self.ndim = len(shape)
        self.dtype = examples.dtype

    # -------------------------------------------------------------------------------------------- what an array has
    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return self.examples.strides[1:]

    @property
    def flags(self) -> Any:
        return example(self).flags

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def item(self, *args: Any) -> Any:
        raise RuntimeError(ITEM)

    tolist = item

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(INPLACE)

    # ----------------------------------------------------------------------------------- NumPy's methods, for rules
    def __getitem__(self, index: Any) -> BatchedArray:
        return BatchedArray(self.level, self.examples[(_ALL, *index) if index.__class__ is tuple else (_ALL, index)])

    def reshape(self, *shape: Any) -> BatchedArray:
        shape = shape[0] if len(shape) == 1 and shape[0].__class__ is not int else shape
        return BatchedArray(self.level, self.examples.reshape((self.level.size, *shape)))

    def transpose(self, axes: Any) -> BatchedArray:
        return BatchedArray(self.level, self.examples.transpose((0, *[a % self.ndim + 1 for a in axes])))

    def swapaxes(self, a: int, b: int) -> BatchedArray:
        return BatchedArray(self.level, self.examples.swapaxes(a % self.ndim + 1, b % self.ndim + 1))

    def astype(self, dtype: Any, **options: Any) -> BatchedArray:
        return BatchedArray(self.level, self.examples.astype(dtype, **options))

    def view(self, *dtype: Any) -> BatchedArray:
        return BatchedArray(self.level, self.examples.view(*dtype))

    def copy(self, order: str = "C") -> BatchedArray:
        return BatchedArray(self.level, self.examples.copy(order))

    def __repr__(self) -> str:
        return f"<batched array of {self.level.size} x {self.shape}, level {self.level.number}: {self.examples!r}>"


def example(array: Any) -> ndarray:
    """An ndarray with the geometry of one example."""
    while array.__class__ is BatchedArray:
        inner = array.examples
        if not array.level.size:
            return np.zeros(array.shape, array.dtype)
        array = inner[0]
    return array


def batch(level: Level, examples: Any) -> BatchedArray:
    """An array whose first dimension is the batch of a level, as a BatchedArray: the highest level goes outside."""
    if examples.__class__ is BatchedArray and examples.level.number > level.number:
        return BatchedArray(examples.level, batch(level, examples.examples.swapaxes(0, 1)))
    return BatchedArray(level, examples)


def unbatch(array: Any, level: Level) -> Any:
    """The array with the batch of a level as its first dimension; None if it is not batched at that level."""
    if array.__class__ is not BatchedArray or array.level.number < level.number:
        return None
    if array.level is level:
        return array.examples
    inner = unbatch(array.examples, level)
    return None if inner is None else BatchedArray(array.level, inner.swapaxes(0, 1))


def levels_of(array: Any) -> tuple[Level, ...]:
    """The levels at which an array is batched, the innermost call of vmap first."""
    found = []
    while array.__class__ is BatchedArray:
        found.append(array.level)
        array = array.examples
    return tuple(found)


def marked(array: Any) -> tuple[int, ...]:
    """An array's shape, with its levels where it is batched."""
    if array.__class__ is not BatchedArray:
        return array.shape
    shape = Marked(array.shape)
    shape.levels = levels_of(array)
    return shape


def broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """np.broadcast_to, for batched arrays too."""
    if x.__class__ is not BatchedArray:
        return np.broadcast_to(x, shape) if x.__class__ is ndarray else registry.backend_of(x).call("expand", (x, shape))
    examples = x.examples.reshape((x.level.size, *(1,) * (len(shape) - x.ndim), *x.shape))
    return BatchedArray(x.level, broadcast(examples, (x.level.size, *shape)))


def innermost(array: Any) -> Any:
    """The array in memory behind all levels."""
    while array.__class__ is BatchedArray:
        array = array.examples
    return getattr(array, "window", array)  # (of one with a conjugate or negative bit, pending.py)
