"""The native part of following (native/follow.c): steps as tables that C compares a call with."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import sysconfig
from array import array
from typing import Any

import numpy as np
from numpy import ndarray

from ...backends.cpu import memory
from ...backends.cpu.data import shared
from ...native import pointer, toolchain
from ...native.calls import builtin
from ...tensors.tensor import Size
from .promises import Promise, usable

_P, _L = ctypes.c_void_p, ctypes.c_long
_PYTHON = ("PyLong_AsLong", "PyLong_AsVoidPtr", "PyErr_Occurred", "PyErr_Clear", "PyLong_FromLong", "PyList_Size",
           "PyList_GetItem", "PyTuple_Size", "PyTuple_GetItem")
ARRAY, EMPTY, LITERAL, NUMBER, PLAIN = range(5)  # as in follow.c
MISMATCH, ASK = -1, -2


class _Leaf(ctypes.Structure):
    _fields_ = [("kind", _L), ("number", _L), ("offset", _L), ("dimensions", _L), ("extent", _P), ("object", _P)]


class _Step(ctypes.Structure):
    _fields_ = [("leaves", _L), ("leaf", _P)]


obstacles: list[str] = []  # why there is none


@functools.cache
def native() -> Any:
    """The functions fits, change and keep; None where this Python or this machine is not one they were tested with."""
    known = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")
    if not known or sysconfig.get_config_var("Py_GIL_DISABLED") or not usable():
        return None
    try:
        library = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "follow.c").read_text(), "follow")))
        functions = toolchain.interpreter(*_PYTHON)
    except (toolchain.BuildError, OSError, AttributeError) as error:
        obstacles.append(f"what follows calls could not be built: {error}")
        return None
    owners = memory.Block, shared.Lease, shared.Outgoing, memory.Region
    types = map(id, (ndarray, Promise, float, int, bool, tuple, Size, *owners))
    found = [*functions, *types, pointer(memory.marks), object.__basicsize__]
    words = (_P * len(found))(*found)
    if library.fl_follow_attach(words, ctypes.sizeof(words)) != ctypes.sizeof(_P):
        return None
    return tuple([builtin(library, name) for name in ("fl_fits", "fl_change", "fl_keep")])


class Table:
    """The leaves of a step, for C. Whoever has it keeps the objects that it refers to alive (they are in the step)."""

    def __init__(self, leaves: list[tuple[Any, ...]]):
        self.extents: list[ndarray] = []
        self.leaves = (_Leaf * max(1, len(leaves)))(*[self._leaf(leaf) for leaf in leaves])
        self.step = _Step(len(leaves), ctypes.addressof(self.leaves))
        self.address = ctypes.addressof(self.step)

    def _leaf(self, leaf: tuple[Any, ...]) -> _Leaf:
        kind = leaf[0]
        if kind == ARRAY or kind == EMPTY:
            number, offset, (shape, strides, dtype) = leaf[1], leaf[2] if kind == ARRAY else 0, leaf[-3:]
            self.extents.append(np.array([*shape, *strides, 0], np.int64))
            return _Leaf(kind, number, offset, len(shape), pointer(self.extents[-1]), id(dtype))
        return _Leaf(kind, 0, 0, 0, None, None if kind == NUMBER else id(leaf[1]))


class Places:
    """Addresses: `put` by Python one at a time (an array of Python's takes a third of NumPy's time), read by C and by NumPy."""

    def __init__(self) -> None:
        self.put = array("q", bytes(8 * 1024))
        self._seen()

    def _seen(self) -> None:
        self.address, self.size = self.put.buffer_info()
        self.all = np.frombuffer(self.put, np.int64)

    def grow(self, least: int) -> None:
        before, size = self.put, max(least, 2 * self.size)
        self.put = array("q", bytes(8 * size))
        self.put[:len(before)] = before
        self._seen()
