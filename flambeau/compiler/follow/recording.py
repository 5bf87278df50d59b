"""`Recording`: the part of a segment in which kernels run as they are called, and are written down.

Memory is identified by address, as in capture.py. All results are held until the segment ends, and which of them are alive then
is what a program of these steps has to keep.
"""

from __future__ import annotations

import bisect
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from ...autograd.frames import user_frame
from ...backends.cpu import backend as cpu
from ...backends.cpu import memory
from ...backends.cpu.arrays import Storage as Memory
from ...backends.cpu.arrays import strides as element_strides
from ...native import pointer
from ..capture.kernel_calls import changed_by
from ..ir.parts import CONSTANT, INPUT, TEMPORARY, Number, Op, Storage, Value
from ..run import pages
from .deferred import lasting
from .matching import ARRAY, EMPTY, LITERAL, NUMBER, PLAIN
from .promises import PAIRED, Promise, stripped
from .steps import MADE, NONE, WINDOW, Made, Step, flattened, span, unflattened

_LARGE = 1 << 16  # bytes of a result that are worth a system call once it is dead
_SWEPT = 1 << 22  # bytes of new ones after which the old ones are looked at


def plain_call(name: str, args: tuple[Any, ...], run: Any) -> Any:
    """A kernel call on memory that is there."""
    if run is not None:
        return run()
    made = cpu.call(name, tuple([[stripped(x) for x in a] if a.__class__ is list else
                                 tuple([stripped(x) for x in a]) if a.__class__ is tuple else stripped(a) for a in args]))
    if made.__class__ in (tuple, list):
        return made.__class__([np.asarray(m) if isinstance(m, np.generic) else m for m in made])
    return np.asarray(made) if isinstance(made, np.generic) else made


