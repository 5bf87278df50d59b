"""Fusion on a CUDA device: pointwise operations over arrays that lie alike, without holes, become one kernel.

A group takes an operation in as fusion.py's loops do: the latest one with which it shares memory and that it can reach without
overtaking what it depends on. What only one group touches never reaches memory, and half-precision elements that were widened
are read as they were. A group becomes an operation "fused", whose first argument is the kernel (backends/cuda/fused.py); then
come the windows that it reads, and those that it writes in place.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from ...backends.cpu.pointwise import loops
from ...backends.cuda.fused import MOST, Fused, Step
from ...backends.cuda.pointwise import COMPUTED, STORED
from ...backends.cuda.table import KERNELS
from ...backends.facts import COPIES
from ..ir.parts import CONSTANT, INPUT, TEMPORARY, Op, Value
from .cleanup import without_dead
from .narrow import alike, widened
from .recompute import recomputed

_MOVES = ("cast", "copy_into")
_FAR = 60      # how many groups back an operation may look for one to join
_LONGEST = 64  # operations of a group
_KEPT = 1 << 26  # bytes up to which a value is kept for the backward pass: it takes time to make it again
_DEEP = 8        # operations that may lead to one that is made again
_SOON = 6        # operations up to its next use for which it is kept


class _Part(NamedTuple):
    """An operation of a group: its expression, the suffix of what it computes in, what it reads by letter, what it writes."""

    op: Op
    expression: str
    suffix: str
    reads: dict[str, Value | int | float]
    out: Value


class _Group:
    """Operations that are one kernel, or one that stands for itself (no parts)."""

    def __init__(self, op: Op, part: _Part | None):
        self.ops, self.parts = [op], [part] if part is not None else []
        self.touched, self.written = _touched(op, part), {w.storage.id for w in op.writes}

    def join(self, part: _Part) -> bool:
        """Takes an operation in if that is right; says whether it did."""
        if not self.parts or self.parts[0].out.size != part.out.size or len(self.parts) >= _LONGEST:
            return False
        for mine in self.parts:
            if mine.expression == part.expression and _same_reads(mine, part):
                return False  # what is computed again shall not be kept
            for v in (*_arrays(mine), mine.out):
                if v.storage is part.out.storage and v.key != part.out.key and not _same_elements(v, part.out):
                    return False
            for v in _arrays(part):
                if v.storage is mine.out.storage and not _same_elements(v, mine.out):
                    return False
        if any([not alike(part.out, v) for mine in self.parts for v in (mine.out, *_arrays(mine)) if v.size == part.out.size]):
            return False
        self.parts.append(part)
        self.ops.append(part.op)
        self.touched |= _touched(part.op, part)
        self.written |= {w.storage.id for w in part.op.writes}
        return True

    def take(self, other: _Group) -> bool:
        """Takes all of another group in, which comes later, if that is right; says whether it did."""
        before = list(self.ops), list(self.parts), set(self.touched), set(self.written)
        places = {(v.storage.id, v.offset) for p in (*self.parts, *other.parts) for v in (*_arrays(p), p.out)}
        if len(places) + 2 <= MOST and all(map(self.join, other.parts)):
            return True
        self.ops, self.parts, self.touched, self.written = before
        return False

    def come_apart(self) -> None:
        """Its operations shall stand for themselves, and read what they were captured with."""
        self.parts, self.touched = [], set().union(*[_touched(op, None) for op in self.ops])


def _same_elements(a: Value, b: Value) -> bool:
    return a.offset == b.offset and a.dtype == b.dtype and a.size == b.size


def _same_reads(a: _Part, b: _Part) -> bool:
    return a.reads.keys() == b.reads.keys() and all([
        v is w or (v.__class__ is w.__class__ is Value and v.key == w.key) for v, w in zip(a.reads.values(), b.reads.values())])


def _touched(op: Op, part: _Part | None) -> set[int]:
    return {v.storage.id for v in ((*op.reads, *op.writes) if part is None else (*_arrays(part), part.out))}


def _arrays(part: _Part) -> list[Value]:
    return [v for v in part.reads.values() if v.__class__ is Value]


# ----------------------------------------------------------------------------------------------------------- operations
def _part(op: Op, wide: dict[int, tuple[Value, Value]]) -> _Part | None:
    """An operation as a part of a group; None if it cannot be one. wide: see narrow.py."""
    if len(op.writes) != 1 or not op.writes[0].storage.device:
        return None
    out = op.writes[0]
    if not out.size or not out.dense or any([v.dtype not in STORED for v in (*op.reads, out)]):
        return None
    made = _copy(op, out) if op.kernel in _MOVES or op.kernel in COPIES else _expression(op, out)
    if made is None or any([v.size not in (1, out.size) or (v.size == out.size and not alike(v, out)) for v in _arrays(made)]):
        return None
    for letter, v in made.reads.items():
        whole, narrow = wide.get(v.storage.id, (None, None)) if v.__class__ is Value else (None, None)
        if whole is not None and v.size == out.size and _same_elements(v, whole) and alike(narrow, out):
            made.reads[letter] = narrow
    return made


def _copy(op: Op, out: Value) -> _Part | None:
    source = op.args[-1] if op.kernel == "copy_into" else op.args[0]
    if source.__class__ is not Value or source.dtype not in COMPUTED or source.storage is out.storage:
        return None
    suffix = "f64" if source.dtype.char == "d" else COMPUTED[source.dtype]
    read = _operand(source)
    return None if read is None else _Part(op, "a", suffix, {"a": read}, out)


def _operand(a: Any) -> Value | int | float | None:
    """A window on the device, or a number: also that in a constant of the host's."""
    if a.__class__ is Value and not a.storage.device:
        return a.item() if a.storage.kind is CONSTANT and a.size == 1 else None
    return a if a.__class__ in (Value, int, float, bool) else None


