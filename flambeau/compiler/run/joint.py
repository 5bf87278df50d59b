"""Functions whose result is still part of the autograd graph: a forward program and a backward program.

After the function has run under capture, the backward pass of its results is captured too, with gradients that each call brings
anew. What the backward operations read of the forward ones is kept by the call in memory of its own. The results get one node,
`CompiledFunctionBackward`, whose inputs are the leaves (parameters) and the arguments that require a gradient. Results
whose graphs have nothing in common can be walked one by one. Where the gradients shall be part of a graph themselves
(create_graph=True), or only some of the results are walked, the node runs the function again, eagerly, and later calls are
followed; the captured call of a function that cannot run again keeps eager's graph for it.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from numpy import ndarray

from ...amp.autocast_mode import autocast, get_autocast_dtype
from ...autograd.engine import Task, run
from ...autograd.errors import freed_error, modified_error
from ...autograd.function_context import FunctionNode
from ...autograd.modes import enable_grad
from ...autograd.node import AccumulateGrad, Edge, Node, next_sequence, start_counter
from ...autograd.state import AUTOCAST, BATCHED, NO_GRAD, state
from ...autograd.views import CopySlices, edge_of
from ...backends import registry
from ...backends.batched.arrays import BatchedArray, batch
from ...backends.batched.table import run as together
from ...native import pointer
from ...ops.core.row import nothing_to_free
from ...settings import _state as _settings
from ...tensors.dtypes import get_default_dtype
from ...tensors.tensor import Tensor, wrap
from ..capture.traced import stripped, traced
from ..capture.tracing import Recorder
from ..capture.trees import flatten, flatten_result, unflatten
from ..capture.watch import present
from ..ir.parts import CONSTANT, TEMPORARY, Storage, Value
from ..passes.cleanup import reads_of
from ..render.template import Family
from .plan import BYTES, Output, Plan, Sources, kind_of
from .program import array_at

_new = object.__new__


def settings() -> Any:
    """What a call's signature has of the settings, other than its grad mode."""
    return get_default_dtype(), *_settings.values()


class _Trial(Task):
    """The backward pass that is captured right after the function. The caller's own pass comes later, perhaps, and must find
    every `.grad` as it was."""

    __slots__ = ("recorder",)

    def admit(self, inner: Task) -> None:
        """A Function's backward runs a pass of its own: only that of tensors which the call made may be tried."""
        if inner.accumulate:
            made = self.recorder.made_so_far()
            if any(node.__class__ is AccumulateGrad and id(node._variable()) not in made for node in inner.reached):
                raise RuntimeError("a Function's backward adds to the gradients of tensors that are not its inputs")


class Joint:
    """The captured backward pass of a call's results."""

    def __init__(self, recorder: Recorder, results: list[Any], args: list[Any]):
        self.boundary = len(recorder.ops)
        self.results = results = [r for r in results if not _spent(r, recorder)]
        if not results:
            return
        self.given: list[Value] = []
        roots = []
        for r in results:
            gradient = _ones(stripped(r._array))
            storage = recorder.new_storage(TEMPORARY, gradient)
            recorder.used.add(storage.id)
            self.given.append(Value(storage, 0, gradient.shape, tuple(s // gradient.itemsize for s in gradient.strides),
                                    gradient.dtype))
            t = _new(Tensor)
            t._array, t._node, t._counter = traced(gradient), None, None
            roots.append((*_place(r), t))
        self.targets = _targets(roots, args, recorder.first_sequence)
        ways = [_reachable(node) for node, _, _ in roots]
        self.shares = _shared_parts(ways)
        self.reached_by = [[i for i, way in enumerate(ways) if node in way] for node, _, _ in self.targets]
        recorder.joint = self
        with autocast("cpu", enabled=False), autocast("cuda", enabled=False):  # as for a backward pass after the block
            targets = [(node, nr) for node, nr, _ in self.targets]
            trial = _Trial(True, False, targets, False)
            trial.recorder = recorder
            found = _backward(roots, targets, trial)
        self.grads = [None if grad is None else recorder.value(grad._array) for grad in found]


def _ones(like: Any) -> Any:
    make = lambda: registry.backend_of(like).full(like.shape, like.dtype, 1)
    return make() if present() is None else present().unwatched(make)


def runs_python(results: list[Any]) -> bool:
    """Whether the backward pass of these would run hooks, or a Function of the user's."""
    seen, stack = set(), [r._node.node if r._node.__class__ is Edge else r._node for r in results]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, FunctionNode) or (node.hooks is not None and node.__class__ is not AccumulateGrad):
            return True
        stack.extend(e.node if e.__class__ is Edge else e for e in node.next if e is not None)
    return False


