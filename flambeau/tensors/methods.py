"""Python's protocols on Tensor: numbers, membership, copying, pickling."""

from __future__ import annotations

from typing import Any

from ..autograd.frames import asked_by_user
from ..autograd.state import BATCHED, CAPTURE, DISPATCH, FOLLOW, grad_enabled, looked_at, state
from ..backends import pending, registry
from ..backends.batched.arrays import BatchedArray
from ..backends.cpu import creation as _cpu
from ..ops.core import overrides as _overrides
from ..ops.core.row import FUNCTIONS, public
from ..settings import warn_once
from .tensor import Tensor, wrap, wrap_as

_SINGLE = "only one element tensors can be converted to Python scalars"
_NUMBERS = frozenset((float, int, bool, complex))
_CONTROL_FLOW = ("vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support "
                 "that yet, please shout over at https://github.com/pytorch/functorch/issues/257 .")
_INDEX = "only integer tensors of a single element can be converted to an index"


# -------------------------------------------------------------------------------------------------- Python numbers
@public(toplevel=False, out=False)
def item(self) -> Any:
    """The only element as a Python number."""
    return _item(self)


def _item(self: Tensor) -> Any:
    array = self._array
    if array.size != 1:
        raise RuntimeError(f"a Tensor with {array.size} elements cannot be converted to Scalar")
    if state.mode & FOLLOW:
        looked_at(array, "a tensor's value was read")
    if _overrides.active and (state.mode & DISPATCH or self._dispatches) and not state.dispatch_off:
        return _overrides.dispatch(Tensor.item, (self,), {})[1]
    value = array.item()  # an array without memory refuses by itself
    return value if value.__class__ in _NUMBERS else float(value)


@public(toplevel=False, out=False)
def tolist(self) -> Any:
    """Nested lists of Python numbers; a number for a zero-dim tensor."""
    looked_at(self._array, "a tensor's values were read")
    if type(self._array) is BatchedArray:
        self._array.item()
    return _cpu.to_python(self._array)


def _bool(self) -> bool:
    array = self._array
    if state.mode & BATCHED and type(array) is BatchedArray:
        raise RuntimeError(_CONTROL_FLOW)
    if array.size != 1:
        few = "more than one value" if array.size else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {few} is ambiguous")
    if state.mode & (CAPTURE | FOLLOW):
        looked_at(array, "a branch depends on a tensor's value (torch.cond and torch.while_loop are part of a program)",
                  refused=asked_by_user())
    return bool(_item(self))


def _single(self, warn: bool = True) -> Any:
    if self._array.size != 1:
        raise ValueError(_SINGLE)
    if self._node is not None and warn and grad_enabled():
        warn_once("scalar", "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
                  "Consider using tensor.detach() first.")
    return _item(self)


def _int(self) -> int:
    value = _single(self, warn=False)
    if value.__class__ is complex:
        value = _real(value, "int64_t")
    return int(value)


def _float(self) -> float:
    value = _single(self)
    return float(_real(value, "double") if value.__class__ is complex else value)


def _real(value: complex, name: str) -> float:
    if value.imag:
        raise RuntimeError(f"value cannot be converted to type {name} without overflow: {value} has an imaginary part")
    return value.real


def _complex(self) -> complex:
    return complex(_single(self))


def _index(self) -> int:
    d = self.dtype
    if self._array.size != 1 or d.is_floating_point or d.is_complex:
        raise TypeError(_INDEX)
    return int(_item(self))


def _contains(self, element: Any) -> bool:
    if isinstance(element, (Tensor, int, float, complex)):
        return bool((element == self).any().item())
    raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")


def _delitem(self, index: Any) -> None:
    raise TypeError("Tensor does not support deleting items")


def _reversed(self) -> Tensor:
    return self if self._array.ndim == 0 else self.flip(0)


Tensor.__bool__ = _bool
Tensor.__int__ = Tensor.__long__ = _int
Tensor.__float__ = _float
Tensor.__complex__ = _complex
Tensor.__index__ = _index
Tensor.__contains__ = _contains
Tensor.__delitem__ = _delitem
Tensor.__reversed__ = _reversed
Tensor.__nonzero__ = _bool


def _dir(self) -> list[str]:
    return sorted({*dir(type(self)), *self.__dict__})


Tensor.__dir__ = _dir


# ------------------------------------------------------------------------------------ small questions and changes
@public(out=False)
def is_nonzero(input) -> bool:
    """Whether a tensor of one element is not zero."""
    return _bool(_tensor("is_nonzero", input))


@public(out=False)
def is_same_size(input, other) -> bool:
    """Whether two tensors have one shape."""
    return _tensor("is_same_size", input)._array.shape == _tensor("is_same_size", other)._array.shape


def _tensor(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(value).__name__}")
    return value


def _question(name: str) -> None:
    method = getattr(Tensor, name)

    def function(input):
        if not isinstance(input, Tensor) and _overrides.active:
            done, value = _overrides.dispatch(function, (input,), {})
            if done:
                return value
        return method(_tensor(name, input))

    function.__name__ = function.__qualname__ = name
    function.__module__, function.__doc__ = __package__.partition(".")[0], f"{name}(input): the same as input.{name}()."
    FUNCTIONS[name] = function


