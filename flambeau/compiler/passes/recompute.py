"""Cheap values that are needed again much later (in the backward pass) are computed again instead of being kept.

Only where that lengthens no other value's life: everything the operation reads is needed at least as long anyway.
"""

from __future__ import annotations

from collections.abc import Callable

from ...backends.facts import CHEAP
from ..ir.parts import CONSTANT, INPUT, SCALAR, TEMPORARY, Op, Storage, Value, new_numbers, replaced, values_in
from .cleanup import reads_of
from .fusion import expression_of, ieee_only

_LARGE = 1 << 16      # bytes from which it is worth it
_FAR = 24             # operations between two uses


def recomputed(ops: list[Op], kept: set[int], cheap: Callable[[Op], bool] | None = None, large: int = _LARGE,
               deep: int = 1, far: int = _FAR) -> list[Op]:
    """cheap: what may be computed again; large: bytes from which a value is worth it; deep: how many operations, one after the
    other, may lead to it from values that are still there; far: operations between two uses that count as "much later"."""
    touched, writers = _uses(ops)
    cheap = _is_cheap if cheap is None else cheap
    before: dict[int, list[Op]] = {}  # operations to insert, by the place they stand before
    for at, op in enumerate(ops):
        value = _candidate(op, kept, writers, large) if cheap(op) else None
        if value is None:
            continue
        later = _later_uses(touched[value.storage.id], at, far)
        chain = _chain(ops, at, later, kept, touched, writers, cheap, deep) if later else None
        if chain is None:
            continue
        again, new = _again(chain)
        before.setdefault(later[0], []).extend(again)
        for i in later:
            _rename(ops[i], {value.storage.id: new[value.storage.id]})
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


def _candidate(op: Op, kept: set[int], writers: dict[int, list[int]], large: int) -> Value | None:
    """The large result of an operation, if it is one that only this operation writes."""
    if len(op.writes) != len(op.outs) or not op.outs:
        return None
    main = max(op.outs, key=lambda o: o.nbytes)
    if (main.nbytes < large and not op.general) or main.size == 1 or not main.covers_storage:
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


def _later_uses(uses: list[int], at: int, far: int) -> list[int]:
    """The uses after the first long pause."""
    previous = at
    for n, use in enumerate(uses):
        if use > at:
            if use - previous > far:
                return uses[n:]
            previous = use
    return []


def _chain(ops: list[Op], at: int, later: list[int], kept: set[int], touched: dict[int, list[int]],
           writers: dict[int, list[int]], cheap: Callable[[Op], bool], deep: int) -> list[Op] | None:
    """What has to be done again to have an operation's result again: the operation, if all that it reads is still there,
    unchanged and needed anyway; behind cheap ones that make what is not."""
    made: list[Op] = []
    for v in reads_of(ops[at]):
        s = v.storage
        if s.kind in (CONSTANT, SCALAR):
            continue
        if any(at < w < later[0] for w in writers.get(s.id, ())):
            return None
        if s.kind is not INPUT and touched[s.id][-1] < later[-1]:
            maker = writers[s.id][0]
            if deep == 1 or not cheap(ops[maker]) or _candidate(ops[maker], kept, writers, 0) is None:
                return None
            more = _chain(ops, maker, later, kept, touched, writers, cheap, deep - 1)
            if more is None:
                return None
            made += [o for o in more if not any([o is m for m in made])]
    return [*made, ops[at]]


def _again(chain: list[Op]) -> tuple[list[Op], dict[int, Storage]]:
    """Operations once more, with results in other memory; which one stands for which."""
    new: dict[int, Storage] = {}
    made = []
    for op in chain:
        again = Op(op.kernel, op.args, op.outs, [], op.where)
        again.expression, again.general = op.expression, op.general
        for o in op.outs:
            storage = new[o.storage.id] = Storage(new_numbers.next(), TEMPORARY, 0, o.storage.nbytes, None)
            storage.device = o.storage.device
        again.outs = again.writes = [o.over(new[o.storage.id]) for o in op.outs]
        _rename(again, new)
        made.append(again)
    return made, new


def _rename(op: Op, new: dict[int, Storage]) -> None:
    """Reads of some storages become reads of others."""
    op.args = replaced(op.args, lambda v: v.over(new[v.storage.id]) if v.storage.id in new else v)
    op.reads = list(values_in(op.args))
