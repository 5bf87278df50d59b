"""A built program: its native function, its memory, and the table of addresses that a call fills in."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ... import native
from ...backends.cpu import backend as cpu
from ...backends.cpu import memory
from ...backends.cpu.arrays import cast_into
from ...backends.cpu.pointwise import loops as pointwise
from ...native import pointer, toolchain
from ..capture.symbolic import evaluate
from ..ir.parts import SCALAR, Number, Op, Storage, Value
from ..passes.control import run_inner
from ..render.dialects.c_program import signatures
from ..render.draft import Draft, prepared
from ..render.template import Family, enter

_BYTES = np.dtype(np.uint8)
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)


_ERRORS = {1: (IndexError, "index out of range in self"),  # what a program returns
           3: (RuntimeError, "index is out of bounds for the dimension it is used on"),
           4: (IndexError, "Target is out of bounds."),
           5: (RuntimeError, "all elements of input should be between 0 and 1")}


class Program:
    """Runs a list of operations natively.

    given: storages whose memory the caller brings besides inputs. kept: storages whose memory the caller brings and looks at
    afterwards. family: programs with which this one may share a library. The caller fills `table` (by `place`) and the first
    of the `numbers`, and calls `run`.
    """

    clocked: Any = None  # the function that takes its times, and where they are, once somebody has asked

    def __init__(self, ops: list[Op], kept: list[Storage], given: list[Storage], numbers: int, exact: bool = False,
                 family: Family | None = None):
        start = time.perf_counter()
        self.lock = threading.Lock()
        self.captured = len(ops)
        ops = prepared(ops, {s.id for s in (*kept, *given)}, exact)
        make = lambda general, timed=False: Draft(ops, kept, given, exact, timed, general)
        draft, lifted = (family or Family(False)).drafted(make)
        self._timed = lambda: make(draft.renderer.general, True).text(lifted, numbers)[0]
        self.ops, self.groups, self.calls = draft.ops, draft.groups, draft.renderer.calls
        self.call_slots = draft.renderer.call_slots
        self.place, self.inputs, self.constants, self.written = draft.place, draft.inputs, draft.constants, draft.written
        self.arena_offsets, self.arena_bytes, self.unshared_bytes = (
            draft.arena_offsets, draft.arena_bytes, draft.unshared_bytes)
        (self.source, functions), own = draft.text(lifted, numbers)
        if "c" in os.environ.get("FLAMBEAU_DEBUG", "").split(","):
            print(self.source, file=sys.stderr)
        self._memory(draft, numbers, own)
        self.seconds_planning = time.perf_counter() - start
        start = time.perf_counter()
        self._load(functions, exact)
        self.seconds_building = time.perf_counter() - start

    # ------------------------------------------------------------------------------------------------- layout
    def _memory(self, draft: Draft, numbers: int, own: list[tuple[str, str]]) -> None:
        self.arena = _aligned(self.arena_bytes)
        self.scratch = _aligned(draft.renderer.scratch)
        self.table = (ctypes.c_void_p * (3 + len(self.place)))()
        self.table[0], self.table[1] = pointer(self.arena), pointer(self.scratch)
        for s in self.constants:
            self.table[self.place[s.id]] = s.start
        self.images = draft.images
        for i, image in enumerate(self.images):
            self.table[self.place["image", i]] = ctypes.addressof(image)
        self.numbers = (ctypes.c_double * max(1, numbers + len(own)))()
        self.arrays = enter(own, self.numbers, numbers)

    def _load(self, functions: list[str], exact: bool) -> None:
        self.exact = exact
        self.function = self.entry = _loaded(self.source, functions, exact).program
        self.error: BaseException | None = None
        me = weakref.ref(self)  # no cycle: the arena goes away with the last reference, not with the next collection
        self.callback = _CALLBACK(lambda number: me()._call(number))  # kept: the native code refers to it
        self.table[2] = ctypes.cast(self.callback, ctypes.c_void_p).value
        self._arguments = ctypes.addressof(self.table), ctypes.addressof(self.numbers)

    # ------------------------------------------------------------------------------------------------- measuring
    def tell(self, listener: Callable[[Program, int, list[float]], None] | None) -> None:
        """From now on each run tells (program, when it began in ns, the seconds of each of its groups); with None no longer.

        The same text is built a second time for it, with a look at the clock after each group.
        """
        if listener is None:
            self.entry = self.function
            return
        if self.clocked is None:
            source, functions = self._timed()
            handle = _loaded(source, functions, self.exact)
            self.clocked = handle.program, (ctypes.c_double * len(self.groups)).in_dll(handle, "seconds")
        function, seconds = self.clocked

        def entry(*arguments: int) -> int:
            before, start = list(seconds), time.perf_counter_ns()
            status = function(*arguments)
            listener(self, start, [now - then for now, then in zip(seconds, before)])
            return status

        self.entry = entry

    # ------------------------------------------------------------------------------------------------- running
    def run(self) -> None:
        """One run; the caller has filled the table and the numbers, and holds `lock`."""
        status = self.entry(*self._arguments)
        if status:
            self.failed(status)

    def failed(self, status: int) -> NoReturn:
        """Raises what a status other than 0 means."""
        error, self.error = self.error, None
        if error is None:
            kind, message = _ERRORS.get(status, (RuntimeError, f"the compiled program failed with status {status}"))
            error = kind(message)
        raise error

    # --------------------------------------------------------------------------------------------- what plans ask for
    ARRAY = np.ndarray   # the type of the arrays that it works on
    undoes = True        # whether everything is as it was before after a run that failed

    def expect(self, fresh: set[int]) -> None:
        """Says which storages will lie elsewhere at each run."""

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Memory for a result."""
        return memory.empty(shape, dtype)

    @staticmethod
    def raw(nbytes: int) -> np.ndarray:
        """Memory for a gradient, whose array lies right over it."""
        return memory.empty((nbytes,), _BYTES)

    zeros = staticmethod(np.zeros)
    contiguous = staticmethod(np.ascontiguousarray)

    @staticmethod
    def window(raw: np.ndarray, v: Value) -> np.ndarray:
        """A window onto the given memory of its storage."""
        return array_in(raw, v)

    def held(self, v: Value) -> np.ndarray:
        """A copy of what is in memory that the caller brought, or in a temporary."""
        return array_at(self.address(v.storage) + v.offset, v).copy()

    @staticmethod
    def constant(v: Value) -> np.ndarray:
        """A copy of a constant."""
        return array_at(v.storage.start + v.offset, v).copy()

    def address(self, storage: Storage) -> int:
        number = self.place.get(storage.id)
        if number is not None:
            return self.table[number]
        return self.table[0] + self.arena_offsets[storage.id]

    def _call(self, number: int) -> int:
        """A kernel that has no native form, called from the native function."""
        try:
            op, slots = self.calls[number], self.call_slots[number]
            run_kernel(op, lambda v: self._array(v, slots), self.numbers)
            return 0
        except BaseException as error:
            self.error = error
            return 1

    def _array(self, v: Value, slots: dict[int, tuple[int, int]]) -> np.ndarray:
        if not v.size:  # has no place in memory
            return np.empty(v.shape, v.dtype)
        number, offset = slots[v.storage.id]
        return array_at(self.table[number] + offset + v.offset, v)


