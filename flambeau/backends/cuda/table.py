"""Kernels of the device that are written by hand, by name. Pointwise ones and folds come from the rows alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function under these names. It may return NotImplemented for arguments that are left to others."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            KERNELS[name] = function
        return function
    return enter
