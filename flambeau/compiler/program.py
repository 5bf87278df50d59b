"""A built program: its native function, its memory, and the table of addresses that a call fills in."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from typing import Any, NoReturn

import numpy as np

from .. import native
from ..backends.cpu import backend as cpu
from ..backends.cpu.arrays import cast_into
from ..native import pointer, pointwise, toolchain
from .arena import arena, lifetimes
from .epilogues import Product, with_epilogues
from .expand import expanded
from .fusion import Single, grouped
from .ir import CONSTANT, INPUT, SCALAR, TEMPORARY, Number, Op, Storage, Value, new_numbers
from .lower import lowered
from .passes import reads_of, simplified
from .recompute import recomputed
from .render import Renderer, signatures
from .symbolic import evaluate

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)


_ERRORS = {1: (IndexError, "index out of range in self"),  # what a program returns
           3: (RuntimeError, "index is out of bounds for the dimension it is used on"),
           4: (IndexError, "Target is out of bounds."),
           5: (RuntimeError, "all elements of input should be between 0 and 1")}


class Program:
    """Runs a list of operations natively.

    given: storages whose memory the caller brings besides inputs. kept: storages whose memory the caller brings and looks at
    afterwards. The caller fills `table` (by `place`) and calls `run`.
    """

    def __init__(self, ops: list[Op], kept: list[Storage], given: list[Storage], numbers: int, exact: bool = False,
                 timed: bool = False):
        start = time.perf_counter()
        self.lock = threading.Lock()
        self.captured = len(ops)
        kept_ids = {s.id for s in (*kept, *given)}
        new_numbers.restart()
        self.ops = simplified(ops if exact else expanded(ops), kept_ids)
        if not exact:
            self.ops = recomputed(self.ops, kept_ids)
        self.groups = grouped(self.ops, _never if exact else lowered, exact)
        if not exact:
            self.groups = with_epilogues(self.groups, kept_ids)
        self.lives = lifetimes(self.groups)
        self._slots(kept, given)
        registers = self._registers(kept_ids)
        shared = {g.op.outs[0].storage.id: g.inside.id for g in self.groups if g.__class__ is Product}
        self.arena_offsets, self.arena_bytes, self.unshared_bytes = arena(self.groups, kept_ids, registers | shared.keys())
        slots = {i: (n, 0) for i, n in self.place.items()} | {i: (0, at) for i, at in self.arena_offsets.items()}
        slots |= {i: slots[inside] for i, inside in shared.items()}
        stored = set(self.lives) - registers
        renderer = Renderer(self.groups, slots, stored, self._inits(kept, given, slots), timed)
        self.source = renderer.source()
        self.calls = renderer.calls
        if "c" in os.environ.get("FLAMBEAU_DEBUG", "").split(","):
            print(self.source, file=sys.stderr)
        self._memory(renderer.scratch, numbers)
        self.seconds_planning = time.perf_counter() - start
        start = time.perf_counter()
        self._load(renderer, exact)
        self.seconds_building = time.perf_counter() - start

    # ------------------------------------------------------------------------------------------------- layout
    def _slots(self, kept: list[Storage], given: list[Storage]) -> None:
        """Numbers in the table of addresses: 0 the arena, 1 scratch memory, 2 the way back into Python, then all that lives
        elsewhere."""
        self.place: dict[int, int] = {}
        self.inputs: list[Storage] = []
        self.constants: list[Storage] = []
        for op in self.ops:
            for v in (*reads_of(op), *op.writes):
                s = v.storage
                if s.id not in self.place and s.kind in (INPUT, CONSTANT):
                    self.place[s.id] = 3 + len(self.place)
                    (self.inputs if s.kind is INPUT else self.constants).append(s)
        for s in (*kept, *given):
            if s.id not in self.place and s.kind is TEMPORARY:
                self.place[s.id] = 3 + len(self.place)
        self.written = {w.storage.id for op in self.ops for w in op.writes if w.storage.kind is INPUT}

    def _registers(self, kept: set[int]) -> set[int]:
        """Temporaries that live and die inside one loop: they never reach memory."""
        products = {g.op.outs[0].storage.id for g in self.groups if g.__class__ is Product}
        where: dict[int, set[int]] = {}
        for at, group in enumerate(self.groups):
            for i in group.touched:
                where.setdefault(i, set()).add(at)
        return {i for i, (s, _, _) in self.lives.items() if i not in kept and s.init is None and len(where[i]) == 1
                and i not in products and self.groups[next(iter(where[i]))].__class__ is not Single}

    def _inits(self, kept: list[Storage], given: list[Storage], slots: dict[int, Any]) -> dict[int, list[str]]:
        """Statements that fill a temporary with what it held before its first write, where that is not overwritten.

        By the group before which they stand; -1: what no operation touches, but the caller looks at. What the caller brings has
        been filled already: another program wrote it.
        """
        made: dict[int, list[str]] = {}
        brought = {s.id for s in given}
        self.images: list[np.ndarray] = []
        untouched = [(s, -1, -1) for s in {s.id: s for s in kept}.values() if s.id not in self.lives]
        for storage, first, _ in (*self.lives.values(), *untouched):
            if storage.init is None or storage.id in brought or storage.id not in slots or (
                    first >= 0 and _overwritten(storage, self.groups[first])):
                continue
            if any(storage.init):
                self.images.append(np.frombuffer(storage.init, np.uint8).copy())
                number = 3 + len(self.place)
                self.place["image", len(self.images) - 1] = number
                made.setdefault(first, []).append(f"memcpy({storage.slot}, p[{number}], {storage.nbytes});")
            else:
                made.setdefault(first, []).append(f"memset({storage.slot}, 0, {storage.nbytes});")
        return made

    def _memory(self, scratch: int, numbers: int) -> None:
        self.arena = _aligned(self.arena_bytes)
        self.scratch = _aligned(scratch)
        self.table = (ctypes.c_void_p * (3 + len(self.place)))()
        self.table[0], self.table[1] = pointer(self.arena), pointer(self.scratch)
        for s in self.constants:
            self.table[self.place[s.id]] = s.start
        for i, image in enumerate(self.images):
            self.table[self.place["image", i]] = pointer(image)
        self.numbers = (ctypes.c_double * max(1, numbers))()

    def _load(self, renderer: Renderer, exact: bool) -> None:
        extra = (*pointwise.FLAGS, "-fwrapv", *(("-ffp-contract=off",) if exact else ()))
        functions = [(signatures()[f][0], f) for f in sorted(renderer.functions)]
        handle = toolchain.load(native.prepare(functions, (self.source, "step", extra))[0], private=True)
        self.function = handle.program
        self.function.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.function.restype = ctypes.c_long
        self.error: BaseException | None = None
        me = weakref.ref(self)  # no cycle: the arena goes away with the last reference, not with the next collection
        self.callback = _CALLBACK(lambda number: me()._call(number))  # kept: the native code refers to it
        self.table[2] = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.times = (ctypes.c_double * len(self.groups)).in_dll(handle, "seconds") if renderer.timed else None
        self._arguments = ctypes.addressof(self.table), ctypes.addressof(self.numbers)

    # ------------------------------------------------------------------------------------------------- running
    def run(self) -> None:
        """One run; the caller has filled the table and the numbers, and holds `lock`."""
        status = self.function(*self._arguments)
        if status:
            self.failed(status)

    def failed(self, status: int) -> NoReturn:
        """Raises what a status other than 0 means."""
        error, self.error = self.error, None
        if error is None:
            kind, message = _ERRORS.get(status, (RuntimeError, f"the compiled program failed with status {status}"))
            error = kind(message)
        raise error

    def address(self, storage: Storage) -> int:
        number = self.place.get(storage.id)
        if number is not None:
            return self.table[number]
        return self.table[0] + self.arena_offsets[storage.id]

    def _call(self, number: int) -> int:
        """A kernel that has no native form, called from the native function."""
        try:
            op = self.calls[number]
            run_kernel(op, self._array, self.numbers)
            return 0
        except BaseException as error:
            self.error = error
            return 1

    def _array(self, v: Value) -> np.ndarray:
        if not v.size:  # has no place in memory
            return np.empty(v.shape, v.dtype)
        return array_at(self.address(v.storage) + v.offset, v)


def _argument(a: Any, array: Any, numbers: Any) -> Any:
    """What an argument of an operation is in this run."""
    if a.__class__ is Value:
        if a.storage.kind is SCALAR:
            return np.asarray(evaluate(a.storage.expression, numbers, array), a.dtype)
        return array(a)
    if a.__class__ is Number:
        return evaluate(a.expression, numbers, array)
    if a.__class__ in (list, tuple):
        return a.__class__([_argument(x, array, numbers) for x in a])
    return a


def run_kernel(op: Op, array: Any, numbers: Any) -> None:
    """The NumPy kernel of an operation, on the memory of its windows."""
    args = [_argument(a, array, numbers) for a in op.args]
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


def _overwritten(storage: Storage, group: Any) -> bool:
    """Whether the first operation that touches a storage writes all of it without reading it."""
    for op in group.ops:
        if any(v.storage is storage for v in reads_of(op) if not any(v is w for w in op.writes)):
            return False
        for w in op.writes:
            if w.storage is storage:
                return w.whole and (op.kernel == "copy_into" or w in op.outs)
    return False


def _aligned(nbytes: int) -> np.ndarray:
    raw = np.empty(max(nbytes, 1) + 64, np.uint8)
    skip = -(pointer(raw) or 0) % 64
    return raw[skip:skip + max(nbytes, 1)]


def _never(op: Op) -> None:
    return None
