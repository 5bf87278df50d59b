"""What a followed call has been seen to do: a tree of kernel calls.

A `Step` is one kernel call: what it was given (`leaves`, flat), what it returned, the operation that a program makes of it.
`next` are the calls that were seen to come after it. A path from the root is a segment: the calls between two looks at values.
Storages are numbered along a path. One that a call of the segment made is known by its number; memory from before is an input,
and each window onto it that is not inside of another one has a number of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir.parts import CONSTANT, INPUT, Number, Op, Storage, Value, replaced
from .deferred import LATER, kind_of
from .matching import ARRAY, LITERAL, NUMBER, Table

# What a leaf of the arguments must be (matching.py): an array of a storage; an array without elements; a number that is part of
# the program; one that is read at each run; anything else, which must be the same.
# What a result is: nothing; a window onto a storage that the call makes; another window onto one of its arguments.
NONE, MADE, WINDOW = range(3)
_LINE = 64


class Made:
    """A storage that a step makes. survives: it was once alive when its segment ended, and has memory of its own since."""

    __slots__ = ("id", "nbytes", "place", "single", "storage", "survives")

    def __init__(self, storage: Storage, place: int, single: Any):
        self.id, self.nbytes, self.storage, self.place = storage.id, storage.nbytes, storage, place
        self.single = single        # shape and dtype of the one result that it is, contiguous; or None
        self.survives = False


class Step:
    """One kernel call."""

    def __init__(self, before: Step | None, kernel: str):
        self.kernel = kernel
        self.next: list[Step] = []
        self.breaks: set[str] = set()              # kernels that could not wait when they came next: they failed, say
        self.layout: tuple[Any, ...] = ()          # of each argument: None, or the type and length of a list
        self.leaves: list[tuple[Any, ...]] = []
        self.op: Op | None = None                  # None: it computes nothing
        self.form: Any = None                      # tuple or list, where there are several results
        self.results: list[tuple[Any, ...]] = []
        self.answer: Any = None                    # what it returns where there are no results
        self.made: list[Made] = []
        self.inputs: list[Storage] = []            # those that it is the first to use
        self.ties: list[tuple[int, int, int]] = []  # inputs that lie at a fixed distance from an earlier one
        self.written: list[int] = []               # leaves that are inputs, and changed
        self.count = 0 if before is None else before.count         # storages so far
        self.reserved = 0 if before is None else before.reserved   # bytes so far
        self.values: list[Any] = []                # what the leaves are to a program
        self.changes = 0                           # how often a number that was part of the program became one of the run
        self.seen = 0                              # how often a segment ended here
        self.end: Any = None                       # what runs it then (segments.py)
        self.table = Table(self)
        self.address = self.table.address

    def ready(self) -> None:
        """After the leaves have been noted, or changed."""
        self.flat = not any(self.layout)
        ids = {s.id for s in self.inputs}
        self.new = []                              # leaves that are inputs, or numbers, used for the first time
        for i, leaf in enumerate(self.leaves):
            if leaf[0] == LITERAL or (leaf[0] == ARRAY and leaf[1] in ids):
                self.new.append(i)
                ids.discard(leaf[1] if leaf[0] == ARRAY else None)
        self.ids = [made.id for made in self.made]
        self.counted = [i for i, leaf in enumerate(self.leaves) if leaf[0] == NUMBER]
        self.table.fill(self, self.flat and kind_of(self.kernel) is LATER and not self.counted and not self.ties)

    def follow(self, step: Step) -> None:
        """Another one that was seen to come next."""
        if self.next:
            self.next[-1].table.words.sibling = step.address
        else:
            self.table.words.first = step.address
        self.next.append(step)

    def vary(self, at: int) -> None:
        """The number at a leaf is another one in the same place: from now on it is read at each run."""
        leaf = self.leaves[at]
        if leaf[0] == LITERAL:
            storage = leaf[2]
            self.leaves[at] = (ARRAY, storage.id, 0, (), (), leaf[1].dtype)
            storage.kind, storage.source = INPUT, object()
            self.inputs.append(storage)
        else:
            self.leaves[at] = (NUMBER,)
        self.changes += 1
        self.ready()
        for j, i in enumerate(self.counted):
            self.values[i] = Number(("input", j))
        if self.counted:
            self.op.args = unflattened(self.values, self.layout)

    def held(self) -> list[Storage]:
        """The storages that the arrays at `new` are over."""
        return sorted([*self.inputs, *[leaf[2] for leaf in self.leaves if leaf[0] == LITERAL]], key=lambda s: s.id)

    def place(self, nbytes: int) -> int:
        at = self.reserved
        self.reserved += (nbytes + _LINE - 1) // _LINE * _LINE
        return at


def flattened(args: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """The leaves of a call's arguments, and how they lie."""
    flat: list[Any] = []
    layout: list[Any] = []
    for a in args:
        kind = a.__class__
        if kind is list or (kind is tuple and any([isinstance(x, np.ndarray) for x in a])):
            flat += a
            layout.append((kind, len(a)))
        else:
            flat.append(a)
            layout.append(None)
    return flat, tuple(layout)


