"""`Parameter` and `Buffer`, and those of lazy modules, whose shape comes with the first input."""

from __future__ import annotations

from typing import Any

from ..creation.factories import empty
from ..ops.core.overrides import DisableTorchFunctionSubclass, _convert, activate
from ..tensors.parameter import (
    Buffer,
    Parameter,
    _ParameterType,
    _rebuild_parameter,
    _rebuild_parameter_with_state,
)
from ..tensors.tensor import Tensor, wrap_as

__all__ = ["Parameter", "UninitializedParameter", "is_lazy", "Buffer", "UninitializedBuffer",
           "UninitializedTensorMixin"]
_ParameterMeta = _ParameterType


class UninitializedTensorMixin:
    """What parameters and buffers of lazy modules share: a dtype and a device, but no shape before `materialize`."""

    __slots__ = ()

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor memory of this shape (uninitialised) and turns it into an ordinary one."""
        self.data = empty(shape, device=self.data.device if device is None else device,
                          dtype=self.data.dtype if dtype is None else dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError("Can't access the shape of an uninitialized parameter or buffer. This error usually happens "
                           "in `load_state_dict` when trying to load an uninitialized parameter into an initialized "
                           "one. Call `forward` to initialize the parameters before accessing their attributes.")

    def _refuse(self, *args, **kwargs):
        raise uninitialized_error("a question about its shape")

    numel = nelement = dim = ndimension = stride = __len__ = _refuse

    def share_memory_(self):
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize "
                           "the parameters before calling `module.share_memory()`.")

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self, memo: dict[int, Any]):
        if id(self) in memo:
            return memo[id(self)]
        memo[id(self)] = made = type(self)(**self._options())
        return made

    def __reduce_ex__(self, protocol: int):
        return _rebuild_uninitialized, (type(self), self._options())

    def __dir__(self):
        return [name for name in Tensor.__dir__(self) if name != "shape"]

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") not in _ALLOWED:
            raise uninitialized_error(func)
        with DisableTorchFunctionSubclass():
            return _convert(func(*args, **(kwargs or {})), cls)


# What may be asked of a tensor that has no shape yet: its dtype and device, and what leaves the shape alone.
_ALLOWED = frozenset("""__hash__ size copy_ is_complex is_floating_point half float double bfloat16 char short int long
cuda cpu to get_device requires_grad_ detach register_hook __deepcopy__ __reduce_ex__ __repr__ __get__""".split())


def uninitialized_error(function: Any) -> ValueError:
    return ValueError(f"Attempted to use an uninitialized parameter in {function}. This error happens when you are "
                      "using a `LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` "
                      "objects. When using LazyModules Call `forward` with a dummy batch to initialize the parameters "
                      "before calling torch functions")


def _rebuild_uninitialized(kind: type, options: dict[str, Any]) -> Any:
    return kind(**options)


def is_lazy(tensor: Any) -> bool:
    """Whether a parameter or buffer still waits for its shape."""
    return isinstance(tensor, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter without a shape: `materialize(shape)` makes it a Parameter.

    >>> layer = nn.LazyLinear(3)
    >>> type(layer.weight).__name__
    'UninitializedParameter'
    >>> _ = layer(torch.ones(1, 5))
    >>> layer.weight.shape
    torch.Size([3, 5])
    """

    _without_overrides = False
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        return _bare(cls, empty(0, device=device, dtype=dtype), requires_grad)

    def _options(self) -> dict[str, Any]:
        return {"requires_grad": self.requires_grad, "device": self.data.device, "dtype": self.data.dtype}


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer without a shape: `materialize(shape)` makes it a plain tensor.

    >>> buffer = nn.UninitializedBuffer()
    >>> buffer.materialize((2, 3))
    >>> buffer.shape
    torch.Size([2, 3])
    """

    _without_overrides = False
    _is_buffer = True
    persistent = True
    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True):
        made = _bare(cls, empty(0, device=device, dtype=dtype), requires_grad)
        if not persistent:
            made.persistent = False
        return made

    def _options(self) -> dict[str, Any]:
        return {"requires_grad": self.requires_grad, "device": self.data.device, "dtype": self.data.dtype,
                "persistent": self.persistent}


def _bare(cls: type, data: Tensor, requires_grad: bool) -> Any:
    activate()  # from now on operations ask their arguments, so that this one can refuse
    made = wrap_as(cls, data._array)
    if requires_grad:
        from ..autograd.node import AccumulateGrad
        made._node = AccumulateGrad(made)
    return made


_rebuilders = (_rebuild_parameter, _rebuild_parameter_with_state)  # names that pickles refer to


def learn(layer: Any, name: str, shape: Any, device: Any = None, dtype: Any = None) -> None:
    """Gives a layer a parameter of this shape, without values yet; None: the layer does without it."""
    layer.register_parameter(name, None if shape is None else Parameter(empty(shape, device=device, dtype=dtype)))
