"""Kernels of a CUDA device that take half precision as it is, where the Python converts it to single precision for them.

Under autocast, losses and norms compute in single precision: what they read is widened in front of them, what they give is
rounded behind them. A kernel that says so (`narrow`, `typed` in backends/cuda/table.py) does both itself, element by element
and to the same bits, and the copies go away. `Lean` pairs of kernels come first: without a large result that one keeps for the
other.

A kernel's result that something is added to, and the sum rounded (the gradient of a layer in a residual network), is likewise
finished by the kernel, if it says so (`added`, `twice`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...backends.cuda.pointwise import COMPUTED
from ...backends.cuda.table import ADDED, LEAN, NARROW, PLUS, TWICE, TYPED
from ..ir.parts import TEMPORARY, Op, Storage, Value, new_numbers, values_in
from .cleanup import reads_of, without_dead

CASTS = ("cast", "_to_copy")


def narrowed(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    """The operations with as few conversions as their kernels need. brought: storages that the caller sees; single: whether an
    operation has to stay as it is."""
    ops = _read_narrow(_without_kept(ops, brought, single), brought, single)
    for changed in (_written_narrow, _added, _written_twice, _added_before):
        uses = Uses(ops)
        ops = [op for op in ops if not changed(op, uses, brought, single)]
    return _read_narrow(ops, brought, single)


class Uses(dict):
    """Of each storage, by its number, the operations that touch it, in order. place: of operations, by their id."""

    def __init__(self, ops: list[Op]):
        super().__init__()
        self.place = {id(op): i for i, op in enumerate(ops)}
        for op in ops:
            for i in {v.storage.id for v in (*reads_of(op), *op.writes)}:
                self.setdefault(i, []).append(op)

    def writers(self, s: Storage) -> list[Op]:
        return [op for op in self.get(s.id, ()) if any([w.storage is s for w in op.writes])]


def is_fresh(s: Storage) -> bool:
    """Whether it is memory of the device that holds nothing but what the program writes there."""
    return s.kind is TEMPORARY and s.device and s.init is None


def alike(a: Value, b: Value) -> bool:
    """Whether the elements of two windows of one size follow each other in memory in the same order."""
    return (a.contiguous and b.contiguous) or (a.shape == b.shape and a.strides == b.strides and a.dense)


# -------------------------------------------------------------------------------------------------- results that are kept
def _without_kept(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    uses = Uses(ops)
    place = uses.place
    instead: dict[int, Op] = {}
    for op in ops:
        lean = LEAN.get(op.kernel)
        if lean is None or single(op) or not op.outs[lean.kept].size:
            continue
        kept, first = op.outs[lean.kept], op.args[0]
        others = uses[kept.storage.id][1:]
        if not is_fresh(kept.storage) or kept.storage.id in brought or any([
                o.kernel != lean.other or single(o) for o in others]):
            continue
        last = max([place[id(o)] for o in others], default=0)
        if any([place[id(op)] < place[id(o)] <= last and any([w.storage is first.storage for w in o.writes])
                for o in uses[first.storage.id]]):
            continue  # the other kernel would read something else
        shape = lean.size(first.shape)
        small = Value(_storage(shape, kept.dtype), 0, shape, (1,) * len(shape), kept.dtype)
        outs = [*op.outs[:lean.kept], small, *op.outs[lean.kept + 1:]]
        instead[id(op)] = Op(*lean.forward(list(op.args)), outs, [], op.where)
        for o in others:
            instead[id(o)] = Op(*lean.backward(list(o.args), first, small, o.outs[0]), o.outs, [], o.where)
    return [instead.get(id(op), op) for op in ops]


def _storage(shape: tuple[int, ...], dtype: Any) -> Storage:
    made = Storage(new_numbers.next(), TEMPORARY, 0, 0, None)
    made.nbytes, made.device = Value(made, 0, shape, (1,) * len(shape), dtype).nbytes, True
    return made


# ------------------------------------------------------------------------------------------------------- conversions
def widened(ops: list[Op]) -> dict[int, tuple[Value, Value]]:
    """Of storages that hold nothing but widened elements of half precision: their window, and what it was made of. Neither
    changes afterwards, so whoever reads the one may read the other."""
    writes: dict[int, int] = {}
    for op in ops:
        for w in op.writes:
            writes[w.storage.id] = writes.get(w.storage.id, 0) + 1
    made = {}
    for op in ops:
        if op.kernel in CASTS and len(op.outs) == 1 and op.args[0].__class__ is Value:
            source, out = op.args[0], op.outs[0]
            if out.dtype.char == "f" and COMPUTED.get(source.dtype) == "f32" and source.dtype != out.dtype and (
                    source.storage.device and source.storage.kind is TEMPORARY and out.covers_storage
                    and writes[out.storage.id] == 1 and writes.get(source.storage.id) == 1
                    and out.storage.init is None and source.storage.init is None
                    and source.size == out.size and alike(source, out)):
                made[out.storage.id] = out, source
    return made


def _read_narrow(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    """Lets kernels read what was widened for them as it was."""
    wide = widened(ops)
    for op in ops:
        if (NARROW.get(op.kernel) or op.kernel in PLUS) and not single(op):
            _narrow_arguments(op, wide)
    return without_dead(ops, brought)


def _narrow_arguments(op: Op, wide: dict[int, tuple[Value, Value]]) -> None:
    args = list(op.args)
    for k in (*NARROW[op.kernel], PLUS.get(op.kernel, len(args))):
        v = args[k] if k < len(args) else None
        if v.__class__ is Value and v.storage.id in wide and v.covers_storage:
            whole, source = wide[v.storage.id]
            if alike(v, whole) and source.contiguous == v.contiguous:
                args[k] = Value(source.storage, source.offset, v.shape, v.strides, source.dtype)
    if all([a is b for a, b in zip(args, op.args)]):
        return
    if TYPED.get(op.kernel) == len(args):  # (without a first result it does no harm)
        args.append(op.outs[0].dtype)
    op.args = args
    op.reads = list(values_in(args))


def _written_narrow(op: Op, uses: Uses, brought: set[int], single: Callable[[Op], bool]) -> bool:
    """Whether an operation rounds what a kernel can write in half precision itself, and now does."""
    if op.kernel not in CASTS or op.args[0].__class__ is not Value or not op.outs:
        return False
    source, out = op.args[0], op.outs[0]
    maker = uses[source.storage.id][0]
    at, made = TYPED.get(maker.kernel), _first(maker, single)
    if at is None or made is None or made.storage is not source.storage or source.storage.id in brought:
        return False
    if uses[source.storage.id] != [maker, op] or uses[out.storage.id][0] is not op or len(maker.args) < at or not (
            made.dtype.char == "f" and COMPUTED.get(out.dtype) == "f32" and all(map(_is_whole, (made, source, out)))):
        return False
    maker.args = [*maker.args[:at], out.dtype, *maker.args[at + 1:]]
    maker.outs = [Value(out.storage, 0, made.shape, made.strides, out.dtype), *maker.outs[1:]]
    maker.writes = [*maker.outs, *maker.writes[len(maker.outs):]]
    return True


def _first(op: Op, single: Callable[[Op], bool]) -> Value | None:
    """A kernel's first result; None if that is not wanted: some have an argument that says which of them are."""
    if single(op) or not op.outs or any([a.__class__ in (list, tuple) and a and a[0] is False for a in op.args]):
        return None
    return op.outs[0]


