"""`Follower`: takes the kernel calls of one compiled call, in whose place the Python really runs.

Each kernel call is compared with those that were seen to come next (steps.py). As long as they agree, nothing is computed: the
results are promises (promises.py). When the Python looks at a value, or the call ends, a native program does all the work since
the last look (segments.py). A call that was not seen before makes what is pending real, kernel by kernel; from there on kernels
run as they are called, and are written down, until the next look.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from ..autograd.node import user_frame
from ..backends.cpu import backend as cpu
from ..backends.cpu import memory
from ..backends.cpu.arrays import Storage as Memory
from ..backends.cpu.arrays import restride
from ..backends.cpu.arrays import strides as element_strides
from ..backends.cpu.table import KERNELS
from ..native import pointer
from . import pages
from .capture import Uncapturable, _copy_in_place, changed_by
from .deferred import LATER, VIEW, kind_of, needs, passes, promised, refused, same, special
from .ir import CONSTANT, INPUT, TEMPORARY, Number, Op, Storage, Value
from .promises import Promise, Reserved, keep, promise, stripped
from .segments import interpreted
from .steps import ARRAY, EMPTY, LITERAL, MADE, NONE, NUMBER, PLAIN, WINDOW, Made, Step, flattened, span, unflattened

_LARGE = 1 << 16  # bytes of a result that are worth a system call once it is dead
_SWEPT = 1 << 22  # bytes of new ones after which the old ones are looked at


def _references() -> int:
    """What getrefcount says, in a loop over pairs, of an array that only its pair refers to."""
    pairs = [(None, np.empty(1))]
    for _, array in pairs:
        return getrefcount(array)
    return 0


_PAIRED = _references()


class Known:
    """Memory that the steps of a segment refer to, by address. Only kept while kernels run as they are called."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.made: list[Storage] = []
        self.inputs: dict[int, list[tuple[int, int, Storage]]] = {}  # address of an owner -> start, end and storage of windows

    def add_made(self, storage: Storage, start: int) -> None:
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


