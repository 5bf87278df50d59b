"""Optimizers under capture: hyper-parameters become run-time numbers, and new state makes the run one of its own."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from operator import is_not
from types import CellType
from typing import Any

import numpy as np

from ...optim.optimizer import Optimizer
from ...tensors.tensor import Tensor
from .files import where
from .reads import same
from .symbolic import SymFloat, bare_float
from .traced import active
from .tracing import Recorder
from .watch import present

_EMPTY = CellType()
_NUMBERS = ("lr", "momentum", "weight_decay")  # hyper-parameters that people also give as ints
_FLOATS = (float, np.float64)
NUMERIC = (*_FLOATS, int)  # what a call may find where a program reads a number


def captured_step(optimizer: Any, step: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """optimizer.step() while a capture goes on."""
    recorder, witness = active(), present()
    if recorder is None or witness is None:  # nothing will come of this capture
        return step(optimizer, *args, **kwargs)
    if where(unwrap(step).__code__.co_filename) == "user":
        step = witness.call(step)
    before = {id(p): dict(s) for p, s in optimizer.state.items() if isinstance(s, dict)}
    given = [(group, key, value, _symbolic(recorder, group, key, value)) for group in optimizer.param_groups
             for key, value in group.items()]

    def restore() -> None:
        for group, key, value, symbolic in given:
            now = group.get(key)
            if symbolic is not None and now is symbolic:
                group[key] = value
            elif isinstance(now, SymFloat) and now is not value:  # the step changed it: `function.py` sees that
                group[key] = bare_float(now)
    try:
        for group, key, _, symbolic in given:
            if symbolic is not None:
                group[key] = symbolic
        witness.when_failed.append(restore)
        return step(optimizer, *args, **kwargs)
    finally:
        witness.when_failed.remove(restore)
        restore()
        for some in optimizer.state.values():
            for key, value in list(some.items()) if isinstance(some, dict) else ():
                if isinstance(value, SymFloat):
                    some[key] = bare_float(value)
                    recorder.fail("the optimizer keeps a number in its state that depends on its hyper-parameters")
        if not any(optimizer is o for o, _ in recorder.optimizers):
            recorder.optimizers.append((optimizer, Kept(optimizer)))
        counted = {(id(states), key) for states, key in recorder.counts}
        if any(_replaced(before.get(id(p), {}), s, counted) for p, s in optimizer.state.items() if isinstance(s, dict)) or (
                sum(map(len, optimizer.param_groups)) != len(given)):
            recorder.transient = "the optimizer made its state in this step"
        elif changed := [key for group, key, value, _ in given if (
                key != "params" and not isinstance(value, Tensor) and _switch(key, value) and not same(group.get(key), value))]:
            recorder.fail(f"the optimizer's '{changed[0]}' was changed by the call")


def _replaced(before: dict[Any, Any], now: dict[Any, Any], counted: set[Any]) -> bool:
    """Whether a parameter's state has other entries than before, counts left out."""
    return before.keys() != now.keys() or any(now[k] is not v for k, v in before.items() if (id(now), k) not in counted)


def first_at(function: Any) -> bool:
    """Whether a function has an optimizer at hand whose first step, unlike the later ones, makes its state."""
    owner, function = getattr(function, "__self__", None), getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    at_hand = [c.cell_contents for c in function.__closure__ or () if c != _EMPTY]
    at_hand += [function.__globals__.get(name) for name in code.co_names]
    at_hand += getattr(owner, "__dict__", {}).values()
    return any(issubclass(type(o), Optimizer) and not o.state and (
        type(o).prepare is not Optimizer.prepare or any(g.get("momentum") for g in o.param_groups)) for o in at_hand)


def _symbolic(recorder: Recorder, group: dict[str, Any], key: str, value: Any) -> Any:
    if _switch(key, value) or key == "params" or isinstance(value, Tensor):
        return None
    if value.__class__ is tuple:
        return tuple([recorder.number(group, key, i, float(v)) for i, v in enumerate(value)])
    return recorder.number(group, key, None, float(value))


class Kept:
    """What a program takes for granted of an optimizer: its switches, its parameters, and the tensors of its state."""

    def __init__(self, optimizer: Any):
        self.state, self.of = optimizer.state, list(optimizer.state.values())
        self.mixed, self.tensors = [], []  # (dict, key, tensor) of states that hold other things too; (dict, tensors)
        for some in self.of:
            if isinstance(some, dict) and all(isinstance(v, Tensor) for v in some.values()):
                self.tensors.append((some, list(some.values())))
            elif isinstance(some, dict):
                self.mixed += [(some, k, v) for k, v in some.items() if isinstance(v, Tensor)]
        self.mixed += [(g, k, v) for g in optimizer.param_groups for k, v in g.items() if isinstance(v, Tensor)]
        self.hooks = [(t, dict(t)) for t in (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)]
        self.groups = [(group, list(group["params"]), {
            k: v for k, v in group.items() if k != "params" and not isinstance(v, Tensor) and _switch(k, v)})
                       for group in optimizer.param_groups]


def _switch(key: str, value: Any) -> bool:
    """Whether a program is made for this very value of a hyper-parameter: it is no number, nor a tuple of such."""
    if value.__class__ in _FLOATS or (value.__class__ is int and key in _NUMBERS):
        return False
    return not (value.__class__ is tuple and value and all([v.__class__ in _FLOATS for v in value]))


def unchanged(optimizer: Any, kept: Kept) -> bool:
    state = optimizer.state
    if state is not kept.state or len(optimizer.param_groups) != len(kept.groups):
        return False
    if len(state) != len(kept.of) or any(map(is_not, state.values(), kept.of)):
        return False
    for some, key, value in kept.mixed:
        if some.get(key) is not value:
            return False
    for table, then in kept.hooks:
        if table != then:
            return False
    for some, values in kept.tensors:
        if len(some) != len(values) or any(map(is_not, some.values(), values)):
            return False
    for (group, params, switches), there in zip(kept.groups, optimizer.param_groups):
        now = group["params"]
        if group is not there or len(now) != len(params) or any(map(is_not, now, params)):
            return False
        for key, value in switches.items():
            if not same(group.get(key), value):
                return False
    return True
