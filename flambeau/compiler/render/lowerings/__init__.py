"""How captured kernels become calls of native functions: one function per kernel name, grouped by family as the kernels are.

A lowering takes an `Op` (see ../ir.py) and returns a statement (see ../statements.py), or a list of them, or None when it
cannot serve these shapes, dtypes or strides; then the program calls the NumPy kernel for that operation. Pointwise kernels need
no lowering: their rows hold an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...ir.parts import Op, Value
from ...ir.statements import Scratch, Size, sizes

LOWERINGS: dict[str, Callable[[Any], Any]] = {}


def lower(*kernels: str) -> Callable:
    """Enters a function as the lowering of these kernels."""
    def enter(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for kernel in kernels:
            LOWERINGS[kernel] = function
        return function
    return enter


def floats(first: Value, *others: Value | None) -> bool:
    """Whether all that are given are contiguous and of one floating dtype."""
    kind = first.dtype
    return kind.char in "fd" and first.contiguous and all([
        v is None or (v.dtype == kind and v.contiguous) for v in others])


def around(shape: tuple[int, ...], axis: int) -> map[Size]:
    """The elements before a dimension, along it and behind it."""
    return sizes(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1:]))


def wanted(op: Op, needs: Any) -> list[Value | None]:
    """An operation's results, in the order of what may be needed: None where it is not."""
    made = iter(op.outs)
    return [next(made) if need else None for need in needs]


def like(op: Op, value: Value, nbytes: int | None = None) -> Scratch:
    """Scratch memory for elements of the same kind, as many if it is not said."""
    return Scratch(op.scratch(value.nbytes if nbytes is None else nbytes), value.element)
