"""The recorder: notes what a thread does while a profiler runs.

It stands in the thread's state, with a bit of the mode of its own, so that programs without a profiler know nothing of it. The
bit takes every operation off its fast path, to `overrides.dispatch`, which offers the call to `call` once nobody else wants it.
The engine offers the nodes of a backward pass (`node`, `accumulate`), rows their fused kernels (`kernel`), compiled functions
their calls. Blocks inside of blocks are a tree, whose root is the profile.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...backends import registry
from ...backends.cpu.memory import owner
from ...ops.core import generate, overrides
from ...tensors.tensor import Tensor
from ...utils.flop_counter import count_of
from ..engine import accumulate, current_task
from ..node import next_sequence
from ..state import NO_GRAD, PROFILE, state
from .events import MEMORY_EVENT_NAME, EventList, FunctionEvent
from .names import name_of
from .watched import loaders_watched, modules_watched

FUNCTION, BACKWARD, USER = 0, 1, 7  # scopes, by PyTorch's numbers
_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_INNER = tuple([os.path.join(_HOME, folder) + os.sep for folder in ("autograd", "backends", "compiler", "ops", "tensors")])
_clock = time.perf_counter_ns


class Record(NamedTuple):
    """A block that has ended. While it is kept, it is a plain tuple of numbers and text, and tuples of them: the garbage
    collector need not look at those, and so does not run more often, in the middle of what is measured, because of them."""

    name: str
    scope: int
    parent: int | None
    sequence: int
    nodes: int
    start: int
    end: int
    thread: int
    flops: int
    memory: int
    shapes: Any
    inputs: Any
    stack: str | None
    apart: bool


class Span:
    """A block of time that has not ended: an operation, a node or what the user named. number: the place of its record."""

    __slots__ = ("apart", "end", "flops", "inputs", "memory", "name", "nodes", "number", "parent", "pass_", "scope", "sequence",
                 "shapes", "stack", "start")

    def __init__(self, number: int, name: str, scope: int, parent: Span | None, sequence: int = -1):
        self.number, self.name, self.scope, self.parent, self.sequence = number, name, scope, parent, sequence
        self.shapes = self.inputs = self.stack = None
        self.flops = self.memory = 0
        self.apart = False                   # whether it goes on while others begin and end
        self.nodes = 0                       # how many nodes an operation made; the first has the number `sequence`
        self.pass_: int | None = None        # the backward pass whose node it is, from when the node itself is done
        self.start = self.end = _clock()

    def record(self) -> tuple[Any, ...]:
        """What a `Record` is made of."""
        return (self.name, self.scope, None if self.parent is None else self.parent.number, self.sequence, self.nodes,
                self.start, self.end, threading.get_ident(), self.flops, self.memory, self.shapes, self.inputs, self.stack,
                self.apart)


class Recorder:
    """shapes, memory, stacks, flops, modules: what is noted besides names and times."""

    def __init__(self, shapes: bool = False, memory: bool = False, stacks: bool = False, flops: bool = False,
                 modules: bool = False):
        self.shapes, self.memory, self.stacks, self.flops, self.modules = shapes, memory, stacks, flops, modules
        self.records: list[Any] = []  # in the order in which they began; None: it has not ended
        self.open: list[Span] = []       # those that have not ended, the innermost last
        self.apart: dict[int, Span] = {}  # those that have not ended and go on beside the others, by number
        self.passing: Any = None         # the function that has just been noted, and is about to ask again
        self.living: dict[int, Any] = {}  # id of an array that owns memory -> weak reference to it, while it lives
        self.numbers: dict[str, weakref.WeakKeyDictionary[Any, int]] = {}  # class of modules -> numbers of its modules
        self.calls: list[tuple[Any, Span]] = []  # of modules, the innermost last
        self.running = False
        self.at_stop: list[Callable[[], None]] = []
        self.base = time.time_ns() - _clock()
        self.zero = self.until = _clock()

    # ---------------------------------------------------------------------------------------------- on and off
    def start(self) -> None:
        if state.profiler is not None:
            raise RuntimeError("Profiler is already enabled on this thread")
        state.profiler = self
        self.resume()
        self.zero = _clock()

    def stop(self) -> None:
        if state.profiler is not self:
            raise RuntimeError("Can't disable the profiler: it was not started on this thread, or has been stopped")
        self.pause()
        state.profiler = None
        for undo in self.at_stop:
            undo()
        while self.open:
            self.end(self.open[-1])
        for number in list(self.apart):
            self._arrived(number)
        self.until = _clock()
        self.living.clear()

    def resume(self) -> None:
        """What happens from now on is noted."""
        if not self.running:
            self.running = True
            self._switched = contextlib.ExitStack()
            self._switched.enter_context(overrides.always_asked())
            self._switched.enter_context(loaders_watched())
            self._listen()

    def pause(self) -> None:
        if self.running:
            self.running = False
            self._ignore()
            self._switched.close()

    def _listen(self) -> None:
        self._modules = modules_watched(self) if self.modules else []
        state.mode |= PROFILE

    def _ignore(self) -> None:
        state.mode &= ~PROFILE
        for handle in self._modules:
            handle.remove()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """A block of which nothing is noted, and which finds no trace of a profiler."""
        self._ignore()
        try:
            yield
        finally:
            if self.running:
                self._listen()

    # ---------------------------------------------------------------------------------------------------- spans
    def begin(self, name: str, scope: int = FUNCTION, sequence: int = -1) -> Span:
        self._settle()
        span = Span(len(self.records), name, scope, self.open[-1] if self.open else None, sequence)
        if self.stacks:
            span.stack = _stack()
        self.records.append(None)
        self.open.append(span)
        span.start = _clock()
        return span

    def end(self, span: Span, at: int = 0) -> None:
        """Ends a block, and those inside of it that an exception left open. at: when it ended, if not just now."""
        now = at or _clock()
        while span in self.open:
            self._close(now)

    def _close(self, now: int) -> None:
        last = self.open.pop()
        if last.pass_ is None:
            last.end = now
        if last.parent is not None:
            last.parent.memory += last.memory
            if last.parent.pass_ is not None:
                last.parent.end = last.end
        self.records[last.number] = last.record()

    def _settle(self) -> None:
        """Closes the block of a node whose gradients the engine has passed on: sums on the way are still part of it."""
        while self.open and self.open[-1].pass_ is not None and self.open[-1].pass_ != _current_pass():
            self._close(0)

    @contextlib.contextmanager
    def span(self, name: str, scope: int = USER, sequence: int = -1) -> Iterator[Span]:
        made = self.begin(name, scope, sequence)
        try:
            yield made
        finally:
            self.end(made)

    def beside(self, name: str, given: Any) -> Callable[[], None]:
        """A block that goes on while others begin and end, perhaps in another thread; what is returned ends it."""
        self._settle()
        span = Span(len(self.records), name, USER, None)
        span.apart = True
        if self.shapes:
            span.shapes, span.inputs = _described(given)
        self.records.append(None)
        self.apart[span.number] = span
        return functools.partial(self._arrived, span.number)

    def _arrived(self, number: int) -> None:
        span = self.apart.pop(number, None)
        if span is not None:
            span.end = _clock()
            self.records[number] = span.record()

    def inside(self, parent: Span, name: str, start: int, duration: int, where: tuple[str, int] | None) -> None:
        """A block whose times are known already: a part of a program that has run. where: the user's file and line."""
        made = Span(len(self.records), name, FUNCTION, parent)
        made.start, made.end = start, start + duration
        if self.stacks and where is not None:
            made.stack = f"{_short(where[0])}({where[1]}): <compiled>\n{parent.stack or ''}".rstrip()
        self.records.append(made.record())

    # --------------------------------------------------------------------------------------------- what is offered
    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
        """An operation: (True, its result), or (False, None) if it is to go on as it would."""
        if self.passing is function:
            self.passing = None
            return False, None
        name = name_of(function, args, kwargs)
        if name is None or (self.open and self.open[-1].name.rstrip("_") == name.rstrip("_")):
            return False, None  # one name, one row: nn.functional.relu calls relu, add_ may call add
        span = self.begin(name, FUNCTION, -1 if state.mode & NO_GRAD else _next_number())
        if self.shapes:
            span.shapes, span.inputs = _described((*args, *kwargs.values()))
        if self.memory:
            self._given((*args, *kwargs.values()))
        if generate.is_made(function):  # nothing inside to note: it goes its usual way, and takes its usual time
            state.mode &= ~PROFILE
        else:
            self.passing = function
        span.start, done = _clock(), 0
        try:
            result = function(*args, **kwargs)
            done = _clock()
            self._results(span, result)
            if self.flops:
                span.flops = _flops(name, result, args, kwargs)
        finally:
            if self.running:
                state.mode |= PROFILE
            self.passing = None
            if span.sequence >= 0:
                span.nodes = _next_number() - span.sequence
            self.end(span, done)
        return True, result

    def node(self, node: Any, grads: Any, evaluate: Callable[..., Any], *rest: Any) -> Any:
        """A node of a backward pass: evaluate(node, grads, *rest)."""
        name = node.name()
        with self._evaluation(name, node.sequence), self.span(name, BACKWARD, node.sequence) as span:
            if self.shapes:
                span.shapes, span.inputs = _described(grads if isinstance(grads, (list, tuple)) else (grads,))
            if self.memory:
                self._given((grads,))
            results = evaluate(node, grads, *rest)
            self._results(span, results)
        return results

    def accumulate(self, node: Any, grad: Any, create_graph: bool) -> None:
        """A gradient that arrives at its leaf."""
        name = node.name()
        with self._evaluation(name), self.span(name, BACKWARD) as span:
            if self.shapes:
                span.shapes, span.inputs = _described((grad,))
            held = [grad]
            del grad  # a gradient that nobody else refers to is taken over without a copy
            accumulate(node, held.pop(), create_graph)

    @contextlib.contextmanager
    def _evaluation(self, name: str, sequence: int = -1) -> Iterator[None]:
        """The engine's work on a node, which goes on after the node is done."""
        while self.open and self.open[-1].pass_ is not None and self.open[-1].pass_ == _current_pass():
            self._close(0)
        span = self.begin(f"autograd::engine::evaluate_function: {name}", FUNCTION, sequence)
        try:
            yield
        except BaseException:
            self.end(span)
            raise
        span.end, span.pass_ = _clock(), _current_pass()

    def kernel(self, name: str, args: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        """A kernel that stands for several operations."""
        with self.span(f"flambeau::{name}", FUNCTION) as span:
            if self.shapes:
                span.shapes, span.inputs = _described(args)
            return run(name, args)

    # ---------------------------------------------------------------------------------------------------- memory
    def _given(self, values: Any) -> None:
        """Memory that was there before an operation began: what it only shows or changes is not its own."""
        for array in _owners(values):
            if id(array) not in self.living:
                self._watch(array)

    def _results(self, span: Span, results: Any) -> None:
        """Memory that was not known before counts where it is first seen."""
        if self.memory:
            for array in _owners((results,)):
                if id(array) not in self.living:
                    span.memory += self._watch(array)

    def _watch(self, array: Any) -> int:
        """Sees to it that the memory counts again, negative, when it is given back; returns how much it is."""
        nbytes, key, me = getattr(array, "used", array.nbytes), id(array), weakref.ref(self)

        def freed(_: Any) -> None:
            recorder = me()
            if recorder is not None and recorder.living.pop(key, None) is not None and nbytes:
                recorder._freed(nbytes)

        self.living[key] = weakref.ref(array, freed)
        return nbytes

    def _freed(self, nbytes: int) -> None:
        self._settle()
        if self.open:
            self.open[-1].memory -= nbytes
        elif self.running:
            span = Span(len(self.records), MEMORY_EVENT_NAME, FUNCTION, None)
            span.memory = -nbytes
            self.records.append(span.record())

    # --------------------------------------------------------------------------------------------------- modules
    def number_of(self, module: Any) -> int:
        """Modules of one class are told apart by the order in which they were first called."""
        known = self.numbers.setdefault(type(module).__name__, weakref.WeakKeyDictionary())
        return known.setdefault(module, len(known))

    # ---------------------------------------------------------------------------------------------------- results
    def events(self) -> EventList:
        """All that was noted, in the order in which it began."""
        records = [Record._make(r) for r in self.records]
        threads = {t: n for n, t in enumerate(dict.fromkeys([r.thread for r in records]), 1)}
        forward = {n: r for r in records for n in range(r.sequence, r.sequence + r.nodes)}  # the innermost that made a node
        made: list[FunctionEvent] = []
        for number, r in enumerate(records, 1):
            node = _node_of(r, records)
            first = forward.get(node.sequence) if node is not None else None
            stack = r.stack if first is None else first.stack
            event = FunctionEvent(
                number, r.name, threads[r.thread], (r.start - self.zero) / 1000, (r.end - self.zero) / 1000,
                fwd_thread=threads[first.thread] if first is not None else 0, concrete_inputs=list(r.inputs or ()),
                input_shapes=[list(shape) for shape in r.shapes or ()], stack=stack.split("\n") if stack else [], scope=r.scope,
                cpu_memory_usage=r.memory, sequence_nr=r.sequence, flops=r.flops, is_user_annotation=r.scope == USER)
            event.is_async = r.apart
            if r.parent is not None:
                event.set_cpu_parent(made[r.parent])
                event.cpu_parent.append_cpu_child(event)
            made.append(event)
        for event in reversed(made):  # a call that is made of counted ones does not count as well
            if event.flops and any([c.flops for c in _below(event)]):
                event.flops = 0
        return EventList(made, profile_memory=self.memory, with_flops=self.flops)


def _node_of(record: Record, records: list[Record]) -> Record | None:
    """The node of a backward pass that a block is, or is part of."""
    at: Record | None = record
    while at is not None:
        if at.scope == BACKWARD or at.name.startswith("autograd::engine"):
            return at
        at = None if at.parent is None else records[at.parent]
    return None


def _forget() -> None:
    """In a new process nobody will ask for what its parent's profiler would note there."""
    if state.profiler is not None:
        state.profiler.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _below(event: FunctionEvent) -> Iterator[FunctionEvent]:
    for child in event.cpu_children:
        yield child
        yield from _below(child)


def _owners(values: Any) -> Iterator[Any]:
    for v in values:
        if isinstance(v, Tensor):
            if type(v._array) is registry.CPU_ARRAY:
                yield owner(v._array)
        elif v.__class__ in (list, tuple):
            yield from _owners(v)


def _described(values: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The shapes of tensors (() for anything else), and the values of what is no tensor (None for tensors)."""
    shapes = tuple([tuple(v.shape) if hasattr(v, "shape") and hasattr(v, "dtype") else () for v in values])
    is_scalar = lambda v: v.__class__ in (int, float, bool, str, complex)
    sequence = lambda v: v.__class__ in (list, tuple) and all(map(is_scalar, v))
    return shapes, tuple([v if is_scalar(v) else tuple(v) if sequence(v) else None for v in values])


def _flops(name: str, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The operations of products and convolutions; of sums and products of elements, one for each."""
    if name in ("aten::add", "aten::mul"):
        return next((a.numel() for a in args if isinstance(a, Tensor)), 0)
    count = count_of(name.removeprefix("aten::"), result, args, kwargs)
    return 0 if count is None else count[1]


def _current_pass() -> int | None:
    task = current_task()
    return None if task is None else task.number


def _next_number() -> int:
    """The number that the next node will have; to ask the counter itself would move it."""
    return int(repr(next_sequence.__self__)[len("count("):-1])


def _stack() -> str:
    """The Python lines that led here, the innermost first, without those inside operations; one below the other."""
    frame, lines = sys._getframe(2), []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_INNER) and (lines or code.co_filename != contextlib.__file__):
            lines.append(f"{_short(code.co_filename)}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return "\n".join(lines)


@functools.cache
def _short(path: str) -> str:
    """A file as it is imported: without the folder of sys.path that it lies in."""
    folders = [f for f in sys.path if f and path.startswith(f.rstrip(os.sep) + os.sep)]
    return path[len(max(folders, key=len).rstrip(os.sep)) + 1:] if folders else path
