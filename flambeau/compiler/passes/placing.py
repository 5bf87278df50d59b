"""Results that are made where they belong: arrays that are only made to be joined become windows of what they are joined to.

A join whose parts nobody else looks at is no work at all, if the kernels that make the parts can write to windows of other
memory (`into` in backends/cuda/table.py): the gradients of q, k and v, for one, which attention makes and the layer in front
wants in one piece. Parts of which that is not true are copied to their windows.

And results that may take the place of what they are made of (`over`): the gradient of logits takes theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from ...backends.cuda.table import INTO, OVER
from ..ir.parts import Op, Storage, Value, replaced, values_in
from .narrow import Uses, is_fresh


def placed(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    """The operations without such joins. brought: storages that the caller sees; single: whether an operation has to stay as it
    is."""
    touched = Uses(ops)
    left: list[Op] = []
    for op in ops:
        copies = _without(op, touched, brought, single) if op.kernel == "cat" and not single(op) else None
        left += [op] if copies is None else copies
    return left


def _without(op: Op, touched: Uses, brought: set[int], single: Callable[[Op], bool]) -> list[Op] | None:
    """What is left to do where the makers of a join's parts write to its result; None if none of them can."""
    out, parts = op.outs[0], op.args[0]
    if not is_fresh(out.storage) or touched[out.storage.id][0] is not op or not out.covers_storage:
        return None
    found, copies = [], []
    for part, window in zip(parts, _windows(out, parts, op.args[1])):
        maker, once = touched[part.storage.id][0], sum([p.storage is part.storage for p in parts]) == 1
        moved = None
        if once and is_fresh(part.storage) and part.storage.id not in brought and touched[part.storage.id] == [maker, op] and (
                maker.kernel in INTO and not single(maker) and part.dtype == out.dtype and part.covers_storage):
            moved = _moved(maker, part, window)
        if moved is None:
            copies.append(Op("copy_into", [window, part], [], [window], op.where))
        else:
            found.append((maker, *moved))
    for maker, k, window in found:
        maker.outs = [*maker.outs[:k], window, *maker.outs[k + 1:]]
        maker.writes = [*maker.outs, *maker.writes[len(maker.outs):]]
    return copies if found else None


def _windows(out: Value, parts: list[Value], dim: int) -> list[Value]:
    """Where in the result of a join its parts are."""
    made, at = [], 0
    for part in parts:
        start = out.offset + at * out.strides[dim] * out.dtype.itemsize
        made.append(Value(out.storage, start, part.shape, out.strides, out.dtype))
        at += part.shape[dim]
    return made


def _moved(maker: Op, part: Value, window: Value) -> tuple[int, Value] | None:
    """Which result of its maker a part is, and that result as a window of where the part belongs; None if it is not one."""
    same = [k for k, o in enumerate(maker.outs) if o.storage is part.storage]
    if len(same) != 1:
        return None
    out = maker.outs[same[0]]
    strides = translated(out, part, window.strides) if out.covers_storage and out.dtype == part.dtype else None
    if strides is None or (strides[-1] != 1 and out.shape[-1] != 1):
        return None
    return same[0], Value(window.storage, window.offset, out.shape, strides, out.dtype)


def translated(v: Value, onto: Value, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a window if those of another one, over all of the same elements, become `strides`; None where a dimension
    of the first is not within one of the other's."""
    dims = sorted([(s, n, new) for s, n, new in zip(onto.strides, onto.shape, strides) if n != 1], reverse=True)
    made, far = [], dict.fromkeys([s for s, _, _ in dims], 0)
    for step, count in zip(v.strides, v.shape):
        inside = next(((s, new) for s, n, new in dims if s <= step), None)
        if count == 1 or inside is None:
            if count != 1:
                return None
            made.append(0)
            continue
        s, new = inside
        if step % s:
            return None
        far[s] += step // s * (count - 1)
        made.append(step // s * new)
    return tuple(made) if all([far[s] < n for s, n, _ in dims]) else None


def overlaid(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    """The operations with results in the place of arguments that nobody reads afterwards."""
    uses = Uses(ops)
    instead: dict[int, Storage] = {}

    def change(v: Value) -> Value:
        return v.over(instead[v.storage.id]) if v.storage.id in instead else v

    for op in ops:
        x = change(op.args[OVER[op.kernel]]) if op.kernel in OVER and not single(op) else None
        if x is not None and _can_lie_over(op, x, op.outs[0], uses, brought):
            instead[op.outs[0].storage.id] = x.storage
        if any([v.storage.id in instead for v in (*op.reads, *op.writes)]):
            inside = op.writes[len(op.outs):]
            op.args, op.outs = replaced(op.args, change), [change(o) for o in op.outs]
            op.reads, op.writes = list(values_in(op.args)), [*op.outs, *[change(w) for w in inside]]
    return ops


def _can_lie_over(op: Op, x: Value, out: Value, uses: Uses, brought: set[int]) -> bool:
    if not {x.storage.id, out.storage.id}.isdisjoint(brought) or not is_fresh(x.storage) or not is_fresh(out.storage):
        return False
    return uses[x.storage.id][-1] is op and uses[out.storage.id][0] is op and x.key[1:] == out.key[1:] and (
        x.storage.nbytes == out.storage.nbytes and sum([v.storage is x.storage for v in op.reads]) == 1)