class Recording:
    """Begins where a call goes another way than any that was seen: what is pending there becomes real first."""

    def __init__(self, follower: Any):
        self.follower = follower
        self.starts: list[int] = []       # of the memory of results, sorted
        self.made: list[Storage] = []
        self.inputs: dict[int, list[tuple[int, int, Storage]]] = {}  # address of an owner -> start, end, storage of windows
        self.groups: dict[int, Any] = {}  # address of an owner -> what its inputs have in common
        self.since = 0                    # bytes of results since dead ones were last looked for
        steps, base = follower.steps, follower.places.put
        self.count = follower.at.count    # storages so far
        if steps:
            try:
                follower.interpret()
            except KeyboardInterrupt:
                follower.interpret()
                raise
        for made in [m for step in steps for m in step.made]:
            self._add(made.storage, base[made.id])
        for storage, array in [pair for step, holds, _, _ in follower.done for pair in zip(step.held(), holds)]:
            if storage.kind is INPUT:
                start, owner = base[storage.id], Memory(array).address
                self.inputs.setdefault(owner, []).append((start, start + storage.nbytes, storage))
                self.groups.setdefault(owner, storage.source)
        follower.abandon()

    # ------------------------------------------------------------------------------------------------------ memory
    def _add(self, storage: Storage, start: int) -> None:
        if storage.nbytes:
            at = bisect.bisect_right(self.starts, start)
            self.starts.insert(at, start)
            self.made.insert(at, storage)

    def find_made(self, address: int) -> tuple[Storage, int] | None:
        at = bisect.bisect_right(self.starts, address) - 1
        if at >= 0 and address < self.starts[at] + self.made[at].nbytes:
            return self.made[at], address - self.starts[at]
        return None

    def find_input(self, owner: int, start: int, nbytes: int) -> tuple[Storage, int] | None:
        for first, last, storage in self.inputs.get(owner, ()):
            if first <= start and start + nbytes <= last:
                return storage, start - first
        return None

    def place(self, start: int) -> None:
        follower = self.follower
        if self.count == follower.places.size:
            follower.places.grow(0)
        follower.places.put[self.count] = start
        self.count += 1

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, version: int, name: str, args: tuple[Any, ...], kernel: str | None, run: Any) -> Any:
        follower = self.follower
        step = Step(follower.at, name)
        flat, step.layout = flattened(args)
        draft = _Draft(self, step)
        step.values = values = [draft.leaf(a, name) for a in flat]
        op_args = unflattened(values, step.layout)
        if kernel is not None:
            op_args = [v for v in op_args if v.__class__ is Value]
        written = changed_by(name, op_args) if name != "~write" else [values[0]]
        indices = [i for i, v in enumerate(values) if any([v is w for w in written])]
        if not draft.lasting or any([memory.is_exposed(flat[i]) for i in indices if type(flat[i]) is ndarray]):
            follower.at.breaks.add(name)  # what others see must be written at once
            return follower.now(name, args, run)
        try:
            made = plain_call(name, args, run)
        except Exception:
            follower.at.breaks.add(name)
            raise
        if follower.known.version != version:  # a finalizer has called kernels meanwhile
            follower.settle()
            return made
        if made is False:  # the kernel does not serve these arrays; the caller knows another way
            written, indices = [], []
        follower.busy = True  # a finalizer finds everything as it was
        try:
            draft.commit()
            outs: list[Value] = []
            roots: list[tuple[Made, Any]] = []
            results = self._results(step, flat, made, outs, roots)
            if outs or written:
                frame = user_frame()
                where = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
                step.op = Op(kernel or name, op_args, outs, written, where)
            step.written = [i for i in indices if values[i].storage.kind is INPUT]
            step.ready()
            follower.at.follow(step)
            if step.written:
                follower.will_change(step, flat)
            follower.done.append((step, draft.holds, (), roots))
            follower.known.version += 1
        finally:
            follower.busy = False
        follower.paths.noted(step)
        return results

    def _results(self, step: Step, flat: list[Any], made: Any, outs: list[Value], roots: list[Any]) -> Any:
        """Notes what a kernel returned; gives it back as promises."""
        if made is None or made is True or made is False:
            step.answer = made
            return made
        step.form = made.__class__ if made.__class__ in (tuple, list) else None
        back = []
        for r in made if step.form is not None else (made,):
            if r is None:
                step.results.append((NONE,))
                back.append(None)
            else:
                back.append(self._result(step, r if isinstance(r, ndarray) else np.asarray(r), flat, outs, roots))
        return back[0] if step.form is None else step.form(back)

    def _result(self, step: Step, r: ndarray, flat: list[Any], outs: list[Value], roots: list[Any]) -> Any:
        geometry = r.shape, r.strides, r.dtype
        at = pointer(r) or 0
        mine = None
        if r.size:
            found = self.find_made(at)
            mine = next((k for k, m in enumerate(step.made) if found is not None and m.storage is found[0]), None)
            if mine is None:
                i = next((i for i, a in enumerate(flat) if isinstance(a, ndarray) and a.size and _within(at, a)), None)
                if i is not None:  # a kernel that had nothing to do
                    step.results.append((WINDOW, i, at - (pointer(flat[i]) or 0), *geometry))
                    return r.view(Promise) if type(flat[i]) is Promise else r
        if mine is None:
            mine = self._new(step, r)
        made = step.made[mine]
        offset = at - self.follower.places.put[made.id] if r.size else 0
        step.results.append((MADE, mine, offset, *geometry))
        outs.append(Value(made.storage, offset, r.shape, element_strides(r), r.dtype))
        array = self._promised(r)
        roots.append((made, array))
        self.follower.made[id(array)] = made
        return array

    def _promised(self, r: ndarray) -> Any:
        """A kernel's result as a promise: the array itself and what it is a window onto. A window onto a promise that lies over
        a plain array would refer to that one, past the promise, whose references say whether it is alive."""
        if type(r) is not ndarray:
            return r.view(Promise)
        a: Any = r
        while type(a) is ndarray:
            self.follower.native.window(self.follower.address, a)
            a = a.base
        return r

    def _new(self, step: Step, r: ndarray) -> int:
        """A storage that this step makes."""
        owner = Memory(r)
        start, nbytes = (owner.address, owner.nbytes) if r.size else (pointer(r) or 0, 0)
        if r.size and not start <= (pointer(r) or 0) < start + nbytes:
            start, nbytes = pointer(r) or 0, span(r)
        storage = Storage(step.count, TEMPORARY, start, nbytes, None)
        step.count += 1
        single = (r.shape, r.dtype) if r.nbytes == nbytes and _plain_strides(r) else None
        step.made.append(Made(storage, step.place(nbytes), single))
        self.place(start)
        self._add(storage, start)
        if nbytes >= _LARGE:
            self.since += nbytes
            if self.since > _SWEPT:
                self._sweep()
        return len(step.made) - 1

    def _sweep(self) -> None:
        """Dead results keep their addresses, which tell storages apart, but not their pages."""
        self.since = 0
        for *_, some in self.follower.done:
            for made, array in some:
                if made.nbytes >= _LARGE and getrefcount(array) == PAIRED and array.nbytes == made.nbytes:
                    pages.give_back(pointer(array) or 0, made.nbytes)

    # ---------------------------------------------------------------------------------------------------- the end
    def end(self) -> None:
        """What is alive now is so at this place of later calls, too."""
        follower = self.follower
        for *_, roots in follower.done:
            for made, array in roots:
                if not made.survives and getrefcount(array) > PAIRED:
                    made.survives = True
                    follower.paths.epoch += 1
                    if follower.region is not None:
                        follower.region.changed()
        follower.at.seen += 1
        self._tie(follower.steps)

    def _tie(self, steps: list[Step]) -> None:
        """Windows onto one owner that is written keep their distances."""
        written = {w.storage.source for step in steps if step.op is not None for w in step.op.writes if w.storage.kind is INPUT}
        first: dict[Any, Storage] = {}
        base = self.follower.places.put
        for step in steps:
            for s in step.inputs:
                if s.source in written:
                    before = first.setdefault(s.source, s)
                    tie = s.id, before.id, base[s.id] - base[before.id]
                    if before is not s and tie not in step.ties:
                        step.ties.append(tie)
                        step.ready()


