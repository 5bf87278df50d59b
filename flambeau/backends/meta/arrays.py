"""Arrays without memory: `MetaArray` has a shape, strides and a dtype over addresses that are reserved, never written.

One read-only mapping of zero pages, as large as the address space allows, stands behind all of them. So NumPy's views
work on a MetaArray as on any array, a read that slips through gives zeros, and a write is refused by NumPy itself.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu import arrays as _cpu_arrays
from ..cpu import memory

_LARGEST = 1 << 46
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_region: list[ndarray] = []


class _Region(ndarray):
    """The mapping itself. A type of its own keeps NumPy from skipping a `Reserved` when it shortens chains of bases."""


class Reserved(memory.Block):
    """The storage of a meta tensor: its length is real, its bytes are not."""


class MetaArray(ndarray):
    """An array of a meta tensor. Its base chain ends in a `Reserved`."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from .backend import run_ufunc
        return run_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from .backend import run_function
        return run_function(function, args, kwargs)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> MetaArray:
        dtype = np.dtype(dtype)
        return reserve_like(self, dtype)

    def copy(self, order: str = "C") -> MetaArray:
        return reserve(self.shape, self.dtype) if order == "C" else reserve_like(self, self.dtype)

    def fill(self, value: Any) -> None:
        pass

    def item(self, *args: Any) -> Any:
        raise RuntimeError("Tensor.item() cannot be called on meta tensors")

    def tolist(self) -> Any:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def _space(nbytes: int) -> ndarray:
    """At least this many reserved bytes."""
    if not _region or _region[0].nbytes < nbytes:
        if nbytes > _LARGEST:
            raise RuntimeError(f"a meta tensor can have at most {_LARGEST} bytes, not {nbytes}")
        length = 1 << 40
        while length < nbytes:
            length <<= 2
        length = min(length, _LARGEST)
        while True:
            try:
                pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE,
                                  prot=mmap.PROT_READ)
                break
            except OSError:  # a limit on the address space
                length >>= 1
                if length < max(nbytes, 1):
                    raise RuntimeError(f"could not reserve addresses for a meta tensor of {nbytes} bytes") from None
        _region[:] = [np.frombuffer(pages, np.uint8).view(_Region)]
    return _region[0]


def storage(nbytes: int) -> Reserved:
    return _space(nbytes)[:nbytes].view(Reserved)


def over(owner: Reserved, shape: Any, dtype: np.dtype, start: int, strides: Any) -> MetaArray:
    """A MetaArray over a storage; start and strides in bytes."""
    return ndarray.__new__(MetaArray, shape, dtype, owner, start, strides)


def reserve(shape: tuple[int, ...], dtype: np.dtype) -> MetaArray:
    """A new contiguous array."""
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes >= 1 << 63:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return ndarray.__new__(MetaArray, shape, dtype, storage(nbytes))


def reserve_strided(shape: Any, stride: Any, dtype: np.dtype) -> MetaArray:
    """A new array of explicit strides (in elements)."""
    count = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    return over(storage(count * dtype.itemsize), tuple(shape), dtype, 0, [s * dtype.itemsize for s in stride])


def reserve_like(x: ndarray, dtype: np.dtype) -> MetaArray:
    """A new dense array in x's order of dimensions."""
    if x.flags.c_contiguous or x.ndim < 2 or not x.size:
        return reserve(x.shape, dtype)
    if memory.dense_order(x) is None:
        return reserve_strided(x.shape, memory.dense_strides(x.shape, x.strides), dtype)
    return reserve_strided(x.shape, [s // x.itemsize for s in x.strides], dtype)


def owner(x: ndarray) -> Reserved | None:
    """The storage at the end of the chain of bases; None for memory that is real."""
    while x is not None and type(x) is not Reserved:
        x = getattr(x, "base", None)
    return x


def _start(x: ndarray, root: Reserved) -> int:
    return min(max(_cpu_arrays.address(x) - _cpu_arrays.address(root), 0), root.nbytes)


def zeros_of(x: MetaArray) -> ndarray:
    """The same geometry as an ordinary (read-only) array of zeros, for CPU kernels to look at."""
    root = owner(x)
    if root is None:
        return x.view(ndarray)
    return ndarray(x.shape, x.dtype, root, _start(x, root), x.strides)


def meta(x: Any) -> MetaArray:
    """What a CPU kernel made, as an array without memory: a view stays a view, anything else is reserved anew."""
    if not isinstance(x, ndarray):
        x = np.asarray(x)
    root = owner(x)
    if type(x) is MetaArray and root is not None:
        return x
    if root is not None:
        return over(root, x.shape, x.dtype, _start(x, root), x.strides)
    return reserve_like(x, x.dtype)