def _spent(result: Any, recorder: Recorder) -> bool:
    """Whether a backward pass inside the call already freed part of a result's graph, as of one that was made afterwards."""
    root, seen = _place(result)[0], set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in recorder.reached and not node.is_leaf_node:
            recorder.reached.add(root)
            return True
        if node not in seen and node.sequence > recorder.first_sequence:
            seen.add(node)
            stack.extend(e.node if e.__class__ is Edge else e for e in node.next if e is not None)
    return False


def _reachable(root: Any) -> set[Any]:
    """The nodes that a gradient of this one goes to."""
    found, stack = set(), [root]
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(e.node if e.__class__ is Edge else e for e in node.next if e is not None)
    return found


def _shared_parts(ways: list[set[Any]]) -> list[int]:
    """For each result, of which results (a bit each) the graph is in part its own: where that part keeps something that a pass
    frees, one of the two passes has to retain it."""
    keeping = [{node for node in way if not node.is_leaf_node and (
        (node.saved and getattr(node.release, "__func__", node.release) is not nothing_to_free)
        or node.__class__ is CopySlices)} for way in ways]
    return [sum([1 << j for j, others in enumerate(keeping) if own & others]) for own in keeping]


def _place(tensor: Any) -> tuple[Any, int]:
    """The node that made a tensor, and which of its outputs it is."""
    edge = edge_of(tensor)
    return (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)


def _backward(roots: list[Any], targets: list[tuple[Node, int]], task: Task) -> list[Any]:
    """The gradients of the targets. The pass stops there: what lies behind them is the outer graph's business. Hooks there run
    outside as well, when the compiled node hands its gradients on."""
    borders = {node: (node.next, node.hooks) for node, _ in targets}
    try:
        for node in borders:
            node.next, node.hooks = (), None
        found = run(roots, task)
    finally:
        for node, (edges, hooks) in borders.items():
            node.next, node.hooks = edges, hooks
    return [found.get(target) for target in targets]


def _targets(roots: list[Any], args: list[Any], first: int) -> list[tuple[Node, int, Any]]:
    """(node, output, where it comes from): leaves in the graph, and arguments that are part of an outer graph."""
    found: list[tuple[Node, int, Any]] = []
    borders: dict[Any, int] = {}
    for i, a in enumerate(args):
        node, nr = _place(a) if isinstance(a, Tensor) else (None, 0)
        if node is not None and (node, nr) not in borders:
            borders[node, nr] = i
            found.append((node, nr, i))
    border_nodes = {node for node, _ in borders}
    seen, stack = set(), [node for node, _, _ in roots]
    while stack:
        node = stack.pop()
        if node in seen or node in border_nodes:
            continue
        seen.add(node)
        if node.__class__ is AccumulateGrad:
            if node._variable() is None:
                raise RuntimeError("a gradient goes to a tensor that is gone")
            found.append((node, 0, node._variable()))
        elif node.sequence < first:
            raise RuntimeError("a gradient goes through operations that were recorded outside of the compiled function")
        stack.extend(e.node if e.__class__ is Edge else e for e in node.next if e is not None)
    return found


