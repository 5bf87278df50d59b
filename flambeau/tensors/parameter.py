"""`Parameter` and `Buffer`: the tensors that a module registers by itself. (In the core because operations treat a
Parameter as a plain tensor on the fast path.)"""

from __future__ import annotations

from typing import Any

from ..autograd.node import start_counter
from ..backends import registry
from .dtypes import get_default_dtype
from .tensor import Tensor, wrap, wrap_as


class _ParameterType(type(Tensor)):
    """A tensor subclass wrapped by `Parameter(...)` keeps its own class and carries a mark instead."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterType):
    """A tensor that a Module counts among its parameters; it requires grad unless told otherwise.

    >>> nn.Parameter(torch.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    >>> [name for name, _ in nn.Linear(2, 3).named_parameters()]
    ['weight', 'bias']
    """

    __module__ = "flambeau.nn.parameter"  # where users find it
    _without_overrides = True

    def __new__(cls, data: Any = None, requires_grad: bool = True):
        if data is None:
            data = wrap(registry.cpu.empty((0,), get_default_dtype().native))
        kind = type(data)
        if kind is not Tensor and kind is not Parameter and not getattr(kind, "_without_overrides", False):
            made = data.detach().requires_grad_(requires_grad)
            if type(made) is not kind:
                raise RuntimeError(f"Creating a Parameter from an instance of type {kind.__name__} requires that "
                                   f"detach() returns an instance of the same type, but got {type(made).__name__} instead.")
            made._is_param = True
            return made
        made = wrap_as(cls, data._array)
        made._counter = data._counter or start_counter(data)  # in-place changes of either are noticed by both
        if requires_grad:
            made.requires_grad_(True)
        return made

    def __repr__(self, *, tensor_contents=None) -> str:
        from .printing import parameter_repr
        return parameter_repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]
        made = type(self)(self.data.clone(memory_format=_preserve()), self.requires_grad)
        memo[id(self)] = made  # without the attributes, as in PyTorch
        return made

    def __reduce_ex__(self, protocol: int):
        extra = _attributes(self)
        if extra:
            return _rebuild_parameter_with_state, (self.data, self.requires_grad, _no_hooks(), extra)
        return _rebuild_parameter, (self.data, self.requires_grad, _no_hooks())



_OWN = frozenset({"_grad", "_base", "_seen", "_creation", "_view_fn", "_retains", "_inference", "_tangent",
                  "_backward_hooks", "_cut"})


def _attributes(tensor: Tensor) -> dict[str, Any]:
    """What a user hung onto the tensor, without flambeau's own records."""
    return {k: v for k, v in tensor.__dict__.items() if k not in _OWN}


def _preserve() -> Any:
    from .formats import preserve_format
    return preserve_format


def _no_hooks() -> dict[int, Any]:
    from collections import OrderedDict
    return OrderedDict()


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    made = Parameter(data, requires_grad)
    return made


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Parameter:
    made = Parameter(data, requires_grad)
    made.__dict__.update(state[0] if isinstance(state, tuple) else state)
    return made


class _BufferType(_ParameterType):
    """A buffer is a plain tensor that carries a mark."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is not Buffer:
            return type.__instancecheck__(cls, instance)
        return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor that a Module registers as a buffer when it is assigned (`Buffer(x, persistent=False)`: not saved).

    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nn.Buffer(torch.tensor(2.0))
    >>> Scale().state_dict()["factor"]
    tensor(2.)
    """

    __module__ = "flambeau.nn.parameter"  # where users find it
    _without_overrides = True

    def __new__(cls, data: Any = None, *, persistent: bool = True):
        if data is None:
            data = wrap(registry.cpu.empty((0,), get_default_dtype().native))
        made = data.detach() if not data._without_overrides else wrap(data._array)
        if data.requires_grad:
            made.requires_grad_(True)
        made.persistent = persistent
        made._is_buffer = True
        return made
