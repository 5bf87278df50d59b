"""Arrays whose elements the host must not touch: NumPy does their geometry, over the addresses of blocks.

Such an array is an `ndarray` of a type of its own, whose chain of bases ends in a block. So slices, transposes and other shapes
are NumPy's views, and native code finds address, shape and strides where it finds those of any array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from .cpu import arrays as _cpu
from .cpu import memory
from .strides import ordered_strides

_BYTE = np.dtype(np.uint8)


class Windows:
    """How arrays of a type are made over blocks, and what is behind them: the geometric part of a backend (interface.py)."""

    def __init__(self, kind: type, block: type, storage: Callable[[int], Any]):
        """kind: the type of the arrays; block: of what they lie over; storage: a new block of so many bytes."""
        self.kind, self.block, self.storage = kind, block, storage

    # -------------------------------------------------------------------------------------------------- new arrays
    def empty(self, shape: Any, dtype: np.dtype) -> Any:
        """A new contiguous array."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes >= 1 << 63:
            raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
        return ndarray.__new__(self.kind, shape, dtype, self.storage(nbytes))

    def empty_strided(self, shape: Any, stride: Any, dtype: np.dtype) -> Any:
        """A new array of explicit strides, in elements."""
        count = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
        return self.over(self.storage(count * dtype.itemsize), shape, dtype, 0, [s * dtype.itemsize for s in stride])

    def like(self, x: ndarray, dtype: np.dtype) -> Any:
        """A new dense array in x's order of dimensions."""
        if x.flags.c_contiguous or x.ndim < 2 or not x.size:
            return self.empty(x.shape, dtype)
        if memory.dense_order(x) is None:
            return self.empty_strided(x.shape, memory.dense_strides(x.shape, x.strides), dtype)
        return self.empty_strided(x.shape, [s // x.itemsize for s in x.strides], dtype)

    def ordered(self, shape: Any, order: Any, dtype: np.dtype) -> Any:
        return self.empty_strided(shape, ordered_strides(shape, order), dtype)

    def by_rule(self, made: Any) -> Any:
        """New arrays of the geometry that a shape rule says; arrays themselves, and None, stay what they are."""
        if made.__class__ is list:
            return tuple([self.by_rule(m) for m in made])
        if made is None or isinstance(made, ndarray):
            return made
        shape, dtype, stride = made
        return self.empty(shape, dtype) if stride is None else self.empty_strided(shape, stride, dtype)

    # ----------------------------------------------------------------------------------------------------- geometry
    def over(self, block: Any, shape: Any, dtype: np.dtype, start: int, strides: Any) -> Any:
        """An array over a block; start and strides in bytes."""
        return ndarray.__new__(self.kind, tuple(shape), dtype, block, start, strides)

    def owner(self, x: Any) -> Any:
        """The block at the end of the chain of bases; None for the host's memory."""
        while x is not None and type(x) is not self.block:
            x = getattr(x, "base", None)
        return x

    def _start(self, x: ndarray, block: Any) -> int:
        return min(max(_cpu.address(x) - _cpu.address(block), 0), block.nbytes)

    def bare(self, x: Any) -> ndarray:
        """The same geometry as an ordinary array, for kernels that make views."""
        block = self.owner(x)
        return x.view(ndarray) if block is None else ndarray(x.shape, x.dtype, block, self._start(x, block), x.strides)

    def view(self, x: ndarray) -> Any:
        """What a kernel made of `bare` arrays, as an array of this type."""
        block = self.owner(x)
        return x if type(x) is self.kind else self.over(block, x.shape, x.dtype, self._start(x, block), x.strides)

    def swapped(self, value: Any) -> Any:
        """An argument with `bare` arrays in it."""
        if type(value) is self.kind:
            return self.bare(value)
        return value.__class__([self.swapped(v) for v in value]) if value.__class__ in (list, tuple) else value

    def views(self, made: Any) -> Any:
        return made.__class__([self.view(m) for m in made]) if made.__class__ in (list, tuple) else self.view(made)

    def storage_offset(self, x: Any) -> int:
        return _cpu.storage_offset(self.bare(x))

    def storage_bytes(self, x: Any) -> Any:
        block = self.owner(x)
        return self.over(block, (getattr(block, "used", block.nbytes),), _BYTE, 0, (1,))

    def over_bytes(self, raw: Any, shape: Any, stride: Any, offset: int, dtype: np.dtype) -> Any:
        block, size = raw if type(raw) is self.block else self.owner(raw), dtype.itemsize
        return self.over(block, shape, dtype, offset * size, [s * size for s in stride])

    def as_strided(self, x: Any, shape: Any, stride: Any, offset: int) -> Any:
        return self.view(_cpu.as_strided(self.bare(x), shape, stride, offset))

    def reaches(self, x: Any, shape: Any, stride: Any) -> tuple[int, int]:
        """(offset of x in its storage, bytes that another geometry from there on needs)."""
        offset = self.storage_offset(x)
        return offset, (offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0) * x.itemsize
