"""What programs ask of a kind of device that flambeau has no backend for (mps, mtia, xpu) before they use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["device_count", "empty_cache", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


def is_available() -> bool:
    """Whether such a device can be used: no."""
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """Does nothing: there is no such device to seed."""


def manual_seed_all(seed: int) -> None:
    """Does nothing: there is no such device to seed."""


def empty_cache() -> None:
    """Does nothing: there is no such device's memory to free."""


def refuse(kind: str) -> Callable[[str], Any]:
    """`__getattr__` of the module of this kind of device."""
    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        from . import MissingName
        raise MissingName(f"flambeau.{kind}.{name}: flambeau has no {kind} backend")

    return __getattr__
