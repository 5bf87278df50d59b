"""What is true of a kernel whatever arrays it runs on: one column per fact, by the kernel's name.

The row of an operation enters its kernel's facts (ops/core/row.py); a kernel that no row names says them where it is defined
(cpu/table.py). Whoever needs a fact reads its column here, and nobody keeps lists of names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

POINTWISE: dict[str, bool] = {}  # it works element by element
VIEWS: dict[str, bool] = {}      # its result is a view of its first array
SHAPES: dict[str, Callable] = {}  # the geometry of its results, for arrays without memory (ops/rules)
BATCHING: dict[str, Any] = {}    # how it runs on a batch: a rule of backends/batched, by name (with numbers for it) or itself
WRITES: dict[str, tuple[int, ...]] = {}  # the arguments that it writes; all others make new arrays, and are pure
SAFE: dict[str, Any] = {}        # whether values can make it fail: True if none can, False if some may, or a `Check`
DYNAMIC: dict[str, Any] = {}     # whether the shape of its result depends on values: True, or a function of the arguments
CHEAP: dict[str, bool] = {}      # quicker to compute again than to keep (pointwise ones of cheap C are without saying so)
FOLDS: dict[str, Any] = {}       # a reduction in a loop: `Fold`, or a function of the arguments that gives one, or None
TERMS: dict[str, tuple[str, int]] = {}  # a loss of arrays a, b: C for one element (c: its number); weights before the reduction
SLOPES: dict[str, tuple[str, int]] = {}  # the same for the derivative of one
COPIES: dict[str, bool] = {}     # it copies its first array, element by element
NUMERIC: dict[str, bool] = {}    # its floats enter nothing but arithmetic (true of all pointwise ones)
APART: dict[str, bool] = {}      # in place, what it reads must not lie in the memory that it writes
LENIENT: dict[str, bool] = {}    # in place, it only warns where several elements share a place
IMAGES: dict[str, str] = {}      # whether it "likes" images channels last (matrix units do) or "takes" them, as quickly
_COLUMNS: dict[str, dict[str, Any]] = {
    "pointwise": POINTWISE, "view": VIEWS, "shape": SHAPES, "batch": BATCHING, "writes": WRITES, "safe": SAFE,
    "dynamic": DYNAMIC, "cheap": CHEAP, "fold": FOLDS, "terms": TERMS, "slopes": SLOPES, "copies": COPIES, "numeric": NUMERIC,
    "apart": APART, "lenient": LENIENT, "images": IMAGES}


class Fold:  # (named tuples take a while to make, at every import)
    """How a reduction folds elements: by "sum", "max" or "min" of a C expression of `a`; what becomes of the total ("root",
    "mean" or nothing); the argument that names the dimensions."""

    __slots__ = ("axes", "by", "of", "total")

    def __init__(self, by: str, of: str = "a", total: str = "", axes: int = 1):
        self.by, self.of, self.total, self.axes = by, of, total, axes


class Check:
    """What decides whether a call fails.

    values: the arguments whose elements are looked at; holds(*args): whether the call does not fail; matters(*args): whether
    elements need a look at all; again: they were looked at before, by the operation that this one belongs to.
    """

    __slots__ = ("again", "holds", "matters", "values")

    def __init__(self, values: tuple[int, ...], holds: Callable[..., bool], matters: Callable[..., bool] | None = None,
                 again: bool = False):
        self.values, self.holds, self.matters, self.again = values, holds, matters, again


def enter(kernel: str, args: tuple[str, ...], facts: dict[str, Any]) -> None:
    """Enters facts about a kernel. args: the names of its arguments, by which `writes` names some."""
    for name, value in facts.items():
        column = _COLUMNS.get(name)
        if column is None:
            raise TypeError(f"{kernel}: there is no fact called '{name}' (there are {', '.join(_COLUMNS)})")
        if column is WRITES:
            value = tuple([args.index(a) for a in value.split()])
        elif column is SHAPES and hasattr(value, "dynamic"):
            DYNAMIC.setdefault(kernel, value.dynamic)
        column[kernel] = value
