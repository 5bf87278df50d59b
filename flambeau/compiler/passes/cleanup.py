"""Passes over the list of operations: what is not needed, what is computed twice, copies that copy nothing new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..capture.symbolic import loads
from ..ir.parts import INPUT, SCALAR, TEMPORARY, Number, Op, Storage, Value, replaced, values_in


def simplified(ops: list[Op], kept: set[int]) -> list[Op]:
    """All passes. kept: ids of the storages that are looked at after the program."""
    ops = common(ops, kept)
    ops = without_copies(ops, kept)
    return without_dead(ops, kept)


def reads_of(op: Op) -> Iterator[Value]:
    """All windows an operation reads, those inside run-time numbers included."""
    yield from op.reads
    yield from numbers_in(op)


def numbers_in(op: Op) -> Iterator[Value]:
    """The windows from which an operation's run-time numbers are loaded."""
    for v in op.reads:
        if v.storage.kind is SCALAR:
            yield from loads(v.storage.expression)
    yield from _loads_in(op.args)


def _loads_in(args: Any) -> Iterator[Value]:
    for a in args:
        if a.__class__ is Number:
            yield from loads(a.expression)
        elif a.__class__ in (list, tuple):
            yield from _loads_in(a)


def without_dead(ops: list[Op], kept: set[int]) -> list[Op]:
    """Operations that write nothing anybody reads go away."""
    live = set(kept)
    left = []
    for op in reversed(ops):
        if any(w.storage.kind is INPUT or w.storage.id in live for w in op.writes):
            live.update(v.storage.id for v in reads_of(op))
            left.append(op)
    return left[::-1]


def common(ops: list[Op], kept: set[int]) -> list[Op]:
    """An operation that repeats an earlier one on unchanged memory takes its result."""
    versions: dict[int, int] = {}
    once = _written_once(ops) - _loaded(ops)
    seen: dict[Any, Op] = {}
    instead: dict[int, Storage] = {}
    left = []

    def change(v: Value) -> Value:
        return v.over(instead[v.storage.id]) if v.storage.id in instead else v

    for op in ops:
        if instead and any(v.storage.id in instead for v in op.reads):
            op.args = replaced(op.args, change)
            op.reads = list(values_in(op.args))
            op.writes = [change(v) for v in op.writes]
        pure = len(op.writes) == len(op.outs) and all(
            o.storage.id in once and o.storage.kind is TEMPORARY and o.storage.init is None and o.covers_storage
            and o.storage.id not in kept for o in op.outs)
        if pure:
            key = _key(op, versions)
            first = seen.get(key)
            if first is not None and all(a.strides == b.strides and a.offset == b.offset for a, b in zip(first.outs, op.outs)):
                for mine, theirs in zip(op.outs, first.outs):
                    instead[mine.storage.id] = theirs.storage
                continue
            seen[key] = op
        for w in op.writes:
            versions[w.storage.id] = versions.get(w.storage.id, 0) + 1
        left.append(op)
    return left


def _loaded(ops: list[Op]) -> set[int]:
    """Storages that run-time numbers are loaded from: their names stay, as expressions are not rewritten."""
    return {v.storage.id for op in ops for v in numbers_in(op)}


def _written_once(ops: list[Op]) -> set[int]:
    counts: dict[int, int] = {}
    for op in ops:
        for w in op.writes:
            counts[w.storage.id] = counts.get(w.storage.id, 0) + 1
    return {i for i, n in counts.items() if n == 1}


def _key(op: Op, versions: dict[int, int]) -> Any:
    def of(a: Any) -> Any:
        if a.__class__ is Value:
            if a.storage.kind is SCALAR:
                return ("scalar", repr(a.storage.expression), a.dtype.char, *map(of, loads(a.storage.expression)))
            return (*a.key, versions.get(a.storage.id, 0))
        if a.__class__ in (list, tuple):
            return tuple([of(x) for x in a])
        if a.__class__ is Number:
            return ("number", repr(a.expression), *map(of, loads(a.expression)))
        return (type(a).__name__, repr(a))
    return op.kernel, op.expression, id(op.inner), of(op.args), tuple((o.shape, o.dtype.char) for o in op.outs)


def without_copies(ops: list[Op], kept: set[int]) -> list[Op]:
    """A copy of a temporary that nobody looks at afterwards is the temporary itself under another name."""
    kept = kept | _loaded(ops)
    last = {v.storage.id: i for i, op in enumerate(ops) for v in (*reads_of(op), *op.writes)}
    instead: dict[int, Storage] = {}

    def change(v: Value) -> Value:
        storage = v.storage
        while storage.id in instead:
            storage = instead[storage.id]
        return v if storage is v.storage else v.over(storage)

    left = []
    for i, op in enumerate(ops):
        if op.kernel == "cast" and len(op.outs) == 1:
            source, out = op.args[0], op.outs[0]
            # The source takes the copy's name, from the operation that makes it on.
            if (source.storage.kind is TEMPORARY and source.storage.init is None and source.storage.id not in kept
                    and last[source.storage.id] == i and source.covers_storage and out.covers_storage
                    and source.dtype == out.dtype
                    and source.strides == out.strides and source.shape == out.shape and source.offset == out.offset
                    and out.storage.init is None and source.storage.id not in instead):
                instead[source.storage.id] = out.storage
                continue
        left.append(op)
    if instead:
        for op in left:
            op.rewire(change)
    return left