# --------------------------------------------------------------------------------------------------- what comes right after
def _added(op: Op, uses: Uses, brought: set[int], single: Callable[[Op], bool]) -> bool:
    """Whether an operation adds something to a kernel's result that the kernel can add itself, and now does."""
    if op.kernel != "add" or len(op.args) != 2 or single(op) or any([a.__class__ is not Value for a in op.args]):
        return False
    out = op.outs[0]
    for made, more in (op.args, op.args[::-1]):
        maker = uses[made.storage.id][0]
        at, first = ADDED.get(maker.kernel), _first(maker, single)
        if at is None or first is None or first.storage is not made.storage or len(maker.args) > at or (
                made.storage.id in brought or uses[made.storage.id] != [maker, op] or uses[out.storage.id][0] is not op):
            continue
        if all([_is_whole(v) and v.dtype == out.dtype and v.size == out.size for v in (first, made, more, out)]) and all([
                uses.place[id(o)] < uses.place[id(maker)] for o in uses.writers(more.storage)]):
            _extended(maker, at, more, [first.over(out.storage), *maker.outs[1:]])
            return True
    return False


def _written_twice(op: Op, uses: Uses, brought: set[int], single: Callable[[Op], bool]) -> bool:
    """Whether an operation converts what a kernel can write in two dtypes itself, and now does."""
    if op.kernel not in CASTS or op.args[0].__class__ is not Value or not op.outs:
        return False
    source, out = op.args[0], op.outs[0]
    maker = uses[source.storage.id][0]
    at, first = TWICE.get(maker.kernel), _first(maker, single)
    if at is None or first is None or first.storage is not source.storage or len(maker.args) > at or (
            uses.writers(source.storage) != [maker] or uses[out.storage.id][0] is not op or first.dtype.char != "f" or (
            COMPUTED.get(out.dtype) != "f32") or not all([_is_whole(v) for v in (first, source, out)])):
        return False
    _extended(maker, at, out.dtype, [*maker.outs, Value(out.storage, 0, first.shape, first.strides, out.dtype)])
    return True


