"""Tensors of a subclass that have a shape and a device, but no memory: `Tensor._make_wrapper_subclass`."""

from __future__ import annotations

from typing import Any

from ...backends.meta import wrapped
from ...backends.strides import format_strides
from ...tensors.device import device as device_class
from ...tensors.tensor import Tensor


def make(cls: type, size: Any, strides: Any, storage_offset: int | None, memory_format: Any, dtype: Any, layout: Any,
         device: Any, requires_grad: bool) -> Tensor:
    """A new leaf; what operations do with it is said by its class."""
    import flambeau
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError("cls must be a subclass of Tensor")
    if not cls._dispatches:
        raise TypeError(f"{cls.__name__}: a wrapper subclass needs a __torch_dispatch__ of its own")
    if layout is not None and layout is not flambeau.strided:
        raise NotImplementedError(f"_make_wrapper_subclass: layout {layout} is not implemented in flambeau")
    shape = tuple([int(n) for n in size])
    if strides is None and memory_format not in (None, flambeau.contiguous_format, flambeau.preserve_format):
        strides = format_strides(shape, str(memory_format).rpartition(".")[2].removeprefix("torch."))
    made = object.__new__(cls)
    made._array = wrapped.make(shape, None if strides is None else tuple(strides), storage_offset or 0,
                               (dtype or flambeau.get_default_dtype()).native, device_class(device or "cpu"))
    made._node = made._counter = None
    if requires_grad:
        made.requires_grad_(True)
    return made