def _expression(op: Op, out: Value) -> _Part | None:
    if len(op.outs) != 1 or op.kernel in KERNELS:
        return None
    known = [a.item() if a.__class__ is Value and not a.storage.device and a.storage.kind is CONSTANT and not a.shape else a
             for a in op.args]
    try:
        found = loops.expression(op.kernel, tuple(known))
    except TypeError:
        return None
    if found is None:
        return None
    used = set(re.findall(r"\b[a-z]\b", found.c))
    mask = loops.MASKS.get(op.kernel)
    dtypes = {a.dtype for i, a in enumerate(op.args) if a.__class__ is Value and i != mask}
    reads = {x: _operand(a) for x, a in zip(found.args, op.args) if x in used}
    if len(dtypes) != 1 or used - reads.keys() or None in reads.values():
        return None
    dtype = dtypes.pop()
    kind = "f" if COMPUTED.get(dtype) == "f32" else {"u": "i"}.get(dtype.kind, dtype.kind)
    if dtype not in COMPUTED or kind not in found.kinds or out.dtype != ("bool" if loops.result_is_bool(op.kernel) else dtype):
        return None
    return _Part(op, found.c, COMPUTED[dtype], reads, out)


# --------------------------------------------------------------------------------------------------------------- groups
def fused(ops: list[Op], brought: set[int], single: Any, narrow: bool = True) -> list[Op]:
    """The operations with groups in the place of those that they are made of. brought: storages that the caller sees; single:
    whether an operation has to stay by itself; narrow: whether what was widened is read as it was."""
    groups: list[_Group] = []
    wide = widened(ops) if narrow else {}
    for op in ops:
        part = None if single(op) else _part(op, wide)
        if part is None or not _placed(groups, op, part):
            groups.append(_Group(op, part))
    groups = _joined(groups)
    while True:
        seen = Counter(i for group in groups for i in group.touched)
        inside = [{p.out.storage.id for p in group.parts if p.out.storage.kind is TEMPORARY and p.out.storage.init is None
                   and p.out.storage.id not in brought and seen[p.out.storage.id] == 1} for group in groups]
        no_kernel = [g for g, own in zip(groups, inside) if g.parts and not _fits(g, own)]
        if not no_kernel:
            break
        if narrow and any([len(g.ops) > 1 for g in no_kernel]):  # some may stand before what widens what they then read
            return fused(ops, brought, single, narrow=False)
        for group in no_kernel:
            group.come_apart()
    made = [op for group, own in zip(groups, inside) for op in ([_kernel(group, own)] if group.parts else group.ops)]
    return without_dead(made, brought)


