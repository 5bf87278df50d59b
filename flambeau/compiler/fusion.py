"""Which operations share a loop.

Pointwise operations over the same elements become one loop nest (`Loop`): what one writes and the next reads at the same place
stays in a register. An operation joins the latest loop with which it shares memory and which it can reach without overtaking an
operation it depends on. Everything else is a `Single`: a lowered kernel, or a call of the NumPy kernel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from ..native import pointwise
from .ir import C_TYPES, CONSTANT, SCALAR, Number, Op, Value
from .passes import numbers_in, reads_of

COPIES = frozenset(("cast", "copy_into", "reshape_copy", "clone", "contiguous"))
_FAR = 60  # how many groups back an operation may look for a loop to join
_LONGEST = 200  # operations of one loop: beyond that a C compiler takes long, and registers are long gone


class Access:
    """One window inside a loop: strides in elements, one per dimension of the loop."""

    __slots__ = ("strides", "value")

    def __init__(self, value: Value, strides: tuple[int, ...]):
        self.value, self.strides = value, strides

    def refined(self, dims: list[int], finer: list[int]) -> Access:
        return Access(self.value, tuple(_refine(dims, self.strides, finer)))

    def same_place(self, other: Access) -> bool:
        a, b = self.value, other.value
        return (a.storage is b.storage and a.offset == b.offset and a.dtype == b.dtype and self.strides == other.strides)


class Step:
    """One operation of a loop: its C expression, what it reads by name, what it writes."""

    __slots__ = ("expression", "op", "out", "reads", "suffix")

    def __init__(self, op: Op, expression: str, suffix: str, reads: dict[str, Any], out: Access):
        self.op, self.expression, self.suffix, self.reads, self.out = op, expression, suffix, reads, out

    def refined(self, dims: list[int], finer: list[int]) -> Step:
        reads = {n: r.refined(dims, finer) if r.__class__ is Access else r for n, r in self.reads.items()}
        return Step(self.op, self.expression, self.suffix, reads, self.out.refined(dims, finer))


class Loop:
    """Pointwise operations over one iteration space."""

    def __init__(self, dims: list[int], step: Step):
        self.dims, self.steps = dims, [step]
        self.touched = _touched(step.op)
        self.written = {w.storage.id for w in step.op.writes}

    @property
    def ops(self) -> list[Op]:
        return [s.op for s in self.steps]

    def accesses(self) -> Iterator[Access]:
        for s in self.steps:
            yield s.out
            yield from (r for r in s.reads.values() if r.__class__ is Access)

    def join(self, dims: list[int], step: Step) -> bool:
        """Takes the operation in if that is right; says whether it did."""
        finer = self.dims if dims == self.dims else _common_dims(self.dims, dims)
        if finer is None or len(self.steps) >= _LONGEST:
            return False
        if any(v.storage.id in self.written for v in numbers_in(step.op)):
            return False  # numbers are read before the loop begins
        step = step.refined(dims, finer)
        mine = self.steps if finer == self.dims else [s.refined(self.dims, finer) for s in self.steps]
        for s in mine:
            for r in s.reads.values():
                if r.__class__ is Access and r.value.storage is step.out.value.storage and not r.same_place(step.out):
                    return False
            if s.out.value.storage is step.out.value.storage and not s.out.same_place(step.out):
                return False
            for r in step.reads.values():
                if r.__class__ is Access and r.value.storage is s.out.value.storage and not r.same_place(s.out):
                    return False
        self.dims, self.steps = finer, [*mine, step]
        self.touched |= _touched(step.op)
        self.written |= {w.storage.id for w in step.op.writes}
        return True


class Single:
    """An operation by itself. code: its lowering in C, or None for a call of the NumPy kernel."""

    def __init__(self, op: Op, code: str | None):
        self.op, self.code = op, code
        self.touched = _touched(op)
        self.written = {w.storage.id for w in op.writes}

    @property
    def ops(self) -> list[Op]:
        return [self.op]


def _touched(op: Op) -> set[int]:
    return {v.storage.id for v in (*reads_of(op), *op.writes)}


def grouped(ops: list[Op], lower: Any, exact: bool = False) -> list[Any]:
    """The program as a list of loops and single operations, in an order that keeps every dependence."""
    groups: list[Any] = []
    for op in ops:
        found = pointwise_step(op, exact)
        if found is None:
            groups.append(Single(op, lower(op)))
            continue
        dims, step = found
        target = _place(groups, op, dims, step)
        if target is None:
            groups.append(Loop(dims, step))
    return groups


def _place(groups: list[Any], op: Op, dims: list[int], step: Step) -> Any:
    touched, written = _touched(op), {w.storage.id for w in op.writes}
    variable = {v.storage.id for v in (*op.reads, *op.writes) if v.storage.kind not in (CONSTANT, SCALAR) and v.size > 1}
    for back in range(len(groups) - 1, max(-1, len(groups) - 1 - _FAR), -1):
        group = groups[back]
        if group.__class__ is Loop and (group.touched & variable or (math.prod(dims) <= 16 and group.dims == dims)):
            if group.join(dims, step):
                return group
        if group.written & touched or group.touched & written:
            return None  # depends on this group: it cannot go before it
    return None


# ------------------------------------------------------------------------------------------------ pointwise operations
def pointwise_step(op: Op, exact: bool = False) -> tuple[list[int], Step] | None:
    """The operation as a step of a loop; None if it is not pointwise or cannot be said in C for these dtypes."""
    if any(v.dtype.char not in C_TYPES for v in (*op.reads, *op.writes)):
        return None
    if op.kernel in COPIES and len(op.writes) == 1:
        return _copy(op)
    if len(op.outs) != 1 or len(op.writes) != 1:
        return None
    found = expression_of(op)
    if found is None:
        return None
    names, c, kinds = found
    out = op.outs[0]
    if len(names) < len(op.args) or 0 in out.shape or (exact and not ieee_only(c)):
        return None
    operands = _operands(op, names, out.shape)
    if operands is None:
        return None
    reads, compute = operands
    if compute not in pointwise.SUFFIXES or ("f" if compute.char in "fd" else "b" if compute.char == "?" else "i") not in kinds:
        return None
    dims = [n for n in out.shape if n != 1] or [1]
    return dims, Step(op, c, pointwise.SUFFIXES[compute], reads, Access(out, _strides(out, out.shape)))


def expression_of(op: Op) -> pointwise.Expression | None:
    """The C expression of the operation's kernel; None if it has none, or one that depends on a number known at run time."""
    try:
        return pointwise.expression(op.kernel, tuple(op.args))
    except TypeError:
        return None


