"""Moving a module to another dtype, device or memory: `to`, `double`, `cuda`, `to_empty`..."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from ..autograd.modes import no_grad
from ..creation.factories import empty_like
from ..ops.pointwise.convert import parse_to as parse
from ..ops.rare import swap_tensors
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor
from .parameter import Parameter, is_lazy

S = TypeVar("S", bound="Conversion")


class Conversion:
    """The part of Module that converts all its tensors at once."""

    def _apply(self: S, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> S:
        """Replaces the data of every parameter, gradient and buffer by fn of it; parameters stay the same objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._apply_to_parameter(name, parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def _apply_to_parameter(self, name: str, parameter: Any, fn: Callable[[Tensor], Tensor]) -> None:
        from .. import __future__ as choices
        with no_grad():  # so that nothing is recorded when fn reads the parameter
            moved = fn(parameter)
        if choices.get_swap_module_params_on_conversion():
            self._swap_parameter(name, parameter, moved, fn)
            return
        in_place = _interchangeable(parameter, moved) and not choices.get_overwrite_module_params_on_conversion()
        if in_place:
            parameter.data = moved
            kept = parameter
        else:
            kept = self._parameters[name] = Parameter(moved, parameter.requires_grad)
        grad = None if is_lazy(parameter) else parameter.grad
        if grad is not None:
            with no_grad():
                moved_grad = fn(grad)
            if in_place and _interchangeable(grad, moved_grad):
                kept._grad = _with_data(grad, moved_grad)
            else:
                kept.grad = moved_grad.requires_grad_(grad.requires_grad)

    def _swap_parameter(self, name: str, parameter: Any, moved: Tensor, fn: Callable[[Tensor], Tensor]) -> None:
        """Exchanges the parameter with a converted one, gradient and all (see __future__.py)."""
        grad = None if is_lazy(parameter) else parameter.grad
        parameter._grad = None
        try:
            moved = moved if is_lazy(moved) else Parameter(moved, parameter.requires_grad)
            if moved is not parameter:
                swap_tensors(parameter, moved)
            if grad is not None:
                with no_grad():
                    moved_grad = fn(grad)
                moved_grad.requires_grad_(grad.requires_grad)
                if moved_grad is not grad:
                    swap_tensors(grad, moved_grad)
        except Exception as error:
            parameter._grad = grad
            raise RuntimeError(f"_apply(): Couldn't swap {type(self).__name__}.{name}") from error
        parameter._grad = grad

    def to(self: S, *args: Any, **kwargs: Any) -> S:
        """to(device=None, dtype=None, non_blocking=False, *, memory_format=None), to(tensor): converts in place.

        A dtype must be floating or complex, and changes tensors of those kinds only.
        """
        device, dtype, non_blocking, memory_format = parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
            if dtype.is_complex:
                warnings.warn("Complex modules are a new feature under active development whose design may change, and "
                              "some modules might not work as expected when using complex tensors as parameters or "
                              "buffers.", stacklevel=2)

        def convert(t: Tensor) -> Tensor:
            kind = dtype if t.is_floating_point() or t.is_complex() else None
            options: dict[str, Any] = {"non_blocking": non_blocking}
            if memory_format is not None and t.dim() in (4, 5):
                options["memory_format"] = memory_format
            if device is not None:
                if t.is_meta and device.type != "meta":
                    raise NotImplementedError("Cannot copy out of meta tensor; no data! Please use "
                                              "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                                              "module from meta to a different device.")
                options["device"] = device
            if kind is not None:
                options["dtype"] = kind
            return t.to(**options) if len(options) > 1 else t

        return self._apply(convert)

    def type(self: S, dst_type: Any) -> S:
        """Casts all parameters and buffers."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: S) -> S:
        """Casts floating parameters and buffers to float32."""
        return self._cast(_dtypes.float32)

    def double(self: S) -> S:
        """Casts floating parameters and buffers to float64."""
        return self._cast(_dtypes.float64)

    def half(self: S) -> S:
        """Casts floating parameters and buffers to float16."""
        return self._cast(_dtypes.float16)

    def bfloat16(self: S) -> S:
        """Casts floating parameters and buffers to bfloat16."""
        return self._cast(_dtypes.bfloat16)

    def _cast(self: S, dtype: Any) -> S:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def cpu(self: S) -> S:
        """Moves everything to main memory."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: S, device: Any = None) -> S:
        """Moves everything to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def ipu(self, device: Any = None) -> Any:
        raise NotImplementedError("Module.ipu: flambeau has no IPU backend")

    def xpu(self, device: Any = None) -> Any:
        raise NotImplementedError("Module.xpu: flambeau has no XPU backend")

    def mtia(self, device: Any = None) -> Any:
        raise NotImplementedError("Module.mtia: flambeau has no MTIA backend")

    def to_empty(self: S, *, device: Any, recurse: bool = True) -> S:
        """Moves everything to a device without copying: the values are whatever the memory holds."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)

    def share_memory(self: S) -> S:
        """Moves everything into memory that other processes can share."""
        return self._apply(lambda t: t.share_memory_())


def _interchangeable(a: Tensor, b: Tensor) -> bool:
    """Whether the second can become the first's data: both have one layout and live on the same kind of device."""
    return a.device.type == b.device.type and a.layout == b.layout


def _with_data(grad: Tensor, moved: Tensor) -> Tensor:
    """The same gradient object with other data, so that whoever holds it sees the change."""
    grad.data = moved
    return grad


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) from the arguments that Module.to takes."""
    dtype, device, non_blocking, copy, memory_format = parse(args, kwargs)
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    return device, dtype, non_blocking, memory_format
