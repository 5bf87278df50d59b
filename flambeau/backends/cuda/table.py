"""Kernels of the device that are written by hand, by name, and what the compiler may ask of them (passes/narrow.py, placing.py,
even.py). Pointwise ones and folds come from the rows alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

KERNELS: dict[str, Callable[..., Any]] = {}
REPEATABLE: set[str] = set()
INTO: set[str] = set()
NARROW: dict[str, tuple[int, ...]] = {}
TYPED: dict[str, int] = {}
PITCHED: dict[str, int] = {}
PRODUCTS: set[str] = set()
OVER: dict[str, int] = {}
ADDED: dict[str, int] = {}
TWICE: dict[str, int] = {}
PLUS: dict[str, int] = {}


def kernel(*names: str, repeatable: bool = False, into: bool = False, narrow: tuple[int, ...] = (), typed: int | None = None,
           pitched: int | None = None, product: bool = False, over: int | None = None, added: int | None = None,
           twice: int | None = None, plus: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function under these names. It may return NotImplemented for arguments that are left to others.

    repeatable: what it does follows from the geometry of its arrays and from its other arguments, and it is nothing but
    launches of plans and products on those arrays and on new ones, so that native code may repeat it (repeated.py). What it
    does otherwise (copies between memories, draws) says so itself (launch.unrepeatable).
    into: it has an argument of this name, an array for each result: where to put them, if it can. Their last dimension is
    dense.
    narrow: arguments that it reads in half precision as if they had been converted to single precision before.
    typed: the argument, which may be left out at the end, that says in which dtype its first result is written: as if that had
    been converted afterwards.
    pitched: the argument that says how many elements lie between the starts of the first result's rows; behind their ends are
    zeros.
    product: it gives the matrix product of its two arguments.
    over: the argument that may lie where the first result goes (`into`), element for element.
    added: the argument, which may be left out, that is added to the first result: as if that had been done afterwards.
    twice: the argument, which may be left out, that says in which dtype the first result is written once more, as the last.
    plus: the argument, which may be left out, that is added to the first one before, also in half precision; the sum is the
    last result then.
    """
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            KERNELS[name] = function
            NARROW[name] = narrow
            for column, holds in ((REPEATABLE, repeatable), (INTO, into), (PRODUCTS, product)):
                if holds:
                    column.add(name)
            for column, place in ((TYPED, typed), (PITCHED, pitched), (OVER, over), (ADDED, added), (TWICE, twice),
                                  (PLUS, plus)):
                if place is not None:
                    column[name] = place
        return function
    return enter


class Lean(NamedTuple):
    """A kernel whose result number `kept` is there for another kernel alone, and a pair of kernels that does without.

    forward(args): what is called in its place; result number `kept` is then something small (`size` gives its shape from that
    of the first argument). backward(args, first, small, out): what is called in the other kernel's place; first: the first
    argument of the forward kernel; out: the other kernel's result.
    """

    other: str
    kept: int
    size: Callable[[tuple[int, ...]], tuple[int, ...]]
    forward: Callable[..., tuple[str, list[Any]]]
    backward: Callable[..., tuple[str, list[Any]]]


LEAN: dict[str, Lean] = {}
WRITERS: dict[str, Callable[..., bool]] = {}  # of (target, arguments...): write to the target, and say whether they did


def writer(name: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """Enters a repeatable function that writes to its first argument, for repeated.INTO."""
    def enter(function: Callable[..., bool]) -> Callable[..., bool]:
        WRITERS[name] = function
        return function
    return enter
