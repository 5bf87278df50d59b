"""Cheap values that are needed again much later (in the backward pass) are computed again instead of being kept.

Only where that lengthens no other value's life: everything the operation reads is needed at least as long anyway.
"""

from __future__ import annotations

from ...backends.facts import CHEAP
from ..ir.parts import CONSTANT, INPUT, SCALAR, TEMPORARY, Op, Storage, Value, new_numbers, replaced, values_in
from .cleanup import reads_of
from .fusion import expression_of, ieee_only

_LARGE = 1 << 16      # bytes from which it is worth it
_FAR = 24             # operations between two uses that count as "much later"


def recomputed(ops: list[Op], kept: set[int]) -> list[Op]:
    touched, writers = _uses(ops)
    before: dict[int, list[Op]] = {}  # operations to insert, by the place they stand before
    for at, op in enumerate(ops):
        value = _candidate(op, kept, writers)
        if value is None:
            continue
        later = _later_uses(touched[value.storage.id], at)
        if not later or not _inputs_stay(op, at, later, touched, writers):
            continue
        again = _again(op)
        new = next(o.storage for o, old in zip(again.outs, op.outs) if old.storage is value.storage)
        before.setdefault(later[0], []).append(again)
        for i in later:
            _rename(ops[i], value.storage, new)
    if not before:
        return ops
    return [o for i, op in enumerate(ops) for o in (*before.get(i, ()), op)]


def _uses(ops: list[Op]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each storage the operations that touch it, and those that write it."""
    touched: dict[int, list[int]] = {}
    writers: dict[int, list[int]] = {}
    for at, op in enumerate(ops):
        for i in {v.storage.id for v in (*reads_of(op), *op.writes)}:
            touched.setdefault(i, []).append(at)
        for i in {w.storage.id for w in op.writes}:
            writers.setdefault(i, []).append(at)
    return touched, writers


def _candidate(op: Op, kept: set[int], writers: dict[int, list[int]]) -> Value | None:
    """The large result of a cheap operation, if it is one that only this operation writes."""
    if len(op.writes) != len(op.outs) or not _is_cheap(op):
        return None
    main = max(op.outs, key=lambda o: o.nbytes)
    if (main.nbytes < _LARGE and not op.general) or main.size == 1 or not main.covers_storage:
        return None
    if any(4 * o.nbytes > main.nbytes for o in op.outs if o is not main):
        return None
    s = main.storage
    alone = s.kind is TEMPORARY and s.init is None and s.id not in kept and len(writers[s.id]) == 1
    return main if alone else None


def _is_cheap(op: Op) -> bool:
    if op.kernel in CHEAP:
        return True
    found = expression_of(op)
    return found is not None and ieee_only(found.c)


def _later_uses(uses: list[int], at: int) -> list[int]:
    """The uses after the first long pause."""
    previous = at
    for n, use in enumerate(uses):
        if use > at:
            if use - previous > _FAR:
                return uses[n:]
            previous = use
    return []


def _inputs_stay(op: Op, at: int, later: list[int], touched: dict[int, list[int]], writers: dict[int, list[int]]) -> bool:
    """Whether all that the operation reads is still there, unchanged and needed anyway, when its result is used again."""
    for v in reads_of(op):
        s = v.storage
        if s.kind in (CONSTANT, SCALAR):
            continue
        if any(at < w < later[0] for w in writers.get(s.id, ())):
            return False
        if s.kind is not INPUT and touched[s.id][-1] < later[-1]:
            return False
    return True


def _again(op: Op) -> Op:
    outs = []
    for o in op.outs:
        storage = Storage(new_numbers.next(), TEMPORARY, 0, o.storage.nbytes, None)
        outs.append(o.over(storage))
    again = Op(op.kernel, op.args, outs, [], op.where)
    again.expression, again.general = op.expression, op.general
    return again


def _rename(op: Op, old: Storage, new: Storage) -> None:
    def change(v: Value) -> Value:
        return v.over(new) if v.storage is old else v

    op.args = replaced(op.args, change)
    op.reads = list(values_in(op.args))
