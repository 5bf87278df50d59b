"""`torch.mps`: there is no such device in this build, and the questions programs ask first say so."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Whether such a device can be used: no."""
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def manual_seed(seed: int) -> None:
    """Nothing to seed."""


def manual_seed_all(seed: int) -> None:
    """Nothing to seed."""


def empty_cache() -> None:
    """Nothing to free."""


def synchronize() -> None:
    raise RuntimeError("Cannot execute deviceSynchronize() without MPS backend.")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from . import MissingName
    raise MissingName(f"flambeau.mps.{name}: flambeau has no mps backend")
