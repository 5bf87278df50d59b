"""What a captured program is made of.

A `Storage` is a piece of memory: one that was there before (a parameter, an argument), a constant, or a temporary that the
program makes. A `Value` is a strided window onto a storage, as a tensor is. An `Op` is one kernel call: what it read, what it
returned, what it wrote in place, and the user's line. Views need no operations: they are windows.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from ...backends import dtypes

# The kinds of elements that programs work on, by the dtype's letter; operations on others call their kernel.
KINDS = {"f": "f32", "d": "f64", "?": "b8", "b": "i8", "B": "u8", "h": "i16", "H": "u16", "i": "i32", "I": "u32", "l": "i64",
         "L": "u64", "q": "i64", "Q": "u64"}
INPUT, CONSTANT, TEMPORARY, SCALAR = "input", "constant", "temporary", "scalar"


class Storage:
    """A piece of memory. `start` is its address during capture; `hold` keeps that memory alive until the program is built."""

    __slots__ = ("alive", "device", "expression", "hold", "id", "init", "kind", "nbytes", "source", "start")

    def __init__(self, id: int, kind: str, start: int, nbytes: int, hold: Any):
        self.id, self.kind, self.start, self.nbytes, self.hold = id, kind, start, nbytes, hold
        self.alive: Any = None           # of a temporary that nothing holds: a weak reference to its memory
        self.device = False              # whether it is memory of a CUDA device
        self.init: bytes | None = None   # what a temporary holds before the program's first write
        self.source: Any = None          # the tensor an input was captured from (plan.py)
        self.expression: Any = None      # of a run-time number

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}: {self.nbytes} bytes>"


class Value:
    """A window onto a storage: byte offset, shape, strides in elements, dtype."""

    __slots__ = ("dtype", "offset", "shape", "storage", "strides")

    def __init__(self, storage: Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any):
        self.storage, self.offset, self.shape, self.strides, self.dtype = storage, offset, shape, strides, dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1:
                if s != step:
                    return False
                step *= n
        return True

    @property
    def dense(self) -> bool:
        """Whether it covers its memory without holes, in some order of dimensions."""
        step = 1
        for s, n in sorted((s, n) for n, s in zip(self.shape, self.strides) if n != 1):
            if s != step:
                return False
            step *= n
        return True

    @property
    def covers_storage(self) -> bool:
        """Whether it covers the whole storage."""
        return self.dense and self.nbytes == self.storage.nbytes

    @property
    def element(self) -> str:
        """The kind of its elements."""
        return KINDS[self.dtype.char]

    @property
    def key(self) -> tuple[Any, ...]:
        return self.storage.id, self.offset, self.shape, self.strides, self.dtype.char

    def over(self, storage: Storage) -> Value:
        """The same window onto another storage."""
        return Value(storage, self.offset, self.shape, self.strides, self.dtype)

    def item(self) -> Any:
        """The one element of a constant."""
        return dtypes.element_at(self.storage.start + self.offset, self.dtype)

    def __repr__(self) -> str:
        return f"{self.storage.kind[0]}{self.storage.id}[{self.offset}]{list(self.shape)}{self.dtype.char}"


class Number:
    """A run-time number: an expression over the numbers a call reads (learning rates...), see symbolic.py."""

    __slots__ = ("expression",)

    def __init__(self, expression: Any):
        self.expression = expression


class Slice(NamedTuple):
    """A storage that is, at turn i of a loop, the part of one of the loop's arguments or results that begins i steps behind
    a place in it."""

    storage: Storage
    of: Storage
    offset: int
    step: int


class Inner:
    """The operations inside of a branch or a loop. (passes/control.py)

    bodies: lists of operations: what is done if so, if not; what decides about another turn, the turn; the turn. params: the
    storages that the bodies know the operation's arguments as, whatever passes make of these; results: those they know as what
    it writes. test: what decides, of a loop. turns: how many, where that is known; slices: see Slice; backwards: the last turn
    comes first.
    """

    __slots__ = ("backwards", "bodies", "params", "results", "slices", "test", "turns")

    def __init__(self, bodies: list[list[Op]], params: list[Storage], results: list[Storage], test: Value | None = None,
                 turns: int = 0, slices: Any = (), backwards: bool = False):
        self.bodies, self.params, self.results, self.test = bodies, params, results, test
        self.turns, self.slices, self.backwards = turns, slices, backwards


class Op:
    """One kernel call; or a branch or a loop, which has others inside of it."""

    __slots__ = ("args", "expression", "general", "inner", "kernel", "outs", "reads", "scratches", "where", "writes")

    def __init__(self, kernel: str, args: list[Any], outs: list[Value], writes: list[Value], where: Any):
        self.kernel, self.args, self.outs, self.where = kernel, args, outs, where
        self.writes = [*outs, *writes]     # all that it changes
        self.reads = list(values_in(args))  # all that it looks at (what it writes in place included)
        self.scratches: list[int] = []     # bytes of scratch memory asked for while lowering
        self.expression: Any = None        # of one that has no kernel (native/pointwise.py)
        self.general = False               # whether its lowering must do for other sizes, too
        self.inner: Inner | None = None    # of a branch or a loop

    def copy(self) -> Op:
        """The operation as it was captured, for passes to change."""
        made = Op(self.kernel, self.args, self.outs, self.writes[len(self.outs):], self.where)
        made.expression, made.inner = self.expression, self.inner
        return made

    def rewire(self, change: Any) -> None:
        """Puts every window that it reads or writes through `change`."""
        self.args = replaced(self.args, change)
        self.reads = list(values_in(self.args))
        self.outs, self.writes = [change(v) for v in self.outs], [change(v) for v in self.writes]

    def scratch(self, nbytes: int) -> int:
        """Where in the scratch memory there are as many bytes that are free to use during this operation."""
        before = sum(self.scratches)
        self.scratches.append((int(nbytes) + 63) // 64 * 64)
        return before

    def __repr__(self) -> str:
        return f"{self.outs} = {self.kernel}({', '.join(map(repr, self.args))})"


class _Numbers(threading.local):
    """Of the storages that passes make: beyond those of any capture. They begin anew with each program and each draft of it; so
    the same program has the same text, and is found on disk, whatever was compiled before."""

    def restart(self, draft: bool) -> None:
        self.numbers = count(1 << 31 if draft else 1 << 30)

    def next(self) -> int:
        return next(self.numbers)


new_numbers = _Numbers()


def values_in(args: Any) -> Iterator[Value]:
    for a in args:
        if a.__class__ is Value:
            yield a
        elif a.__class__ in (list, tuple):
            yield from values_in(a)


def replaced(args: Any, change: Any) -> Any:
    """args with every Value put through `change`."""
    return [change(a) if a.__class__ is Value else type(a)(replaced(a, change)) if a.__class__ in (list, tuple) else a
            for a in args]