def is_storage(obj) -> bool:
    """Whether obj is a storage."""
    from .storage import TypedStorage, UntypedStorage
    return isinstance(obj, (TypedStorage, UntypedStorage))


FUNCTIONS["is_storage"] = is_storage


for _name in ("numel", "is_floating_point", "is_complex", "is_signed", "is_inference"):
    _question(_name)


def _applied(self, name: str, others: tuple[Tensor, ...], callable: Any) -> Tensor:
    if self.requires_grad or any(other.requires_grad for other in others):
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if self.device.type == "meta":
        return self
    if self.device.type != "cpu":
        raise TypeError(f"{name}() is only implemented on CPU tensors")
    for other in others:
        if other.shape != self.shape:
            other = other.expand(self.shape)
    lists = [t.expand(self.shape).reshape(-1).tolist() for t in (self, *others)]
    values = [callable(*row) for row in zip(*lists)]
    for value in values:
        if isinstance(value, str):
            raise TypeError("must be real number, not str")
    from ..creation.factories import tensor
    return self.copy_(tensor(values, dtype=self.dtype).reshape(self.shape))


@public(toplevel=False, out=False)
def apply_(self, callable) -> Tensor:
    """Replaces each element by callable(element); slow, for small CPU tensors."""
    return _applied(self, "apply_", (), callable)


@public(toplevel=False, out=False)
def map_(self, tensor, callable) -> Tensor:
    """Replaces each element by callable(element, the other tensor's element).

    >>> torch.ones(2).map_(torch.tensor([1.0, 2.0]), lambda a, b: a + b)
    tensor([2., 3.])
    """
    return _applied(self, "map_", (tensor,), callable)


@public(toplevel=False, out=False)
def map2_(self, x, y, callable) -> Tensor:
    """Replaces each element by callable(element, x's element, y's element).

    >>> torch.ones(2).map2_(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), lambda a, b, c: a + b * c)
    tensor([4., 9.])
    """
    return _applied(self, "map2_", (x, y), callable)


# `public` drops the trailing underscore of a name: these are in-place methods only.
for _name in ("apply", "map", "map2"):
    setattr(Tensor, _name + "_", Tensor.__dict__[_name])
    delattr(Tensor, _name)


# -------------------------------------------------------------------------------------------------- copying, pickling
def _deepcopy(self, memo: dict[int, Any]) -> Tensor:
    """A leaf of its own memory; tensors over one storage share the copy of it too."""
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol "
                           "at the moment.  If you were attempting to deepcopy a module, this may be because of a "
                           "torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001")
    made = wrap_as(type(self), _copied_storage(self, memo))
    if self.requires_grad:
        made.requires_grad_(True)
    memo[id(self)] = made
    if self._grad is not None:
        from copy import deepcopy
        made._grad = deepcopy(self._grad, memo)
    _copy_attributes(self, made, memo)
    return made


def _own_attributes(self: Tensor) -> dict[str, Any]:
    """What the user attached. The framework's attributes have a default on the class, and are set anew on a copy."""
    return {name: value for name, value in self.__dict__.items() if name not in Tensor.__dict__}


def _copy_attributes(source: Tensor, made: Tensor, memo: dict[int, Any] | None) -> None:
    from copy import deepcopy
    for name, value in _own_attributes(source).items():
        made.__dict__[name] = value if memo is None else deepcopy(value, memo)


def _copied_storage(self, memo: dict[int, Any]) -> Any:
    array = self._array
    if self.device.type not in ("cpu", "cuda"):
        return array
    looked_at(array, "a tensor was copied with its storage")
    if type(array) is pending.PendingArray:  # a copy has no bits
        return pending.copy(array)
    from .storage import whole_storage
    owner, raw = whole_storage(array)
    shared = memo.setdefault("flambeau storages", {})
    if id(owner) not in shared:
        shared[id(owner)] = (raw.copy(), owner)  # the owner is kept so that its id stays its own
    copied = shared[id(owner)][0]
    if self.is_cuda:
        backend = registry.backend_of(array)
        return backend.over_bytes(copied, array.shape, backend.strides(array), backend.storage_offset(array), array.dtype)
    return _cpu.over_bytes(copied, array)


def _copy(self) -> Tensor:
    """copy.copy: another leaf over the same memory."""
    made = wrap_as(type(self), self._array)
    if self.requires_grad:
        made.requires_grad_(True)
    _copy_attributes(self, made, None)
    return made


def _reduce_ex(self, protocol: int) -> tuple[Any, ...]:
    from ..serialization.rebuild import rebuild_meta, rebuild_tensor
    attributes = _own_attributes(self)
    if self.device.type == "meta":
        return rebuild_meta, (type(self), tuple(self.shape), self.stride(), self.dtype, self.requires_grad, attributes)
    looked_at(self._array, "a tensor was pickled")
    array, bits = pending.window_of(self._array), pending.bits(self._array)
    flat, stride = _cpu.packed(array if not self.is_cuda else registry.backend_of(array).to_cpu(array))
    rest = (str(self.device), *bits) if self.is_cuda or any(bits) else ()
    return rebuild_tensor, (type(self), flat, tuple(self.shape), stride, self.requires_grad, attributes, *rest)


Tensor.__deepcopy__ = _deepcopy
Tensor.__copy__ = _copy
Tensor.__reduce_ex__ = _reduce_ex

__all__ = ["wrap"]