class Follower:
    """Follows one call. `settle`, `look` and `call` are what the rest of flambeau asks of it."""

    def __init__(self, paths: Any):
        self.paths = paths
        self.lock = threading.RLock()  # another thread may need what is pending
        self.busy = False              # a program or a list of kernels is running
        self.recorded = self.runs = 0
        self.region: Reserved | None = None
        self._begin()

    def _begin(self) -> None:
        """A new segment."""
        self.at: Step = self.paths.root
        self.steps: list[Step] = []
        self.base: list[int] = []                  # where each storage is
        self.holds: list[Any] = []                 # inputs: their memory must not go away
        self.roots: list[tuple[Made, Any]] = []    # results that were handed out
        self.numbers: list[float] = []
        self.changed: list[Any] = []               # arrays from before that will be written, promises until then
        self.writes: list[tuple[int, int]] = []    # where they lie
        self.views: list[Any] = []                 # weak references to all promises
        self.known: Known | None = None            # kernels run as they are called
        self.since = 0                             # bytes of results since dead ones were last looked for
        self.starts: list[int] = []                # of memory that was handed out, sorted
        self.ends: list[int] = []

    # ------------------------------------------------------------------------------------------------------- looks
    def look(self, array: Any, what: str) -> None:
        """Somebody reads the elements of an array (None: or writes to who knows what)."""
        if self.busy or not self._pending(array):
            return
        if self.paths.fullgraph:
            frame = user_frame()
            where = "" if frame is None else f" ({frame.f_code.co_filename}, line {frame.f_lineno})"
            raise Uncapturable(f"compile(fullgraph=True): {what}{where}")
        self.paths.looked(what)
        self.settle()

    def _pending(self, array: Any) -> bool:
        if not self.steps:
            return False
        if array is None or type(array) is Promise:
            return True
        if not self.writes or not isinstance(array, ndarray) or not array.size:
            return False
        start = pointer(array) or 0
        end = start + span(array)
        return any([first < end and start < last for first, last in self.writes])

    def alone(self, array: Any, others: int) -> bool:
        """Whether an array is all of a result to which only so many others refer."""
        for made, found in reversed(self.roots):
            if found is array:
                del found
                cached = self.known is None and not made.survives
                return made.whole is not None and getrefcount(array) <= _PAIRED + cached + others
        return False

    def settle(self) -> None:
        """Everything that was promised is made true; a segment ends."""
        if self.busy:
            return
        with self.lock:
            if not self.steps:
                self._plain_again()
                return
            self.busy = True
            try:
                if self.known is not None:
                    self._end_recording()
                else:
                    self._run()
            finally:
                self._plain_again()
                self._begin()
                self.busy = False

    def _plain_again(self) -> None:
        for reference in self.views:
            array = reference()
            if array is not None:
                keep(array)
        for array in self.changed:
            keep(array)
        self.views, self.changed = [], []

    def _run(self) -> None:
        """The pending steps: as a program, if exactly those results are alive that it keeps."""
        escaped, cached = False, _PAIRED + 1  # the region keeps one more
        for made, array in self.roots:
            if not made.survives and getrefcount(array) > cached:
                made.survives = escaped = True
        if escaped:
            self.paths.epoch += 1
        end = None if escaped else self.paths.end_of(self)
        if end is None or not end.apart(self.base):
            self._interpret()
            if escaped:
                self._abandon()
            elif self.region is not None:
                self.region.forget(self.at.reserved)
        else:
            end.run(self.base, self.numbers)
            self.runs += 1

    def _interpret(self) -> None:
        if self.region is not None:
            self.region.guard(False)
        interpreted(self.steps, self.base, self.numbers)
        self.paths.interpreted += 1

    def _abandon(self) -> None:
        """Arrays in the reserved memory are real now: it belongs to them."""
        if self.region is not None:
            self.views += map(weakref.ref, self.region.arrays.values())
            self.paths.reserved = self.region = None

    def _end_recording(self) -> None:
        """What is alive now is so at this place of later calls, too."""
        for made, array in self.roots:
            if not made.survives and getrefcount(array) > _PAIRED:
                made.survives = True
                self.paths.epoch += 1
        self.at.seen += 1
        self._tie()

    def _tie(self) -> None:
        """Windows onto one owner that is written keep their distances."""
        written = {w.storage.source for step in self.steps if step.op is not None for w in step.op.writes
                   if w.storage.kind is INPUT}
        first: dict[Any, Storage] = {}
        for step in self.steps:
            for s in step.inputs:
                if s.source in written:
                    before = first.setdefault(s.source, s)
                    tie = s.id, before.id, s.start - before.start
                    if before is not s and tie not in step.ties:
                        step.ties.append(tie)

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, name: str, args: tuple[Any, ...], kernel: str | None = None, run: Any = None) -> Any:
        """A kernel call. kernel: what it is to a program, if not a kernel of this name; run: does it."""
        if self.busy:
            return _plain_call(name, args, run)
        with self.lock:
            kind = kind_of(name)
            if kind is VIEW:
                return self._view(name, args)
            if kind is not LATER or (special(name) and self._must_be_now(name, args)):
                return self._now(name, args, run)
            flat, layout = flattened(args)
            if self.known is None:
                for step in self.at.next:
                    if step.kernel == name and step.layout == layout and self._fits(step, flat):
                        return self._taken(step, flat)
                self._record_from_here()
            return self._record(name, args, flat, layout, kernel, run)

    def write(self, target: ndarray, value: Any) -> None:
        """target[...] = value"""
        if not isinstance(value, ndarray):
            value = self.literal(value, target.dtype)
        self.call("copy_into", (target, value), "copy_into", lambda: cpu.write(stripped(target), stripped(value)))

    def literal(self, value: Any, dtype: np.dtype) -> ndarray:
        """A Python number as a zero-dim array: the same array for the same number, so that it is part of the program."""
        return self.paths.literal(value, dtype)

    def _view(self, name: str, args: tuple[Any, ...]) -> Any:
        made = KERNELS[name](*[stripped(a) for a in args])
        if type(args[0]) is not Promise:
            return made
        if made.__class__ in (tuple, list):
            return made.__class__([m.view(Promise) for m in made])
        return made.view(Promise)

    def _must_be_now(self, name: str, args: tuple[Any, ...]) -> bool:
        if refused(name, args):
            return True
        values = needs(name, args)
        if values is None:
            return False
        if promised(values):
            self.settle()
        for array in values:
            if self._pending(array):
                self.settle()
        return not passes(name, args)

    def _now(self, name: str, args: tuple[Any, ...], run: Any) -> Any:
        """A kernel that cannot wait."""
        self.settle()
        return _plain_call(name, args, run)

    # --------------------------------------------------------------------------------------------------- following
    def _fits(self, step: Step, flat: list[Any]) -> bool:
        """Whether a call is the one that was seen; if so, where its inputs are is noted."""
        base = self.base
        count = len(base)
        fresh: list[int] = []
        holds: list[Any] = []
        numbers: list[float] = []
        for leaf, a in zip(step.leaves, flat):
            kind = leaf[0]
            if kind == ARRAY:
                _, number, offset, shape, strides, dtype = leaf
                if not isinstance(a, ndarray) or a.shape != shape or a.strides != strides or (
                        a.dtype is not dtype and a.dtype != dtype):
                    return False
                if number < count:
                    if pointer(a) != base[number] + offset:
                        return False
                elif number - count < len(fresh):
                    if pointer(a) != fresh[number - count] + offset:
                        return False
                elif type(a) is not ndarray:
                    return False
                else:
                    a = self._brought(a)
                    if a is None:
                        return False
                    fresh.append((pointer(a) or 0) - offset)
                    holds.append(a)
            elif kind == PLAIN:
                if a is not leaf[1] and not same(a, leaf[1]):
                    return False
            elif kind == LITERAL:
                if a is not leaf[1] and not self._varies(step, leaf, a):
                    return False
                fresh.append(pointer(a) or 0)
                holds.append(a)
            elif kind == NUMBER:
                if a.__class__ is not float and a.__class__ is not int:
                    return False
                numbers.append(float(a))
            else:
                if not isinstance(a, ndarray) or a.shape != leaf[2] or a.strides != leaf[3] or a.dtype != leaf[4]:
                    return False
                fresh.append(0)
        if step.ties:
            both = [*base, *fresh]
            if any([both[i] - both[j] != distance for i, j, distance in step.ties]):
                return False
        for i in step.written:  # what others see must be written at once
            if type(flat[i]) is ndarray and memory.is_exposed(flat[i]):
                return False
        base += fresh
        self.holds += holds
        self.numbers += numbers
        return True

    def _brought(self, a: ndarray) -> ndarray | None:
        """An input that is used for the first time: a copy if others may change it. None if its elements are to come."""
        at = pointer(a) or 0
        region = self.region
        if region is not None and region.start <= at < region.start + region.nbytes:
            return None
        i = bisect.bisect_right(self.starts, at) - 1
        if i >= 0 and at < self.ends[i]:
            return None
        return _copy_in_place(a) if memory.is_exposed(a) else a

    def _varies(self, step: Step, leaf: tuple[Any, ...], a: Any) -> bool:
        """Another number than before in the same place: from now on the program reads it at each run."""
        if type(a) is not ndarray or a.shape or a.dtype != leaf[1].dtype:
            return False
        storage = leaf[2]
        at = next(i for i, other in enumerate(step.leaves) if other is leaf)
        step.leaves[at] = (ARRAY, storage.id, 0, (), (), leaf[1].dtype)
        storage.kind, storage.source = INPUT, ("number", storage.id, id(storage))
        step.inputs.append(storage)
        self.paths.generation += 1
        return True

    def _taken(self, step: Step, flat: list[Any]) -> Any:
        """What a step hands out."""
        self.at = step
        self.steps.append(step)
        for i in step.written:
            self._will_change(flat[i])
        if not step.results:
            return step.answer
        memories = self._memories(step) if step.made else ()
        results = []
        for number, spec in enumerate(step.results):
            kind = spec[0]
            if kind == MADE:
                results.append(self._result(step, number, spec, memories))
            elif kind == NONE:
                results.append(None)
            else:
                results.append(_window(flat[spec[1]], *spec[2:]))
        return results[0] if step.form is None else step.form(results)

    def _memories(self, step: Step) -> list[Any]:
        """Memory for what a step makes: its own where it has survived before, else a place that nobody will ever see."""
        found = []
        for made in step.made:
            if made.survives:
                raw = memory.empty(*made.whole) if made.whole else memory.empty((made.nbytes,), np.dtype(np.uint8))
                start = pointer(raw) or 0
                self.base.append(start)
                i = bisect.bisect_right(self.starts, start)
                self.starts.insert(i, start)
                self.ends.insert(i, start + made.nbytes)
            else:
                raw = None
                self.base.append(self._reserved(step).start + made.place)
            found.append(raw)
        return found

    def _reserved(self, step: Step) -> Reserved:
        if self.region is None:
            self.region = self.paths.region()
        return self.region

    def _result(self, step: Step, number: int, spec: tuple[Any, ...], memories: Any) -> Any:
        _, k, offset, shape, strides, dtype = spec
        made, raw = step.made[k], memories[k]
        if raw is None:
            region = self.region
            array = region.arrays.get((step, number))
            if array is None:
                array = region.arrays[step, number] = region.window(made.place + offset, shape, strides, dtype)
                self.views.pop()  # it stays a promise, to be given again
        elif made.whole:
            array = raw.view(Promise)
        else:
            array = ndarray(shape, dtype, raw, offset, strides).view(Promise)
        self.roots.append((made, array))
        return array

    def _will_change(self, array: Any) -> None:
        if array.size:
            start = pointer(array) or 0
            self.writes.append((start, start + span(array)))
        if type(array) is ndarray:
            promise(array)
            self.changed.append(array)

    # --------------------------------------------------------------------------------------------------- recording
    def _record_from_here(self) -> None:
        """The call goes another way than any that was seen: what is pending becomes real, and kernels run as they come."""
        self.recorded += 1
        self.known = known = Known()
        inputs = iter(self.holds)
        for step in self.steps:
            for made in step.made:
                known.add_made(made.storage, self.base[made.id])
        if self.steps:
            self.busy = True
            try:
                self._interpret()
            finally:
                self.busy = False
        for storage, array in zip([s for step in self.steps for s in _held(step)], inputs):
            if storage.kind is INPUT:
                start = self.base[storage.id]
                owner = Memory(array).address
                known.inputs.setdefault(owner, []).append((start, start + storage.nbytes, storage))
        self._abandon()

    def _record(self, name: str, args: tuple[Any, ...], flat: list[Any], layout: Any, kernel: str | None, run: Any) -> Any:
        step = Step(self.at, name)
        step.layout = layout
        draft = _Draft(self, step)
        values = [draft.leaf(a, name) for a in flat]
        op_args = unflattened(values, layout)
        if kernel is not None:
            op_args = [v for v in op_args if v.__class__ is Value]
        written = changed_by(name, op_args) if name != "copy_into" else [values[0]]
        indices = [i for i, v in enumerate(values) if any([v is w for w in written])]
        if any([memory.is_exposed(flat[i]) for i in indices if type(flat[i]) is ndarray]):
            return self._now(name, args, run)
        made = _plain_call(name, args, run)
        draft.commit()
        outs: list[Value] = []
        results = self._results(step, flat, made, outs)
        if made is False:  # the kernel does not serve these arrays; the caller knows another way
            written, indices = [], []
        if outs or written:
            frame = user_frame()
            where = None if frame is None else (frame.f_code.co_filename, frame.f_lineno)
            step.op = Op(kernel or name, op_args, outs, written, where)
        step.written = [i for i in indices if values[i].storage.kind is INPUT]
        for i in step.written:
            self._will_change(flat[i])
        self.at.next.append(step)
        self.at = step
        self.steps.append(step)
        self.paths.steps += 1
        return results

    def _results(self, step: Step, flat: list[Any], made: Any, outs: list[Value]) -> Any:
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
                continue
            r = r if isinstance(r, ndarray) else np.asarray(r)
            back.append(self._noted(step, r, flat, outs))
        return back[0] if step.form is None else step.form(back)

    def _noted(self, step: Step, r: ndarray, flat: list[Any], outs: list[Value]) -> Any:
        geometry = r.shape, r.strides, r.dtype
        at = pointer(r) or 0
        mine = None
        if r.size:
            found = self.known.find_made(at)
            mine = next((k for k, m in enumerate(step.made) if found is not None and m.storage is found[0]), None)
            if mine is None:
                i = next((i for i, a in enumerate(flat) if isinstance(a, ndarray) and a.size and _within(r, a)), None)
                if i is not None:  # a kernel that had nothing to do
                    step.results.append((WINDOW, i, at - (pointer(flat[i]) or 0), *geometry))
                    return r.view(Promise) if type(flat[i]) is Promise else r
        if mine is None:
            mine = self._new_made(step, r)
        made = step.made[mine]
        offset = at - self.base[made.id] if r.size else 0
        step.results.append((MADE, mine, offset, *geometry))
        outs.append(Value(made.storage, offset, r.shape, element_strides(r), r.dtype))
        array = r.view(Promise)
        self.roots.append((made, array))
        return array

    def _new_made(self, step: Step, r: ndarray) -> int:
        owner = Memory(r)
        start, nbytes = (owner.address, owner.nbytes) if r.size else (pointer(r) or 0, 0)
        if r.size and not (start <= (pointer(r) or 0) < start + nbytes):
            start, nbytes = pointer(r) or 0, span(r)
        storage = Storage(step.count, TEMPORARY, start, nbytes, None)
        step.count += 1
        whole = (r.shape, r.dtype) if r.flags.c_contiguous and r.nbytes == nbytes and _plain_strides(r) else None
        step.made.append(Made(storage, step.place(nbytes), whole))
        self.base.append(start)
        self.known.add_made(storage, start)
        self.holds_made(nbytes)
        return len(step.made) - 1

    def holds_made(self, nbytes: int) -> None:
        """Dead results keep their addresses, which tell storages apart, but not their pages."""
        if nbytes >= _LARGE:
            self.since += nbytes
            if self.since > _SWEPT:
                self.since = 0
                for made, array in self.roots:
                    if made.nbytes >= _LARGE and getrefcount(array) == _PAIRED and array.nbytes == made.nbytes:
                        pages.give_back(pointer(array) or 0, made.nbytes)