def unflattened(flat: list[Any], layout: tuple[Any, ...]) -> list[Any]:
    args, at = [], 0
    for part in layout:
        if part is None:
            args.append(flat[at])
            at += 1
        else:
            kind, count = part
            args.append(kind(flat[at:at + count]))
            at += count
    return args


def span(array: Any) -> int:
    """Bytes from the first to the last element."""
    return sum([(n - 1) * s for n, s in zip(array.shape, array.strides)]) + array.itemsize


# ------------------------------------------------------------------------------------------------------ for a program
class Inputs:
    """The inputs of a segment as storages of a program: those of one owner that is written are one storage."""

    def __init__(self, steps: list[Step]):
        storages = [s for step in steps for s in step.inputs]
        self.distance = {i: (j, distance) for step in steps for i, j, distance in step.ties}
        written = {w.storage.id for step in steps if step.op is not None for w in step.op.writes}
        groups: dict[Any, list[Storage]] = {}
        for s in storages:
            groups.setdefault(s.source, []).append(s)
        self.of: dict[int, tuple[Storage, int]] = {}       # number of an input -> storage of the program, offset in it
        self.written: set[int] = set()                     # numbers of the inputs whose owners are written
        for some in groups.values():
            if any(s.id in written for s in some):
                self._together(some)
            else:
                for s in some:
                    self.of[s.id] = Storage(s.id, INPUT, 0, s.nbytes, None), 0

    def _together(self, some: list[Storage]) -> None:
        """Inputs whose distances from the first one are fixed."""
        first = some[0].id
        at = {first: 0} | {s.id: self.distance[s.id][1] for s in some if self.distance.get(s.id, (None,))[0] == first}
        start = min(at.values())
        joined = Storage(first, INPUT, 0, max(at[s.id] + s.nbytes for s in some if s.id in at) - start, None)
        for s in some:
            self.of[s.id] = (joined, at[s.id] - start) if s.id in at else (Storage(s.id, INPUT, 0, s.nbytes, None), 0)
        self.written.update([s.id for s in some])


def operations(steps: list[Step], inputs: Inputs) -> list[Op]:
    """The operations of a segment, for a program: passes change them, so they are copies."""
    temporary: dict[int, Storage] = {}
    done: dict[int, Value] = {}  # what is written in place is one Value among the arguments and among the writes

    def change(v: Value) -> Value:
        if id(v) not in done:
            done[id(v)] = changed(v)
        return done[id(v)]

    def changed(v: Value) -> Value:
        s = v.storage
        if s.kind is INPUT:
            over, offset = inputs.of[s.id]
            return Value(over, v.offset + offset, v.shape, v.strides, v.dtype)
        if s.kind is CONSTANT:
            return v
        if s.id not in temporary:
            temporary[s.id] = Storage(s.id, s.kind, 0, s.nbytes, None)
        return v.over(temporary[s.id])

    made = []
    count = 0  # of run-time numbers
    for step in steps:
        if step.op is not None:
            op = step.op
            args = _numbered(replaced(op.args, change), count)
            outs = [change(v) for v in op.outs]
            made.append(Op(op.kernel, args, outs, [change(v) for v in op.writes[len(op.outs):]], op.where))
        count += len(step.counted)
    return made


def _numbered(args: list[Any], count: int) -> list[Any]:
    """Arguments with the step's own run-time numbers counted on from others."""
    return [Number(("input", a.expression[1] + count)) if a.__class__ is Number else a for a in args]

