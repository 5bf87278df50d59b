"""A captured call that can be repeated: its program, what it takes for granted, and what it leaves behind."""

from __future__ import annotations

import bisect
import ctypes
import itertools
from collections import Counter
from collections.abc import Iterator
from operator import is_not
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from ...autograd.node import Node, VersionCounter, hooked, start_counter, version_of
from ...autograd.views import mark_view, outdated
from ...backends import dtypes
from ...backends.cpu import memory
from ...backends.cpu.arrays import contiguous_strides
from ...backends.facts import SAFE
from ...backends.references import NAMED
from ...native import pointer
from ...tensors.tensor import Tensor, wrap
from ..capture.memory import bytes_of
from ..capture.optimizers import NUMERIC, unchanged
from ..capture.reads import Reads, added
from ..capture.symbolic import evaluate
from ..capture.tracing import Recorder
from ..capture.trees import unflatten
from ..ir.parts import CONSTANT, INPUT, TEMPORARY, Value
from ..ir.statements import can_fail
from ..passes.fusion import Control, Single
from ..render.template import Family
from .program import Program

_new = object.__new__
_UNSEEN = 1 + NAMED  # references to a gradient that nobody else holds: the plan's, and a local name


BYTES = dtypes.native("uint8")
_UNDONE = 1 << 20  # bytes that a call may save, so that it can be undone


class Undone(Exception):
    """The program met an error of the user's (an index out of range) and left everything as it was: the Python raises it."""


class Irrevocable(Exception):
    """The program could fail after it has changed too much to be undone."""


class FreedGraph(Node):
    """The history of a result whose backward pass already ran inside the compiled function."""

    saved = None

    def __init__(self, like: Any):
        self.shape, self.dtype = like.shape, like.dtype

    def name(self) -> str:
        return "CompiledFunctionBackward"

    def apply(self, grads: Any) -> Any:
        from ...autograd.errors import freed_error
        raise freed_error(self)


class Output:
    """How one tensor of the result is made: a window onto a storage that is new at every call, or onto an input.

    node: it had a history whose backward pass ran inside; graph: its number among those that still have one;
    inference: it was made in inference mode; tie: how it belongs to the input ("view" or "name");
    base: the window of the tensor that it is a view of, which the call made; version: how often the call changed it in place.
    """

    __slots__ = ("base", "graph", "inference", "node", "tie", "value", "version")

    def __init__(self, value: Value, node: Any, graph: int | None = None, inference: bool = False, version: int = 0):
        self.value, self.graph, self.inference, self.tie, self.base = value, graph, inference, None, None
        self.version = version
        self.node = None if node is None else FreedGraph(value)


class Gradient:
    """A leaf's gradient that each call makes, in the memory of the last call's unless somebody holds on to that.

    version: how often the call changes it in place; present: whether the leaf had one when the last call began.
    """

    __slots__ = ("leaf", "memory", "present", "tensor", "value", "version")

    def __init__(self, leaf: Any, value: Value, version: int):
        self.leaf, self.value, self.version = leaf, value, version
        self.tensor, self.memory, self.present = None, None, False