def _operands(op: Op, names: tuple[str, ...], shape: tuple[int, ...]) -> tuple[dict[str, Any], Any] | None:
    """The arguments by name, and the one dtype that the arrays among them have; None where that cannot be said."""
    reads: dict[str, Any] = {}
    compute = None
    for i, (name, a) in enumerate(zip(names, op.args)):
        if a.__class__ is Value:
            if not _broadcasts(a.shape, shape):
                return None
            reads[name] = Access(a, _strides(a, shape))
            if i != pointwise.MASKS.get(op.kernel):
                if compute is not None and compute != a.dtype:
                    return None
                compute = a.dtype
        elif isinstance(a, (int, float, bool, Number)):
            reads[name] = a
        elif a is not None and not isinstance(a, str):
            return None
    return reads, compute


_IEEE_CALLS = frozenset(("fabs", "sqrt", "floor", "ceil", "trunc", "rint", "fmax", "fmin"))


def ieee_only(c: str) -> bool:
    """Whether an expression gives NumPy's very bits: IEEE operations only."""
    return all(name in _IEEE_CALLS for name in re.findall(r"([A-Za-z_]\w*)\s*\(", c))


def _copy(op: Op) -> tuple[list[int], Step] | None:
    source = op.args[-1] if op.kernel == "copy_into" else op.args[0]
    out = op.writes[0]
    if source.__class__ is not Value or 0 in out.shape:
        return None
    shape = out.shape
    if op.kernel == "reshape_copy":
        return None if source.size != out.size else _reshape_copy(op, source, out)
    if not _broadcasts(source.shape, shape):
        return None
    if op.kernel == "copy_into" and source.storage is out.storage and source.key != out.key:
        return None  # may overlap: NumPy knows how
    dims = [n for n in shape if n != 1] or [1]
    return dims, Step(op, "a", "copy", {"a": Access(source, _strides(source, shape))}, Access(out, _strides(out, shape)))


def _reshape_copy(op: Op, source: Value, out: Value) -> tuple[list[int], Step] | None:
    """The elements of the source in order, whatever its shape: the loop runs over the source's dimensions."""
    if not out.contiguous:
        return None
    dims = [n for n in source.shape if n != 1] or [1]
    steps, step = [], 1
    for n in reversed(source.shape):
        steps.append(step)
        step *= n
    onto = tuple([s for s, n in zip(reversed(steps), source.shape) if n != 1]) or (0,)
    return dims, Step(op, "a", "copy", {"a": Access(source, _strides(source, source.shape))}, Access(out, onto))


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    return len(small) <= len(large) and all(a == b or a == 1 for a, b in zip(reversed(small), reversed(large)))


def _strides(value: Value, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over the dimensions of `shape` that are longer than one; 0 where the value is broadcast."""
    missing = len(shape) - len(value.shape)
    made = []
    for i, n in enumerate(shape):
        if n != 1:
            made.append(0 if i < missing or value.shape[i - missing] == 1 else value.strides[i - missing])
    return tuple(made) or (0,)


def _common_dims(a: list[int], b: list[int]) -> list[int] | None:
    """Dimensions that divide both; None if there are none (or the numbers of elements differ)."""
    if math.prod(a) != math.prod(b):
        return None
    marks = sorted({*_marks(a), *_marks(b)})
    made, before = [], 1
    for mark in marks:
        if mark % before:
            return None
        if mark != before:
            made.append(mark // before)
        before = mark
    return made[::-1] or [1]


def _marks(dims: list[int]) -> list[int]:
    made, product = [], 1
    for n in reversed(dims):
        product *= n
        made.append(product)
    return made


def _refine(dims: list[int], strides: tuple[int, ...], finer: list[int]) -> list[int]:
    made: list[int] = []
    at = len(finer) - 1
    for n, s in zip(reversed(dims), reversed(strides)):
        covered = 1
        while covered < n:
            made.append(s * covered)
            covered *= finer[at]
            at -= 1
    while len(made) < len(finer):
        made.append(0)
    return made[::-1]
