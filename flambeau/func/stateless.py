"""The old way to call a module with parameters from outside: `func, params = make_functional(module)`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..nn.module import Module
from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from .modules import functional_call

__all__ = ["FunctionalModule", "FunctionalModuleWithBuffers", "combine_state_for_ensemble", "functional_init",
           "functional_init_with_buffers", "make_functional", "make_functional_deprecated_v1", "make_functional_with_buffers",
           "make_functional_with_buffers_deprecated_v1"]


class _Stateless(Module):
    """A module without numbers of its own."""

    def __init__(self, model: Module, params: tuple[str, ...], buffers: tuple[str, ...]):
        super().__init__()
        self.__dict__["stateless_model"] = copy.deepcopy(model).to("meta")
        self.param_names, self.buffer_names = params, buffers

    def _call(self, params: Any, buffers: Any, args: Any, kwargs: Any) -> Any:
        given = {**dict(zip(self.param_names, params)), **dict(zip(self.buffer_names, buffers))}
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModule(_Stateless):
    """module(params, *inputs)."""

    def forward(self, params: Any, *args: Any, **kwargs: Any) -> Any:
        return self._call(params, (), args, kwargs)


class FunctionalModuleWithBuffers(_Stateless):
    """module(params, buffers, *inputs)."""

    def forward(self, params: Any, buffers: Any, *args: Any, **kwargs: Any) -> Any:
        return self._call(params, buffers, args, kwargs)


def _taken(named: Any, off: bool) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    pairs = [(n, t.detach().clone().requires_grad_(t.requires_grad and not off)) for n, t in named]
    return tuple(n for n, _ in pairs), tuple(t for _, t in pairs)


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """(a function of parameters and inputs, the parameters); `functional_call` is today's way."""
    if list(model.buffers()):
        raise RuntimeError("make_functional(model): `model` has buffers. Please use make_functional_with_buffers(model) "
                           "instead.")
    names, params = _taken(model.named_parameters(), disable_autograd_tracking)
    return FunctionalModule(model, names, ()), params


def make_functional_with_buffers(model: Module, disable_autograd_tracking: bool = False
                                 ) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(a function of parameters, buffers and inputs, the parameters, the buffers)."""
    names, params = _taken(model.named_parameters(), disable_autograd_tracking)
    buffer_names, buffers = _taken(model.named_buffers(), True)
    return FunctionalModuleWithBuffers(model, names, buffer_names), params, buffers


def _stacked(groups: Any) -> tuple[Tensor, ...]:
    return tuple(FUNCTIONS["stack"]([t.detach() for t in same]).requires_grad_(same[0].requires_grad) for same in zip(*groups))


def combine_state_for_ensemble(models: Any) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The function of one of several equal modules, and the parameters and buffers of all, stacked: for `vmap`."""
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to have the same training/eval mode.")
    if len({type(m) for m in models}) > 1:
        raise RuntimeError("combine_state_for_ensemble: Expected all models to be of the same class.")
    functions, params, buffers = zip(*[make_functional_with_buffers(m) for m in models])
    return functions[0], _stacked(params), _stacked(buffers)


# ------------------------------------------------------------------------------------------------------- older still
def make_functional_deprecated_v1(model: Module) -> tuple[tuple[Tensor, ...], Callable, tuple[str, ...]]:
    """(parameters, a function of them and a tuple of inputs, their names)."""
    if list(model.buffers()):
        raise RuntimeError("make_functional_deprecated_v1(model): `model` has buffers. Please use "
                           "make_functional_with_buffers_deprecated_v1(model) instead.")
    names, params = _taken(model.named_parameters(), False)
    return params, lambda weights, data: functional_call(model, dict(zip(names, weights)), tuple(data)), names


def make_functional_with_buffers_deprecated_v1(model: Module) -> tuple[Any, ...]:
    """(parameters, buffers, a function of both and a tuple of inputs, their names, the buffers' names)."""
    names, params = _taken(model.named_parameters(), False)
    buffer_names, buffers = _taken(model.named_buffers(), True)

    def called(weights: Any, held: Any, data: Any) -> Any:
        return functional_call(model, {**dict(zip(names, weights)), **dict(zip(buffer_names, held))}, tuple(data))

    return params, buffers, called, names, buffer_names


def _initialised(model_class: Callable, shape: Any, device: Any, make: Callable, stacked: int) -> Callable:
    """A function that makes one model, or as many as the shape says with their state stacked."""
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if len(shape) >= 2:
            raise ValueError("NYI: ensemble_shape with more than 1 element")
        if not shape:
            return make(model_class(*args, **kwargs).to(device))
        if shape[0] <= 0:
            raise ValueError(f"num_models {shape[0]} should be > 0")
        made = [make(model_class(*args, **kwargs).to(device)) for _ in range(shape[0])]
        return (*(_stacked([m[i] for m in made]) for i in range(stacked)), *made[0][stacked:])

    return wrapped


def functional_init(model_class: Callable, ensemble_shape: Any = (), device: Any = "cpu") -> Callable:
    """Makes (parameters, function, names) of a model, or of an ensemble with stacked parameters."""
    return _initialised(model_class, ensemble_shape, device, make_functional_deprecated_v1, 1)


def functional_init_with_buffers(model_class: Callable, ensemble_shape: Any = (), device: Any = "cpu") -> Callable:
    """The same with buffers."""
    return _initialised(model_class, ensemble_shape, device, make_functional_with_buffers_deprecated_v1, 2)
