"""`torch.accelerator`: there is none in this build, and the questions programs ask first say so."""

from __future__ import annotations

from typing import Any

from .missing import refusal

_NONE = "no accelerator is available"


def is_available() -> bool:
    """Whether there is a device besides the CPU: no."""
    return False


def device_count() -> int:
    return 0


def current_accelerator(check_available: bool = False) -> Any:
    """None: there is no accelerator."""
    return None


def synchronize(device: Any = None, /) -> None:
    """Does nothing: there is no device to wait for."""


def empty_cache() -> None:
    """Does nothing: there is no device's memory to free."""


for _name in ("current_device_idx", "current_device_index", "current_stream", "device_index", "set_device_idx",
              "set_device_index", "set_stream", "memory_stats", "memory_allocated", "memory_reserved", "max_memory_allocated",
              "max_memory_reserved", "reset_peak_memory_stats", "reset_accumulated_memory_stats", "get_memory_info",
              "get_device_capability"):
    globals()[_name] = refusal(f"accelerator.{_name}", _NONE)
