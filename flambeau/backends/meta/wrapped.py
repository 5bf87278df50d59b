"""The arrays of wrapper tensors: a shape, strides and a device, no elements. Kernels do not run on them.

What operations do with such a tensor is said by the `__torch_dispatch__` of its class, which is asked before any kernel.
"""

from __future__ import annotations

import sys
from typing import Any

from .. import registry
from . import backend as _meta
from .arrays import MetaArray, Reserved, storage, windows


class WrapperArray(MetaArray):
    """An array of a tensor that stands for others. device: where it says that it is."""

    device: Any = None

    def __array_finalize__(self, other: Any) -> None:
        self.device = getattr(other, "device", None)


ARRAY, NAME = WrapperArray, "wrapper"
_windows = type(windows)(WrapperArray, Reserved, storage)


def make(shape: tuple[int, ...], stride: tuple[int, ...] | None, offset: int, dtype: Any, device: Any) -> WrapperArray:
    """A new array; stride: in elements (None: contiguous)."""
    if stride is None and not offset:
        made = _windows.empty(shape, dtype)
    else:
        stride = stride if stride is not None else _meta.strides(_windows.empty(shape, dtype))
        room = offset + (1 + sum([(n - 1) * s for n, s in zip(shape, stride)]) if all(shape) else 0)
        made = _windows.over(storage(room * dtype.itemsize), shape, dtype, offset * dtype.itemsize,
                             [s * dtype.itemsize for s in stride])
    made.device = device
    return made


def device_of(array: Any) -> Any:
    return array.device


strides, is_contiguous, address, Storage = _meta.strides, _meta.is_contiguous, _meta.address, _meta.Storage
storage_offset, storage_bytes, is_shared = _windows.storage_offset, _windows.storage_bytes, _meta.is_shared


def as_strided(x: Any, shape: Any, stride: Any, offset: int) -> Any:
    made = _windows.as_strided(x, shape, stride, offset)
    made.device = x.device
    return made


def call(name: str, args: tuple[Any, ...]) -> Any:
    raise NotImplementedError(f"{name}: a tensor without memory (Tensor._make_wrapper_subclass) got past its "
                              "__torch_dispatch__: this operation is not one that it is asked about")


def __getattr__(name: str) -> Any:
    """What else a backend does: nothing here."""
    if name.startswith("__") or not hasattr(_meta, name):
        raise AttributeError(name)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        return call(name, args)
    return refuse


registry.ARRAY_TYPES[WrapperArray] = sys.modules[__name__]
