"""Arrays without memory: `MetaArray` has a shape, strides and a dtype over addresses that are reserved, never written.

One read-only mapping of zero pages, as large as the address space allows, stands behind all of them. So NumPy's views
work on a MetaArray as on any array, a read that slips through gives zeros, and a write is refused by NumPy itself.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu import memory
from ..windows import Windows

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
                pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, prot=mmap.PROT_READ)
                break
            except OSError:  # a limit on the address space
                length >>= 1
                if length < max(nbytes, 1):
                    raise RuntimeError(f"could not reserve addresses for a meta tensor of {nbytes} bytes") from None
        _region[:] = [np.frombuffer(pages, np.uint8).view(_Region)]
    return _region[0]


def storage(nbytes: int) -> Reserved:
    return _space(nbytes)[:nbytes].view(Reserved)


windows = Windows(MetaArray, Reserved, storage)
reserve, reserve_strided, reserve_like = windows.empty, windows.empty_strided, windows.like
zeros_of = windows.bare  # (the memory is zeros, and read-only)


def meta(x: Any) -> MetaArray:
    """What a CPU kernel made, as an array without memory: a view stays a view, anything else is reserved anew."""
    if not isinstance(x, ndarray):
        x = np.asarray(x)
    return windows.view(x) if windows.owner(x) is not None else reserve_like(x, x.dtype)
