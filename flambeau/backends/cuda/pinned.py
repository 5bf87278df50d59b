"""Page-locked memory of the host. Freed pieces are kept by size: locking pages takes the driver a millisecond."""

from __future__ import annotations

import ctypes
import threading
from collections import defaultdict

import numpy as np
from numpy import ndarray

from ..cpu import memory as _host
from .driver import machine

_PAGE = 4096


class _Pages(ndarray):
    """Page-locked memory. A type of its own keeps NumPy from skipping a `Pinned` when it shortens chains of bases."""


class Pinned(ndarray):
    """What pinned arrays keep alive."""

    def __del__(self) -> None:
        if type(self.base) is _Pages:
            with _lock:
                _free[self.nbytes].append(self.ctypes.data)


_free: dict[int, list[int]] = defaultdict(list)  # bytes -> addresses
_lock = threading.RLock()  # pieces die while it is held
_held: list[tuple[int, ndarray]] = []  # (event, array): copies that may still be under way, oldest first


def hold(x: ndarray, stream: int) -> None:
    """Keeps an array until what is in a stream now is done: its memory is being copied from."""
    event = machine().new_event(False)
    machine().record(event, stream)
    with _lock:
        _held.append((event, x))
    _let_go()


def _let_go() -> None:
    with _lock:
        while _held and machine().has_passed(_held[0][0]):
            event, _ = _held.pop(0)
            machine().end_event(event)


def _block(nbytes: int) -> ndarray:
    size = max(1 << (nbytes - 1).bit_length(), _PAGE)
    _let_go()
    with _lock:
        address = _free[size].pop() if _free[size] else None
    if address is None:
        address = machine().pin(size)
    return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8).view(_Pages).view(Pinned)


def copied(x: ndarray) -> ndarray:
    """A copy in pinned memory, in the order of x's dimensions where that is dense."""
    strides = x.strides if _host.dense_order(x) is not None else np.empty(x.shape, np.uint8).strides
    if _host.dense_order(x) is None:
        strides = tuple([s * x.itemsize for s in strides])
    made = ndarray(x.shape, x.dtype, _block(max(x.nbytes, 1)), 0, strides)
    made[...] = x
    return made


def is_pinned(x: ndarray) -> bool:
    while x is not None:
        if type(x) is Pinned:
            return True
        x = getattr(x, "base", None)
    return False
