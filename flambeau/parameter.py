"""`Parameter` and `Buffer`: the tensors that a module registers by itself. (In the core because operations treat a
Parameter as a plain tensor on the fast path.)"""

from __future__ import annotations

from typing import Any

from .autograd.node import AccumulateGrad
from .tensor import Tensor, wrap_as


class Parameter(Tensor):
    """A tensor that a Module counts among its parameters; it requires grad unless told otherwise."""

    _plain = True

    def __new__(cls, data: Any = None, requires_grad: bool = True):
        if data is None:
            from .creation import empty
            data = empty(0)
        if type(data) is not Tensor and type(data) is not cls and isinstance(data, Tensor) and not data._plain:
            made = data.detach().requires_grad_(requires_grad)
            made._is_param = True
            return made
        made = wrap_as(cls, data._array)
        if requires_grad:
            made.requires_grad_(True)
        return made

    def __repr__(self, *, tensor_contents=None) -> str:
        from .printing import parameter_repr
        return parameter_repr(self)

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        made = type(self)(self.data.clone(), self.requires_grad)
        memo[id(self)] = made
        made.__dict__.update({k: v for k, v in self.__dict__.items() if not k.startswith("_")})
        return made

    def __reduce_ex__(self, protocol):
        from .serialization.rebuild import rebuild_parameter
        return rebuild_parameter, (self.data, self.requires_grad)


class Buffer(Tensor):
    """A tensor that a Module registers as a buffer when it is assigned."""

    _plain = True

    def __new__(cls, data: Any = None, *, persistent: bool = True):
        if data is None:
            from .creation import empty
            data = empty(0)
        made = wrap_as(cls, data._array)
        if data.requires_grad:
            made._node = AccumulateGrad(made)
        made.persistent = persistent
        return made
