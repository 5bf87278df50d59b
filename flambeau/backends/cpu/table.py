"""The table of CPU kernels by name. A kernel takes arrays and plain values and returns arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enters a function into the table under its own name (a trailing underscore is dropped)."""
    KERNELS[function.__name__.rstrip("_")] = function
    return function


def add(**functions: Callable[..., Any]) -> None:
    KERNELS.update(functions)
