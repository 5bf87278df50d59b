"""`Optimizer`: parameter groups, state, checkpoints and hooks. The update rules are in the files beside this one.

A rule is a class with `prepare(group, parameter, state)`, which makes the state of a parameter when it is first seen, and
`update(group, parameters, gradients, states)`, which changes a whole group at once, without recording.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

from ..autograd.hooks import RemovableHandle
from ..autograd.modes import enable_grad, no_grad
from ..autograd.state import CAPTURE, NO_GRAD, PROFILE
from ..autograd.state import state as mode_state
from ..creation.factories import tensor
from ..ops.pointwise.complex import view_as_real
from ..tensors.dtypes import float32, float64, get_default_dtype
from ..tensors.tensor import Tensor
from ..tensors.tensor import _captured_grad as captured_grad
from ..utils._foreach_utils import _group_tensors_by_device_and_dtype
from ._steps import step_number


class _Required:
    """Stands for a default that every group must bring itself."""

    def __repr__(self) -> str:
        return "<required parameter>"


_RequiredParameter = _Required
required = _Required()
_global_pre_hooks: dict[int, Callable] = OrderedDict()
_global_post_hooks: dict[int, Callable] = OrderedDict()
_WATCHED = CAPTURE | PROFILE


def __getattr__(name: str) -> Any:
    """PyTorch's helpers for those who write optimizers."""
    from . import _writing
    if name.startswith("__") or not hasattr(_writing, name):
        raise AttributeError(f"module 'flambeau.optim.optimizer' has no attribute '{name}'")
    return getattr(_writing, name)


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(optimizer, args, kwargs) before every step of every optimizer."""
    return RemovableHandle(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Calls hook(optimizer, args, kwargs) after every step of every optimizer."""
    return RemovableHandle(_global_post_hooks, hook)


_EXAMPLE = """{doc}

    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = torch.optim.{name}([w], {arguments})
    >>> (w ** 2).sum().backward()
    >>> optimizer.step()
    >>> w.detach().abs() < torch.tensor([1.0, 2.0])
    tensor([True, True])
    """


