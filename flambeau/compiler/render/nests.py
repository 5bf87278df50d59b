"""A loop nest as data: what is read before it and at each of its elements, what is computed from that, where results go, and
what is folded into totals. Dialects print it (dialects/).

Every value has a name of its own and is made once: what one operation of a loop makes and the next reads at the same place is
not read from memory, and reaches it only if somebody looks at it there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..ir.parts import CONSTANT, SCALAR, TEMPORARY, Number, Value
from ..passes.fusion import Access, Loop, Step, collapsed


class Element(NamedTuple):
    """The element of a place that the nest is at: elements to step for each of its dimensions."""

    place: str
    steps: tuple[int, ...]


class Constant(NamedTuple):
    value: Any
    kind: str


class Formula(NamedTuple):
    """An expression (cpu/pointwise/loops.py) over named values and constants, in some kind of elements. `copy`: its operand."""

    expression: str
    kind: str
    operands: dict[str, str | Constant]


class Let(NamedTuple):
    """A name for a value of some kind: an element, a formula's result, or a run-time number (symbolic.py)."""

    name: str
    kind: str
    value: Element | Formula | tuple[Any, ...]


class Put(NamedTuple):
    """A named value goes to memory."""

    element: Element
    name: str


class Fold(NamedTuple):
    """A reduction: named values are folded (how: sum, max, min); what becomes of the total (see `Step`) goes to `result`."""

    how: str
    finish: str | int
    kind: str
    value: str
    result: Element


class Nest:
    """The nest of a loop.

    dims: its extents, the innermost last. places: windows onto memory by name, of which the address counts. before, body: what
    is made before the nest and at each element, in order. folds: what is made of the body's values; `reduced` says of each
    dimension whether it is folded away: first come those that are kept, then those that are folded, then the innermost,
    whichever it is. work: how much there is to do, in element operations. general: the text is to do for other sizes, too.
    """

    def __init__(self, loop: Loop, stored: set[int], general: bool, whole: bool = False):
        """stored: storages whose values must reach memory. whole: the loop's own dimensions stay as they are."""
        if whole:
            accesses = [a for s in loop.steps for a in (s.out, *s.reads.values()) if a.__class__ is Access]
            self.dims, self._steps = loop.dims, {id(a): a.strides for a in accesses}
        else:
            self.dims, self._steps = collapsed(loop.dims, loop.steps)
        self.general = general
        self.work = math.prod(self.dims) * len(loop.steps)
        self.before: list[Let] = []
        self.body: list[Let | Put] = []
        self.places: dict[str, Value] = {}
        self.folds: list[Fold] = []
        self.reduced: list[bool] = []
        self._written, self._stored = loop.written, stored
        self._names: dict[Any, str] = {}     # (storage, offset, steps, dtype) -> name of the value there
        self._windows: dict[Any, str] = {}   # (storage, offset, dtype) -> name of the place
        self._count = 0
        for step in loop.steps:
            self._add(step)

    def _add(self, step: Step) -> None:
        out = step.out.value
        formula = Formula(step.expression, step.kind, {n: self._read(r, step.kind) for n, r in step.reads.items()})
        name = self._name("r")
        self.body.append(Let(name, out.element, formula))
        if step.fold is not None:
            self.reduced = [s == 0 for s in self._steps[id(step.out)]]
            self.folds.append(Fold(*step.fold, out.element, name, self._element(step.out)))
            return
        self._names[self._key(step.out)] = name
        if out.storage.id in self._stored or out.storage.kind is not TEMPORARY:
            self.body.append(Put(self._element(step.out), name))

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _key(self, access: Access) -> tuple[Any, ...]:
        v = access.value
        return v.storage.id, v.offset, self._steps[id(access)], v.dtype.char

    def _element(self, access: Access) -> Element:
        """The element that the access is at."""
        v = access.value
        key = v.storage.id, v.offset, v.dtype.char
        name = self._windows.get(key)
        if name is None:
            name = self._windows[key] = self._name("v")
            self.places[name] = v
        return Element(name, self._steps[id(access)])

    def _read(self, operand: Any, kind: str) -> str | Constant:
        """An operand, as a constant or by name: what does not change in the nest is read before it. kind: of plain numbers."""
        if operand.__class__ is Number:
            name = self._name("k")
            self.before.append(Let(name, kind, operand.expression))
            return name
        if operand.__class__ is not Access:
            return Constant(operand, kind)
        v, key = operand.value, self._key(operand)
        if key in self._names:
            return self._names[key]
        moves = any(self._steps[id(operand)])
        if v.storage.kind is CONSTANT and not moves:
            return Constant(v.item(), v.element)
        name = self._names[key] = self._name("r")
        if v.storage.kind is SCALAR:
            self.before.append(Let(name, v.element, v.storage.expression))
        else:
            changes = moves or v.storage.id in self._written
            (self.body if changes else self.before).append(Let(name, v.element, self._element(operand)))
        return name
