"""`Parameter` and `Buffer`, and those of lazy modules, whose shape comes with the first input."""

from __future__ import annotations

from typing import Any

from ..tensors.parameter import (
    Buffer,
    Parameter,
    UninitializedTensorMixin,
    _ParameterType,
    _rebuild_parameter,
    _rebuild_parameter_with_state,
    is_lazy,
)
from ..tensors.tensor import Tensor

__all__ = ["Parameter", "UninitializedParameter", "is_lazy", "Buffer", "UninitializedBuffer",
           "UninitializedTensorMixin"]
_ParameterMeta = _ParameterType


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter without a shape: `materialize(shape)` makes it a Parameter."""

    _plain = False
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        from ..creation.factories import empty
        return _bare(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def _options(self) -> dict[str, Any]:
        return {"requires_grad": self.requires_grad, "device": self.data.device, "dtype": self.data.dtype}


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer without a shape: `materialize(shape)` makes it a plain tensor."""

    _plain = False
    _is_buffer = True
    persistent = True
    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True):
        from ..creation.factories import empty
        made = _bare(cls, empty(0, device=device, dtype=dtype), requires_grad)
        if not persistent:
            made.persistent = False
        return made

    def _options(self) -> dict[str, Any]:
        return {"requires_grad": self.requires_grad, "device": self.data.device, "dtype": self.data.dtype,
                "persistent": self.persistent}


def _bare(cls: type, data: Tensor, requires_grad: bool) -> Any:
    from ..ops.core.overrides import activate
    from ..tensors.tensor import wrap_as
    activate()  # from now on operations ask their arguments, so that this one can refuse
    made = wrap_as(cls, data._array)
    if requires_grad:
        from ..autograd.node import AccumulateGrad
        made._node = AccumulateGrad(made)
    return made


_rebuilders = (_rebuild_parameter, _rebuild_parameter_with_state)  # names that pickles refer to
