"""What lowerings return: the work of one operation as data, a list of statements that a dialect (dialects/) prints.

Nearly always that is one `Call`. What it passes says by its class what it is:

    Value, None            an address, none          int, float a number that belongs to the program's form: a flag, a mode
    Size, Along, Long      a whole number            tuple      a floating-point number: an expression, see symbolic.py
    Scratch                memory for this operation alone
    Longs, Table, Addresses, Cell    memory that the program fills in for the call
    Result                 what an earlier call returned

Numbers other than those of the form may be read when the program runs (template.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from .parts import SCALAR, Number, Value


class Size(int):
    """A size, a stride, a distance in memory."""


class Along(int):
    """A number that follows from sizes in such a way that it may be the same for some of them and another for others: a place
    in the arena, a decision. Where sizes are read at run time, it is too."""


class Long(int):
    """A whole number of the user's."""


def sizes(*numbers: int) -> map[Size]:
    return map(Size, numbers)


def number(value: Any) -> tuple[Any, ...]:
    """A plain or run-time number as an expression."""
    if value.__class__ is Number:
        return value.expression
    if value.__class__ is Value:
        return value.storage.expression if value.storage.kind is SCALAR else ("load", value)
    return "number", float(value)


class Scratch(NamedTuple):
    """Memory that is free to use during an operation. kind: of its elements; none: bytes."""

    offset: int
    kind: str = ""


class Longs(NamedTuple):
    """Whole numbers that stay as they are."""

    name: str
    numbers: Iterable[int]


class Table(NamedTuple):
    """Rows of addresses and whole numbers, thousands of them perhaps."""

    rows: list[list[Value | int]]


class Addresses(NamedTuple):
    """A few addresses."""

    entries: list[Value | Scratch | None]


class Cell(NamedTuple):
    """One number of some kind in memory."""

    value: tuple[Any, ...]
    kind: str


class Result(NamedTuple):
    name: str


class Call(NamedTuple):
    """A call of a native function.

    kind: of the elements it is made for, part of its name. fails: what its answer must be for the program to end (`true`,
    `negative`, `found`: not negative), and the status it ends with (program.py). result: a name for the answer. tile: of a
    matrix product that can run a loop on pieces of its result, the rows and columns of that.
    """

    function: str
    kind: str
    arguments: Iterable[Any]
    fails: tuple[str, int] | None = None
    result: str = ""
    tile: tuple[int, int] | None = None


class Copy(NamedTuple):
    """The elements of a window, in order. maybe: the two may be the same memory, then there is nothing to do."""

    to: Value | Scratch
    source: Value
    maybe: bool = False


class Sums(NamedTuple):
    """out[o, j] = (the sum over i of source[o, i, j]) / divisor. wide: the kind in which they are added up."""

    source: Value | Scratch
    out: Value | Scratch
    kind: str
    wide: str
    grid: tuple[int, int, int]
    divisor: int


class SmallProduct(NamedTuple):
    """out[z, i, j] = the sum over p of a[z, i, p] * b[z, p, j], + bias[j]: small enough for loops in place.

    shape: (count, rows, columns, depth); without a count it is one product, whose columns fill whole vectors of `lanes`
    elements or are one. steps: from element to element along (z,) i, p of a and (z,) p, j of b. out is contiguous. worth: many
    enough to be shared among threads; general: for other sizes that may be otherwise.
    """

    a: Value
    b: Value
    bias: Value | None
    out: Value
    shape: tuple[int | None, int, int, int]
    steps: tuple[tuple[int, ...], tuple[int, ...]]
    lanes: int = 1
    worth: bool = False
    general: bool = False


class Branch(NamedTuple):
    """One of two ways, by a decision that follows from sizes."""

    choice: Along
    chosen: Any
    otherwise: Any


Statement = Call | Copy | Sums | SmallProduct | Branch


def can_fail(statements: list[Statement]) -> bool:
    """Whether they look at values and may find them wrong."""
    return any(s.__class__ is Call and s.fails is not None for s in statements)
