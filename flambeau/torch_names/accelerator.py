"""`torch.accelerator`: the one kind of device besides the CPU, which is CUDA's where there is a GPU."""

from __future__ import annotations

from typing import Any

from . import cuda as _cuda
from .missing import refusal
from .tensors.device import device as _device

_NONE = "no accelerator is available"


def is_available() -> bool:
    """Whether there is a device besides the CPU."""
    return _cuda.is_available()


def device_count() -> int:
    """How many there are."""
    return _cuda.device_count()


def current_accelerator(check_available: bool = False) -> Any:
    """The kind of device; None where there is none."""
    return _device("cuda") if is_available() else None


def synchronize(device: Any = None, /) -> None:
    """Waits until a device has done all that it was asked for."""
    if is_available():
        _cuda.synchronize(device)


def empty_cache() -> None:
    """Gives memory that no tensor uses back to the driver."""
    _cuda.empty_cache()


def _here(what: str) -> None:
    if not is_available():
        refusal(f"accelerator.{what}", _NONE)()


def current_device_index() -> int:
    """The number of the current device."""
    _here("current_device_index")
    return _cuda.current_device()


def set_device_index(device: Any, /) -> None:
    """Makes a device the current one."""
    _here("set_device_index")
    _cuda.set_device(device)


current_device_idx, set_device_idx = current_device_index, set_device_index


def current_stream(device: Any = None, /) -> Any:
    """The stream that work on a device goes to."""
    _here("current_stream")
    return _cuda.current_stream(device)


def set_stream(stream: Any) -> None:
    """Makes a stream, and its device, the current one."""
    _here("set_stream")
    _cuda.set_device(stream.device_index)
    _cuda.set_stream(stream)


class device_index(_cuda.device):
    """A block in which another device is the current one; None chooses nothing."""

    def __init__(self, device: int | None, /):
        _here("device_index")
        super().__init__(device)


def get_device_capability(device: Any = None, /) -> dict[str, Any]:
    """What a device computes with."""
    _here("get_device_capability")
    from .tensors import dtypes
    return {"supported_dtypes": set(dtypes.BY_NUM.values())}


def get_memory_info(device: Any = None, /) -> tuple[int, int]:
    """(bytes free, bytes in all)."""
    _here("get_memory_info")
    return _cuda.mem_get_info(device)


def _of_memory(name: str) -> Any:
    """A function of torch.cuda's under the same name."""
    there = getattr(_cuda, name)

    def function(device: Any = None, /) -> Any:
        _here(name)
        return there(device)

    function.__name__, function.__qualname__, function.__doc__ = name, name, there.__doc__
    return function


for _name in ("memory_stats", "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved",
              "reset_peak_memory_stats", "reset_accumulated_memory_stats"):
    globals()[_name] = _of_memory(_name)