def _added_before(op: Op, uses: Uses, brought: set[int], single: Callable[[Op], bool]) -> bool:
    """Whether an operation makes a sum that a kernel behind it can make itself, and now does."""
    if op.kernel != "add" or len(op.args) != 2 or single(op) or any([a.__class__ is not Value for a in op.args]):
        return False
    out = op.outs[0]
    behind = next(iter(uses[out.storage.id][1:]), None)
    at = None if behind is None else PLUS.get(behind.kernel)
    if at is None or single(behind) or len(behind.args) > at or behind.args[0].__class__ is not Value or (
            behind.args[0].storage is not out.storage or uses.writers(out.storage) != [op]):
        return False
    first, more = op.args[::-1] if uses[op.args[0].storage.id][0].kernel in CASTS else op.args
    if behind.args[0].dtype != out.dtype or not all(map(_is_whole, (out, behind.args[0]))) or not all([
            v.contiguous and v.dtype == out.dtype and v.size == out.size for v in (first, more)]):
        return False
    inputs = [v.storage for v in op.args]
    if any([uses.place[id(op)] < uses.place[id(o)] < uses.place[id(behind)] for s in inputs for o in uses.writers(s)]):
        return False
    shape, strides = behind.args[0].shape, behind.args[0].strides
    first, more = (Value(v.storage, v.offset, shape, strides, v.dtype) for v in (first, more))
    _extended(behind, at, more, [*behind.outs, out])
    behind.args = [first, *behind.args[1:]]
    behind.reads = list(values_in(behind.args))
    return True


def _is_whole(v: Value) -> bool:
    return is_fresh(v.storage) and v.contiguous and v.covers_storage


def _extended(op: Op, at: int, value: Any, outs: list[Value]) -> None:
    """Gives an operation one of the arguments that may be left out, and other results."""
    inside = op.writes[len(op.outs):]
    op.args = [*op.args, *[None] * (at - len(op.args)), value, *op.args[at + 1:]]
    op.reads, op.outs, op.writes = list(values_in(op.args)), outs, [*outs, *inside]