class _Draft:
    """The leaves of a step that is being written down. Its inputs count only once the kernel has not failed."""

    def __init__(self, follower: Follower, step: Step):
        self.follower, self.step = follower, step
        self.base: list[int] = []
        self.holds: list[Any] = []
        self.entries: list[tuple[int, Any]] = []
        self.numbers: list[float] = []

    def leaf(self, a: Any, name: str) -> Any:
        """Notes one leaf; returns what it is to a program."""
        step = self.step
        if isinstance(a, ndarray):
            return self._array(a)
        if name.startswith("fused_") and name != "fused_norm" and a.__class__ in (float, int):
            step.leaves.append((NUMBER,))
            self.numbers.append(float(a))
            step.numbers += 1
            return Number(("input", step.numbers - 1))
        step.leaves.append((PLAIN, a))
        return a

    def _storage(self, kind: str, start: int, nbytes: int, hold: Any) -> Storage:
        made = Storage(self.step.count, kind, start, nbytes, None)
        self.step.count += 1
        self.base.append(start)
        self.holds.append(hold)
        return made

    def _array(self, a: ndarray) -> Value:
        step, known = self.step, self.follower.known
        geometry = a.shape, a.strides, a.dtype
        at = pointer(a) or 0
        if not a.size:
            storage = Storage(step.count, CONSTANT, 0, 0, None)
            step.count += 1
            self.base.append(0)
            step.leaves.append((EMPTY, storage.id, *geometry))
            return Value(storage, 0, a.shape, element_strides(a), a.dtype)
        if type(a) is ndarray and self.follower.paths.is_literal(a):
            storage = self._storage(CONSTANT, at, a.nbytes, a)
            storage.hold = a
            step.leaves.append((LITERAL, a, storage))
            return Value(storage, 0, (), (), a.dtype)
        found = known.find_made(at)
        if found is None:
            found = self._input(a, at)
        storage, offset = found
        step.leaves.append((ARRAY, storage.id, offset, *geometry))
        return Value(storage, offset, a.shape, element_strides(a), a.dtype)

    def _input(self, a: ndarray, at: int) -> tuple[Storage, int]:
        known, nbytes = self.follower.known, span(a)
        if type(a) is ndarray and memory.is_exposed(a):  # each use of it may see other values
            storage = self._storage(INPUT, at, nbytes, a)
            storage.source = ("exposed", storage.id, id(storage))
        else:
            owner = Memory(a).address
            found = known.find_input(owner, at, nbytes) or next(
                ((s, at - first) for o, (first, last, s) in self.entries if o == owner and first <= at and at + nbytes <= last),
                None)
            if found is not None:
                return found
            storage = self._storage(INPUT, at, nbytes, a)
            storage.source = owner
            self.entries.append((owner, (at, at + nbytes, storage)))
        self.step.inputs.append(storage)
        return storage, 0

    def commit(self) -> None:
        follower = self.follower
        follower.base += self.base
        follower.holds += self.holds
        follower.numbers += self.numbers
        for owner, entry in self.entries:
            follower.known.inputs.setdefault(owner, []).append(entry)


