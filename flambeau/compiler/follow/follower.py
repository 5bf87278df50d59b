"""`Follower`: takes the kernel calls of one compiled call, in whose place the Python really runs.

Each kernel call is compared with those that were seen to come next (steps.py). As long as they agree, nothing is computed: the
results are promises (promises.py). When the Python looks at a value, or the call ends, a native program does all the work since
the last look (segments.py). A call that was not seen before makes what is pending real, kernel by kernel; from there on kernels
run as they are called, and are written down, until the next look (recording.py).
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from ...autograd.frames import user_frame
from ...backends.cpu import backend as cpu
from ...backends.cpu import memory
from ...backends.cpu.arrays import Storage as Memory
from ...backends.cpu.arrays import restride
from ...backends.cpu.table import KERNELS
from ...backends.references import ASKED, HANDED_ON
from ...native import pointer
from ..capture.memory import _copy_in_place
from ..capture.tracing import refuse
from .deferred import CHECKED, LATER, VIEW, kind_of, needs, numeric, passes, promised, same
from .matching import ARRAY, ASK, EMPTY, LITERAL, MISMATCH, MOST, NUMBER, PLAIN, Places, State, native
from .promises import PAIRED, Promise, stripped
from .recording import Recording, plain_call
from .segments import interpreted
from .steps import MADE, NONE, Made, Step, flattened, span

_BYTES = np.dtype(np.uint8)


class Follower:
    """Follows one call. `settle`, `look` and `call` are what the rest of flambeau asks of it.

    A kernel call counts from the moment in which it is appended to `done`, and not at all before. So an interrupt from the
    keyboard, wherever it comes, leaves behind what it would in eager mode; and a finalizer may do with tensors what it wants.
    """

    def __init__(self, paths: Any):
        self.paths = paths
        self.lock = threading.RLock()  # another thread may need what is pending
        self.busy = False              # a program or a list of kernels is running
        self.off = False               # the rest of the call is eager
        self.region: Any = None
        self.places = Places()                     # where each storage is
        self.written = Places()                    # start and end of each piece of memory from before that will be changed
        self.given = Places()                      # start and end of each piece of memory that was handed out
        # The kernel calls so far: step; inputs, whose memory must not go away; run-time numbers; results, each with the storage
        # that it is a window onto.
        self.done: list[tuple[Step, Any, Any, Any]] = []
        self.views: list[Any] = []                 # weak references to promises
        self.changed: list[Any] = []               # arrays from before that will be written, promises until then
        self.native: Any = native()
        self.known = State(done=id(self.done), views=id(self.views), changed=id(self.changed), self=id(self), make=id(_MAKE),
                           fallback=id(_FALLBACK), memory=id(_MEMORY))
        self.address = ctypes.addressof(self.known)
        self.call = self.native.call(self.known)   # a kernel call: its name and arguments, and what `_call` takes further
        self._begin()
        self._known()

    def _begin(self) -> None:
        """A new segment."""
        if self.region is None or self.paths.most > self.region.nbytes:
            self.region = self.paths.region()
        known, region = self.known, self.region
        known.known = -1
        known.low, known.high, known.stamp, known.n_given, known.n_written = region.start, region.end, region.stamp, 0, 0
        known.version += 1
        self.done.clear()
        self.end: Any = None                       # what runs them
        self.progress = [0]                        # how many of them were run one by one
        self.made: dict[int, Made] = {}            # address of a result -> the storage that it is a window onto
        self.views.clear()
        self.changed.clear()
        self.recording: Recording | None = None    # kernels run as they are called

    @property
    def at(self) -> Step:
        """The last step."""
        return self.done[-1][0] if self.done else self.paths.root

    @property
    def steps(self) -> list[Step]:
        return [one[0] for one in self.done]

    def _known(self) -> None:
        """C may compare the next call with those that were seen to come after the last one."""
        known, places, written = self.known, self.places, self.written
        known.base, known.room, known.given = places.address, places.size, self.given.address
        known.written, known.room_written = written.address, written.size // 2
        known.at = self.at.address
        known.known = -1 if self.off else len(self.done)

    # ------------------------------------------------------------------------------------------------------- looks
    def look(self, array: Any, what: str, refused: bool = False) -> None:
        """Somebody reads the elements of an array (None: or writes to who knows what)."""
        if self.busy or not self._pending(array):
            return
        if refused:
            self.refuse(what)
        self.paths.looked(what)
        self.settle()

    def refuse(self, what: str) -> None:
        """The Python does what a function that is to be one program may not do."""
        if self.paths.fullgraph:
            frame = user_frame()
            refuse(what, None if frame is None else (frame.f_code.co_filename, frame.f_lineno))

    def _pending(self, array: Any) -> bool:
        if not self.done:
            return False
        if array is None or type(array) is Promise:
            return True
        if not self.known.n_written or not isinstance(array, ndarray) or not array.size:
            return False
        start = pointer(array) or 0
        return bool(self.native.overlaps(self.written.address, self.known.n_written, start, start + span(array)))

    def alone(self, array: Any, others: int) -> bool:
        """Whether an array is all of a result to which only so many others refer."""
        made = self.made.get(id(array)) or (self.region and self.region.made.get(id(array)))
        if made is None or made.single is None:
            return False
        return getrefcount(array) <= 1 + others + HANDED_ON + ASKED

    def settle(self) -> None:
        """Everything that was promised is made true; a segment ends."""
        with self.lock:  # another thread waits for what is running
            if self.busy or not (self.done or self.views or self.changed):
                return
            try:
                self.known.known = -1
                self.busy = True
                self._finish()
            except KeyboardInterrupt:  # what was promised must become true all the same
                self._finish()
                raise
            finally:
                self.let_go()
                self._begin()
                self.busy = False
                self._known()

    def let_go(self) -> None:
        """Promises are plain arrays again."""
        self.native.keep([array for reference in self.views if (array := reference()) is not None], 0)
        self.native.keep(self.changed, 1)

    def _finish(self) -> None:
        if self.recording is not None:
            self.recording.end()
        elif self.done and (self.end is None or not self.end.started):
            self._run()

    def _run(self) -> None:
        """The pending steps: as a program, if exactly those results are alive that it keeps."""
        escaped = [made for made in self.native.alive(self.done, 1) if not made.survives]  # not only its pair
        if escaped:
            for made in escaped:
                made.survives = True
            self.paths.epoch += 1
            self.region.changed()
        end = None if escaped else self.paths.end_of(self)
        if end is not None and end.apart(self.places.address):
            end.started = False
            self.end = end
            end.run(self.places.address, [n for _, _, numbers, _ in self.done for n in numbers])
            self.paths.runs += 1
            return
        self.interpret()
        if escaped:
            self.abandon()
        else:
            self.region.forget(self.at.reserved)

    def interpret(self) -> None:
        """What is pending, kernel by kernel."""
        self.region.guard(False)
        alive = {made.id for *_, roots in self.done for made, array in roots if made.survives or getrefcount(array) > PAIRED}
        numbers = [one[2] for one in self.done]
        interpreted(self.steps, self.places.put.tolist(), numbers, alive, self.progress)
        self.paths.interpreted += 1

    def abandon(self) -> None:
        """Arrays in the reserved memory are real now: it belongs to them."""
        if self.region is not None:
            self.views += [weakref.ref(p[1]) for some in list(self.region.pairs.values()) for p in some if p is not None]
            self.region.guard(False)
            self.paths.reserved = self.region = None

    # ------------------------------------------------------------------------------------------------------- calls
    def _call(self, name: str, args: tuple[Any, ...], kernel: str | None = None, run: Any = None) -> Any:
        """A kernel call that C does not know. kernel: what it is to a program, if not a kernel of this name; run: does it."""
        if self.busy or self.off:
            return self._meanwhile(name, args, run)
        with self.lock:
            kind = kind_of(name)
            if kind is VIEW:
                return self._view(name, args)
            if self.known.inside > 1:  # a finalizer has come in the middle of another call, which then begins anew
                return self.now(name, args, run)
            if kind is not LATER and (kind is not CHECKED or self._must_be_now(name, args)):
                return self.now(name, args, run)
            version, at, recording = self.known.version, self.at, self.recording
            if recording is None:
                for step in at.next:
                    if step.kernel == name:
                        flat, layout = (list(args), None) if step.flat else flattened(args)
                        if (step.flat or step.layout == layout) and self._fits(step, flat, at.count):
                            return self._agreed(version, step, flat, name, args, kernel, run)
                if self.known.version != version:
                    return self._call(name, args, kernel, run)
                if name in at.breaks:
                    return self.now(name, args, run)
                self.known.known = -1
                self.busy = True
                try:
                    self.recording = recording = Recording(self)
                finally:
                    self.busy = False
            made = recording.call(version, name, args, kernel, run)
            if self.paths.stopped is not None:
                self.off = True
                self.settle()
            return made

    def _make(self, version: int, step: Step, name: str, args: tuple[Any, ...], *rest: Any) -> Any:
        """A kernel call that agreed with a step at a version, as C has found."""
        with self.lock:
            return self._agreed(version, step, args, name, args, *rest)

    def _agreed(self, version: int, step: Step, flat: Any, *call: Any) -> Any:
        """What a call returns that agreed with a step at a version; it begins anew if something has come between."""
        if self.known.version != version:
            return self._call(*call)
        memories = [self._memory(made) for made in step.made]
        roots, results = self._results(step, flat, memories)
        answer = step.answer if not results else results[0] if step.form is None else step.form(results)
        del results  # who refers to them shows that they are alive
        holds = [flat[i] for i in step.new] if step.new else ()
        numbers = [float(flat[i]) for i in step.counted] if step.counted else ()
        if step.written:
            self.will_change(step, flat)
        if not self.native.count(self.address, step.address, (step, holds, numbers, roots), version, step.ids, memories):
            return self._call(*call)
        return answer

    def _meanwhile(self, name: str, args: tuple[Any, ...], run: Any) -> Any:
        """A kernel call while promises are made true, or a call is written down: of a finalizer, which must not wait."""
        if self.busy and self.recording is None and promised(flattened(args)[0]):
            raise RuntimeError("a finalizer uses a tensor that is being computed")
        return plain_call(name, args, run)

    def write(self, target: ndarray, value: Any) -> None:
        """target[...] = value"""
        if not isinstance(value, ndarray):
            value = self.literal(value, target.dtype)
        self.call("~write", (target, value), "copy_into", lambda: cpu.write(stripped(target), stripped(value)))

    def literal(self, value: Any, dtype: np.dtype) -> ndarray:
        """A Python number as a zero-dim array: the same array for the same number, so that it is part of the program."""
        return self.paths.literal(value, dtype)

    def _view(self, name: str, args: tuple[Any, ...]) -> Any:
        made = KERNELS[name](*[stripped(a) for a in args])
        if type(args[0]) is not Promise:
            return made
        if made.__class__ in (tuple, list):
            return made.__class__([self._promised(m) for m in made])
        return self._promised(made)

    def _promised(self, window: Any) -> Any:
        """A new window onto promised memory, as a promise."""
        if type(window) is not ndarray:  # a batch (vmap)
            return window.view(Promise)
        self.native.window(self.address, window)
        return window

    def _must_be_now(self, name: str, args: tuple[Any, ...]) -> bool:
        values = needs(name, args)
        if values is None:
            return False
        if promised(values) or any([self._pending(array) for array in values]):
            self.settle()
        return not passes(name, args)

    def now(self, name: str, args: tuple[Any, ...], run: Any) -> Any:
        """A kernel that cannot wait."""
        self.settle()
        return plain_call(name, args, run)

    # --------------------------------------------------------------------------------------------------- following
    def _fits(self, step: Step, flat: list[Any], count: int) -> bool:
        """Whether a call is the one that was seen: where its inputs are is noted behind the `count` storages so far."""
        places = self.places
        if step.count > places.size:
            places.grow(step.count)
        self._known()
        new = self.native.fits(self.address, step.address, flat, count)
        if new == ASK:
            new = self._fits_by_comparing(step, flat, count)
        return new >= 0 and (not step.ties or self._tied(step))

    def _tied(self, step: Step) -> bool:
        base = self.places.put
        return all([base[i] - base[j] == distance for i, j, distance in step.ties])

    def _fits_by_comparing(self, step: Step, flat: list[Any], before: int) -> int:
        """What `fits` does, where an argument is not plain; memory that others may change is exchanged for a copy."""
        base, count = self.places.put, before
        for at, (leaf, a) in enumerate(zip(step.leaves, flat)):
            kind = leaf[0]
            if kind == ARRAY or kind == EMPTY:
                if not isinstance(a, ndarray) or (a.shape, a.strides, a.dtype) != leaf[-3:]:
                    return MISMATCH
                if kind == EMPTY:
                    base[count] = 0
                    count += 1
                elif leaf[1] < count:
                    if pointer(a) != base[leaf[1]] + leaf[2]:
                        return MISMATCH
                else:
                    flat[at] = brought = self._brought(a, step, leaf[1])
                    if brought is None or (brought is not a and at in step.written):
                        return MISMATCH  # what others see must be written at once
                    base[count] = (pointer(brought) or 0) - leaf[2]
                    count += 1
            elif kind == PLAIN:
                if not same(a, leaf[1]) and not self._varies(step, at, a):
                    return MISMATCH
            elif kind == LITERAL:
                if a is not leaf[1] and not self._varies(step, at, a):
                    return MISMATCH
                base[count] = pointer(a) or 0
                count += 1
            elif kind == NUMBER and a.__class__ is not float and a.__class__ is not int:
                return MISMATCH
        return count - before

    def _brought(self, a: ndarray, step: Step, storage: int) -> ndarray | None:
        """An input that is used for the first time: a copy if others may change it. None if its elements are to come."""
        at = pointer(a) or 0
        known = self.known
        if known.low <= at < known.high or self.native.overlaps(known.given, known.n_given, at, at + 1):
            return None
        if type(a) is not ndarray:
            return a if self._beside(a, step, storage) else None
        return _copy_in_place(a) if memory.is_exposed(a) else a

    def _beside(self, a: Any, step: Step, storage: int) -> bool:
        """Whether a promise is a further window onto memory from before that this segment writes (`x[0] = y; x[1] = z`), as it
        was when the step was written down: then its distance from the first such window is part of the step."""
        if not any([storage == tied for tied, *_ in step.ties]):
            return False
        owner = Memory(a).address
        return any([Memory(changed).address == owner for changed in self.changed])

    def _varies(self, step: Step, at: int, a: Any) -> bool:
        """Whether another number than before, in the same place, can be read at each run."""
        old = step.leaves[at][1]
        if step.leaves[at][0] == LITERAL:
            able = type(a) is ndarray and not a.shape and a.dtype == old.dtype
        else:
            able = a.__class__ is float is old.__class__ and numeric(step.kernel)
        if able:
            step.vary(at)
            self.paths.epoch += 1
        return able

    def will_change(self, step: Step, flat: Any) -> None:
        """Arrays from before are promises until they have been changed."""
        known, written = self.known, self.written
        if 2 * (known.n_written + len(step.written)) > written.size:
            written.grow(2 * (known.n_written + len(step.written)))
            known.written, known.room_written = written.address, written.size // 2
        self.native.change(self.address, step.address, flat)

    # ------------------------------------------------------------------------------------------------------ results
    def _memory(self, made: Made) -> Any:
        """Memory for what a step makes: its own, as a promise, where it has survived before; else the address of a place that
        nobody will ever see."""
        if not made.survives:
            return self.region.start + made.place
        raw = memory.empty(*made.single) if made.single else memory.empty((made.nbytes,), _BYTES)
        if 2 * self.known.n_given + 2 > self.given.size:
            self.given.grow(0)
            self.known.given = self.given.address
        self.native.promise(self.address, raw, made.nbytes)
        self.made[id(raw)] = made
        return raw

    def _standing(self, region: Any, *geometry: Any) -> Any:
        """A promise over reserved memory that stays one, to be given again: `views`, which gets every new one, forgets it."""
        while True:
            array = region.window(*geometry)
            reference = weakref.ref(array)  # the very object that `views` has; not the last one there if a finalizer has come
            if self.views and self.views[-1] is reference:
                self.views.pop()
                return array

    def _results(self, step: Step, flat: Any, memories: list[Any]) -> tuple[list[Any], list[Any]]:
        """The results of a step, with the storages that they are windows onto, and as they are returned."""
        region, roots, results = self.region, [], []
        stamp = region.stamp  # a finalizer may come, here and everywhere, after which nothing of this counts
        pairs = region.pairs.get(step)
        if pairs is None:
            pairs = region.pairs[step] = [None] * len(step.results)
        for number, spec in enumerate(step.results):
            if spec[0] == MADE:
                made, raw = step.made[spec[1]], memories[spec[1]]
                if raw.__class__ is not int:
                    array = raw if made.single else ndarray.__new__(Promise, spec[3], spec[5], raw, spec[2], spec[4])
                    self.made[id(array)] = made
                    roots.append((made, array))
                else:
                    if pairs[number] is None:
                        array = self._standing(region, made.place + spec[2], *spec[3:])
                        region.made[id(array)] = made
                        pairs[number] = made, array
                    roots.append(pairs[number])
                results.append(roots[-1][1])
            elif spec[0] == NONE:
                results.append(None)
            else:
                results.append(_window(flat[spec[1]], *spec[2:]))
        if step.table.stamp != stamp and step.form is not list:
            _fix(step, region, stamp, pairs)
        return roots, results


def _fix(step: Step, region: Any, stamp: int, pairs: list[Any]) -> None:
    """Lets C make the results of a step, where each is all of a storage that is kept, or an array that nobody ever kept."""
    results: list[Any] = []
    found = [(step.made[spec[1]], pair) for spec, pair in zip(step.results, pairs) if spec[0] == MADE]
    if len(found) != len(step.made) or len(pairs) > MOST or any([made.survives and not made.single for made, _ in found]):
        return
    for spec, pair in zip(step.results, pairs):
        if spec[0] == MADE:
            made = step.made[spec[1]]
            fixed = (None, None, made) if made.survives else (pair[1], pair, None)
            results.append((*fixed, made.id, region.start + made.place))
        elif spec[0] == NONE:
            results.append((id(None), None, None, 0, 0))
        else:
            return
    entry = step, (), (), [pair for made, pair in found if not made.survives]
    region.ready.append(entry)
    kept = any([made.survives for made, _ in found])
    step.table.fixed(stamp, entry, results or [(id(step.answer), None, None, 0, 0)], step.form is tuple, kept)


_MAKE, _FALLBACK, _MEMORY = Follower._make, Follower._call, Follower._memory  # for C


def _window(array: Any, delta: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> Any:
    """Another window onto an argument's memory."""
    bare = stripped(array)
    if bare.dtype != dtype:
        bare = bare.view(dtype)
    size = dtype.itemsize
    made = restride(bare, shape, tuple([s // size for s in strides]), delta // size)
    return made.view(Promise) if type(array) is Promise else made
