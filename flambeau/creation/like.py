"""Tensors like another one: of its shape, or only of its dtype and device (`new_zeros`)."""

from __future__ import annotations

from typing import Any

from ..backends import registry
from ..ops.core.row import public
from ..tensors import dtypes as _dtypes
from ..tensors.formats import contiguous_format, preserve_format
from ..tensors.tensor import Tensor
from .options import (
    _fits,
    _keyword,
    _sizes,
    _unset,
    check_options,
    element_type,
    finish,
    format_order,
    place,
    read_size,
    scalar,
)


def like(name: str, input: Any, dtype: Any, layout: Any, device: Any, memory_format: Any,
         pin_memory: Any = False) -> Any:
    """Uninitialised array of a tensor's shape, with whatever was given changed."""
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    check_options(name, layout, pin_memory)
    x = input._array
    d = element_type(dtype, name)
    native = x.dtype if d is None else d.native
    backend = registry.maker(x) if device is None else place(device)
    if memory_format is None or memory_format is preserve_format:
        return backend.like(x, native)
    if memory_format is contiguous_format:
        return backend.empty(x.shape, native)
    return backend.ordered(x.shape, format_order(memory_format, x.ndim), native)


def _filled_like(name: str, input: Any, value: Any, dtype: Any, layout: Any, device: Any, memory_format: Any,
                 requires_grad: Any, pin_memory: Any) -> Tensor:
    if dtype is device is layout is None and memory_format is preserve_format and isinstance(input, Tensor):
        x = input._array  # the common case: a contiguous CPU tensor, and nothing changed
        if type(x) is registry.CPU_ARRAY and x.flags.c_contiguous and not pin_memory:
            cpu = registry.cpu
            return finish(cpu.full(x.shape, x.dtype, value) if value else cpu.zeros(x.shape, x.dtype), requires_grad)
    return finish(_fill(like(name, input, dtype, layout, device, memory_format, pin_memory), value), requires_grad)


def _fill(array: Any, value: Any) -> Any:
    registry.backend_of(array).fill(array, value)
    return array


@public(method=False, out=False)
def empty_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=preserve_format,
               pin_memory=False) -> Tensor:
    """Uninitialised memory of another tensor's shape."""
    return _unset(finish(like("empty_like", input, dtype, layout, device, memory_format, pin_memory), requires_grad))


@public(method=False, out=False)
def zeros_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=preserve_format,
               pin_memory=False) -> Tensor:
    """Zeros of another tensor's shape."""
    return _filled_like("zeros_like", input, 0, dtype, layout, device, memory_format, requires_grad, pin_memory)


@public(method=False, out=False)
def ones_like(input, *, dtype=None, layout=None, device=None, requires_grad=False, memory_format=preserve_format,
              pin_memory=False) -> Tensor:
    """Ones of another tensor's shape."""
    return _filled_like("ones_like", input, 1, dtype, layout, device, memory_format, requires_grad, pin_memory)


@public(method=False, out=False)
def full_like(input, fill_value, *, dtype=None, layout=None, device=None, requires_grad=False,
              memory_format=preserve_format, pin_memory=False) -> Tensor:
    """One value in another tensor's shape."""
    array = like("full_like", input, dtype, layout, device, memory_format, pin_memory)
    value = scalar("full_like", "fill_value", fill_value)
    _fits(value, _dtypes.BY_NUM[array.dtype.num])
    return finish(_fill(array, value), requires_grad)


def _as(self: Tensor, name: str, dtype: Any, device: Any) -> tuple[Any, Any]:
    d = element_type(dtype, name)
    return (self._array.dtype if d is None else d.native), (
        registry.maker(self._array) if device is None else place(device))


def _new(name: str, value: Any):
    def method(self, *size, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False, **named):
        check_options(name, layout, pin_memory)
        shape = _sizes(name, size, _keyword(name, named))
        native, backend = _as(self, name, dtype, device)
        array = backend.empty(shape, native)
        if value is not None:
            backend.fill(array, value)
        return finish(array, requires_grad)

    method.__name__, method.__doc__ = name, f"{name}(size): a new tensor of this one's dtype and device."
    public(method, toplevel=False, out=False)


_new("new_empty", None)
_new("new_zeros", 0)
_new("new_ones", 1)


@public(toplevel=False, out=False)
def new_full(self, size, fill_value, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False,
             names=None) -> Tensor:
    """One value in a new tensor of this one's dtype and device."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"new_full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    check_options("new_full", layout, pin_memory)
    native, backend = _as(self, "new_full", dtype, device)
    value = scalar("new_full", "fill_value", fill_value)
    _fits(value, _dtypes.BY_NUM[native.num])
    return finish(backend.full(read_size("new_full", tuple(size), single=True), native, value), requires_grad)
