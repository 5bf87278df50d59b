"""Memory during a capture: where it lies, and whether anybody else holds it."""

from __future__ import annotations

import ctypes
from sys import getrefcount

import numpy as np
from numpy import ndarray

from ...backends.cpu.memory import Block
from ...backends.references import NAMED
from ...native import pointer
from ..ir.parts import Storage


def _unseen(storage: Storage) -> bool:
    """Whether nobody outside can write to a constant's memory, as with a NumPy array that was made a tensor."""
    array, owner = storage.hold
    return owner is array or getrefcount(owner) == 2 + NAMED or type(owner) is not ndarray


def _dead(storage: Storage) -> bool:
    """Whether a storage's `hold` is all that refers to its memory."""
    array, owner = storage.hold
    if not (owner.base is None or isinstance(owner, Block)):  # over memory of some other object
        return False
    if owner is array:
        return getrefcount(array) == 3 + NAMED  # the pair's two, and the other name
    return array.base is owner and getrefcount(array) == 1 + NAMED and getrefcount(owner) == 2 + NAMED


def _copy_in_place(array: ndarray) -> ndarray:
    """A copy with the very same strides."""
    span = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize
    copy = ndarray(array.shape, array.dtype, np.empty(span, np.uint8), 0, array.strides)
    copy[...] = array
    return copy


def bytes_of(storage: Storage) -> bytes:
    if storage.device:
        from ...backends.cuda.arrays import at_address, download, windows
        block = at_address(storage.start, storage.nbytes)
        return download(windows.over(block, (storage.nbytes,), np.dtype(np.uint8), 0, (1,))).tobytes()
    return ctypes.string_at(storage.start, storage.nbytes)


def span(array: ndarray) -> tuple[int, int]:
    """The addresses between which an array's elements lie."""
    start = end = pointer(array) or 0
    for n, s in zip(array.shape, array.strides):
        if s < 0:
            start += (n - 1) * s
        else:
            end += (n - 1) * s
    return start, end + array.itemsize
