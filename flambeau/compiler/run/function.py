"""`CompiledFunction`: finds the plan that fits a call, captures a new one, or follows the call.

A call goes one of three ways. *skip*: a plan fits, and its program answers without running the Python; that takes a captured
call whose every read and effect is known (witness.py). *follow*: the Python runs, the kernels come from a program
(follow.py). *eager*, with a warning, where neither can be had.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from ...autograd import errors
from ...autograd.node import AccumulateGrad, Edge
from ...autograd.state import AUTOCAST, INFERENCE, NO_GRAD, PROFILE, state
from ...autograd.views import edge_of, outdated
from ...backends.cpu import memory
from ...backends.pending import bits
from ...native import toolchain, waiting
from ...nn.explain import explain
from ...nn.module import Module
from ...optim.optimizer import Optimizer
from ...tensors import dtypes
from ...tensors.device import defaults as devices
from ...tensors.device import device
from ...tensors.tensor import Tensor
from ..capture import backend  # noqa: F401  (enters the backend of traced arrays)
from ..capture.optimizers import first_at
from ..capture.reads import Metadata, same
from ..capture.symbolic import with_plain_numbers
from ..capture.traced import active
from ..capture.tracing import Recorder, Uncapturable
from ..capture.trees import comparable, flatten, flatten_result
from ..capture.watch import watching
from ..capture.witness import Witness
from ..follow.paths import Paths
from ..render.template import Family
from .joint import Joint, JointPlan, runs_python
from .plan import Irrevocable, Output, Plan, Undone
from .replay import MISS, UNDONE, Replay, Unsuitable
from .results import Unlike, results_of
from .signature import SIMPLE, floats_among, signature

_ATTEMPTS = 2   # captures of one signature before its calls are followed
_TRANSIENTS = 3  # calls of one signature that were unlike those that follow
_MOST = 64      # programs of one function
_FAILURES = 4   # captures of one function, whatever the signature, that came to nothing: more than that, and twice its plans
_SETTLED = 64   # followed calls after which a function without a plan is not asked for its signature any more
_COUNTS = 4     # values of an int argument that have programs of their own
_REPLAYS = 4    # plans whose next call is checked natively
_LASTING = 0.05  # seconds after which a replay that no longer fits was worth having
_RAREST = 256   # calls between two tries of making one
_UNTIMED = 48   # calls before a program is compared with the plain function
_TRIALS = 3     # calls of each that are timed
_LONG = 1e-3    # seconds: a call that takes longer is worth its program
_RARELY = 32768  # calls between two comparisons, at most
_ARGUMENTS = 3  # references to an object while they are counted: a list's, a variable's, an argument's
_LATEST = 8     # programs that were made last: while none of them was of use, a new one is made for what comes a second time
_MODES = NO_GRAD | INFERENCE | AUTOCAST
_FOLLOW = os.environ.get("FLAMBEAU_COMPILE") == "follow"  # every call is followed
_KEPT = (Tensor, Module, Optimizer, FunctionType, type, ModuleType, dtypes.dtype, device, enum.Enum)
stance = "default"  # what set_stance asked for
_functions: Any = weakref.WeakSet()


def _lines_that_change(counter: Any) -> list[Any]:
    """The lines of compiled functions whose programs move a version counter, for the error of a saved tensor that changed."""
    found = [line for function in list(_functions) for plans in list(function.plans.values()) for plan in plans
             for tensor, line in plan.sources.lines if line is not None and (tensor is None or tensor._counter is counter)]
    return list(dict.fromkeys(found))


errors.compiled_changes = _lines_that_change
_capturing = threading.RLock()  # an eager first call may call other compiled functions


class CompiledFunction:
    """A function whose calls run as native programs."""

    def __init__(self, function: Callable[..., Any], fullgraph: bool, mode: str | None, limit: int | None = None,
                 dynamic: bool | None = None, name: str | None = None):
        self.family = Family(dynamic)  # programs that share libraries
        self.function, self.fullgraph, self.exact = function, fullgraph, mode == "exact"
        self.limit = _MOST if limit is None else limit
        self._made_of = function, fullgraph, mode, limit, dynamic, name
        self.plans: dict[Any, list[Any]] = {}
        self.remembered: dict[int, Replay] = {}  # address of a plan -> the last way to repeat it
        self.replays: list[Replay] = []          # those that are tried first, the latest first
        self.attempts: dict[Any, int] = {}
        self.transients: dict[Any, int] = {}
        self.first_floats: dict[Any, str] = {}   # (shape of the arguments, number) -> the first value seen there
        self.varying: set[Any] = set()           # places of floats that have had another one since
        self.ints: dict[Any, set[int]] = {}      # (shape of the arguments, number) -> the values seen there
        self.counting = False                    # one of them takes value after value: new ones are followed
        self.followed = 0                        # calls whose Python ran
        self.straight = 0                        # calls that go to the function itself: that is quicker than to follow them
        self.latest: deque[Plan] = deque(maxlen=_LATEST)
        self.unsteady: dict[Any, int] = {}       # signature -> calls that got no program, as what they read never stays
        self._rest()
        self.reasons: list[str] = []
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.dynamic = dynamic
        self.paths = self._new_paths()
        _functions.add(self)

    def _rest(self) -> None:
        """No call is timed for a while."""
        self.untimed, self.wait = sys.maxsize if _FOLLOW or self.fullgraph else _UNTIMED, 16
        self.trial: tuple[list[float], list[float]] = [], []  # seconds of calls, and of calls of the plain function

    def _new_paths(self) -> Paths:
        made = Paths(self.function, self.name, self.exact, self.fullgraph, self.family)
        if _FOLLOW:
            made.pace = None  # also where that does not pay
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledFunction, self._made_of  # a copy makes its own programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.straight > 0:
            self.straight -= 1
            return self.function(*args, **kwargs)
        self.untimed -= 1
        if self.untimed < 0 and stance == "default":
            return self._timed(args, kwargs)
        mode = state.mode
        if (_FOLLOW or self.followed > _SETTLED) and not self.plans and not mode & ~_MODES:
            return self._followed(args, kwargs)
        if not kwargs and stance == "default" and not devices.stack and devices.device is None:
            for replay in self.replays:
                if replay.mode == mode and (made := replay.run(args)) is not MISS:
                    return made if made is not UNDONE else self.function(*args)
        # Inside another capture, in a mode that watches every operation, or where tensors are made elsewhere:
        if mode & ~_MODES or stance == "force_eager" or devices.stack or devices.device is not None:
            if not mode & ~(_MODES | PROFILE) and stance == "default" and not devices.stack and devices.device is None:
                from .profiled import profiled
                return profiled(self, args, kwargs)
            return self.function(*args, **kwargs)
        try:
            leaves, shape = self._leaves(args, kwargs)
        except RecursionError:  # a list that holds itself
            return self._followed(args, kwargs)
        key = self.signature(leaves, mode, shape, args, kwargs)
        replayed = not kwargs and not mode & AUTOCAST  # whose dtype is not part of the mode
        for plan in self.plans.get(key, ()):
            replay = self.remembered.get(id(plan)) if replayed else None
            if replay is not None and replay.mode == mode and replay not in self.replays and (
                    (made := replay.run(args)) is not MISS):
                return made if made is not UNDONE else self.function(*args)
            if plan.holds(leaves):
                plan.used = True
                try:
                    made = plan.run(leaves)
                except Undone:
                    return self.function(*args, **kwargs)
                if replayed:
                    self._remember(plan, args, mode)
                return made
        return self._new(key, leaves, args, kwargs)

    def _timed(self, args: Any, kwargs: Any) -> Any:
        """A call that is part of a comparison. A program costs some microseconds to start, and more where it has to be looked
        for among many: the calls of a function that takes less than that by itself go to the function."""
        ours, plain = self.trial
        eager = len(plain) < len(ours)
        self.untimed = 1  # the usual way, if that is whose turn it is
        start = time.perf_counter()
        made = (self.function if eager else self)(*args, **kwargs)
        (plain if eager else ours).append(time.perf_counter() - start)
        self.untimed = 0
        if len(ours) >= _TRIALS and min(ours) > _LONG:
            self.untimed = sys.maxsize
        elif len(plain) >= _TRIALS:
            self.trial, self.wait = ([], []), min(8 * self.wait, _RARELY)
            least = (0.5 if any([p.__class__ is JointPlan for p in self.latest]) else 0.8) * min(ours)  # (backward, too)
            self.untimed, self.straight = (0, self.wait) if min(plain) < least else (self.wait, 0)
        return made

    @staticmethod
    def _leaves(args: Any, kwargs: Any) -> tuple[list[Any], Any]:
        """The arguments taken apart, and the shape of what they were."""
        leaves: list[Any] = []
        shape: Any
        for a in args:
            if type(a) is not Tensor:
                shape = [flatten(x, leaves) for x in args]
                break
        else:  # the usual call: nothing but tensors
            leaves, shape = list(args), len(args)
        return leaves, [shape, flatten(kwargs, leaves)] if kwargs else shape

    def signature(self, leaves: list[Any], mode: int, shape: Any, args: Any, kwargs: Any) -> Any:
        """What of the arguments a program depends on. A float that has had two values is a number that each call brings."""
        shape = shape if shape.__class__ is int else comparable(shape)
        if shape.__class__ is not int and self.dynamic is not False:
            for n in floats_among(args, kwargs).values():
                if self.dynamic or repr(leaves[n]) != self.first_floats.setdefault((shape, n), repr(leaves[n])):
                    self.varying.add((shape, n))
        if shape.__class__ is not int and not self.counting:
            for n, a in enumerate(leaves):
                if type(a) is int:
                    seen = self.ints.setdefault((shape, n), set())
                    seen.add(a)
                    self.counting |= len(seen) > _COUNTS
        return signature(leaves, mode, shape, self.varying)

    def _followed(self, args: Any, kwargs: Any) -> Any:
        """A call whose Python runs."""
        if stance != "default" or toolchain.compiler() is None:
            return self.function(*args, **kwargs)
        self.followed += 1
        made = self.paths.call(args, kwargs)
        if self.followed > _SETTLED and not self.plans:
            self.straight = self.paths.straight()
        return made

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
        made = sum(map(len, self.plans.values()))
        if stance == "eager_on_recompile":
            return self.function(*args, **kwargs)
        if self.attempts.get(key, 0) >= _ATTEMPTS or made >= self.limit or len(self.reasons) > max(_FAILURES, 2 * made) or (
                self.counting or self._never_stays(key)):
            return self._followed(args, kwargs)
        if stance == "fail_on_recompile":
            raise RuntimeError(f"compile: '{self.name}' has no program for this call, and set_stance('fail_on_recompile') "
                               "forbids to make one")
        if toolchain.compiler() is None:
            toolchain.hint()
            return self.function(*args, **kwargs)
        with _capturing:
            for plan in self.plans.get(key, ()):  # another thread may have made it meanwhile
                if plan.holds(leaves):
                    try:
                        return plan.run(leaves)
                    except Undone:
                        return self.function(*args, **kwargs)
            if not self.fullgraph and key not in self.transients and first_at(self.function):
                self.transients[key] = 1
                with waiting(not self.exact):
                    return self.function(*args, **kwargs)
            self._let_go()
            return self.capture(key, leaves, args, kwargs)

    def _let_go(self) -> None:
        """A plan about objects that were replaced, and that nobody else refers to, goes: they die as they would without it.
        (The next call with them, if there is one after all, makes another.)"""
        everything = [plan for plans in self.plans.values() for plan in plans]
        kept = [made.keep for made in self.remembered.values()]
        for plan in everything:
            for value in plan.reads.replaced():
                ours = sum([p.reads.times(value) for p in everything]) + sum([sum([k is value for k in keep]) for keep in kept])
                if sys.getrefcount(value) - _ARGUMENTS <= ours:
                    self._drop(plan)
                    break

    def _drop(self, plan: Plan) -> None:
        gone = self.remembered.pop(id(plan), None)
        self.replays = [made for made in self.replays if made is not gone]
        self.plans = {key: [p for p in plans if p is not plan] for key, plans in self.plans.items()}
        self.latest = deque([p for p in self.latest if p is not plan], _LATEST)

    def _never_stays(self, key: Any) -> bool:
        """Whether a program for this call would hardly be used again, as those before it were not."""
        plans, times = self.plans.get(key, ()), self.unsteady.get(key, 0) + 1
        here = len(plans) >= _COUNTS and not any([p.used for p in plans[-_COUNTS:]])
        if not here and (len(self.latest) < _LATEST or any([p.used for p in self.latest])):
            return False
        if len(self.unsteady) > 16 * _MOST:  # of calls that never come again
            self.unsteady.clear()
        self.unsteady[key] = times
        return times & (times - 1) != 0 or times < _SETTLED if here else times == 1

    def capture(self, key: Any, leaves: list[Any], args: Any, kwargs: Any) -> Any:
        """Runs the function once under capture and, if that went well, keeps a plan for the next calls."""
        start = time.perf_counter()
        tensors = [a for a in leaves if isinstance(a, Tensor)]
        # A profiler goes on undisturbed; an object of the user's is not kept alive.
        if sys.getprofile() is not None or not all([type(a) in SIMPLE or issubclass(type(a), _KEPT) for a in leaves]) or any(
                [t.is_sparse or (t.__class__ is not Tensor and not t._without_overrides) or not t._array.size or outdated(t)
                 for t in tensors]):
            self.attempts[key] = _ATTEMPTS
            return self._followed(args, kwargs)
        if any("_dynamic_dims" in t.__dict__ for t in tensors) and self.dynamic is None:
            self.dynamic, self.family = True, Family(True)
        recorder, witness = Recorder(self.fullgraph), Witness(self.function, leaves, args, kwargs)
        args, kwargs, brought = self._symbolic(recorder, leaves, args, kwargs)
        with waiting(not self.exact):  # NumPy rounds otherwise than native kernels do
            try:
                recorder.invoked = self.function, args, kwargs
                recorder.begin(tensors)
                with witness, watching(witness):
                    result = witness.call(self.function)(*args, **kwargs)
                    if active() is not None:
                        self._capture_backward(recorder, witness, leaves, result)
            except BaseException as error:
                explain(error)  # captured modules' `forward` runs without their `__call__`
                if error.__class__ is not Uncapturable:  # the next call shall say so, too
                    self.attempts[key] = self.attempts.get(key, 0) + 1
                raise
            finally:
                recorder.end()
        seconds = {"capture": time.perf_counter() - start}
        reason = self._finish(recorder, witness, key, leaves, result, brought, seconds)
        if recorder.numbers:
            result = with_plain_numbers(result)
        recorder.release()
        memory.trim()  # a capture keeps every temporary alive: that memory is not needed again
        if reason is not None:
            self._explain(reason, key)
        return result

    def _symbolic(self, recorder: Recorder, leaves: list[Any], args: Any, kwargs: Any) -> tuple[Any, Any, dict[int, float]]:
        """The arguments, with those floats that change from call to call as run-time numbers: exactly those that the signature
        leaves out. `brought` is where a call puts them."""
        brought: dict[int, float] = {}
        places = [*range(len(args)), *kwargs]
        shape = comparable(self._leaves(args, kwargs)[1])
        if not any(s == shape for s, _ in self.varying):
            return args, kwargs, brought
        new = {}
        for place, n in floats_among(args, kwargs).items():
            if (shape, n) in self.varying and leaves[n] == leaves[n]:
                brought[n] = leaves[n]
                new[places[place]] = recorder.number(brought, n, None, leaves[n])
        return tuple([new.get(i, a) for i, a in enumerate(args)]), {k: new.get(k, a) for k, a in kwargs.items()}, brought

    def _capture_backward(self, recorder: Recorder, witness: Witness, leaves: list[Any], result: Any) -> None:
        """Captures the backward pass of results that are still part of a graph. The caller's own pass comes later: what the
        user's Python reads there is not known before."""
        found: list[Any] = []
        try:
            flatten_result(result, found)
        except RecursionError:
            witness.fail("it returns a list or dict that holds itself")
            return
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
        if witness.reason is not None or runs_python(live):  # no trial: what the user's Python does there, it does later
            witness.fail("Python of the user's runs in the backward pass")
            return
        before = len(witness.reads.by_place)
        try:
            Joint(recorder, live, leaves)
            if len(witness.reads.by_place) != before:
                witness.fail("Python of the user's runs in the backward pass")
        except Uncapturable:
            raise
        except Exception as error:  # for the caller's own backward pass to raise, where there is one
            if recorder.failed is None:
                recorder.fail(f"its backward pass failed: {error}")

    def _finish(self, recorder: Recorder, witness: Witness, key: Any, leaves: list[Any], result: Any, brought: dict[int, float],
                seconds: dict[str, float]) -> str | None:
        """Makes the plan; returns why there is none."""
        for_good = self._obstacle(recorder, leaves)
        if for_good is not None:
            self.attempts[key] = _ATTEMPTS
            return for_good
        if recorder.transient is not None:
            self.transients[key] = self.transients.get(key, 0) + 1
            if self.transients[key] < _TRANSIENTS:
                self.attempts[key] = self.attempts.get(key, 0) - 1  # the next call is another case
            return recorder.transient
        reads = witness.reads
        reads.seal()
        if witness.reason is not None:
            return witness.reason
        changed = _changed_number(recorder) or reads.broken()
        if changed is not None:
            return f"{changed} was changed by the call"
        if recorder.replaced:
            return "a tensor was given other memory"
        if any(tensor._node is not node for tensor, _, node in recorder.versions):
            return "the history of a tensor from outside is changed"
        recorder.forget_born_leaves()
        if any(grad is not None and grad._node is not None for _, grad in recorder.grad_found.values()):
            return "a gradient that is part of a graph is looked at"
        try:
            outputs, shape = results_of(recorder, witness, leaves, result)
        except Unlike as unlike:
            return str(unlike)
        results: list[Any] = []
        flatten_result(result, results)
        for out, r in zip(outputs, results):
            if out.__class__ is Output and out.node is not None:
                r._node = out.node  # the graph behind it is spent, and may hold on to tensors
        kind = Plan if recorder.joint is None else JointPlan
        try:
            plan = kind(recorder, reads, leaves, outputs, shape, self.exact, self.family)
        except (toolchain.BuildError, OSError) as error:
            self.attempts[key] = _ATTEMPTS
            return f"the program could not be built: {error}"
        except Irrevocable:
            return "it may fail on a value after it has changed much memory"
        except Exception as error:  # a defect of ours must not become the user's
            self.attempts[key] = _ATTEMPTS
            return f"the compiler failed: {type(error).__name__}: {error}"
        reads.list += _unheld(recorder, plan, leaves)
        # The first results are given the new history too: it takes the place of eager's graph. (On a device they keep that:
        # memory of the captured call's temporaries may be in use again.)
        if recorder.joint is not None and not recorder.device:
            plan.adopt(recorder, results, leaves)
        recorder.release()
        plan.seconds = seconds | {"plan": plan.program.seconds_planning, "build": plan.program.seconds_building}
        # What the signature knows by its address must keep it.
        plan.brought = brought
        plan.arguments = [a for a in leaves if not isinstance(a, (Tensor, *SIMPLE))]
        if kind is JointPlan:
            plan.retire = functools.partial(_retire, weakref.ref(self), key, weakref.ref(plan))
        self.plans.setdefault(key, []).append(plan)
        self.latest.append(plan)
        return None

    def _obstacle(self, recorder: Recorder, leaves: list[Any]) -> str | None:
        """Why no later call of this kind could be captured either."""
        if recorder.failed is not None:
            reason, where = recorder.failed
            return reason + (f" ({where[0]}, line {where[1]})" if where else "")
        if recorder.transient is not None:
            return None
        if any([leaf._grad is not None and any(bits(leaf._grad._array)) for leaf in recorder.leaves.values()]):
            return "a gradient has a conjugate or negative bit"
        grads = [id(grad) for _, grad in recorder.grad_found.values() if grad is not None]
        if len(set(grads)) < len(grads) or any([id(t) in grads or id(of) in grads for t, of in recorder.inner]):
            return "a gradient shares memory with another tensor"  # it may have some of its own at the next call
        born = {id(t) for t in (*recorder.born, *leaves)}
        if any([leaf._grad is not None and id(leaf._grad) not in born and leaf._grad is not recorder.grad_found.get(
                i, (None, None))[1] for i, leaf in recorder.leaves.items()]):
            return "a tensor that was there before becomes a gradient"
        if any([id(s.source) in grads for s in recorder.placed.values()]):
            return "where a gradient begins in its storage is asked"
        if recorder.device and any(op.inner is not None for op in recorder.ops):
            return "a branch or a loop beside work on a CUDA device"
        written = {w.storage for op in recorder.ops for w in op.writes}
        for a in leaves:
            if isinstance(a, Tensor) and a._node is not None and not a.is_leaf and recorder.known(a._array) in written:
                return "an argument that is part of a graph is changed in place"
        return None

    def _explain(self, reason: str, key: Any) -> None:
        self.reasons.append(reason)
        self.attempts[key] = self.attempts.get(key, 0) + 1


