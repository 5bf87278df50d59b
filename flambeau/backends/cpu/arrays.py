"""Arrays themselves: making them, sharing them with other libraries, their storage and geometry.

PyTorch says exactly which strides a view has, also along dimensions of length one and in empty tensors, where NumPy
leaves them free (or sets them to 0). So views that NumPy would lay out differently are made by `restride`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from . import memory
from .halves import FLOAT32, convert

asarray = np.asarray


class External:
    """Memory that another library owns (an array given to `from_numpy`, a DLPack capsule's array).

    As the base of our arrays it stops NumPy from looking through to the other array's own base, so that the storage of
    the tensor starts where the given array starts.
    """

    def __init__(self, array: ndarray):
        self.array = array
        span = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) + array.itemsize if array.size else 0
        self.__array_interface__ = {"shape": (span,), "strides": None, "version": 3, "typestr": "|u1",
                                    "data": (array.ctypes.data, False)}


def share(array: ndarray) -> ndarray:
    """An array over the same memory, whose storage is exactly what the given one covers.

    Read-only memory is shared too, as PyTorch does (the caller warns). Strides must not be negative.
    """
    window = np.asarray(External(array))
    return ndarray(array.shape, array.dtype, window, 0, array.strides)


class Storage:
    """What `untyped_storage()` needs to know: the address and length of the memory behind an array."""

    __slots__ = ("address", "nbytes", "owner")

    def __init__(self, x: ndarray):
        self.owner = holder = memory.owner(x)
        self.address = holder.ctypes.data
        self.nbytes = getattr(holder, "used", holder.nbytes)


def address(x: ndarray) -> int:
    return x.ctypes.data


def storage_offset(x: ndarray) -> int:
    """Elements between the start of x's storage and its first element."""
    holder = memory.owner(x)
    if holder is x:
        return 0
    # An empty array is placed where its first element would be, so its offset is known as well.
    return max(x.ctypes.data - holder.ctypes.data, 0) // x.itemsize


def strides(x: ndarray) -> tuple[int, ...]:
    """Strides in elements. NumPy's empty arrays and the dimensions it inserts have strides of 0: PyTorch's are then
    those of a contiguous tensor and of `unsqueeze`."""
    size, bytes_ = x.itemsize, x.strides
    if 0 not in bytes_:
        return tuple([s // size for s in bytes_])
    if x.size == 0 and not any(bytes_):
        return contiguous_strides(x.shape)
    out, shape = [s // size for s in bytes_], x.shape
    for i in range(len(out) - 1, -1, -1):
        if shape[i] == 1 and not out[i]:
            out[i] = out[i + 1] * shape[i + 1] if i + 1 < len(out) else 1
    return tuple(out)


def settled(x: ndarray) -> ndarray:
    """x with the strides that PyTorch gives inserted dimensions, so that they stay right when x is permuted later."""
    return restride(x, x.shape, strides(x)) if 0 in x.strides else x


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    out, step = [], 1
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


def restride(x: ndarray, shape: tuple[int, ...], stride: tuple[int, ...], skip: int = 0) -> ndarray:
    """The view of x with this shape and these strides (in elements), `skip` elements after x's first one.

    The caller knows that it stays inside x's storage. Costs 0.3 us when x is contiguous.
    """
    size = x.itemsize
    strides_ = [s * size for s in stride]
    if x.flags.c_contiguous and (skip == 0 or x.size):
        reach = skip * size
        if 0 not in shape:
            reach += size
            for n, s in zip(shape, strides_):
                reach += (n - 1) * s
        if reach <= x.nbytes:
            return ndarray(shape, x.dtype, x, skip * size, strides_)
    holder = memory.owner(x)
    start = 0 if holder is x else x.ctypes.data - holder.ctypes.data
    return _window(holder, shape, x.dtype, start + skip * size, strides_)


def _window(holder: ndarray, shape, dtype: np.dtype, start: int, strides_) -> ndarray:
    if not (holder.flags.c_contiguous or holder.flags.f_contiguous):
        holder = holder.transpose(memory.dense_order(holder))  # an owner is dense in some order
    if 0 in shape:
        start = min(max(start, 0), holder.nbytes)
    return ndarray(shape, dtype, holder, start, strides_)


def as_strided(x: ndarray, shape: tuple[int, ...], stride: tuple[int, ...], offset: int) -> ndarray:
    """A view of x's storage (not of x) by explicit geometry, checked against the storage's bounds."""
    holder = memory.owner(x)
    size, nbytes = x.itemsize, getattr(holder, "used", holder.nbytes)
    last = offset + 1
    for n, s in zip(shape, stride):
        last += (n - 1) * s
    if last * size > nbytes and 0 not in shape:
        raise RuntimeError(f"setStorage: sizes {list(shape)}, strides {list(stride)}, storage offset {offset}, and "
                           f"itemsize {size} requiring a storage size of {last * size} are out of bounds for storage "
                           f"of size {nbytes}")
    return _window(holder, shape, x.dtype, offset * size, [s * size for s in stride])


def over_bytes(raw: ndarray, shape, stride, offset: int, dtype: np.dtype) -> ndarray:
    """An array of any dtype over the bytes of a storage (its owner)."""
    return _window(raw, tuple(shape), dtype, offset * dtype.itemsize, [s * dtype.itemsize for s in stride])


def is_contiguous(x: ndarray) -> bool:
    return x.flags.c_contiguous


def is_dense(x: ndarray) -> bool:
    """No two elements share memory and there are no holes between them, in some order of dimensions."""
    return x.flags.c_contiguous or memory.dense_order(x) is not None


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
    return np.unique(element_numbers(x.shape, x.strides)).size < x.size


def element_numbers(shape, stride) -> ndarray:
    """Where each element lies, counted from the first, as an integer array of the given shape."""
    starts = np.zeros((), np.int64)
    for n, s in zip(shape, stride):
        starts = starts[..., None] + np.arange(n) * s
    return starts


def overlap(x: ndarray, y: ndarray) -> str | None:
    """ "full" if both are the same elements in the same order, "part" if they share some; None if they share nothing or
    if that is hard to say (as in PyTorch only arrays without holes are compared)."""
    if x is y:
        return "full"
    if not np.may_share_memory(x, y) or not (is_dense(x) and is_dense(y)):
        return None
    same = x.ctypes.data == y.ctypes.data and x.nbytes == y.nbytes
    return "full" if same and x.strides == y.strides else "part"


def shares_memory(x: ndarray, y: ndarray) -> bool:
    return np.may_share_memory(x, y) and np.shares_memory(x, y)


def from_data(data: Any, dtype: np.dtype | None) -> ndarray:
    """A fresh array of nested Python data, already checked to be rectangular numbers."""
    return np.array(data, dtype)


def empty_strided(shape, stride, dtype: np.dtype) -> ndarray:
    """Uninitialised memory for exactly this geometry."""
    shape = tuple(shape)
    count = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    flat = memory.empty((count,), dtype)
    return ndarray(shape, dtype, flat, 0, [s * dtype.itemsize for s in stride])


def cast_into(out: ndarray, x: Any) -> None:
    """out[...] = x with PyTorch's conversions: complex to real drops the imaginary part, to bool asks for non-zero."""
    if x.__class__ is ndarray and x.dtype is not out.dtype:
        if x.dtype.kind == "W":
            x = x.astype(np.complex64)
        kind, goal = x.dtype.kind, out.dtype.kind
        if kind == "c" and goal not in "cWb":
            x = x.real
        elif kind == "V" and goal in "cW":  # bfloat16 has no direct way to complex
            x = x.astype(FLOAT32)
        if kind == "c" and goal == "V":
            x = x.astype(FLOAT32)
        if convert(out, x):
            return
    np.copyto(out, x, casting="unsafe")


# --------------------------------------------------------------------------------------------------------- storage
def storage_bytes(x: ndarray) -> ndarray:
    """The whole storage behind x, as bytes."""
    storage = Storage(x)
    return _window(storage.owner, (storage.nbytes,), np.dtype(np.uint8), 0, [1])


def resized(x: ndarray, shape, stride) -> ndarray:
    """x's storage from x's first element on, by another geometry; larger memory with the same bytes if needed."""
    storage, offset = Storage(x), storage_offset(x)
    size = x.itemsize
    needed = (offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0) * size
    owner = storage.owner
    if needed > storage.nbytes:
        fresh = memory.empty((needed,), np.dtype(np.uint8))
        fresh[:storage.nbytes] = storage_bytes(x)
        owner = memory.owner(fresh)
    return _window(owner, tuple(shape), x.dtype, offset * size, [s * size for s in stride])
