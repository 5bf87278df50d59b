"""Loops that run on each piece of a matrix product's result as it is made, while it is in the cache (native/gemm.c).

Activations, residual additions, masks of a backward pass: whatever loop reads the result first, if its own result can take the
bare product's place in memory. It must not read much else: what is streamed through the cache piece by piece costs more than a
loop of its own, and pushes the product's factors out. (Sums of columns, too, are no faster here than in a loop of their own.)
"""

from __future__ import annotations

from typing import Any

from ..ir.parts import TEMPORARY, Op, Storage, Value
from ..ir.statements import Call
from .cleanup import numbers_in
from .fusion import Access, Loop, Single, Step, common_dims, ieee_only


class Product:
    """A matrix product, the call that makes it, and the loop over its result. inside: the storage that both the bare result and
    the loop's live in."""

    def __init__(self, op: Op, call: Call, loop: Loop, inside: Storage):
        self.op, self.call, self.loop, self.inside = op, call, loop, inside
        self.touched = loop.touched | {v.storage.id for v in (*op.reads, *op.writes)}
        self.written = loop.written | {w.storage.id for w in op.writes}

    @property
    def ops(self) -> list[Op]:
        return [self.op, *self.loop.ops]


def with_epilogues(groups: list[Any], kept: set[int]) -> list[Any]:
    """The groups, with the first loop over each product's result made part of the product."""
    groups = list(groups)
    for product, call in [(g, g.code[-1]) for g in groups if g.__class__ is Single and g.code]:
        if call.__class__ is not Call or call.tile is None:
            continue
        at = next(i for i, g in enumerate(groups) if g is product)
        bare = product.op.outs[0].storage
        then = next((i for i in range(at + 1, len(groups)) if bare.id in groups[i].touched), None)
        if then is None or groups[then].__class__ is not Loop:
            continue
        reads = {v.storage.id for v in product.op.reads}
        if any(not reads.isdisjoint(g.written) for g in groups[at + 1:then + 1]):
            continue  # the product would come too late
        loop = _tiled(groups[then], product.op, *call.tile)
        if loop is None:
            continue
        before, after = ({i for g in some for i in g.touched} for some in (groups[:then], groups[then + 1:]))
        inside = None if bare.id in kept | after else _place_for(product.op, loop, (kept | after) - before)
        if inside is not None and _pays(loop, {bare.id, inside.id}, kept | after):
            groups[then] = Product(product.op, call, loop, inside)
            del groups[at]
    return groups


def _tiled(loop: Loop, op: Op, m: int, n: int) -> Loop | None:
    """The loop over rows and columns of the product's result; None if it cannot be run piece by piece."""
    out = op.outs[0]
    finer = common_dims(loop.dims, [m, n])
    if m == 1 or n == 1 or finer is None or any(s.fold is not None for s in loop.steps):
        return None
    if any(v.storage is out.storage for s in loop.steps for v in numbers_in(s.op)):
        return None  # numbers are read before the loop begins
    steps = []
    for step in loop.steps:
        places = [_onto(a, loop.dims, finer, n) for a in (step.out, *step.reads.values())]
        if any(p is None for p in places):
            return None
        first, *rest = places
        steps.append(Step(step.op, step.expression, step.kind, dict(zip(step.reads, rest)), first))
    mine = Access(out, _steps(out))
    if any(not a.same_place(mine) for s in steps for a in (s.out, *s.reads.values())
           if a.__class__ is Access and a.value.storage is out.storage):
        return None
    made = Loop([m, n], steps[0])
    made.steps, made.touched, made.written = steps, loop.touched, loop.written
    return made


def _pays(loop: Loop, here: set[int], needed: set[int]) -> bool:
    """Whether the loop streams little else through the cache: one more array, none if it does more than simple arithmetic."""
    others = {a.value.storage.id for s in loop.steps for a in (s.out, *s.reads.values())
              if a.__class__ is Access and all(a.strides) and a.value.storage.id not in here}
    made = {s.out.value.storage.id for s in loop.steps}
    streams = len(others - (made - needed))  # what is made here and not needed later stays in registers
    return streams <= (1 if all(ieee_only(s.expression) for s in loop.steps) else 0)


def _onto(operand: Any, dims: list[int], finer: list[int], n: int) -> Any:
    """An access of a loop with steps from row to row and from column to column; None if it has no such steps."""
    if operand.__class__ is not Access:
        return operand
    strides, columns, at = operand.refined(dims, finer).strides, 1, len(finer)
    while columns < n:
        at -= 1
        columns *= finer[at]
    steps = []
    for part in (range(at), range(at, len(finer))):
        for d in part[:-1]:
            if strides[d] != strides[d + 1] * finer[d + 1]:
                return None
        steps.append(strides[part[-1]])
    return Access(operand.value, tuple(steps))


def _place_for(op: Op, loop: Loop, free: set[int]) -> Storage | None:
    """A result of the loop that can take the bare result's place: one of the storages that are not in use before but needed
    after, at the same elements, written after the bare result is read."""
    out = op.outs[0]
    first = next((i for i, s in enumerate(loop.steps) if any(
        r.__class__ is Access and r.value.storage is out.storage for r in s.reads.values())), len(loop.steps))
    for s in loop.steps[first:]:
        v = s.out.value
        t = v.storage
        if (t.id in free and t.kind is TEMPORARY and t.init is None and v.covers_storage and out.covers_storage
                and v.dtype == out.dtype and v.offset == out.offset and s.out.strides == _steps(out)):
            return t
    return None


def _steps(out: Value) -> tuple[int, int]:
    """From row to row and from column to column of a product's result."""
    return out.strides[-2] if len(out.shape) > 1 else out.shape[-1], 1
