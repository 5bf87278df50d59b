"""Branches and loops: operations with others inside of them.

To the passes such an operation is one kernel call, which reads what its bodies read of the memory around them and writes what
they leave behind. What is inside keeps the names of storages that it was captured with; what those are called outside, where
passes may change it, is said by `Inner.params` and `Inner.results`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ...backends import dtypes
from ..ir.parts import CONSTANT, Inner, Op, Storage, Value
from .cleanup import reads_of

_BYTES = dtypes.native("uint8")


def whole(storage: Storage) -> Value:
    """All of a storage, as bytes."""
    return Value(storage, 0, (storage.nbytes,), (1,), _BYTES)


def touched(ops: list[Op]) -> dict[int, Storage]:
    return {v.storage.id: v.storage for op in ops for v in (*reads_of(op), *op.writes)}


def inside(op: Op, change: Callable[[list[Op], set[int]], list[Op]]) -> None:
    """Puts the bodies of a branch or a loop through passes; those are told which storages are looked at afterwards."""
    inner: Inner = op.inner
    kept = {s.id for s in (*inner.results, *[part.storage for part in inner.slices])}
    if inner.test is not None:
        kept.add(inner.test.storage.id)
    made = [change([o.copy() for o in body], kept) for body in inner.bodies]
    for body in made:
        for o in body:
            if o.inner is not None:
                inside(o, change)
    params, args = list(inner.params), list(op.args)
    known = {s.id for s in params}
    for storage in [s for body in made for s in touched(body).values()]:
        if storage.kind is CONSTANT and storage.id not in known:  # one that a pass has made
            known.add(storage.id)
            params.append(storage)
            args.append(whole(storage))
    op.args, op.reads = args, [a for a in args if a.__class__ is Value]
    op.inner = Inner(made, params, inner.results, inner.test, inner.turns, inner.slices, inner.backwards)


def run_inner(op: Op, run: Callable[[Op], Any], array: Callable[[Value], Any]) -> None:
    """Does what a branch or a loop does, on the memory that it was captured with. run: does it of one operation."""
    inner: Inner = op.inner

    def body(ops: list[Op]) -> None:
        own = {s.id for s in (*inner.params, *inner.results)}
        for s in touched(ops).values():
            if s.init is not None and s.id not in own:
                ctypes.memmove(s.start, s.init, s.nbytes)
        for o in ops:
            run(o)

    if inner.turns:
        for i in reversed(range(inner.turns)) if inner.backwards else range(inner.turns):
            results = {s.id for s in inner.results}
            for part in inner.slices:
                if part.of.id not in results:
                    ctypes.memmove(part.storage.start, part.of.start + part.offset + i * part.step, part.storage.nbytes)
            body(inner.bodies[0])
            for part in inner.slices:
                if part.of.id in results:
                    ctypes.memmove(part.of.start + part.offset + i * part.step, part.storage.start, part.storage.nbytes)
    elif inner.test is None:
        body(inner.bodies[0 if array(op.args[0]).any() else 1])
    else:
        body(inner.bodies[0])
        while array(inner.test).any():
            body(inner.bodies[1])
            body(inner.bodies[0])