class Optimizer:
    """The base of all optimizers: subclasses bring `prepare` and `update`, or their own `step`.

    >>> model = nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    _opt_called = False  # whether `step` was called, for schedulers, which warn where they are stepped first
    _counts: tuple[str, ...] = ()  # what is a zero-dim tensor in the state of each parameter

    def __init_subclass__(cls, example: str = "", **kwargs: Any) -> None:
        """example: arguments with which the docstring shows a step."""
        super().__init_subclass__(**kwargs)
        if example and cls.__doc__:  # (there is none under -OO)
            cls.__doc__ = _EXAMPLE.format(doc=cls.__doc__, name=cls.__name__, arguments=example)

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            + params.type())
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list: model.parameters() finds layers that are attributes of "
                             "the model or in nn.ModuleList, not those in a plain list; and a generator gives its items once")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)
        self._patch_step()

    def _make_hooks(self) -> None:
        for name in ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_state_dict_pre",
                     "load_state_dict_post"):
            setattr(self, f"_optimizer_{name}_hooks", OrderedDict())

    # ------------------------------------------------------------------------------------------------ stepping
    @classmethod
    def _patch_step(cls) -> None:
        """Lets the hooks run around `step`, whichever class defines it."""
        if not getattr(cls.step, "hooked", None):
            cls.step = _with_hooks(cls.step)

    _patch_step_function = _patch_step

    def step(self, closure: Callable | None = None) -> Any:
        """One update of all parameters that have a gradient; a closure recomputes the loss first and it is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        # With differentiable=True the update itself is recorded, so that one can differentiate through training.
        before = mode_state.mode
        mode_state.mode = before & ~NO_GRAD if self.defaults.get("differentiable") else before | NO_GRAD
        try:
            self._step()
        finally:
            mode_state.mode = mode_state.mode & ~NO_GRAD | before & NO_GRAD
        return loss

    def _step(self) -> None:
        for group in self.param_groups:
            parameters = with_gradient(group)
            if not parameters:
                continue
            all_states = self.state
            states = [all_states[p] for p in parameters]
            if not all(states):
                for p, state in zip(parameters, states):
                    if not state:
                        self.prepare(group, p, state)
            grads = [p._grad if p._without_overrides else p.grad for p in parameters]  # a DTensor's gradient is one, too
            self.update(group, parameters, grads, states)

    def prepare(self, group: dict[str, Any], p: Tensor, state: dict[str, Any]) -> None:
        """Fills the state of a parameter that is updated for the first time."""

    def update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], states: list[dict[str, Any]]) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines neither step() nor update()")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, or fills them with zeros."""
        if mode_state.mode & _WATCHED:
            self._watched_zero_grad(set_to_none)
        else:
            self._clear(set_to_none)

    def _clear(self, set_to_none: bool) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p._grad is not None:
                    if set_to_none:
                        p._grad = None
                    else:
                        if p._grad.grad_fn is not None:
                            p._grad.detach_()
                        else:
                            p._grad.requires_grad_(False)
                        p._grad.zero_()

    def _watched_zero_grad(self, set_to_none: bool) -> None:
        if mode_state.mode & CAPTURE:
            for group in self.param_groups:
                for p in group["params"]:
                    captured_grad(p, "grad_cleared" if set_to_none else "grad_seen")
        if mode_state.mode & PROFILE:
            with mode_state.profiler.span(f"Optimizer.zero_grad#{type(self).__name__}.zero_grad"):
                self._clear(set_to_none)
        else:
            self._clear(set_to_none)

    # -------------------------------------------------------------------------------------------------- groups
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with options of their own; what is not given takes the optimizer's default."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors "
                            "in sets will change between runs. Please use a list instead.")
        params = list(params)
        named = [isinstance(p, tuple) for p in params]
        if any(named):
            if not all(named):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        group["params"] = params
        self._check_params(params)
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        if len(params) != len({id(p) for p in params}):
            warnings.warn("optimizer contains a parameter group with duplicate parameters; in future, this will cause an "
                          "error", stacklevel=3)
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            which = "with" if "param_names" in group else "without"
            raise ValueError("all optimizer param groups should be with/without names. cannot add param group "
                             f"{which} names to the optimizer")
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def _check_params(self, params: list[Any]) -> None:
        for i, p in enumerate(params):
            if not isinstance(p, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + type(p).__name__)
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError(f"can't optimize a non-leaf Tensor: number {i}, of shape {list(p.shape)}, was made by "
                                 f"{p.grad_fn.name()}. Give the tensors that it was computed from, or a nn.Parameter of it")

    def __repr__(self) -> str:
        groups = [f"Parameter Group {i}\n" + "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
                  for i, group in enumerate(self.param_groups)]
        return f"{type(self).__name__} (\n" + "\n".join(groups) + ")"

    # --------------------------------------------------------------------------------------------- checkpoints
    def state_dict(self) -> dict[str, Any]:
        """The state by parameter number and the groups' options, in PyTorch's own form."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            packed = {k: v for k, v in group.items() if k != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {(numbers[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, result)
            if replaced is not None:
                result = replaced
        return result

    @no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the state of another optimizer of the same shape; nothing is changed if it does not fit."""
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        saved = deepcopy(state_dict["param_groups"])
        if len(self.param_groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        by_number = dict(zip(chain.from_iterable(g["params"] for g in saved),
                             chain.from_iterable(g["params"] for g in self.param_groups)))
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in by_number:
                p = by_number[key]
                state[p] = {k: _fitted(p, v, k) for k, v in value.items()} if isinstance(value, dict) else value
            else:
                state[key] = value
        groups = []
        for mine, theirs in zip(self.param_groups, saved):
            theirs["params"] = mine["params"]
            if "param_names" in mine and "param_names" not in theirs:
                theirs["param_names"] = mine["param_names"]
            groups.append(theirs)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_optimizer_step_pre_hooks" not in self.__dict__:
            self._make_hooks()
        for group in self.param_groups:  # files of older releases lack newer options
            for name, default in self.defaults.items():
                group.setdefault(name, default)
        for entry in self.state.values():  # and their counts were plain numbers
            for name in self._counts:
                if isinstance(entry.get(name), (int, float)):
                    entry[name] = counter(entry[name])
        self._patch_step()

    # --------------------------------------------------------------------------------------------------- hooks
    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) before a step; it may return new (args, kwargs)."""
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # ------------------------------------------------------------------------- for rules written after PyTorch's own
    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> dict[Any, Any]:
        return _group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    @staticmethod
    def profile_hook_step(func: Callable) -> Callable:
        """step with the hooks before and after it."""
        return _with_hooks(func)

    def _accelerator_graph_capture_health_check(self) -> None:
        """Nothing to check: there is no device whose graphs are captured."""

    _cuda_graph_capture_health_check = _accelerator_graph_capture_health_check


def _register(hooks: Any, hook: Callable, prepend: bool) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _with_hooks(step: Callable) -> Callable:
    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        self._opt_called = True
        if _global_pre_hooks or self._optimizer_step_pre_hooks:
            for hook in chain(_global_pre_hooks.values(), list(self._optimizer_step_pre_hooks.values())):
                replaced = hook(self, args, kwargs)
                if replaced is not None:
                    if not (isinstance(replaced, tuple) and len(replaced) == 2):
                        raise RuntimeError(f"{type(self).__name__}.step must return None or a tuple of (new_args, "
                                           f"new_kwargs), but got {replaced}.")
                    args, kwargs = replaced
        if mode_state.mode & _WATCHED:
            result = _watched_step(self, step, args, kwargs)
        else:
            result = step(self, *args, **kwargs)
        if _global_post_hooks or self._optimizer_step_post_hooks:
            for hook in chain(list(self._optimizer_step_post_hooks.values()), _global_post_hooks.values()):
                hook(self, args, kwargs)
        return result

    hooked.hooked = True
    return hooked


def _watched_step(self: Optimizer, step: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A step that is captured, or that a profiler notes."""
    if mode_state.recorder is not None:
        return mode_state.recorder.optimizer_step(self, step, args, kwargs)
    if mode_state.mode & PROFILE:
        with mode_state.profiler.span(f"Optimizer.step#{type(self).__name__}.step"):
            return step(self, *args, **kwargs)
    return step(self, *args, **kwargs)


