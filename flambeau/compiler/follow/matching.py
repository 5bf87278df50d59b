"""The native part of following (native/follow.c): steps as tables that C compares a call with."""

from __future__ import annotations

import ctypes
import functools
from array import array
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ...backends import values
from ...backends.cpu import memory
from ...backends.cpu.data import shared
from ...native import pointer, toolchain
from ...native.calls import builtin
from ...tensors.tensor import Size
from .promises import Promise, finalized, usable

_P, _L = ctypes.c_void_p, ctypes.c_long
_PYTHON = ("PyLong_AsLong", "PyLong_AsVoidPtr", "PyErr_Occurred", "PyErr_Clear", "PyLong_FromLong", "PyList_Size",
           "PyList_GetItem", "PyList_New", "PyTuple_Size", "PyTuple_GetItem", "PyList_Append", "PyTuple_New",
           "PyTuple_SetItem", "Py_IncRef", "Py_DecRef", "PyObject_Vectorcall", "PyWeakref_NewRef")
ARRAY, EMPTY, LITERAL, NUMBER, PLAIN = range(5)  # as in follow.c
MISMATCH, ASK = -1, -2


class _Leaf(ctypes.Structure):
    _fields_ = [("kind", _L), ("number", _L), ("offset", _L), ("dimensions", _L), ("extent", _P), ("object", _P)]


class _Step(ctypes.Structure):
    _fields_ = [("leaves", _L), ("leaf", _P), ("first", _P), ("sibling", _P), ("kernel", _P), ("self", _P), ("simple", _L),
                ("count", _L), ("inputs", _L), ("input", _P), ("writes", _L), ("write", _P), ("fixed", _P)]


class _Result(ctypes.Structure):
    _fields_ = [("object", _P), ("pair", _P), ("made", _P), ("number", _L), ("address", _L)]


class _Results(ctypes.Structure):
    _fields_ = [("stamp", _L), ("count", _L), ("several", _L), ("result", _P), ("roots", _P), ("done", _P)]


class State(ctypes.Structure):
    """What C knows of a follower."""

    _fields_ = [("done", _P), ("views", _P), ("changed", _P), ("known", _L), ("at", _P), ("base", _P), ("room", _L),
                ("low", _P), ("high", _P), ("given", _P), ("n_given", _L), ("written", _P), ("n_written", _L),
                ("room_written", _L), ("stamp", _L), ("version", _L), ("inside", _L), ("self", _P), ("make", _P),
                ("fallback", _P), ("memory", _P)]


MOST = 8  # results of a step that C deals with
obstacles: list[str] = []  # why there is none


class Native(NamedTuple):
    """Functions of follow.c."""

    fits: Any
    change: Any
    keep: Any
    promise: Any
    count: Any
    enter: Any
    alive: Any
    overlaps: Any
    place: Any
    window: Any
    within: Any
    library: Any

    def call(self, state: State) -> Any:
        """The function that takes the kernel calls of a follower."""
        return builtin(self.library, "fl_call", ctypes.addressof(state))


@functools.cache
def native() -> Native | None:
    """The native functions; None where this Python or this machine is not one they were tested with."""
    if not toolchain.knows_python() or not usable():
        return None
    try:
        library = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "follow.c").read_text(), "follow")))
        functions = toolchain.interpreter(*_PYTHON)
    except (toolchain.BuildError, OSError, AttributeError) as error:
        obstacles.append(f"what follows calls could not be built: {error}")
        return None
    owners = memory.Block, shared.Lease, shared.Outgoing, memory.Region
    objects = map(id, (finalized, None, (), ndarray, Promise, float, int, bool, tuple, Size, *owners))
    found = [*functions, *objects, pointer(memory.marks), object.__basicsize__]
    words = (_P * len(found))(*found)
    sizes = (_L * 7)(ctypes.sizeof(words), *map(ctypes.sizeof, (_Leaf, _Step, _Result, _Results, State)), MOST)
    if library.fl_follow_attach(words, sizes) != ctypes.sizeof(_P):
        return None
    Promise.__array_finalize__ = builtin(library, "fl_finalize")
    made = Native(*[builtin(library, f"fl_{name}") for name in Native._fields[:-1]], library)
    values._quick_within = made.within
    return made


class Table:
    """A step, for C. Whoever has it keeps the objects that it refers to alive (they are in the step)."""

    def __init__(self, step: Any):
        self.words = _Step(kernel=id(step.kernel), self=id(step))
        self.address = ctypes.addressof(self.words)
        self.stamp = 0
        self.kept: list[Any] = []  # what C may still look at

    def fill(self, step: Any, simple: bool) -> None:
        """After a step is complete, or has changed."""
        self.stamp = 0
        self.extents: list[ndarray] = []
        self.leaves = (_Leaf * max(1, len(step.leaves)))(*[self._leaf(leaf) for leaf in step.leaves])
        self.inputs, self.writes = [(_L * max(1, len(some)))(*some) for some in (step.new, step.written)]
        words = self.words
        words.leaf, words.leaves = ctypes.addressof(self.leaves), len(step.leaves)
        words.input, words.inputs = ctypes.addressof(self.inputs), len(step.new)
        words.write, words.writes = ctypes.addressof(self.writes), len(step.written)
        words.simple, words.count, words.fixed = simple, step.count, None

    def _leaf(self, leaf: tuple[Any, ...]) -> _Leaf:
        kind = leaf[0]
        if kind == ARRAY or kind == EMPTY:
            number, offset, (shape, strides, dtype) = leaf[1], leaf[2] if kind == ARRAY else 0, leaf[-3:]
            self.extents.append(np.array([*shape, *strides, 0], np.int64))
            return _Leaf(kind, number, offset, len(shape), pointer(self.extents[-1]), id(dtype))
        return _Leaf(kind, 0, 0, 0, None, None if kind == NUMBER else id(leaf[1]))

    def fixed(self, stamp: int, entry: Any, results: list[tuple[Any, Any, Any, int, int]], several: bool, kept: bool) -> None:
        """What the step returns, as long as the reserved memory has this stamp and keeps the entry alive. Each result: the
        object, its pair, else the storage that gets memory of its own; number and address of the storage."""
        address = lambda x: x if x is None or x.__class__ is int else id(x)
        each = (_Result * len(results))(*[_Result(*map(address, result)) for result in results])
        block = _Results(stamp, len(results), several, ctypes.addressof(each), None if kept else id(entry[-1]), id(entry))
        self.kept += (each, block)
        self.words.fixed, self.stamp = ctypes.addressof(block), stamp


class Places:
    """Addresses, put there by Python and by C."""

    def __init__(self) -> None:
        self.put = array("q", bytes(8 * 1024))
        self.address, self.size = self.put.buffer_info()

    def grow(self, least: int) -> None:
        self.put.extend(bytes(max(least - self.size, self.size)))
        self.address, self.size = self.put.buffer_info()