def _loaded(source: str, functions: list[str], exact: bool) -> Any:
    """The library of a text, which calls these native functions."""
    extra = (*pointwise.FLAGS, "-fwrapv", *(("-ffp-contract=off",) if exact else ()))
    wanted = [(signatures()[f][0], f) for f in functions]
    handle = toolchain.load(native.prepare(wanted, (source, "step", extra))[0], private=True)
    handle.program.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    handle.program.restype = ctypes.c_long
    return handle


def argument(a: Any, array: Any, numbers: Any) -> Any:
    """What an argument of an operation is in this run."""
    if a.__class__ is Value:
        if a.storage.kind is SCALAR:
            return np.asarray(evaluate(a.storage.expression, numbers, array), a.dtype)
        return array(a)
    if a.__class__ is Number:
        return evaluate(a.expression, numbers, array)
    if a.__class__ in (list, tuple):
        return a.__class__([argument(x, array, numbers) for x in a])
    return a


def run_kernel(op: Op, array: Any, numbers: Any) -> None:
    """The NumPy kernel of an operation, on the memory of its windows."""
    if op.inner is not None:
        run_inner(op, lambda o: run_kernel(o, array, numbers), array)
        return
    args = [argument(a, array, numbers) for a in op.args]
    if op.kernel in ("cast", "reshape_copy"):
        made: Any = args[0].reshape(op.outs[0].shape)
    elif op.kernel == "copy_into":
        cast_into(args[0], args[1])
        return
    else:
        made = cpu.call(op.kernel, tuple(args))
    results = [m for m in (made if made.__class__ in (tuple, list) else (made,)) if m is not None]
    if len(op.outs) != len(results):  # some were views of arguments: those are in place already
        results = [r for r in results if not any(np.may_share_memory(r, a) for a in args if isinstance(a, np.ndarray))]
    for out, result in zip(op.outs, results):
        np.copyto(array(out), result, casting="unsafe")


def array_at(address: int, v: Value) -> np.ndarray:
    """A NumPy array over memory at an address."""
    if not v.size:
        return np.empty(v.shape, v.dtype)
    span = (sum((n - 1) * s for n, s in zip(v.shape, v.strides)) + 1) * v.dtype.itemsize
    raw = (ctypes.c_char * span).from_address(address)
    return np.ndarray(v.shape, v.dtype, raw, 0, [s * v.dtype.itemsize for s in v.strides])


def array_in(memory: np.ndarray, v: Value) -> np.ndarray:
    """A window onto the given bytes of its storage."""
    return np.ndarray(v.shape, v.dtype, memory, v.offset, [s * v.dtype.itemsize for s in v.strides])


def _aligned(nbytes: int) -> np.ndarray:
    raw = np.empty(max(nbytes, 1) + 64, np.uint8)
    skip = -(pointer(raw) or 0) % 64
    return raw[skip:skip + max(nbytes, 1)]