class CompiledFunctionBackward(Node):
    """The backward pass of one call of a compiled function."""

    plan: JointPlan

    def __init__(self, plan: JointPlan, leaves: list[Any], raws: dict[int, Any], numbers: list[float], outputs: list[Any]):
        self.plan, self.saved = plan, (leaves, raws, numbers)
        self.sequence = next_sequence()
        self.next = tuple([edge_of(leaves[source] if source.__class__ is int else source) for source in plan.receivers])
        self.outputs = [(a.shape, a.dtype) for a in outputs]
        self.marks, self.all_marks = plan.marks(leaves), plan.all_marks(leaves)
        self.watched: list[tuple[Any, Any, int]] = []  # results that the backward program reads: array, counter, version
        self.walked = self.freed = 0              # results (a bit each) that the last pass began at; all that were freed
        self.first: list[tuple[Any, int]] = []    # of the captured call, where that cannot be repeated: eager's own graph

    def apply(self, grads: Any) -> Any:
        plan = self.plan
        self.walked = sum([1 << i for i, g in enumerate(grads) if g is not None])
        if self.saved is None or (self.freed and any([plan.shares[i] & self.freed for i, g in enumerate(grads)
                                                      if g is not None])):
            raise freed_error(self)
        leaves, raws, numbers = self.saved
        again = not state.mode & NO_GRAD
        self._check_versions(leaves, again)
        if again:
            return self._repeated(grads, leaves, True)
        if state.mode & BATCHED and any([g is not None and type(g._array) is BatchedArray for g in grads]):
            return self._of_each(grads, leaves, raws)
        if None in grads and (self.first or (plan.repeatable and plan.all_marks(leaves) == self.all_marks and
                                             plan.goes_the_same_way(leaves, numbers))):
            with enable_grad():
                return self._repeated(grads, leaves, False)
        return plan.run_backward(grads, leaves, raws, numbers)

    def release(self) -> None:
        """Frees what the results keep that the last pass began at; results whose graph is another one can still be walked."""
        self.freed |= self.walked
        if all([shared & self.freed for shared in self.plan.shares]):
            self.saved, self.first = None, []

    def _check_versions(self, leaves: list[Any], again: bool) -> None:
        plan, marks = self.plan, self.marks
        if plan.marks(leaves) == marks and not any([c.value != v for _, c, v in self.watched]) and (
                not again or self.first or plan.all_marks(leaves) == self.all_marks):
            return
        if again:
            plan.retire()
        for tensor, mark in (*zip(plan.read_backward(leaves), marks), *zip(plan.read(leaves), self.all_marks)):
            if tensor._counter is not None and tensor._counter.value != mark:
                raise modified_error(self, tensor, tensor._array, mark, tensor._counter.value, tensor._counter)
        array, counter, mark = next(w for w in self.watched if w[1].value != w[2])
        raise modified_error(self, None, array, mark, counter.value, counter)

    def _of_each(self, grads: Any, leaves: list[Any], raws: dict[int, Any]) -> list[Any]:
        """Gradients of a batch, inside vmap: the program takes one example at a time."""
        levels = [g._array.level for g in grads if g is not None and type(g._array) is BatchedArray]
        if not levels:
            return self.plan.run_backward(grads, leaves, raws, self.saved[2])
        level = max(levels, key=lambda known: known.number)
        each = [self._of_each([wrap(g._array.examples[i, ...]) if g is not None and type(g._array) is BatchedArray and (
            g._array.level is level) else g for g in grads], leaves, raws) for i in range(level.size)]
        return [None if column[0] is None else wrap(batch(level, together("stack", [t._array for t in column], 0,
                                                                          column[0]._array.dtype))) for column in zip(*each)]

    def _repeated(self, grads: Any, leaves: list[Any], create_graph: bool) -> list[Any]:
        """The gradients as part of a graph, or those of some of the results: through the graph of the captured call, or the
        function runs once more, eagerly. Later calls are followed: they have a graph of their own."""
        plan = self.plan
        plan.retire()
        targets = [_place(leaves[s] if s.__class__ is int else s) for s in plan.receivers]
        if self.first:
            roots = [(*self.first[i], g) for i, g in enumerate(grads) if g is not None]
            return _backward(roots, targets, Task(True, create_graph, targets, False))
        if not plan.repeatable:
            raise RuntimeError("flambeau.compile: the backward pass of a compiled function that draws random numbers or "
                               "changes tensors is not recorded; run it eagerly for second derivatives (create_graph=True)")
        if not plan.goes_the_same_way(leaves, self.saved[2]):
            raise RuntimeError("flambeau.compile: what the compiled function read has changed since the call ("
                               f"{plan.reads.broken() or 'a number or a setting'}), and second derivatives (create_graph=True) "
                               "need to run it once more; take them before the change, or run it eagerly")
        function, tree = plan.call
        args, kwargs = unflatten(tree, iter(leaves))
        found: list[Any] = []
        flatten_result(function(*args, **kwargs), found)
        results = {out.graph: t for out, t in zip(plan.results, found) if out.__class__ is Output}
        roots = [(*_place(results[i]), g) for i, g in enumerate(grads) if g is not None]
        return _backward(roots, targets, Task(create_graph, create_graph, targets, False))


