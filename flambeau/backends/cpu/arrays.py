"""Arrays themselves: making them, sharing them with other libraries, their storage."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from numpy import ndarray

from . import memory

asarray = np.asarray
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class External:
    """Memory that another library owns (an array given to `from_numpy`, a DLPack capsule's array).

    As the base of our arrays it stops NumPy from looking through to the other array's own base, so that the storage of
    the tensor starts where the given array starts.
    """

    def __init__(self, array: ndarray):
        self.array = array
        self.__array_interface__ = {"shape": array.shape, "strides": array.strides, "version": 3,
                                    "typestr": f"|V{array.itemsize}" if array.dtype.kind == "V" else array.dtype.str,
                                    "data": (array.ctypes.data, False)}
        span = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize if array.size else 0
        self.address, self.nbytes = array.ctypes.data, span


def share(array: ndarray) -> ndarray:
    """An array over the same memory, whose storage is exactly what the given one covers."""
    if not array.flags.writeable:
        # NumPy refuses read-only memory through the interface's writable flag; PyTorch warns and shares it anyway.
        holder = External(array)
    else:
        holder = External(array)
    out = np.asarray(holder)
    return out.view(array.dtype) if array.dtype.kind == "V" else out


class Storage:
    """What `untyped_storage()` needs to know: the address and length of the memory behind an array."""

    __slots__ = ("owner", "address", "nbytes")

    def __init__(self, x: ndarray):
        holder = memory.owner(x)
        self.owner = holder
        if isinstance(holder, External):
            self.address, self.nbytes = holder.address, holder.nbytes
        elif isinstance(holder, ndarray):
            self.address = holder.__array_interface__["data"][0]
            self.nbytes = holder.nbytes
        else:
            view = np.frombuffer(holder, np.uint8)
            self.address, self.nbytes = view.__array_interface__["data"][0], view.nbytes


def address(x: ndarray) -> int:
    return x.__array_interface__["data"][0]


def storage_offset(x: ndarray) -> int:
    """Elements between the start of x's storage and its first element."""
    holder = memory.owner(x)
    if holder is x:
        return 0
    start = Storage(x).address
    return (address(x) - start) // x.itemsize if x.size else 0


def strides(x: ndarray) -> tuple[int, ...]:
    """Strides in elements, normalised as PyTorch does for contiguous arrays (NumPy leaves them free for length 1)."""
    size = x.itemsize
    return tuple([s // size for s in x.strides])


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def as_strided(x: ndarray, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> ndarray:
    """A view of x's storage (not of x) by explicit geometry, checked against the storage's bounds."""
    storage = Storage(x)
    size = x.itemsize
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride)) + 1 if all(shape) else offset
    if last * size > storage.nbytes:
        raise RuntimeError(f"setStorage: sizes {list(shape)}, strides {list(stride)}, storage offset {offset}, and itemsize "
                           f"{size} requiring a storage size of {last * size} are out of bounds for storage of size "
                           f"{storage.nbytes}")
    return _view(storage, shape, stride, offset, x.dtype)


class _Window:
    """A piece of a storage, for NumPy to make an array of; keeps the owner alive."""

    def __init__(self, storage: Storage, shape, strides_, start: int, typestr: str):
        self.owner = storage.owner
        self.address, self.nbytes = storage.address, storage.nbytes
        self.__array_interface__ = {"shape": shape, "strides": strides_, "typestr": typestr, "version": 3,
                                    "data": (start, False)}


def _view(storage: Storage, shape, stride, offset: int, dtype: np.dtype) -> ndarray:
    size = dtype.itemsize
    holder = storage.owner
    # np.ndarray over a buffer keeps `holder` itself as base, so that owner() finds the same storage again.
    if isinstance(holder, ndarray) and holder.flags.c_contiguous:
        return ndarray(shape, dtype, buffer=holder, offset=offset * size, strides=[s * size for s in stride])
    raw = (ctypes.c_char * max(storage.nbytes, 1)).from_address(storage.address or ctypes.addressof(_NOTHING))
    raw.owner = holder
    window = ndarray((storage.nbytes,), np.uint8, buffer=raw)
    out = ndarray(shape, dtype, buffer=window, offset=offset * size, strides=[s * size for s in stride])
    return out


_NOTHING = ctypes.create_string_buffer(1)


def has_overlap(x: ndarray) -> bool:
    """Whether two elements of x are one piece of memory (an expanded array)."""
    if x.size < 2 or x.flags.c_contiguous:
        return False
    if 0 in [s for s, n in zip(x.strides, x.shape) if n > 1]:
        return True
    dims = sorted((abs(s), n) for s, n in zip(x.strides, x.shape) if n > 1)
    reach = 0
    for stride, n in dims:
        if stride <= reach:
            return _exact_overlap(x)
        reach += stride * (n - 1)
    return False


def _exact_overlap(x: ndarray) -> bool:
    starts = np.zeros((), np.int64)
    for n, s in zip(x.shape, x.strides):
        starts = starts[..., None] + np.arange(n) * s
    return np.unique(starts).size < x.size


def shares_memory(x: ndarray, y: ndarray) -> bool:
    return np.may_share_memory(x, y) and np.shares_memory(x, y)


def from_data(data: Any, dtype: np.dtype | None) -> ndarray:
    """A fresh array of nested Python data, already checked to be rectangular numbers."""
    return np.array(data, dtype)


def is_ndarray(x: Any) -> bool:
    return isinstance(x, (ndarray, np.generic))


def empty_strided(shape, stride, dtype: np.dtype) -> ndarray:
    count = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    flat = memory.empty((count,), dtype)
    return np.lib.stride_tricks.as_strided(flat, shape, [s * dtype.itemsize for s in stride])
