"""`CompiledFunction`: finds the plan that fits a call, or captures a new one."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..amp.autocast_mode import _settings as autocast
from ..autograd.node import AccumulateGrad, Edge, version_of
from ..autograd.state import AUTOCAST, INFERENCE, NO_GRAD, state
from ..autograd.views import edge_of
from ..backends.cpu import memory
from ..dtypes import get_default_dtype
from ..native import toolchain, waiting
from ..tensor import Tensor
from . import backend  # noqa: F401  (enters the backend of traced arrays)
from .capture import Recorder, Uncapturable, active, shared
from .follow import Paths
from .guards import Watch, watching
from .ir import CONSTANT
from .joint import Joint, JointPlan
from .optimizers import first_at
from .plan import Output, Plan, overlaps
from .replay import MISS, Replay, Unsuitable
from .trees import flatten, flatten_result

_SIMPLE = (int, float, complex, bool, str, bytes, type(None))
_ATTEMPTS = 3   # captures of one signature before it is left to eager
_TRANSIENTS = 20  # calls of one signature that were unlike those that follow
_MOST = 64      # programs of one function
_FAILURES = 100  # captures of one function, whatever the signature, that came to nothing
_REPLAYS = 4    # plans whose next call is checked natively
_LASTING = 0.05  # seconds after which a replay that no longer fits was worth having
_RAREST = 256   # calls between two tries of making one
_MODES = NO_GRAD | INFERENCE | AUTOCAST
_FOLLOW = os.environ.get("FLAMBEAU_COMPILE") == "follow"  # every call is followed
stance = "default"  # what set_stance asked for
_functions: Any = weakref.WeakSet()
_capturing = threading.RLock()  # an eager first call may call other compiled functions


class CompiledFunction:
    """A function whose calls run as native programs."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool, mode: str | None, limit: int | None = None,
                 timed: bool = False):
        self.function, self.fullgraph, self.exact = function, fullgraph, mode == "exact"
        self.limit = _MOST if limit is None else limit
        self.timed = timed
        self._made_of = function, fullgraph, mode, limit, timed
        self.plans: dict[Any, list[Any]] = {}
        self.remembered: dict[int, Replay] = {}  # address of a plan -> the last way to repeat it
        self.replays: list[Replay] = []          # those that are tried first, the latest first
        self.attempts: dict[Any, int] = {}
        self.transients: dict[Any, int] = {}
        self.apart: set[Any] = set()  # signatures whose arguments share memory that is not written
        self.warned = False
        self.reasons: list[str] = []
        self.name = getattr(function, "__name__", type(function).__name__)
        self.paths = Paths(function, self.name, self.exact, fullgraph, timed)
        self.paths.pace = None
        _functions.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledFunction, self._made_of  # a copy makes its own programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        mode = state.mode
        if _FOLLOW and stance == "default":
            return self.paths.call(args, kwargs, ())
        if not kwargs and stance == "default":
            for replay in self.replays:
                if replay.mode == mode and (made := replay.run(args)) is not MISS:
                    return made
        if mode & ~_MODES or stance == "force_eager":  # inside another capture, or a mode that watches every operation
            return self.function(*args, **kwargs)
        leaves: list[Any] = []
        shape: Any
        for a in args:
            if a.__class__ is not Tensor:
                shape = [flatten(x, leaves) for x in args]
                break
        else:  # the usual call: nothing but tensors
            leaves, shape = list(args), len(args)
        if kwargs:
            shape = shape, flatten(kwargs, leaves)
        key = signature(leaves, mode, shape)
        for plan in self.plans.get(key, ()):
            if plan.holds(leaves):
                made = plan.run(leaves)
                if not kwargs and not mode & AUTOCAST:  # whose dtype is not part of the mode
                    self._remember(plan, args, mode)
                return made
        return self._new(key, leaves, args, kwargs)

    def _remember(self, plan: Plan, args: tuple[Any, ...], mode: int) -> None:
        """After a call that went the long way: the next ones may be just like it (replay.py).

        Where they turn out not to be, again and again, this is tried more and more rarely.
        """
        if plan.pause is None:  # nothing for replay.py
            return
        last = self.remembered.get(id(plan))
        if last is not None and last not in self.replays:  # other plans were in the way
            self.replays = [last, *self.replays[:_REPLAYS - 1]]
            return
        if last is not None and time.perf_counter() - last.since > _LASTING:
            plan.pause = plan.wait = 1
        plan.pause -= 1
        if plan.pause > 0:
            return
        plan.wait = min(2 * plan.wait, _RAREST)
        plan.pause = plan.wait
        try:
            self.remembered[id(plan)] = made = Replay(plan, args, mode)
        except Unsuitable:
            plan.pause = None
            return
        self.replays = [made, *[r for r in self.replays if r is not last][:_REPLAYS - 1]]

    # ------------------------------------------------------------------------------------------------- capturing
    def _new(self, key: Any, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        if self.attempts.get(key, 0) >= _ATTEMPTS or len(self.reasons) >= _FAILURES or stance == "eager_on_recompile" or (
                sum(map(len, self.plans.values())) >= self.limit):
            return self.function(*args, **kwargs)
        if stance == "fail_on_recompile":
            raise RuntimeError(f"compile: '{self.name}' has no program for this call, and set_stance('fail_on_recompile') "
                               "forbids to make one")
        if toolchain.compiler() is None:
            toolchain.hint()
            return self.function(*args, **kwargs)
        if key not in self.apart and (overlaps(leaves) or shared(leaves)):
            return self._overlapping(key, leaves, args, kwargs)
        with _capturing:
            for plan in self.plans.get(key, ()):  # another thread may have made it meanwhile
                if plan.holds(leaves):
                    return plan.run(leaves)
            if not self.fullgraph and key not in self.transients and first_at(self.function):
                self.transients[key] = 1
                with waiting(not self.exact):
                    return self.function(*args, **kwargs)
            return self.capture(key, leaves, args, kwargs)

    def _overlapping(self, key: Any, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """Arguments that share memory, with each other or with tensors outside, can be captured if none of it is written:
        one eager run tells."""
        tensors = [a for a in leaves if isinstance(a, Tensor)]
        before = [version_of(t) for t in tensors]
        result = self.function(*args, **kwargs)
        if before == [version_of(t) for t in tensors]:
            self.apart.add(key)
        else:
            self.attempts[key] = _ATTEMPTS
        return result

    def capture(self, key: Any, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """Runs the function once under capture and, if that went well, keeps a plan for the next calls."""
        start = time.perf_counter()
        recorder, watch = Recorder(self.fullgraph), Watch(self.function)
        tensors = [a for a in leaves if isinstance(a, Tensor)]
        if any(t.__class__ is not Tensor and not t._plain for t in tensors) or any(t.is_sparse for t in tensors):
            self.attempts[key] = _ATTEMPTS
            return self.function(*args, **kwargs)
        with _no_collector(), waiting(not self.exact):  # NumPy rounds otherwise than native kernels do
            try:
                recorder.invoked = self.function, args, kwargs
                recorder.begin(tensors)
                with watching(watch):
                    result = self.function(*args, **kwargs)
                if active() is not None:
                    self._capture_backward(recorder, leaves, result)
            except BaseException:
                self.attempts[key] = self.attempts.get(key, 0) + 1
                raise
            finally:
                recorder.end()
        seconds = {"capture": time.perf_counter() - start}
        reason = self._finish(recorder, watch, key, leaves, result, seconds)
        recorder.release()
        memory.trim()  # a capture keeps every temporary alive: that memory is not needed again
        if reason is not None:
            self._explain(reason, key)
        return result

    def _capture_backward(self, recorder: Recorder, leaves: list[Any], result: Any) -> None:
        """Captures the backward pass of results that are still part of a graph."""
        found: list[Any] = []
        flatten_result(result, found)
        given = {id(a) for a in leaves}
        live = []
        for r in found:
            if isinstance(r, Tensor) and id(r) not in given:
                edge = edge_of(r)
                node = edge.node if edge.__class__ is Edge else edge
                if node is not None and node.__class__ is not AccumulateGrad and node not in recorder.reached and (
                        node.sequence > recorder.first_sequence) and all(r is not x for x in live):
                    live.append(r)
        if not live:
            return
        try:
            Joint(recorder, live, leaves)
        except Uncapturable:
            raise
        except Exception as error:  # for the caller's own backward pass to raise, where there is one
            if recorder.failed is None:
                recorder.fail(f"its backward pass failed: {error}")

    def _finish(self, recorder: Recorder, watch: Watch, key: Any, leaves: list[Any], result: Any,
                seconds: dict[str, float]) -> str | None:
        """Makes the plan; returns why there is none."""
        for_good = self._obstacle(recorder, watch, leaves)
        if for_good is not None:
            self.attempts[key] = _ATTEMPTS
            return for_good
        if recorder.transient is not None:
            self.transients[key] = self.transients.get(key, 0) + 1
            if self.transients[key] < _TRANSIENTS:
                self.attempts[key] = self.attempts.get(key, 0) - 1  # the next call is another case
            return recorder.transient
        guards = watch.guards()
        changed = _changed_number(recorder) or guards.broken() or watch.snapshots.changed()
        if changed is not None:
            return f"{changed} was changed by the call"
        if recorder.replaced:
            return "a tensor was given other memory"
        recorder.forget_born_leaves()
        outputs, shape = self._outputs(recorder, leaves, result)
        if isinstance(outputs, str):
            return outputs
        results: list[Any] = []
        flatten_result(result, results)
        for out, r in zip(outputs, results):
            if out.__class__ is Output and out.node is not None:
                r._node = out.node  # the graph behind it is spent, and may hold on to tensors
            if out.__class__ is Output and out.value.storage.kind is CONSTANT:
                r._array = r._array.copy()  # the constant itself stays the program's
        if recorder.joint is None and (escaped := self._escaped(recorder, results)):
            return escaped
        kind = Plan if recorder.joint is None else JointPlan
        try:
            plan = kind(recorder, guards, leaves, outputs, shape, self.exact, self.timed)
        except (toolchain.BuildError, OSError) as error:
            self.attempts[key] = _ATTEMPTS
            return f"the program could not be built: {error}"
        if recorder.joint is not None:  # the first results are given the new history too: it takes the place of eager's graph
            plan.adopt(recorder, results, leaves)
            if escaped := self._escaped(recorder, results):
                return escaped
        recorder.release()
        plan.seconds = seconds | {"plan": plan.program.seconds_planning, "build": plan.program.seconds_building}
        # What the signature knows by its address must keep it.
        plan.arguments = [a for a in leaves if not isinstance(a, (Tensor, *_SIMPLE))]
        self.plans.setdefault(key, []).append(plan)
        return None

    def _obstacle(self, recorder: Recorder, watch: Watch, leaves: list[Any]) -> str | None:
        """Why no later call of this kind could be captured either."""
        if recorder.failed is not None:
            reason, where = recorder.failed
            return reason + (f" ({where[0]}, line {where[1]})" if where else "")
        if recorder.transient is not None:
            return None
        written = {w.storage for op in recorder.ops for w in op.writes}
        for a in leaves:
            if isinstance(a, Tensor) and a._node is not None and not a.is_leaf and recorder.known(a._array) in written:
                return "an argument that is part of a graph is changed in place"
        return watch.drew()

    def _outputs(self, recorder: Recorder, leaves: list[Any], result: Any) -> tuple[Any, Any]:
        found: list[Any] = []
        shape = flatten_result(result, found)
        by_id = {id(a): i for i, a in enumerate(leaves) if isinstance(a, Tensor)}
        born = {id(t) for t in recorder.born}
        outputs: list[Any] = []
        first: dict[int, int] = {}
        for n, r in enumerate(found):
            if not isinstance(r, Tensor):
                outputs.append(("value", r))
            elif first.setdefault(id(r), n) != n:
                outputs.append(("again", first[id(r)]))
            elif id(r) in by_id:
                outputs.append(("arg", by_id[id(r)]))
            elif id(r) not in born:
                outputs.append(("value", r))
            elif r.is_sparse:
                return "a result is a sparse tensor", None
            else:
                value = recorder.value_of(r)
                edge = r._node
                node = edge.node if edge.__class__ is Edge else edge
                graph = None
                if recorder.joint is not None:
                    graph = next((i for i, t in enumerate(recorder.joint.results) if t is r), None)
                if graph is None and node is not None and node not in recorder.reached and not node.is_leaf_node:
                    return "a result is part of a graph that began outside", None
                outputs.append(Output(value, None if graph is not None else node, graph, r._inference))
        return outputs, shape

    def _escaped(self, recorder: Recorder, results: list[Any]) -> str | None:
        """Tensors made inside that something outside still holds: later calls could not put them there."""
        grads = [leaf._grad for leaf in recorder.leaves.values()]
        owned = [*results, *grads]
        for grad in grads:
            if grad is not None and grad.is_sparse:
                owned += [grad._held_indices, grad._held_values]
        owned += [t._base for t in owned if isinstance(t, Tensor) and t._base is not None]
        allowed = set(map(id, owned))
        references = [weakref.ref(t) for t in recorder.born if id(t) not in allowed]
        recorder.born, recorder.reached = [], set()  # spent nodes may hold on to what a Function put on its ctx
        for youngest in (1, 2):  # what the call made is young; only where that is not all, everything is looked at
            if any(r() is not None for r in references):
                gc.collect(youngest)
        left = [t for r in references if (t := r()) is not None]
        if left:
            return f"a tensor of shape {list(left[0].shape)} that the call made is kept outside of it"
        return None

    def _explain(self, reason: str, key: Any) -> None:
        self.reasons.append(reason)
        self.attempts[key] = self.attempts.get(key, 0) + 1
        if self.attempts[key] < _ATTEMPTS:
            return  # the next call may be capturable
        if not self.warned:
            self.warned = True
            warnings.warn(f"flambeau.compile: '{self.name}' runs eagerly: {reason}", RuntimeWarning, stacklevel=6)


def _changed_number(recorder: Recorder) -> str | None:
    """A hyper-parameter that is not what it was, other than by counting."""
    counts = {(id(container), name) for container, name in recorder.counts}
    for (group, name, index), value in zip(recorder.numbers, recorder.number_values):
        if (id(group), name) not in counts and (group[name] if index is None else group[name][index]) != value:
            return f"the optimizer's '{name}'"
    return None


def signature(leaves: list[Any], mode: int, shape: Any) -> Any:
    """What of the arguments a program depends on."""
    parts: list[Any] = [mode, shape if shape.__class__ is int else repr(shape), get_default_dtype()]
    if mode & AUTOCAST:
        parts.append((autocast.dtype_of("cpu"), autocast.cache))
    first: dict[int, int] = {}
    for n, a in enumerate(leaves):
        if isinstance(a, Tensor):
            array, node = a._array, a._node
            parts.append((a.__class__, array.shape, array.strides, array.dtype.num, None if node is None else node.__class__
                          is AccumulateGrad, first.setdefault(id(a), n), a._inference))
        elif isinstance(a, _SIMPLE):
            parts.append((a.__class__, repr(a) if isinstance(a, (float, complex)) else a))
        else:
            parts.append(id(a))
            if isinstance(a, np.ndarray):  # can be changed in place, and so can a set
                parts.append((a.shape, a.dtype.char, a.tobytes()))
            elif a.__class__ is set:
                parts.append(frozenset(a))
    return tuple(parts)


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Callbacks of the collector and finalizers are not part of a captured call."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def reset() -> None:
    """Forgets every program of every compiled function."""
    for function in list(_functions):
        function.plans.clear()
        function.replays = []
        function.remembered.clear()
        function.attempts.clear()
        function.transients.clear()
        function.reasons.clear()
        function.apart.clear()
        function.warned = False
