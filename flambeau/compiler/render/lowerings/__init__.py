"""How captured kernels become C: one function per kernel name, grouped by family as the kernels are.

A lowering takes an `Op` (see ../ir.py) and returns C statements, or None when it cannot serve these shapes, dtypes or strides;
then the program calls the NumPy kernel for that operation. Pointwise kernels need no lowering: their rows hold a C expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LOWERINGS: dict[str, Callable[[Any], str | None]] = {}


def lower(*kernels: str) -> Callable:
    """Enters a function as the lowering of these kernels."""
    def enter(function: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        for kernel in kernels:
            LOWERINGS[kernel] = function
        return function
    return enter