class Sources:
    """Where a program's inputs come from at each call: arguments, tensors that are held, gradients of leaves."""

    def __init__(self, program: Program, recorder: Recorder, leaves: list[Any], extra: Any = ()):
        by_id = {id(a): i for i, a in enumerate(leaves) if isinstance(a, Tensor)}
        of_grads = {id(grad): leaf for leaf, grad in recorder.grad_found.values() if grad is not None}
        self.table = program.table
        self.from_args: list[tuple[int, int, int]] = []
        self.from_grads: list[tuple[Any, int, int]] = []
        self.held: list[tuple[Any, int, int]] = []
        self.origin: dict[int, tuple[Any, int]] = {}
        for storage in (*program.inputs, *extra):
            number, source = program.place.get(storage.id), storage.source
            delta = storage.start - (pointer(source._array) or 0)
            if id(source) in by_id:
                at = by_id[id(source)]
                self.origin[storage.id] = at, delta
                if number is None:
                    continue
                self.from_args.append((at, number, delta))
            elif id(source) in of_grads:
                leaf = of_grads[id(source)]
                self.from_grads.append((by_id.get(id(leaf), leaf), number, delta))
            else:
                self.origin[storage.id] = source, delta
                if number is None:
                    continue
                self.held.append((source, number, delta))
                self.table[number] = (pointer(source._array) or 0) + delta
        self.placed = [(by_id.get(id(s.source), s.source), s.source.storage_offset()) for s in recorder.placed.values()]
        self._find_spans(program)
        self._count_versions(recorder, by_id, of_grads)
        self.inner = [(t if (i := by_id.get(id(t))) is None else i, t._array, of if (j := by_id.get(id(of))) is None else j,
                       (pointer(t._array) or 0) - (pointer(of._array) or 0)) for t, of in recorder.inner]
        self.tensors = [t for t, _, _ in self.held]
        self.kinds = [type(t) for t in self.tensors]
        self.arrays = [t._array for t in self.tensors]
        self.nodes = [t._node for t in self.tensors]
        self.marks = [(node, _mark(node)) for node in self.nodes if node is not None]
        self.bases = [t._base for t in self.tensors]
        self.views = [(t, t._base._node, outdated(t)) for t in self.tensors if t._base is not None]
        self.layouts = [(i, _layout(leaves[i]._array)) for i, _, _ in self.from_args]

    def _count_versions(self, recorder: Recorder, by_id: dict[int, int], of_grads: dict[int, Any]) -> None:
        """By how much a call moves the version counters of what was there before: (tensor or argument or leaf, number)."""
        self.bumped: list[tuple[Any, int]] = []
        self.bumped_args: list[tuple[int, int]] = []
        self.bumped_grads: list[tuple[Any, int]] = []
        self.lines: list[tuple[Any, Any]] = []  # (tensor, None for one that comes as an argument; the line that changed it)
        counters = set()
        for tensor, before, _ in recorder.versions:
            more = version_of(tensor) - before
            if more <= 0 or id(tensor._counter) in counters:
                continue
            counters.add(id(tensor._counter))  # views share one
            self.lines.append((None if id(tensor) in by_id else tensor, tensor._counter.where))
            if id(tensor) in by_id:
                self.bumped_args.append((by_id[id(tensor)], more))
            elif id(tensor) in of_grads:
                leaf = of_grads[id(tensor)]
                self.bumped_grads.append((by_id.get(id(leaf), leaf), more))
            else:
                self.bumped.append((tensor, more))

    # ------------------------------------------------------------------------------------------------------- memory
    def _find_spans(self, program: Program) -> None:
        """Which pieces of memory the program writes, and how long each is."""
        size = {program.place[s.id]: s.nbytes for s in program.inputs}
        written = {program.place[i] for i in program.written}
        self.writes = bool(written)
        self.brought = [(number, size[number], number in written) for _, number, _ in (*self.from_args, *self.from_grads)]
        self.standing = [(number, size[number], number in written) for _, number, _ in self.held]
        self._sort()

    def _sort(self) -> None:
        """The held pieces in the order of their addresses; none of them overlaps another, as long as nothing moves."""
        spans = sorted([(self.table[n], self.table[n] + size, writes) for n, size, writes in self.standing if size])
        self.starts, self.spans, self.sound = [start for start, _, _ in spans], spans, True
        self.reach = list(itertools.accumulate([end for _, end, _ in spans], max))  # how far the pieces up to here go
        written = 0
        for (start, end, writes), before in zip(spans, [0, *self.reach]):
            self.sound &= start >= (before if writes else written)
            written = max(written, end) if writes else written

    def apart(self, leaves: list[Any]) -> bool:
        """Whether everything lies as it must: what the program writes overlaps nothing else that it reads or writes, by
        addresses, at each call."""
        for t, array, of, skip in self.inner:  # tensors that lie inside of others: at the same place as before
            if t.__class__ is not int and t._array is not array:
                return False
            inside, outside = [(leaves[x] if x.__class__ is int else x)._array for x in (t, of)]
            if (pointer(inside) or 0) - (pointer(outside) or 0) != skip:
                return False
        for t, offset in self.placed:
            if (leaves[t] if t.__class__ is int else t).storage_offset() != offset:
                return False
        if not self.writes:
            return True
        fresh: list[tuple[int, int, bool]] = []
        for (_, start), (_, size, writes) in zip(self._brings(leaves), self.brought):
            end = start + size
            if any(start < e and s < end and (writes or w) for s, e, w in fresh):
                return False
            fresh.append((start, end, writes))
            at = bisect.bisect_left(self.starts, end) - 1
            while at >= 0 and self.reach[at] > start:
                if (writes or self.spans[at][2]) and self.spans[at][1] > start:
                    return False
                at -= 1
        return self.sound

    def hold(self) -> bool:
        """Whether the held tensors are still the same; where only their memory moved, the new address is taken."""
        tensors = self.tensors
        if any(map(is_not, map(type, tensors), self.kinds)) or not self._in_place():
            return False
        if any(map(is_not, [t._node for t in tensors], self.nodes)) or any(map(is_not, [t._base for t in tensors], self.bases)):
            return False
        for view, node, late in self.views:
            if view._base._node is not node or outdated(view) is not late:
                return False
        for node, mark in self.marks:
            if (node.hooks is not None or mark) and _mark(node) != mark:
                return False
        return True

    def still_there(self, leaves: list[Any]) -> bool:
        """Whether what a backward pass is about to read is laid out as it was for the call: it may have been given other memory
        in between, which is then what eager mode reads, too."""
        return self._in_place() and all([_layout(leaves[i]._array) == layout for i, layout in self.layouts])

    def _in_place(self) -> bool:
        if any(map(is_not, [t._array for t in self.tensors], self.arrays)):
            for tensor, array in zip(self.tensors, list(self.arrays)):
                if tensor._array is not array and not self._moved(tensor):
                    return False
        return True

    def _moved(self, tensor: Any) -> bool:
        for i, (t, number, delta) in enumerate(self.held):
            if t is tensor:
                old, new = self.arrays[i], tensor._array
                if _layout(new) != _layout(old):
                    return False
                self.arrays[i] = new
                self.table[number] = (pointer(new) or 0) + delta
        self._sort()
        return True

    def fill(self, leaves: list[Any]) -> None:
        """Only with the program's lock: another thread may run it."""
        for number, address in self._brings(leaves):
            self.table[number] = address

    def _brings(self, leaves: list[Any]) -> Iterator[tuple[int, int]]:
        """(place, address) of what a call brings: arguments and gradients."""
        for i, number, delta in self.from_args:
            yield number, (pointer(leaves[i]._array) or 0) + delta
        for leaf, number, delta in self.from_grads:
            yield number, (pointer((leaves[leaf] if leaf.__class__ is int else leaf)._grad._array) or 0) + delta

    def window(self, v: Value, leaves: list[Any]) -> Any:
        """A result that is a view of an input."""
        source, delta = self.origin[v.storage.id]
        array = (leaves[source] if source.__class__ is int else source)._array
        if v.storage.device:
            from .device_kernels import beside
            return beside(array, v, delta)
        from ...backends.cpu.arrays import restride
        return restride(array, v.shape, v.strides, (delta + v.offset) // v.dtype.itemsize)


def kind_of(recorder: Recorder) -> Any:
    """The class of a capture's programs: on a CUDA device, or on the CPU."""
    if not recorder.device:
        return Program
    from .graphed import GraphProgram
    return GraphProgram


class Plan:
    """Runs a captured call again."""

    def __init__(self, recorder: Recorder, reads: Reads, leaves: list[Any], outputs: list[Any], shape: Any, exact: bool,
                 family: Family | None = None):
        self.reads, self.shape = reads, shape
        self.pause: int | None = 1  # calls until replay.py is asked again; None: it can do nothing for this plan
        self.wait = 1
        self.used = False  # by a call after the one that made it
        self.remade = ctypes.c_long()  # how many gradients were given other memory
        self.brought: dict[int, float] = {}  # floats among the arguments that each call brings, by number
        self.numbers, self.asked = recorder.numbers, recorder.asked
        self.number_guards = recorder.number_guards
        self.numeric = [(c, k, None if i is None else len(c[k])) for c, k, i in self.numbers if not i and isinstance(c, dict)]
        self.counts = recorder.counts
        self.optimizers = recorder.optimizers
        self.results = outputs            # leaves of the result: Output, ("same", tensor), ("arg", i) or ("value", x)
        by_id = {id(a): i for i, a in enumerate(leaves) if isinstance(a, Tensor)}
        self.grads = self._final_grads(recorder, by_id, outputs)
        self.grad_guards = [(by_id.get(id(leaf), leaf), None if grad is None else _meta(grad))
                            for leaf, grad in recorder.grad_found.values()]
        fresh = {o.value.storage.id: o.value.storage for o in outputs if o.__class__ is Output
                 and o.value.storage.kind is TEMPORARY}
        parts = [v for _, parts, _, _ in self.sparse for v in parts] + [v for _, v in self.shared if v.__class__ is Value]
        fresh.update({v.storage.id: v.storage for v in parts if v.storage.kind is TEMPORARY})
        self.fresh = list(fresh.values())
        self._build(recorder, leaves, exact, family)
        windows = [v for o in outputs if o.__class__ is Output for v in (o.value, o.base) if v is not None] + parts
        views = [v.storage for v in windows if v.storage.kind is INPUT]
        self.sources = Sources(self.program, recorder, leaves, [s for s in views if s.id not in self.program.place])
        self._find_undo()
        self._tell_apart(recorder, leaves)
        alone: dict[int, list[Value]] = {}
        for v in windows:
            alone.setdefault(v.storage.id, []).append(v)
        self.fresh_places = []
        for storage in self.fresh:  # a storage that is just one result is allocated as that, others as bytes
            some = alone.get(storage.id, [])
            single = len(some) == 1 and some[0].nbytes == storage.nbytes and some[0].dtype is not BYTES and (
                some[0].strides == contiguous_strides(some[0].shape))  # where there is one element, too
            self.fresh_places.append((storage.id, self.program.place[storage.id], *(
                (some[0].shape, some[0].dtype) if single else ((storage.nbytes,), BYTES))))

    # ------------------------------------------------------------------------------------------------- building
    def _build(self, recorder: Recorder, leaves: list[Any], exact: bool, family: Family | None) -> None:
        kept = [*self.fresh, *[g.value.storage for g in self.grads]]
        self.program = kind_of(recorder)(recorder.ops, kept, [], len(self.numbers), exact, family)
        self.program.expect({s.id for s in self.fresh})

    def _final_grads(self, recorder: Recorder, by_id: dict[int, int], outputs: list[Any]) -> list[Gradient]:
        """Gradients that the program makes, each in memory of its own; `shared` are those in memory of results, inputs or each
        other. The rest are dropped or changed in place. A leaf that is an argument is known by its number."""
        made, self.dropped, self.sparse, self.shared = [], [], [], []
        found = [recorder.value_of(leaf._grad) for leaf in recorder.leaves.values() if leaf._grad is not None and not
                 leaf._grad.is_sparse]
        used = Counter([v.storage.id for v in found] + [o.value.storage.id for o in outputs if o.__class__ is Output])
        for leaf in recorder.leaves.values():
            before = recorder.grad_found.get(id(leaf), (None, None))[1]
            grad, leaf = leaf._grad, by_id.get(id(leaf), leaf)
            if grad is None:
                self.dropped.append(leaf)
                continue
            if grad.is_sparse:
                parts = recorder.value_of(grad._held_indices), recorder.value_of(grad._held_values)
                self.sparse.append((leaf, parts, tuple(grad.shape), grad._coalesced))
                continue
            value = recorder.value_of(grad)
            storage = value.storage
            if storage.kind is CONSTANT:
                storage.kind, storage.init = TEMPORARY, bytes_of(storage)
            if storage.kind is TEMPORARY and used[storage.id] == 1:
                made.append(Gradient(leaf, value, version_of(grad)))
            elif grad is not before:
                self.shared.append((leaf, by_id.get(id(grad), value)))  # the number of an argument, or a window
        return made

    def _tell_apart(self, recorder: Recorder, leaves: list[Any]) -> None:
        """An argument that the call also reaches by another way must be that tensor again, and where the program writes, none
        of the others may become one of those it holds: it would not know that the two are one memory."""
        reached = self.reads.tensors().union(*[map(id, params) for _, kept in self.optimizers for _, params, _ in kept.groups])
        known = set(map(id, self.sources.tensors))
        self.leaf_nodes = [(leaf, leaf._node, _mark(leaf._node)) for leaf in recorder.leaves.values()
                           if id(leaf) not in known and not any(leaf is a for a in leaves)]
        self.same = [(i, a) for i, a in enumerate(leaves) if isinstance(a, Tensor) and id(a) in reached]
        sources = self.sources
        writes = sources.writes
        self.others = [i for i, _, _ in sources.from_args if id(leaves[i]) not in reached] if writes else []
        self.held = set(map(id, sources.tensors))

    def _find_undo(self) -> None:
        """What the program has written when it can last fail: that is saved before each run. An error must be raised by the
        Python, at its own line and with everything around it as the plain call would have it."""
        program = self.program
        fallible = [n for n, group in enumerate(program.groups) if _can_fail(group)]
        self.fallible = bool(fallible)
        grads = {g.value.storage.id for g in self.grads}
        last = fallible[-1] if fallible else 0
        if fallible and getattr(program.groups[last], "code", None) is None:  # a NumPy kernel, or a loop, may fail half-way
            last += 1
        found = {w.storage.id: w.storage for group in program.groups[:last] for op in group.ops
                 for w in op.writes if w.storage.kind is INPUT or w.storage.id in grads}
        if sum(s.nbytes for s in found.values()) > _UNDONE:
            raise Irrevocable
        self.undo = [(program.place[s.id], memory.empty((s.nbytes,), BYTES)) for s in found.values() if s.id in program.place]

    def run_program(self) -> None:
        table = self.program.table
        if not self.undo and not self.fallible:
            self.program.run()
            return
        for number, saved in self.undo:
            ctypes.memmove(pointer(saved), table[number], saved.nbytes)
        try:
            self.program.run()
        except Exception as error:
            for number, saved in self.undo:
                ctypes.memmove(table[number], pointer(saved), saved.nbytes)
            raise Undone from error

    # -------------------------------------------------------------------------------------------------- checking
    def holds(self, leaves: list[Any]) -> bool:
        """Whether everything is as it was when this was captured (the arguments' kinds were compared before)."""
        if not self.reads.hold():
            return False
        for i, tensor in self.same:
            if leaves[i] is not tensor:
                return False
        for i in self.others:
            if id(leaves[i]) in self.held:
                return False
        for leaf, node, mark in self.leaf_nodes:
            if leaf._node is not node or _mark(node) != mark:
                return False
        for optimizer, kept in self.optimizers:
            if not unchanged(optimizer, kept):
                return False
        for leaf, meta in self.grad_guards:
            grad = (leaves[leaf] if leaf.__class__ is int else leaf)._grad
            if (grad is None) is not (meta is None) or (meta is not None and _meta(grad) != meta):
                return False
        if not self.sources.hold() or not self.sources.apart(leaves):
            return False
        if not self._has_numbers():
            return False
        if self.number_guards or self.asked:
            numbers = self._read_numbers(leaves)
            if any([type(numbers[n]) is not float for n in self.asked]):
                return False
            return all(evaluate(e, numbers) == outcome for e, outcome in self.number_guards)
        return True

    def _has_numbers(self) -> bool:
        """Whether there are numbers where the program reads some."""
        for container, key, length in self.numeric:
            value = container.get(key)
            if (value.__class__ not in NUMERIC if length is None else value.__class__ is not tuple or len(value) != length
                    or any([v.__class__ not in NUMERIC for v in value])):
                return False
        return True

    def _read_numbers(self, leaves: Any) -> list[float]:
        return [leaves[k] if c is self.brought else c[k] if i is None else c[k][i] for c, k, i in self.numbers]

    # --------------------------------------------------------------------------------------------------- running
    def run(self, leaves: list[Any]) -> Any:
        program = self.program
        table = program.table
        with program.lock:
            self.sources.fill(leaves)
            numbers = self._read_numbers(leaves)
            for n, value in enumerate(numbers):
                program.numbers[n] = value
            raws = self._fresh_memory(table)
            for gradient in self.grads:
                self._ready(gradient, table)
            self.run_program()
            for leaf in self.dropped:
                (leaves[leaf] if leaf.__class__ is int else leaf)._grad = None
            for g in self.grads:
                (leaves[g.leaf] if g.leaf.__class__ is int else g.leaf)._grad = g.tensor
        self._bump(leaves)
        self.leave(leaves, raws)
        return self.result(leaves, raws, numbers)

    def leave(self, leaves: list[Any], raws: dict[int, Any]) -> None:
        """Gradients that are sparse or not alone in their memory, and counts kept as Python numbers."""
        for leaf, value in self.shared:
            grad = leaves[value] if value.__class__ is int else wrap(self._window(value, raws, leaves))
            (leaves[leaf] if leaf.__class__ is int else leaf)._grad = grad
        for leaf, parts, shape, coalesced in self.sparse:
            from ...sparse import make
            tensors = [wrap(self._window(v, raws, leaves)) for v in parts]
            (leaves[leaf] if leaf.__class__ is int else leaf)._grad = make(*tensors, shape, coalesced)
        for container, key in self.counts:
            container[key] += 1

    def _fresh_memory(self, table: Any) -> dict[int, Any]:
        raws = {}
        for i, number, shape, dtype in self.fresh_places:
            raws[i] = raw = self.program.empty(shape, dtype)
            table[number] = pointer(raw)
        return raws

    def _ready(self, g: Gradient, table: Any) -> None:
        """Memory for a gradient: the same as last time, unless somebody holds on to that."""
        leaf, grad = g.leaf, g.tensor
        if leaf.__class__ is not int:
            now = leaf._grad
            g.present = now is not None
            if grad is not None and getrefcount(grad) - (2 if now is grad else 0) <= _UNSEEN and (
                    getrefcount(grad._array) <= 2 and getrefcount(g.memory) <= 3 and grad._array.base is g.memory
                    and grad._node is None and (grad._counter is None or getrefcount(grad._counter) <= 2)
                    and not grad.__dict__ and not getweakrefcount(grad)):
                grad._counter = counted(g.version) if g.version else None  # not that of a view that is gone
                return
        self.remade.value += 1
        storage = g.value.storage
        g.memory = self.program.raw(storage.nbytes)
        g.tensor = grad = _new(Tensor)
        grad._array = self.program.window(g.memory, g.value)
        grad._node, grad._counter = None, counted(g.version) if g.version else None
        table[self.program.place[storage.id]] = pointer(g.memory)

    def _bump(self, leaves: list[Any]) -> None:
        sources = self.sources
        for t, more in sources.bumped:
            (t._counter or start_counter(t)).value += more
        for i, more in sources.bumped_args:
            t = leaves[i]
            (t._counter or start_counter(t)).value += more
        for leaf, more in sources.bumped_grads:
            grad = (leaves[leaf] if leaf.__class__ is int else leaf)._grad
            if grad is not None:
                (grad._counter or start_counter(grad)).value += more

    def _window(self, v: Value, raws: dict[int, Any], leaves: list[Any]) -> Any:
        """The array of a result: new memory, a view of an input, or a copy of a constant."""
        raw = raws.get(v.storage.id)
        if raw is not None:
            return raw if raw.dtype is v.dtype and raw.shape == v.shape else self.program.window(raw, v)
        if v.storage.kind is INPUT:
            return self.sources.window(v, leaves)
        return self.program.constant(v)

    def _attach(self, made: list[Any], leaves: list[Any], raws: dict[int, Any], numbers: list[float]) -> Any:
        """Gives the results their history; a plan without a backward program has none to give."""

    def result(self, leaves: list[Any], raws: dict[int, Any], numbers: list[float]) -> Any:
        """What the call returns. numbers: those that it was made with; another thread may have brought others by now."""
        made = []
        for out in self.results:
            if out.__class__ is not Output:
                kind, value = out
                if kind == "number":
                    value = evaluate(value, numbers)
                elif kind == "grad":
                    value = (leaves[value] if value.__class__ is int else value)._grad
                made.append(leaves[value] if kind == "arg" else made[value] if kind == "again" else value)
                continue
            array = self._window(out.value, raws, leaves)
            t = _new(Tensor)
            t._array = array
            t._counter = counted(out.version) if out.version else None
            t._node = out.node
            if out.tie is not None:
                source = self.sources.origin[out.value.storage.id][0]
                source = leaves[source] if source.__class__ is int else source
                if out.tie == "view":
                    mark_view(t, source)
                else:
                    t._counter = source._counter or start_counter(source)
            elif out.base is not None:
                base = wrap(self._window(out.base, raws, leaves))
                base._counter = t._counter
                mark_view(t, base)
            if out.inference:
                t._inference, t._counter = True, VersionCounter()
            made.append(t)
        self._attach(made, leaves, raws, numbers)
        return unflatten(self.shape, iter(made))


def counted(version: int) -> VersionCounter:
    """The counter of a new tensor that was changed so often already."""
    made = VersionCounter()
    made.value = version
    return made


def _can_fail(group: Any) -> bool:
    """Whether a part of a program looks at values and may find them wrong."""
    if group.__class__ is Control:
        return any(map(_can_fail, group.inside))
    if group.__class__ is not Single:
        return False
    return group.code is None or (can_fail(group.code) and not getattr(SAFE.get(group.op.kernel), "again", False))


def _layout(array: Any) -> Any:
    return array.__class__, array.shape, array.strides, array.dtype


def _meta(tensor: Any) -> Any:
    return tensor.__class__, tensor._node is None, tensor._inference, _layout(tensor._array), added(tensor)


def _mark(node: Any) -> Any:
    """Whether a tensor requires a gradient (None if not), and whether there are hooks on it."""
    return None if node is None else hooked(node)
