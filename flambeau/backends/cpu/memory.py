"""Memory of large CPU arrays: freed blocks are kept and handed out again.

Fresh pages from the operating system cost more than a sum over them, so results above `POOLED_BYTES` live in blocks
that return to a free list when the last array over them dies (reference counting tells: each array keeps its block
alive through NumPy's `base`). The list is bounded; `release_cached()` empties it.
"""

from __future__ import annotations

import functools
import math
import os
import weakref
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from ..references import ASKED, HANDED_ON
from ..strides import dense_strides

POOLED_BYTES = 1 << 18
_LINE = 64  # bytes that blocks are aligned to: a vector that spans two cache lines takes twice as long to store
_LIMIT = int(os.environ.get("FLAMBEAU_CACHE_BYTES", 2 << 30))
_free: dict[int, list[ndarray]] = {}
_held = 0  # bytes in the lists. Threads need no lock here: list operations are whole, and so is a `+=` of plain numbers


class Pages(ndarray):
    """The bytes of a pooled buffer. A type of its own, so that NumPy does not skip over the `Block` in front of it when
    it shortens an array's chain of bases (it only skips between arrays of one type)."""


class Block(ndarray):
    """What arrays over a pooled buffer keep alive; dies when no array uses the buffer any more."""

    def __del__(self):
        global _held
        base = self.base
        if type(base) is not Pages:  # a slice or copy made by NumPy, not the block itself
            return
        size = base.nbytes
        if _held + size <= _LIMIT:
            _held += size
            _free.setdefault(size, []).append(base)


@functools.lru_cache(4096)
def _round(nbytes: int) -> int:
    """Size classes of a sixteenth of the next power of two: at most 12 % is wasted."""
    step = max(1 << 12, 1 << (nbytes.bit_length() - 4))
    return (nbytes + step - 1) // step * step


def empty(shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    """An uninitialised C-contiguous array, from the pool when it is large."""
    global _held
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < POOLED_BYTES:
        return np.empty(shape, dtype)
    size = _round(nbytes)
    try:
        raw = _free[size].pop()
        _held -= size
    except LookupError:
        raw = _allocate(size)
    block = raw.view(Block)
    block.used = nbytes
    return ndarray(shape, dtype, block)


def _allocate(size: int) -> ndarray:
    try:
        return _aligned(size)
    except MemoryError:
        release_cached()
    except ValueError:  # more than NumPy can count
        raise RuntimeError(f"not enough memory: you tried to allocate {size} bytes.") from None
    try:
        return _aligned(size)
    except MemoryError:
        raise RuntimeError(f"not enough memory: you tried to allocate {size} bytes.") from None


def _aligned(size: int) -> ndarray:
    raw = Pages(size + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start:start + size]


def release_cached() -> None:
    """Gives all cached blocks back to the operating system."""
    global _held
    _free.clear()
    _held = 0


def trim() -> None:
    """Gives all memory that is free back to the operating system, small pieces too where the C library can."""
    release_cached()
    import ctypes
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


def like(x: ndarray, dtype: np.dtype | None = None) -> ndarray:
    """Uninitialised memory of x's shape and dtype, and of its strides; where x has holes or overlaps, of its order of
    dimensions."""
    dtype = dtype or x.dtype
    shape = x.shape
    if (len(shape) < 2 and shape != (1,)) or (x.flags.c_contiguous and 1 not in shape and x.size):
        return empty(shape, dtype)
    if not x.size and not any(x.strides):
        return empty(shape, dtype)
    if dense_order(x) is None:
        steps = dense_strides(shape, x.strides)
    else:
        steps = [s // x.itemsize for s in x.strides]
    flat = empty((x.size,), dtype)
    return ndarray(shape, dtype, flat, 0, [s * dtype.itemsize for s in steps])


def window(x: ndarray, shape: tuple[int, ...], strides: tuple[int, ...]) -> ndarray:
    """The memory of x from its first element on, by another shape and strides (in bytes)."""
    return ndarray(shape, x.dtype, x, 0, strides)


def is_writable(x: ndarray) -> bool:
    return x.flags.writeable


def dense_order(x: ndarray) -> list[int] | None:
    """The order of dimensions that makes x contiguous, or None when it has holes or overlaps."""
    if x.flags.c_contiguous:
        return list(range(x.ndim))
    order = sorted(range(x.ndim), key=lambda i: (-x.strides[i], -x.shape[i] if x.strides[i] else 0))
    expected = x.itemsize
    for i in reversed(order):
        if x.shape[i] == 1:
            continue
        if x.strides[i] != expected:
            return None
        expected *= x.shape[i]
    return order


promised: type = ndarray  # the type of arrays whose elements are still to come (compiler/follow/promises.py)
settle: Any = None        # brings them: (array, what they are needed for)


def owner(x: ndarray) -> ndarray:
    """The array at the end of x's chain of bases (or the block of pooled memory): what stands for x's storage."""
    base = x.base
    while type(base) is ndarray or type(base) is promised:
        x, base = base, base.base
    return base if isinstance(base, Block) else x


# ------------------------------------------------------------------------------------- memory that others see as well
# A followed call reads its inputs later than the line that names them. That is no difference unless somebody changes them in
# between, and NumPy does not tell: so it must be known which memory NumPy arrays outside of flambeau lie over.
class _Between(ndarray):
    """Between an `Exposed` and the memory, so that NumPy does not skip over the former (see Pages)."""


class Exposed(ndarray):
    """What all arrays that a user made of `tensor.numpy()` keep alive; dies with the last of them."""

    def __del__(self):
        seen = self.__dict__.get("seen")
        if seen is not None:
            _exposed[id(seen)] -= 1
            if not _exposed[id(seen)]:
                del _exposed[id(seen)]
                _mark(id(seen), -1)


_exposed: dict[int, int] = {}    # address of an owner -> how many Exposed lie over its memory
_given: dict[int, Any] = {}      # address of a user's array that a tensor lies over -> weak reference to it
marks = np.zeros(1 << 16, np.uint8)  # how many of both there are with some bits of their address: a first look, for native code


def exposed(x: ndarray) -> ndarray:
    """A view of x for the world outside."""
    between = x.view(_Between).view(Exposed)
    between.seen = seen = owner(x)
    count = _exposed.get(id(seen), 0)
    _exposed[id(seen)] = count + 1
    if not count:
        _mark(id(seen), 1)
    return between.view(ndarray)


def _mark(address: int, change: int) -> None:
    at = address >> 5 & 0xffff
    if marks[at] < 255:  # else there are so many that it stays marked
        marks[at] = int(marks[at]) + change


def given(array: ndarray) -> None:
    """A tensor comes to lie over an array that owns its memory and belongs to the user."""
    key = id(array)
    if key not in _given:
        _given[key] = weakref.ref(array, lambda gone: _taken_back(key))
        _mark(key, 1)


def _taken_back(key: int) -> None:
    if _given.pop(key, None) is not None:
        _mark(key, -1)


def is_exposed(x: ndarray) -> bool:
    """Whether somebody outside of flambeau may change x's memory without a word."""
    base, holders = x.base, HANDED_ON  # of the array that owns the memory, besides one
    while type(base) is ndarray or type(base) is promised:
        x, base, holders = base, base.base, 1  # the name x
    if base is not None:
        return not isinstance(base, (Block, Region)) or id(base) in _exposed
    key = id(x)
    return key in _exposed or (key in _given and getrefcount(x) > 1 + holders + ASKED)


class Region(ndarray):
    """Reserved memory in which arrays lie whose elements are still to come (compiler/follow/promises.py)."""
