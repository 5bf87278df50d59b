"""Memory of large CPU arrays: freed blocks are kept and handed out again.

Fresh pages from the operating system cost more than a sum over them, so results above `POOLED_BYTES` live in blocks
that return to a free list when the last array over them dies (reference counting tells: each array keeps its block
alive through NumPy's `base`). The list is bounded; `release_cached()` empties it.
"""

from __future__ import annotations

import os
import threading

import numpy as np
from numpy import ndarray

POOLED_BYTES = 1 << 18
_LIMIT = int(os.environ.get("FLAMBEAU_CACHE_BYTES", 2 << 30))
_free: dict[int, list[ndarray]] = {}
_held = 0
_lock = threading.RLock()


class Block(ndarray):
    """The owner of a pooled buffer; dies when no array uses it any more."""

    def __del__(self):
        global _held
        base = self.base
        if base is None or type(base) is not ndarray:  # a slice or copy made by NumPy, not the owner
            return
        size = base.nbytes
        with _lock:
            if _held + size <= _LIMIT:
                _held += size
                _free.setdefault(size, []).append(base)


def _round(nbytes: int) -> int:
    """Size classes of a sixteenth of the next power of two: at most 12 % is wasted."""
    step = max(1 << 12, 1 << (nbytes.bit_length() - 4))
    return (nbytes + step - 1) // step * step


def empty(shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    """An uninitialised C-contiguous array, from the pool when it is large."""
    global _held
    count = 1
    for n in shape:
        count *= n
    nbytes = count * dtype.itemsize
    if nbytes < POOLED_BYTES:
        return np.empty(shape, dtype)
    size = _round(nbytes)
    with _lock:
        blocks = _free.get(size)
        if blocks:
            raw = blocks.pop()
            _held -= size
        else:
            raw = None
    if raw is None:
        raw = _allocate(size)
    return ndarray(shape, dtype, buffer=raw.view(Block))


def _allocate(size: int) -> ndarray:
    try:
        return np.empty(size, np.uint8)
    except MemoryError:
        release_cached()
    try:
        return np.empty(size, np.uint8)
    except MemoryError:
        raise RuntimeError(f"not enough memory: you tried to allocate {size} bytes.") from None


def release_cached() -> None:
    """Gives all cached blocks back to the operating system."""
    global _held
    with _lock:
        _free.clear()
        _held = 0


def cached_bytes() -> int:
    return _held


def like(x: ndarray) -> ndarray:
    """Uninitialised memory of x's shape, dtype and, where x is dense, its order of dimensions."""
    if x.flags.c_contiguous or x.ndim < 2:
        return empty(x.shape, x.dtype)
    order = dense_order(x)
    if order is None:
        return empty(x.shape, x.dtype)
    out = empty(tuple(x.shape[i] for i in order), x.dtype)
    inverse = [0] * x.ndim
    for position, i in enumerate(order):
        inverse[i] = position
    return out.transpose(inverse)


def dense_order(x: ndarray) -> list[int] | None:
    """The order of dimensions that makes x contiguous, or None when it has holes or overlaps."""
    order = sorted(range(x.ndim), key=lambda i: (-x.strides[i], -x.shape[i] if x.strides[i] else 0))
    expected = x.itemsize
    for i in reversed(order):
        if x.shape[i] == 1:
            continue
        if x.strides[i] != expected:
            return None
        expected *= x.shape[i]
    return order


def owner(x: ndarray):
    """The object at the end of x's chain of bases: what holds the memory."""
    while type(x) is ndarray and x.base is not None:
        x = x.base
    return x
