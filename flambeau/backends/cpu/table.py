"""The table of CPU kernels by name. A kernel takes arrays and plain values and returns arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import facts as _facts

KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(function: Callable[..., Any] | None = None, name: str | None = None, **facts: Any) -> Any:
    """Enters a function into the table, under its own name (without a trailing underscore) unless told another.

    facts: what is true of it (../facts.py), of a kernel that no row names.
    """
    if function is None:
        return functools.partial(kernel, name=name, **facts)
    name = name or function.__name__.rstrip("_")
    KERNELS[name] = function
    if facts:
        _facts.enter(name, function.__code__.co_varnames, facts)
    return function


def add(**functions: Callable[..., Any]) -> None:
    KERNELS.update(functions)
