"""Kernels of the device that are written by hand, by name. Pointwise ones and folds come from the rows alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., Any]] = {}
REPEATABLE: set[str] = set()
INTO: set[str] = set()


def kernel(*names: str, repeatable: bool = False, into: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function under these names. It may return NotImplemented for arguments that are left to others.

    repeatable: what it does follows from the geometry of its arrays and from its other arguments, and it is nothing but
    launches of plans and products on those arrays and on new ones, so that native code may repeat it (repeated.py). What it
    does otherwise (copies between memories, draws) says so itself (launch.unrepeatable).
    into: it has an argument of this name, an array for each result: where to put them, if it can. Their last dimension is dense.
    """
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            KERNELS[name] = function
            if repeatable:
                REPEATABLE.add(name)
            if into:
                INTO.add(name)
        return function
    return enter


WRITERS: dict[str, Callable[..., bool]] = {}  # of (target, arguments...): write to the target, and say whether they did


def writer(name: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Enters a repeatable function that writes to its first argument, for repeated.INTO."""
    def enter(function: Callable[..., bool]) -> Callable[..., bool]:
        WRITERS[name] = function
        return function
    return enter