def _retire(function: Any, key: Any, plan: Any) -> None:
    """Calls of this kind are followed from here on: their backward pass is asked for more than its program can do."""
    function, plan = function(), plan()
    if function is not None and plan in function.plans.get(key, ()):
        function.plans[key] = [p for p in function.plans[key] if p is not plan]
        function.plans = {k: plans for k, plans in function.plans.items() if plans}
        function.replays = [r for r in function.replays if r.plan is not plan]
        function.remembered.pop(id(plan), None)
        function.attempts[key] = _ATTEMPTS
        function.reasons.append("second derivatives, or those of some of its results")


def _unheld(recorder: Recorder, plan: Plan, leaves: list[Any]) -> list[Metadata]:
    """Tensors that were looked at but are not part of the program: their shapes may have decided what the Python did."""
    known = {id(t) for t in (*plan.sources.tensors, *leaves)} | {id(grad) for _, grad in recorder.grad_found.values()}
    return [Metadata(t) for t, _, _ in recorder.versions if id(t) not in known]


def _changed_number(recorder: Recorder) -> str | None:
    """A hyper-parameter that is not what it was, other than by counting."""
    counts = {(id(container), name) for container, name in recorder.counts}
    for (group, name, index), value in zip(recorder.numbers, recorder.number_values):
        now = group[name] if index is None else group[name][index]
        if (id(group), name) not in counts and now != value and not same(now, value):  # nan is nan
            return f"the optimizer's '{name}'"
    return None


def reset() -> None:
    """Forgets every program of every compiled function."""
    for function in list(_functions):
        function.plans.clear()
        function.replays = []
        function.remembered.clear()
        function.attempts.clear()
        function.transients.clear()
        function.reasons.clear()
        function.first_floats.clear()
        function.varying.clear()
        function.ints.clear()
        function.counting, function.followed = False, 0
        function.latest.clear()
        function.unsteady.clear()
        function._rest()
        function.paths = function._new_paths()
        function.straight = 0
