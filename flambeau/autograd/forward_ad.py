"""`torch.autograd.forward_ad`: dual numbers. Inside a level, tensors carry a tangent, and operations carry it along."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

from ..tensors.dtypes import GRAD_NUMS
from ..tensors.tensor import Tensor, wrap
from .forward_mode import set_tangent, tangent_of
from .state import FORWARD_AD, state
from .views import history_of, mark_view

_ids = itertools.count(1)


class UnpackedDualTensor(NamedTuple):
    """A primal value and its tangent (None if it has none)."""

    primal: Tensor
    tangent: Tensor | None


def _level() -> int:
    return state.forward_level - 1


def __getattr__(name: str) -> Any:
    if name == "_current_level":  # a number that changes, under PyTorch's name
        return _level()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level() -> int:
    """Starts a level; returns its number."""
    if state.forward_level:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    state.forward_level = 1
    state.forward_id = next(_ids)
    if _is_fwd_grad_enabled():
        state.mode |= FORWARD_AD
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends the level: all its tangents are gone."""
    if not state.forward_level:
        raise RuntimeError("Trying to exit a forward AD level but no level exists, make sure to enter_dual_level() first.")
    if level is not None and level != _level():
        raise RuntimeError(f"Trying to exit a forward AD level that was not the last one that was created: {level}")
    state.forward_level = 0
    state.forward_id = None
    state.mode &= ~FORWARD_AD


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """The tensor (same memory, same history) with a tangent."""
    if (level is None and not state.forward_level) or (level is not None and level < 0):
        raise RuntimeError("Trying to create a dual Tensor for forward AD but no level exists, make sure to "
                           "enter_dual_level() first.")
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise TypeError(f"make_dual: expected {name} to be a Tensor, got {type(value).__name__}")
        if value._array.dtype.num not in GRAD_NUMS:
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {value.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError("Trying to set a forward gradient that has a different size than that of the original Tensor, "
                           f"this is not supported. Tensor is of size {list(tensor.shape)} while the given forward gradient "
                           f"is of size {list(tangent.shape)}.")
    if tensor.is_complex() != tangent.is_complex():
        raise RuntimeError(f"make_dual: primal is {tensor.dtype} but tangent is {tangent.dtype}")
    if tangent_of(tensor) is not None:
        raise RuntimeError(f"Making a dual Tensor based on a Tensor that already has a forward gradient at the same level "
                           f"{_level()} is not supported.")
    if tangent_of(tangent) is not None:
        raise RuntimeError(f"Setting a forward grad that itself has a forward gradient at the same level{_level()} is not "
                           "supported.")
    if not _laid_out_alike(tensor, tangent):
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        room = tangent.detach().new_zeros(count).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        tangent = wrap(room._array).copy_(tangent)
    dual = _alias(tensor)
    set_tangent(dual, tangent)
    return dual


def _laid_out_alike(tensor: Tensor, tangent: Tensor) -> bool:
    """Whether views of the tensor can be taken of its tangent in the same way (else the tangent is copied)."""
    a, b = tensor._array, tangent._array
    if not a.size or (a.base is None and b.base is None):
        return True
    same = all(x == y or n == 1 for x, y, n in zip(tensor.stride(), tangent.stride(), a.shape))
    return same and tensor.untyped_storage().nbytes() == tangent.untyped_storage().nbytes()


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor; the tangent is None where it has none, or outside a level."""
    if not state.forward_level:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(_alias(tensor), tangent_of(tensor))


def _alias(tensor: Tensor) -> Tensor:
    """A view of the whole tensor, with the same place in the graph and no tangent."""
    if tensor._node is not None:
        before = state.mode
        state.mode &= ~FORWARD_AD
        try:
            return tensor.view_as(tensor)
        finally:
            state.mode = before
    other = wrap(tensor._array)
    mark_view(other, tensor)
    other._node = history_of(tensor)
    return other


class dual_level:
    """A `with` block (or decorator) in which forward-mode derivatives are computed."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with dual_level():
                return function(*args, **kwargs)

        return inside


def _is_fwd_grad_enabled() -> bool:
    return not getattr(state, "forward_off", False)


class _set_fwd_grad_enabled:
    """Turns the carrying of tangents off and on inside a level."""

    def __init__(self, mode: bool):
        self.before = _is_fwd_grad_enabled()
        self._set(mode)

    def _set(self, mode: bool) -> None:
        state.forward_off = not mode
        if state.forward_level:
            state.mode = state.mode | FORWARD_AD if mode else state.mode & ~FORWARD_AD

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        self._set(self.before)


set_fwd_grad_enabled = _set_fwd_grad_enabled

__all__ = ["UnpackedDualTensor", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual", "dual_level"]
