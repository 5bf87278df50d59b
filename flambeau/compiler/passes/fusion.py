"""Which operations share a loop.

Pointwise operations over the same elements become one loop nest (`Loop`): what one writes and the next reads at the same place
stays in a register. Reductions of what a loop makes or reads are part of it, where its innermost loop remains long enough. An
operation joins the latest loop with which it shares memory and that it can reach without overtaking one it depends on.
Everything else is a `Single`: a lowered kernel, or a call of the NumPy kernel.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...backends.cpu.pointwise import loops as pointwise
from ...backends.facts import COPIES, FOLDS
from ..ir.parts import CONSTANT, KINDS, SCALAR, Number, Op, Value
from ..ir.statements import Statement
from .cleanup import numbers_in, reads_of

_MOVES = ("cast", "copy_into", "reshape_copy")  # what programs themselves call copies
_FAR = 60  # how many groups back an operation may look for a loop to join
_SMALL, _LANES = 64, 16  # reductions of more elements stay alone where the innermost loop would be shorter
_FEWEST = 4  # elements of a row that is folded, if it may be longer for other sizes
_TINY = 16  # elements up to which loops that have nothing in common are one
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
    """One operation of a loop: its expression (native/pointwise.py) and the kind of elements it computes with, what it reads by
    name, what it writes.

    fold: of a reduction, how elements are folded (sum, max, min) and what becomes of the total: "", "sqrt", or a number that it
    is divided by. `out` stands still (stride 0) along the dimensions that are folded away.
    """

    __slots__ = ("expression", "fold", "kind", "op", "out", "reads")

    def __init__(self, op: Op, expression: str, kind: str, reads: dict[str, Any], out: Access,
                 fold: tuple[str, str | int] | None = None):
        self.op, self.expression, self.kind, self.reads, self.out, self.fold = op, expression, kind, reads, out, fold

    def refined(self, dims: list[int], finer: list[int]) -> Step:
        reads = {n: r.refined(dims, finer) if r.__class__ is Access else r for n, r in self.reads.items()}
        return Step(self.op, self.expression, self.kind, reads, self.out.refined(dims, finer), self.fold)

    @property
    def reduced(self) -> list[bool]:
        """Of a fold: which dimensions it folds away."""
        return [s == 0 for s in self.out.strides]


class Loop:
    """Pointwise operations over one iteration space, and reductions of their elements."""

    def __init__(self, dims: list[int], step: Step):
        self.dims, self.steps, self.general = dims, [step], step.op.general
        self.touched = _touched(step.op)
        self.written = {w.storage.id for w in step.op.writes}

    @property
    def ops(self) -> list[Op]:
        return [s.op for s in self.steps]

    def join(self, dims: list[int], step: Step) -> bool:
        """Takes the operation in if that is right; says whether it did."""
        finer = self.dims if dims == self.dims else common_dims(self.dims, dims)
        if finer is None or len(self.steps) >= _LONGEST or (self.general and finer not in (dims, self.dims)):
            return False
        if any(v.storage.id in self.written for v in numbers_in(step.op)):
            return False  # numbers are read before the loop begins
        step = step.refined(dims, finer)
        mine = self.steps if finer == self.dims else [s.refined(self.dims, finer) for s in self.steps]
        if not _folds_fit(finer, [*mine, step], self.general):
            return False
        if self.general and math.prod(finer) > 1 and not _meet(mine, step):
            return False
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


def _meet(steps: list[Step], step: Step) -> bool:
    """Whether a step is at elements that one of the others is at, too. Loops over as many elements may be unlike for other
    sizes; those that meet are not."""
    mine = [a for a in (step.out, *step.reads.values()) if a.__class__ is Access and any(a.strides)]
    return any(a.same_place(b) for s in steps for b in (s.out, *s.reads.values()) if b.__class__ is Access for a in mine)


def _folds_fit(dims: list[int], steps: list[Step], general: bool) -> bool:
    """Whether the reductions among the steps can be part of one loop, and are faster there than by themselves."""
    folds = [s for s in steps if s.fold is not None]
    if not folds:
        return True
    totals = {f.out.value.storage.id for f in folds}  # not known before the loop's end
    if len(totals) < len(folds) or any(f.reduced != folds[0].reduced for f in folds):
        return False
    for s in steps:
        places = [a.value.storage.id for a in s.reads.values() if a.__class__ is Access]
        if not totals.isdisjoint(places) or (s.fold is None and s.out.value.storage.id in totals):
            return False
    if not general:
        return math.prod(dims) <= _SMALL or collapsed(dims, steps)[0][-1] >= _LANES
    made, strides = collapsed(dims, steps)
    along = strides[id(folds[0].out)][-1] == 0  # a row of few elements is no great loss, many sums of a few columns are
    return len(made) == 1 or made[-1] >= (_FEWEST if along else _LANES)


class Single:
    """An operation by itself. code: its lowering, or None for a call of the NumPy kernel."""

    def __init__(self, op: Op, code: list[Statement] | None):
        self.op, self.code = op, code
        self.touched = _touched(op)
        self.written = {w.storage.id for w in op.writes}

    @property
    def ops(self) -> list[Op]:
        return [self.op]


class Control:
    """A branch or a loop, with operations of its own inside. bodies: these as groups, once the draft has planned them."""

    def __init__(self, op: Op):
        self.op, self.bodies = op, []
        self.touched = _touched(op)
        self.written = {w.storage.id for w in op.writes}

    @property
    def ops(self) -> list[Op]:
        return [self.op]

    @property
    def inside(self) -> list[Any]:
        """All groups of its bodies."""
        return [g for body in self.bodies for g in body.groups]


def _touched(op: Op) -> set[int]:
    return {v.storage.id for v in (*reads_of(op), *op.writes)}


def grouped(ops: list[Op], lower: Any, exact: bool = False) -> list[Any]:
    """The program as a list of loops and single operations, in an order that keeps every dependence."""
    groups: list[Any] = []
    for op in ops:
        if op.inner is not None:
            groups.append(Control(op))
            continue
        found = pointwise_step(op, exact) or (None if exact else fold_step(op))
        if found is None:
            groups.append(Single(op, lower(op)))
        elif not _placed(groups, op, *found):
            code = None if found[1].fold is None else lower(op)
            groups.append(Loop(*found) if code is None else Single(op, code))
    return groups


def _placed(groups: list[Any], op: Op, dims: list[int], step: Step) -> bool:
    """Whether a loop took the operation in."""
    touched, written = _touched(op), {w.storage.id for w in op.writes}
    variable = {v.storage.id for v in (*op.reads, *op.writes) if v.storage.kind not in (CONSTANT, SCALAR) and v.size > 1}
    for back in range(len(groups) - 1, max(-1, len(groups) - 1 - _FAR), -1):
        group = groups[back]
        if group.__class__ is Loop and (group.touched & variable or (
                math.prod(dims) <= (1 if op.general else _TINY) and group.dims == dims)):
            if group.join(dims, step):
                return True
        if group.written & touched or group.touched & written:
            return False  # depends on this group: it cannot go before it
    return False


# ------------------------------------------------------------------------------------------------ pointwise operations
def pointwise_step(op: Op, exact: bool = False) -> tuple[list[int], Step] | None:
    """The operation as a step of a loop; None if it is not pointwise or has no expression for these dtypes."""
    if any(v.dtype.char not in KINDS for v in (*op.reads, *op.writes)):
        return None
    if (op.kernel in _MOVES or op.kernel in COPIES) and len(op.writes) == 1:
        return _copy(op)
    if len(op.outs) != 1 or len(op.writes) != 1:
        return None
    found = expression_of(op, exact)
    if found is None:
        return None
    names, c, kinds = found
    out = op.outs[0]
    if len(names) < len(op.args) or 0 in out.shape or (exact and not rounds_once(c)):
        return None
    operands = _operands(op, names, out.shape)
    if operands is None:
        return None
    reads, compute = operands
    if compute not in pointwise.SUFFIXES or ("f" if compute.char in "fd" else "b" if compute.char == "?" else "i") not in kinds:
        return None
    dims = [n for n in out.shape if n != 1] or [1]
    return dims, Step(op, c, pointwise.SUFFIXES[compute], reads, Access(out, _strides(out, out.shape)))


def expression_of(op: Op, exact: bool = False) -> pointwise.Expression | None:
    """The expression of the operation's kernel; None if it has none, or one that depends on a number known at run time.

    Constants count as numbers, unless results must be exact: a square is quicker than a power, but not the same operation.
    """
    if op.expression is not None:
        return op.expression

    def known(a: Any) -> Any:
        return a.item() if a.__class__ is Value and a.storage.kind is CONSTANT and not a.shape and not exact else a
    try:
        return pointwise.expression(op.kernel, tuple(map(known, op.args)))
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


# --------------------------------------------------------------------------------------------------------- reductions
def fold_step(op: Op) -> tuple[list[int], Step] | None:
    """A reduction as a step of a loop over what it reduces; None if it is none, or cannot be one."""
    fold = FOLDS.get(op.kernel)
    if callable(fold):
        fold = fold(*op.args)
    if fold is None or len(op.writes) != 1:
        return None
    x, out = op.args[0], op.outs[0]
    if x.__class__ is not Value or not x.size or x.storage.kind is SCALAR:
        return None
    axes = all_axes(x, (*op.args, None, None)[fold.axes])
    integers = x.dtype.char in "?bBhil" and out.dtype.char == "l" and fold.by == "sum" and not fold.total
    if not integers and (x.dtype != out.dtype or x.dtype.char not in "fd"):
        return None
    kept = [n for d, n in enumerate(x.shape) if d not in axes and n != 1]
    steps = [s for n, s in zip(out.shape, out.strides) if n != 1]
    count = math.prod([x.shape[d] for d in axes])
    if kept != [n for n in out.shape if n != 1] or count == 1:
        return None
    rest = iter(steps)
    onto = [0 if d in axes else next(rest) for d, n in enumerate(x.shape) if n != 1]
    finish = {"": "", "root": "sqrt", "mean": count}[fold.total]
    dims = [n for n in x.shape if n != 1]
    return dims, Step(op, fold.of, "i64" if integers else pointwise.SUFFIXES[x.dtype], {"a": Access(x, _strides(x, x.shape))},
                      Access(out, tuple(onto)), (fold.by, finish))


def all_axes(x: Value, axes: Any) -> tuple[int, ...]:
    """The dimensions that a reduction's argument names; none means all."""
    if axes is None:
        return tuple(range(len(x.shape)))
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    return tuple(sorted(a % max(len(x.shape), 1) for a in axes)) if x.shape else ()