class JointPlan(Plan):
    """A plan with a second program for the backward pass."""

    def _build(self, recorder: Recorder, leaves: list[Any], exact: bool, family: Family | None) -> None:
        joint = recorder.joint
        ahead, back = recorder.ops[:joint.boundary], recorder.ops[joint.boundary:]
        self.call = None
        if recorder.invoked is not None:
            function, args, kwargs = recorder.invoked
            if recorder.mode & AUTOCAST:
                function = autocast("cpu", get_autocast_dtype("cpu"))(function)
            self.call = function, flatten([list(args), kwargs], [])
        self.settings, self.shares = settings(), joint.shares
        self.receivers = [source for _, _, source in joint.targets]  # not their nodes: those hold the first call's graph
        self.grad_values, self.grad_inputs, self.reached_by = joint.grads, joint.given, joint.reached_by
        made_ahead = {w.storage.id for op in ahead for w in op.writes}
        grads = {v.storage.id: v.storage for v in joint.grads if v is not None}
        own = {v.storage.id for v in joint.given}
        saved: dict[int, Storage] = {}
        for op in back:
            for v in (*reads_of(op), *op.writes):
                if v.storage.kind is TEMPORARY and v.storage.id in made_ahead:
                    saved[v.storage.id] = v.storage
        for i, s in grads.items():
            if i in made_ahead and s.kind is TEMPORARY:
                saved[i] = s
        self.saved = [s for i, s in saved.items() if i not in own]
        fresh = {s.id: s for s in (*self.fresh, *self.saved)}
        self.fresh = list(fresh.values())
        kept = [*self.fresh, *[g.value.storage for g in self.grads]]
        kind = kind_of(recorder)
        self.program = kind(ahead, kept, [], len(self.numbers), exact, family)
        self.program.expect({o.value.storage.id for o in self.results if o.__class__ is Output})
        new = [s for i, s in grads.items() if s.kind is TEMPORARY and i not in saved and i not in own]
        self.new_grads = new
        given = [*self.saved, *[v.storage for v in joint.given]]
        self.backward_program = kind(back, new, given, len(self.numbers), exact, family)
        self.backward_program.expect({s.id for s in new})
        shown = {o.value.storage.id for o in self.results if o.__class__ is Output}
        self.hidden = {} if self.program.undoes else {s.id: None for s in self.saved if s.id not in shown}
        self.backward_sources = Sources(self.backward_program, recorder, leaves)

    def goes_the_same_way(self, leaves: list[Any], numbers: list[float]) -> bool:
        """Whether the function would do now what it did for the call that is gone through backward."""
        return self.settings == settings() and self.reads.hold() and self._read_numbers(leaves) == numbers

    def retire(self) -> None:
        """No later call shall be answered by this plan."""

    @property
    def repeatable(self) -> bool:
        """Whether the function can run once more and do nothing but compute the same."""
        return not (self.call is None or self.sources.writes)

    def read_backward(self, leaves: list[Any]) -> list[Any]:
        """What the backward program will read."""
        return [t for t, _, _ in self.backward_sources.held] + [leaves[i] for i, _, _ in self.backward_sources.from_args]

    def read(self, leaves: list[Any]) -> list[Any]:
        """What the function read."""
        return self.sources.tensors + [leaves[i] for i, _, _ in self.sources.from_args]

    def marks(self, leaves: list[Any]) -> list[int]:
        """Versions of what the backward program will read."""
        return [0 if t._counter is None else t._counter.value for t in self.read_backward(leaves)]

    def all_marks(self, leaves: list[Any]) -> list[int]:
        """Versions of what the function read."""
        return [0 if t._counter is None else t._counter.value for t in self.read(leaves)]

    def _attach(self, made: list[Any], leaves: list[Any], raws: dict[int, Any], numbers: list[float]) -> Any:
        outputs = [None] * len(self.grad_inputs)
        for out, t in zip(self.results, made):
            if out.__class__ is Output and out.graph is not None:
                outputs[out.graph] = t
        node = CompiledFunctionBackward(self, leaves, raws, numbers, [t._array for t in outputs])
        saved = {s.id for s in self.saved}
        for out, t in zip(self.results, made):
            if out.__class__ is Output and out.value.storage.id in saved:  # the caller must not write to it before backward
                node.watched.append((t._array, t._counter or start_counter(t), t._counter.value))
        for nr, t in enumerate(outputs):
            t._node = Edge(node, nr)
        return node

    def adopt(self, recorder: Recorder, results: list[Any], leaves: list[Any]) -> None:
        """Lets the results of the captured call itself continue in the backward program, on the memory of that call."""
        spans = [Value(s, 0, (s.nbytes,), (1,), BYTES) for s in self.saved]
        raws = {v.storage.id: array_at(v.storage.start, v) for v in spans}
        raws["held"] = [s.hold for s in self.saved]
        first = [] if self.repeatable else [_place(t) for t in recorder.joint.results]
        recorder.joint = None
        born = set(map(id, recorder.born))
        for out, t in zip(self.results, results):
            if out.__class__ is Output and id(t._base) in born:  # as a view it would keep eager's graph, through its base
                for name in ("_base", "_seen", "_creation", "_view_fn"):
                    t.__dict__.pop(name, None)
        self._attach(results, leaves, raws, recorder.number_values).first = first

    def _fresh_memory(self, table: Any) -> dict[int, Any]:
        """On a device, what only the backward program sees stays where it was, unless an earlier call still waits for its
        backward pass: a graph works at fixed addresses."""
        raws = super()._fresh_memory(table)
        for i, last in self.hidden.items():
            if last is not None and getrefcount(last) <= 3:
                raws[i] = last
                table[self.program.place[i]] = pointer(last)
            self.hidden[i] = raws[i]
        return raws

    def run_backward(self, grads: list[Any], leaves: list[Any], raws: dict[int, Any], numbers: list[float]) -> list[Any]:
        program, table = self.backward_program, self.backward_program.table
        with program.lock:
            if not self.backward_sources.still_there(leaves):
                raise RuntimeError("a tensor needed for gradient computation has been given memory of another shape or dtype "
                                   "since a compiled function read it")
            self.backward_sources.fill(leaves)
            for n, value in enumerate(numbers):
                program.numbers[n] = value
            held = []
            for value, grad in zip(self.grad_inputs, grads):
                array = program.zeros(value.shape, value.dtype) if grad is None else program.contiguous(grad._array)
                held.append(array)
                table[program.place[value.storage.id]] = pointer(array)
            for s in self.saved:
                table[program.place[s.id]] = pointer(raws[s.id])
            new = {}
            for s in self.new_grads:
                new[s.id] = raw = program.empty((s.nbytes,), BYTES)
                table[program.place[s.id]] = pointer(raw)
            program.run()
        return [None if v is None or all(grads[i] is None for i in roots) else self._gradient(v, new, raws, held, leaves)
                for v, roots in zip(self.grad_values, self.reached_by)]

    def _gradient(self, v: Value, new: Any, raws: Any, held: list[ndarray], leaves: list[Any]) -> Tensor:
        raw, program = new.get(v.storage.id), self.backward_program
        if raw is not None:
            array = program.window(raw, v)
        elif v.storage.id in raws:
            array = program.window(raws[v.storage.id], v).copy()
        else:
            array = next((program.window(h, v) for g, h in zip(self.grad_inputs, held) if g.storage is v.storage), None)
            if array is None:
                array = program.constant(v) if v.storage.kind is CONSTANT else program.held(v)
        t = _new(Tensor)
        t._array, t._node, t._counter = array, None, None
        return t