def computed_again(ops: list[Op], brought: set[int], single: Any) -> list[Op]:
    """The operations with large values made again where the backward pass wants them, of what it reads anyway: a kernel that is
    bound by memory takes no longer for it."""
    def cheap(op: Op) -> bool:
        part = None if single(op) else _part(op, {})
        return part is not None and not any([v.storage.kind is INPUT and v.size > 1 for v in _arrays(part)])
    return recomputed(ops, brought, cheap, _KEPT, _DEEP, _SOON)


def _placed(groups: list[_Group], op: Op, part: _Part) -> bool:
    touched, written = _touched(op, part), {w.storage.id for w in op.writes}
    variable = {v.storage.id for v in (*_arrays(part), part.out) if v.size > 1}
    for group in groups[:-_FAR - 1:-1]:
        if group.parts and group.touched & variable and group.join(part):
            return True
        if group.written & touched or group.touched & written:
            return False  # depends on this group: it cannot go before it
    return False


def _joined(groups: list[_Group]) -> list[_Group]:
    """The groups, with those made one that read the same arrays, where the later one can come before what is between them."""
    left: list[_Group] = []
    for group in groups:
        variable = {v.storage.id for p in group.parts for v in _arrays(p) if v.size > 1}
        for other in left[:-_FAR - 1:-1] if group.parts else ():
            if other.parts and other.touched & variable and other.take(group):
                break
            if other.written & group.touched or other.touched & group.written:
                left.append(group)
                break
        else:
            left.append(group)
    return left


def _fits(group: _Group, inside: set[int]) -> bool:
    """Whether a group is worth a kernel of its own: of several operations, with not too many arrays."""
    return len(group.parts) > 1 and len({(v.storage.id, v.offset) for p in group.parts for v in (*_arrays(p), p.out)
                                         if v.storage.id not in inside}) + 2 <= MOST


def _kernel(group: _Group, inside: set[int]) -> Op:
    """The operation that stands for a group."""
    names: dict[Any, str] = {}                         # (storage, offset, dtype) -> the name of the value there
    inputs: dict[str, Value] = {}
    scalars: dict[str, Value] = {}
    last: dict[Any, tuple[str, Value]] = {}            # what is written, by place: the latest value counts
    steps = []
    count = group.parts[0].out.size

    def read(v: Any) -> Any:
        if v.__class__ is not Value:
            return v
        key = v.storage.id, v.offset, v.dtype.char
        if key not in names:
            names[key] = name = f"x{len(names)}"
            (scalars if v.size != count else inputs)[name] = v
        return names[key], v.dtype.char == "?"

    for n, part in enumerate(group.parts):
        operands = {x: read(v) for x, v in part.reads.items()}
        names[part.out.storage.id, part.out.offset, part.out.dtype.char] = name = f"y{n}"
        steps.append(Step(part.expression, part.suffix, operands, name, part.out.dtype))
        if part.out.storage.id not in inside:
            last[part.out.storage.id, part.out.offset] = name, part.out
    made = {part.op.outs[0].storage.id for part in group.parts if part.op.outs}
    new = [(name, v) for name, v in last.values() if v.storage.id in made]
    changed = [(name, v) for name, v in last.values() if v.storage.id not in made]
    title = ", ".join([op.kernel for op in group.ops])
    work = Fused(title, count, [(x, v.dtype) for x, v in inputs.items()], [(x, v.dtype) for x, v in scalars.items()],
                 [(x, v.dtype) for x, v in (*new, *changed)], steps)
    targets = [v for _, v in changed]
    return Op("fused", [work, [*inputs.values(), *scalars.values()], targets], [v for _, v in new], targets, group.ops[0].where)
