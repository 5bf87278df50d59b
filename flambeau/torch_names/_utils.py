"""Small helpers that programs import from here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .serialization.rebuild import _rebuild_parameter, _rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3
from .tensors.tensor import Tensor
from .utils.data.errors import ExceptionWrapper, KeyErrorMessage

__all__ = ["ExceptionWrapper", "KeyErrorMessage", "_rebuild_parameter", "_rebuild_tensor", "_rebuild_tensor_v2",
           "_rebuild_tensor_v3", "classproperty", "render_call"]


class classproperty:
    """A property of the class itself."""

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function

    def __get__(self, instance: Any, owner: type) -> Any:
        return self.function(owner)


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """All elements of the tensors in one long tensor."""
    import flambeau
    return flambeau.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The pieces of a long tensor, in the shapes of the given ones."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors))


def _element_size(dtype: Any) -> int:
    """How many bytes an element of the dtype takes."""
    return dtype.itemsize


def _import_dotted_name(name: str) -> Any:
    """The object of a full name."""
    first, *rest = name.split(".")
    found = importlib.import_module(first)
    for part in rest:
        found = getattr(found, part)
    return found


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number in a device, given in whatever form."""
    from .tensors.device import device as Device
    if isinstance(device, int):
        return device
    made = Device(device) if isinstance(device, str) else device
    if isinstance(made, Device):
        if made.index is not None:
            return made.index
        if allow_cpu and made.type == "cpu":
            return -1
    if optional:
        return 0
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")


def _get_device_module(device_type: str) -> Any:
    """The module of a kind of device: `torch.cuda` for "cuda"."""
    import flambeau
    found = getattr(flambeau, device_type, None)
    if found is None:
        raise RuntimeError(f"Device '{device_type}' does not have a corresponding module registered as "
                           f"'torch.{device_type}'.")
    return found


def _is_privateuse1_backend_available() -> bool:
    """Whether a program has brought a backend of its own: it cannot."""
    return False


def _get_available_device_type() -> str | None:
    """The accelerator of this machine that flambeau can use: none."""
    return None


def render_call(fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """A call as text, with tensors by their shapes."""
    from .ops.core.overrides import resolve_name

    def text(value: Any) -> str:
        return f"tensor([...], size={tuple(value.shape)})" if isinstance(value, Tensor) else repr(value)

    inside = [text(a) for a in args] + [f"{key}={text(value)}" for key, value in kwargs.items()]
    return f"{resolve_name(fn) or str(fn)}({', '.join(inside)})"