# ------------------------------------------------------------------------------------------------- pointwise operations
_IEEE_CALLS = frozenset(("fabs", "sqrt", "floor", "ceil", "trunc", "rint", "fmax", "fmin"))


def ieee_only(c: str) -> bool:
    """Whether an expression gives NumPy's very bits: IEEE operations only."""
    return all(name in _IEEE_CALLS for name in re.findall(r"([A-Za-z_]\w*)\s*\(", c))


def rounds_once(c: str) -> bool:
    """Whether an expression gives the bits of the eager kernel: there, a product and a sum may have been made one."""
    return ieee_only(c) and not ("*" in c and re.search("[-+]", c))


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


def common_dims(a: list[int], b: list[int]) -> list[int] | None:
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


def collapsed(dims: list[int], steps: list[Step]) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """A loop's dimensions, outermost first in memory order, with neighbours merged where every access allows it, and the
    strides of each access (by its id). Where there are reductions, what they keep comes first, but for the innermost."""
    accesses = [a for s in steps for a in (s.out, *s.reads.values()) if a.__class__ is Access]
    main = max(accesses, key=lambda a: sum(1 for x in a.strides if x))
    order = sorted(range(len(dims)), key=lambda d: (-abs(main.strides[d]), d))
    made = [dims[d] for d in order]
    strides = {id(a): [a.strides[d] for d in order] for a in accesses}
    d = 0
    while d < len(made) - 1:
        if all(s[d] == s[d + 1] * made[d + 1] for s in strides.values()):
            made[d] *= made.pop(d + 1)
            for s in strides.values():
                s.pop(d)
        else:
            d += 1
    fold = next((s for s in steps if s.fold is not None), None)
    if fold is not None:
        still = [s == 0 for s in strides[id(fold.out)]]
        last = len(made) - 1
        order = [*[d for d in range(last) if not still[d]], *[d for d in range(last) if still[d]], last]
        made, strides = [made[d] for d in order], {k: [s[d] for d in order] for k, s in strides.items()}
    return made, {k: tuple(s) for k, s in strides.items()}
