"""`torch._check*` and `torch._assert_*`: statements about sizes and values that raise when they do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .ops.core import overrides as _overrides
from .tensors.tensor import Tensor

__all__ = ["_assert", "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all", "_check_type",
           "_check_value", "_check_with", "_check_tensor_all_with", "_assert_async", "_assert_scalar",
           "_assert_tensor_metadata", "_functional_assert_async"]


def _check_with(error_type: type[Exception], cond: bool, message: Any = None) -> None:
    """Raises error_type unless cond; message is a function that makes the text."""
    if isinstance(cond, Tensor) or not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False. (Could this error message be improved? If so, please "
                         "report an enhancement request to PyTorch.)")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _checker(name: str, error_type: type[Exception]) -> Callable[..., None]:
    def check(cond: bool, message: Any = None) -> None:
        _check_with(error_type, cond, message)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"{error_type.__name__} unless cond."
    return check


_check = _checker("_check", RuntimeError)
_check_index = _checker("_check_index", IndexError)
_check_value = _checker("_check_value", ValueError)
_check_type = _checker("_check_type", TypeError)
_check_not_implemented = _checker("_check_not_implemented", NotImplementedError)


def _check_is_size(i: int, message: Any = None, *, max: int | None = None) -> None:
    """RuntimeError unless i can be a size."""
    _check(i >= 0 and (max is None or i <= max), message or (lambda: f"expected a size, got {i}"))


def _check_tensor_all_with(error_type: type[Exception], cond: Tensor, message: Any = None) -> None:
    """error_type unless all elements are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if str(cond.dtype) != "torch.bool":
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    """RuntimeError unless all elements are True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(input: Tensor, assert_msg: str | None = None) -> None:
    """RuntimeError unless the one element is non-zero."""
    if input.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous" if input.numel()
                           else "Boolean value of Tensor with no values is ambiguous")
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _assert_scalar(value: Any, assert_msg: str) -> None:
    """RuntimeError unless the number is non-zero."""
    if not value:
        raise RuntimeError(assert_msg)


def _functional_assert_async(input: Tensor, assert_msg: str, dep_token: Tensor) -> Tensor:
    """_assert_async with a token that orders it."""
    _assert_async(input, assert_msg)
    return dep_token


def _assert_tensor_metadata(a: Tensor, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None,
                            layout: Any = None) -> None:
    """RuntimeError unless the tensor has the given size, stride, dtype and device."""
    for what, have, want in (("size", list(a.shape), size), ("stride", list(a.stride()), stride), ("dtype", a.dtype, dtype)):
        if want is not None and have != (list(want) if what != "dtype" else want):
            raise RuntimeError(f"Tensor {what} mismatch! Expected: {want}, Got: {have}")


def _assert(condition: Any, message: str) -> Any:
    """Python's assert as a function, so that a tracer can write it down."""
    if condition.__class__ is not bool and hasattr(type(condition), "__torch_function__"):
        done, value = _overrides.dispatch(_assert, (condition, message), {}, (condition,))
        if done:
            return value
    assert condition, message