def _held(step: Step) -> list[Storage]:
    """The storages for which a step holds an array, in order."""
    constants = [leaf[2] for leaf in step.leaves if leaf[0] == LITERAL]
    return sorted([*step.inputs, *constants], key=lambda s: s.id)


def _plain_call(name: str, args: tuple[Any, ...], run: Any) -> Any:
    if run is not None:
        return run()
    return cpu.call(name, tuple([[stripped(x) for x in a] if a.__class__ is list else
                                 tuple([stripped(x) for x in a]) if a.__class__ is tuple else stripped(a) for a in args]))


def _within(r: ndarray, a: Any) -> bool:
    at, start = pointer(r) or 0, pointer(a) or 0
    owner = Memory(a)
    return start <= at < start + span(a) or owner.address <= at < owner.address + owner.nbytes


def _plain_strides(r: ndarray) -> bool:
    """Whether a new array of its shape has its strides, also where a length is one."""
    step = r.itemsize
    for n, s in zip(reversed(r.shape), reversed(r.strides)):
        if s != step:
            return False
        step *= n
    return bool(r.size)


def _window(array: Any, delta: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> Any:
    """Another window onto an argument's memory."""
    plain = stripped(array)
    if plain.dtype != dtype:
        plain = plain.view(dtype)
    size = dtype.itemsize
    made = restride(plain, shape, tuple([s // size for s in strides]), delta // size)
    return made.view(Promise) if type(array) is Promise else made