def _fitted(p: Tensor, value: Any, key: str) -> Any:
    """A loaded value as the parameter's own state: floating tensors take the parameter's dtype, `step` keeps its own."""
    if isinstance(value, Tensor):
        if key == "step":
            return value.clone()
        return value.to(dtype=p.dtype, device=p.device, copy=True) if p.is_floating_point() or p.is_complex() else \
            value.to(device=p.device, copy=True)
    if isinstance(value, dict):
        return {k: _fitted(p, v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fitted(p, v, key) for v in value)
    return value


# --------------------------------------------------------------------------------------- what the rules share
def check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_range(name: str, value: Any, low: float = 0.0, high: float | None = None) -> None:
    """Invalid values are refused when the optimizer is made, with the name and the value."""
    if isinstance(value, Tensor):
        return
    if not (low <= value and (high is None or value < high)):
        raise ValueError(f"Invalid {name}: {value}")


def check_lr(lr: Any) -> None:
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    check_range("learning rate", lr)


def with_gradient(group: dict[str, Any]) -> list[Tensor]:
    """The parameters of a group that have a gradient. A capture notes that it was asked for."""
    if mode_state.mode & CAPTURE:
        return [p for p in group["params"] if p.grad is not None]
    return [p for p in group["params"] if p._grad is not None]


def number(value: Any) -> Any:
    """A hyper-parameter as a Python number (they may be one-element tensors)."""
    return step_number(value) if isinstance(value, Tensor) else value


def check_fused(fused: Any, differentiable: bool, foreach: Any) -> None:
    """fused=True goes together with neither of the other two."""
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def check_floating(p: Tensor) -> None:
    """What fused=True asks of a parameter."""
    from ._writing import _device_dtype_check_for_fused
    _device_dtype_check_for_fused(p)


def counter(start: float = 0.0) -> Tensor:
    """A step count, a float32 tensor as in PyTorch's files."""
    return tensor(float(start), dtype=float64 if get_default_dtype() is float64 else float32)


def real_views(params: list[Tensor], grads: list[Tensor], states: list[dict[str, Any]], names: tuple[str, ...]):
    """Complex parameters are updated as pairs of real numbers: views of everything that has their shape."""
    if not any(p.is_complex() for p in params):
        return params, grads, states
    params, grads, states = list(params), list(grads), [dict(s) for s in states]
    for i, p in enumerate(params):
        if p.is_complex():
            params[i], grads[i] = view_as_real(p), view_as_real(grads[i].resolve_conj())
            for name in names:
                value = states[i].get(name)
                if isinstance(value, Tensor) and value.is_complex():
                    states[i][name] = view_as_real(value)
    return params, grads, states


def refuse_sparse(who: str, advice: str = "") -> None:
    raise RuntimeError(f"{who} does not support sparse gradients{advice}")