class _Draft:
    """The leaves of a step that is being written down. Its inputs count only once the kernel has not failed."""

    def __init__(self, recording: Recording, step: Step):
        self.recording, self.step = recording, step
        self.base: list[int] = []
        self.holds: list[Any] = []
        self.entries: list[tuple[int, Any]] = []
        self.lasting = True

    def leaf(self, a: Any, name: str) -> Any:
        """Notes one leaf; returns what it is to a program."""
        step = self.step
        if isinstance(a, ndarray):
            return self._array(a)
        if name.startswith("fused_") and name != "fused_norm" and a.__class__ is float:  # (an int may be a truth value)
            step.leaves.append((NUMBER,))
            return Number(("input", sum([leaf[0] == NUMBER for leaf in step.leaves]) - 1))
        step.leaves.append((PLAIN, a))
        self.lasting &= lasting(a)
        return a

    def _storage(self, kind: str, start: int, nbytes: int, hold: Any) -> Storage:
        made = Storage(self.step.count, kind, start, nbytes, None)
        self.step.count += 1
        self.base.append(start)
        if hold is not None:
            self.holds.append(hold)
        return made

    def _array(self, a: ndarray) -> Value:
        step, recording = self.step, self.recording
        geometry = a.shape, a.strides, a.dtype
        at = pointer(a) or 0
        if not a.size:
            storage = self._storage(CONSTANT, 0, 0, None)
            step.leaves.append((EMPTY, storage.id, *geometry))
            return Value(storage, 0, a.shape, element_strides(a), a.dtype)
        if type(a) is ndarray and recording.follower.paths.is_literal(a):
            storage = self._storage(CONSTANT, at, a.nbytes, a)
            step.leaves.append((LITERAL, a, storage))
            return Value(storage, 0, (), (), a.dtype)
        found = recording.find_made(at) or self._input(a, at)
        storage, offset = found
        step.leaves.append((ARRAY, storage.id, offset, *geometry))
        return Value(storage, offset, a.shape, element_strides(a), a.dtype)

    def _input(self, a: ndarray, at: int) -> tuple[Storage, int]:
        nbytes = span(a)
        if type(a) is ndarray and memory.is_exposed(a):  # each use of it may see other values
            storage = self._storage(INPUT, at, nbytes, a)
            storage.source = object()
        else:
            owner = Memory(a).address
            found = self.recording.find_input(owner, at, nbytes) or next(
                ((s, at - first) for o, (first, last, s) in self.entries if o == owner and first <= at and at + nbytes <= last),
                None)
            if found is not None:
                return found
            storage = self._storage(INPUT, at, nbytes, a)
            storage.source = self.recording.groups.setdefault(owner, object())
            self.entries.append((owner, (at, at + nbytes, storage)))
        self.step.inputs.append(storage)
        return storage, 0

    def commit(self) -> None:
        recording = self.recording
        for start in self.base:
            recording.place(start)
        for owner, entry in self.entries:
            recording.inputs.setdefault(owner, []).append(entry)


def _within(at: int, a: Any) -> bool:
    """Whether an address is in an array's memory, or in its owner's."""
    start, owner = pointer(a) or 0, Memory(a)
    return start <= at < start + span(a) or owner.address <= at < owner.address + owner.nbytes


def _plain_strides(r: ndarray) -> bool:
    """Whether a new array of its shape has its strides, also where a length is one."""
    step = r.itemsize
    for n, s in zip(reversed(r.shape), reversed(r.strides)):
        if s != step:
            return False
        step *= n
    return bool(r.size)
