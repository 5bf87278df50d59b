"""A captured call that can be repeated: its program, what it takes for granted, and what it leaves behind."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from ..autograd.node import Node, start_counter
from ..autograd.state import state
from ..backends.cpu import memory
from ..native import pointer
from ..tensor import Tensor, wrap
from .capture import Recorder
from .guards import Guards
from .ir import CONSTANT, INPUT, TEMPORARY, Value
from .optimizers import unchanged
from .program import Program, array_at
from .symbolic import evaluate
from .trees import unflatten

_new = object.__new__
_UNSEEN = 4  # references to a gradient that nobody else holds: the leaf's, the plan's, the local name, getrefcount's own


class FreedGraph(Node):
    """The history of a result whose backward pass already ran inside the compiled function."""

    saved = None

    def __init__(self, like: Any):
        self.shape, self.dtype = like.shape, like.dtype

    def name(self) -> str:
        return "CompiledFunctionBackward"

    def apply(self, grads: Any) -> Any:
        from ..autograd.node import freed_error
        raise freed_error(self)


class Output:
    """How one tensor of the result is made: a window onto a storage that is new at every call, or onto an input.

    node: it had a history whose backward pass ran inside; graph: its number among those that still have one.
    """

    __slots__ = ("graph", "node", "value")

    def __init__(self, value: Value, node: Any, graph: int | None = None):
        self.value, self.node, self.graph = value, node, graph


class Sources:
    """Where a program's inputs come from at each call: arguments, tensors that are held, gradients of leaves."""

    def __init__(self, program: Program, recorder: Recorder, leaves: list[Any]):
        by_id = {id(a): i for i, a in enumerate(leaves) if isinstance(a, Tensor)}
        of_grads = {id(grad): leaf for leaf, grad in recorder.grad_found.values() if grad is not None}
        self.table = program.table
        self.from_args: list[tuple[int, int, int]] = []
        self.from_grads: list[tuple[Any, int, int]] = []
        self.held: list[tuple[Any, int, int]] = []
        self.bumped: list[Any] = []
        self.bumped_args: list[int] = []
        self.origin: dict[int, tuple[Any, int]] = {}
        copies = {id(t): copy for t, _, copy in recorder.copied}
        for storage in program.inputs:
            number, source = program.place[storage.id], storage.source
            delta = storage.start - (pointer(copies.get(id(source), source._array)) or 0)
            written = storage.id in program.written
            if id(source) in by_id:
                at = by_id[id(source)]
                self.from_args.append((at, number, delta))
                self.origin[storage.id] = at, delta
                if written:
                    self.bumped_args.append(at)
            elif id(source) in of_grads:
                self.from_grads.append((of_grads[id(source)], number, delta))
            else:
                self.held.append((source, number, delta))
                self.origin[storage.id] = source, delta
                self.table[number] = (pointer(source._array) or 0) + delta
                if written:
                    self.bumped.append(source)
        self.tensors = [t for t, _, _ in self.held]
        self.arrays = [t._array for t in self.tensors]
        self.flags = [t._node is None or t._node.hooks for t in self.tensors]

    def hold(self) -> bool:
        """Whether the held tensors are still the same; where only their memory moved, the new address is taken."""
        for tensor, array, flag in zip(self.tensors, self.arrays, self.flags):
            if tensor._array is not array and not self._moved(tensor):
                return False
            node = tensor._node
            if (node is None or node.hooks) is not flag:
                return False
        return True

    def _moved(self, tensor: Any) -> bool:
        for i, (t, number, delta) in enumerate(self.held):
            if t is tensor:
                old, new = self.arrays[i], tensor._array
                if new.__class__ is not ndarray or old.shape != new.shape or old.strides != new.strides or (
                        old.dtype is not new.dtype):
                    return False
                self.arrays[i] = new
                self.table[number] = (pointer(new) or 0) + delta
        return True

    def fill(self, leaves: list[Any]) -> None:
        table = self.table
        for i, number, delta in self.from_args:
            table[number] = (pointer(leaves[i]._array) or 0) + delta
        for leaf, number, delta in self.from_grads:
            table[number] = (pointer(leaf._grad._array) or 0) + delta

    def window(self, v: Value, leaves: list[Any]) -> ndarray:
        """A result that is a view of an input."""
        from ..backends.cpu.arrays import restride
        source, delta = self.origin[v.storage.id]
        array = (leaves[source] if source.__class__ is int else source)._array
        return restride(array, v.shape, v.strides, (delta + v.offset) // v.dtype.itemsize)


class Plan:
    """Runs a captured call again."""

    def __init__(self, recorder: Recorder, guards: Guards, leaves: list[Any], result: Any, outputs: list[Any], shape: Any,
                 exact: bool, name: str, timed: bool = False):
        self.timed = timed
        self.guards, self.shape = guards, shape
        self.mode = recorder.mode
        self.numbers = recorder.numbers
        self.number_guards = recorder.number_guards
        self.optimizers = recorder.optimizers
        self.results = outputs            # leaves of the result: Output, ("same", tensor), ("arg", i) or ("value", x)
        self.grads = self._final_grads(recorder)
        self.grad_guards = [(leaf, None if grad is None else _meta(grad)) for leaf, grad in recorder.grad_found.values()]
        fresh = {o.value.storage.id: o.value.storage for o in outputs if o.__class__ is Output
                 and o.value.storage.kind is TEMPORARY}
        self.fresh = list(fresh.values())
        self._build(recorder, leaves, exact, name)
        self.sources = Sources(self.program, recorder, leaves)
        self.counters: list[Any] | None = None

    # ------------------------------------------------------------------------------------------------- building
    def _build(self, recorder: Recorder, leaves: list[Any], exact: bool, name: str) -> None:
        kept = [*self.fresh, *[v.storage for _, v, _ in self.grads]]
        self.program = Program(recorder.ops, kept, [], len(self.numbers), exact, name, self.timed)

    def _final_grads(self, recorder: Recorder) -> list[list[Any]]:
        """[leaf, value, tensor] for gradients that the program makes; the rest are dropped or changed in place."""
        made, self.dropped, self.kept_grads = [], [], []
        for leaf in recorder.leaves.values():
            grad = leaf._grad
            if grad is None:
                self.dropped.append(leaf)
                continue
            value = recorder.value(grad._array, CONSTANT)
            if value.storage.kind is TEMPORARY:
                made.append([leaf, value, None])
            elif value.storage.kind is CONSTANT:
                storage = value.storage
                storage.kind, storage.init = TEMPORARY, array_at(storage.start, Value(
                    storage, 0, (storage.nbytes,), (1,), np.dtype(np.uint8))).tobytes()
                made.append([leaf, value, None])
        return made

    # -------------------------------------------------------------------------------------------------- checking
    def holds(self) -> bool:
        """Whether everything but the arguments is as it was when this was captured."""
        if state.mode != self.mode or not self.guards.hold():
            return False
        for optimizer, kept in self.optimizers:
            if not unchanged(optimizer, kept):
                return False
        for leaf, meta in self.grad_guards:
            grad = leaf._grad
            if (grad is None) is not (meta is None) or (meta is not None and _meta(grad) != meta):
                return False
        if not self.sources.hold():
            return False
        if self.number_guards:
            numbers = self._read_numbers()
            return all(evaluate(e, numbers) == outcome for e, outcome in self.number_guards)
        return True

    def _read_numbers(self) -> list[float]:
        return [c[k] if i is None else c[k][i] for c, k, i in self.numbers]

    # --------------------------------------------------------------------------------------------------- running
    def run(self, leaves: list[Any]) -> Any:
        program = self.program
        table = program.table
        with program.lock:
            self.sources.fill(leaves)
            if self.numbers:
                numbers = program.numbers
                for n, (container, key, i) in enumerate(self.numbers):
                    numbers[n] = container[key] if i is None else container[key][i]
            raws = self._fresh_memory(table)
            for entry in self.grads:
                self._ready(entry, table)
            program.run()
            for leaf in self.dropped:
                leaf._grad = None
            for leaf, _, grad in self.grads:
                leaf._grad = grad
        self._bump(leaves)
        return self._result(leaves, raws)

    def _fresh_memory(self, table: Any) -> dict[int, Any]:
        raws = {}
        for storage in self.fresh:
            raws[storage.id] = raw = memory.empty((storage.nbytes,), BYTES)
            table[self.program.place[storage.id]] = pointer(raw)
        return raws

    def _ready(self, entry: list[Any], table: Any) -> None:
        """Memory for a gradient: the same as last time, unless somebody holds on to that."""
        leaf, value, grad = entry
        if grad is not None:
            held = getrefcount(grad) - (1 if leaf._grad is grad else 0)
            if held <= _UNSEEN - 1 and getrefcount(grad._array) <= 2 and grad._counter is None and grad._node is None:
                return
        storage = value.storage
        raw = memory.empty((storage.nbytes,), BYTES)
        entry[2] = grad = _new(Tensor)
        grad._array = value.array(raw)
        grad._node = grad._counter = None
        table[self.program.place[storage.id]] = pointer(raw)

    def _bump(self, leaves: list[Any]) -> None:
        sources = self.sources
        if self.counters is None:
            self.counters = [t._counter or start_counter(t) for t in sources.bumped]
        for counter in self.counters:
            counter.value += 1
        for i in sources.bumped_args:
            t = leaves[i]
            (t._counter or start_counter(t)).value += 1
        for leaf, _, _ in sources.from_grads:
            grad = leaf._grad
            if grad is not None:
                (grad._counter or start_counter(grad)).value += 1

    def _attach(self, made: list[Any], leaves: list[Any], raws: dict[int, Any]) -> None:
        """Gives the results their history; a plan without a backward program has none to give."""

    def _result(self, leaves: list[Any], raws: dict[int, Any]) -> Any:
        made = []
        for out in self.results:
            if out.__class__ is not Output:
                kind, value = out
                made.append(leaves[value] if kind == "arg" else value)
                continue
            v = out.value
            if v.storage.id in raws:
                array = v.array(raws[v.storage.id])
            elif v.storage.kind is INPUT:
                array = self.sources.window(v, leaves)
            else:
                array = array_at(self.program.address(v.storage) + v.offset, v).copy()
            t = _new(Tensor)
            t._array = array
            t._counter = None
            t._node = None if out.node is None else FreedGraph(array)
            made.append(t)
        self._attach(made, leaves, raws)
        return unflatten(self.shape, iter(made))


BYTES = np.dtype(np.uint8)


def _meta(tensor: Any) -> Any:
    a = tensor._array
    return a.shape, a.strides, a.dtype

