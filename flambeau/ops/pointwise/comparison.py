"""Comparison, logic, bits, choice between values, and Python's operators for them."""

from __future__ import annotations

import warnings
from typing import Any

from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from ..core.row import _type_word, check_dtype, public
from .arithmetic import _right, refuse
from .families import Pointwise, binary, compare, plain_number, promoted
from .functions import bitwise_not, masked, nothing, where_row

_ORDERED = "?bBhHiIlLqQefdE"
_INTEGERS = "?bBhHiIlLqQ"



def _one_dtype(self: Any, other: Any) -> None:
    if self.is_complex() or other.is_complex():
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if self.dtype is not other.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


def _bitwise(name: str, c: str) -> Any:
    return binary(name, c, takes="bi", c_kinds="ib", fast=_INTEGERS, fast_scalar="", numbers="both", cpu_name=f"{name}_cpu")


def _no_complex(name: str) -> Any:
    return lambda d: RuntimeError(f"{name} not implemented for complex tensors.") if d.is_complex else None


# fmt: off
eq = compare("eq", "a == b", takes="bifch")
ne = compare("ne", "a != b", takes="bifch", aliases=("not_equal",))
lt = compare("lt", "a < b", fast=_ORDERED, complex_ok=False, aliases=("less",))
le = compare("le", "a <= b", fast=_ORDERED, complex_ok=False, aliases=("less_equal",))
gt = compare("gt", "a > b", fast=_ORDERED, complex_ok=False, aliases=("greater",))
ge = compare("ge", "a >= b", fast=_ORDERED, complex_ok=False, aliases=("greater_equal",))
logical_and = compare("logical_and", "a && b", numbers="none", fast=_ORDERED + "FD", fast_scalar="")
logical_or = compare("logical_or", "a || b", numbers="none", fast=_ORDERED + "FD", fast_scalar="")
logical_xor = compare("logical_xor", "!a != !b", numbers="none", fast=_ORDERED + "FD", fast_scalar="")
bitwise_and = _bitwise("bitwise_and", "a & b")
bitwise_or = _bitwise("bitwise_or", "a | b")
bitwise_xor = _bitwise("bitwise_xor", "a ^ b")
shift_left = binary("bitwise_left_shift", "b < 0 || b >= 8 * (T)sizeof(T) ? 0 : (T)(a << b)", kernel="shift_left",
                    cpu_name="lshift_cpu", takes="i", c_kinds="i", fast="", fast_scalar="", numbers="both")
shift_right = binary("bitwise_right_shift", "b < 0 || b >= 8 * (T)sizeof(T) ? (a < 0 ? (T)-1 : 0) : (T)(a >> b)",
                     kernel="shift_right", cpu_name="rshift_cpu", takes="i", c_kinds="i", fast="", fast_scalar="",
                     numbers="both")
gcd = binary("gcd", takes="i", fast="bBhHiIlLqQ", fast_scalar="", numbers="none", inplace="function")
lcm = binary("lcm", takes="i", fast="bBhHiIlLqQ", fast_scalar="", numbers="none", inplace="function")

# Ties share the gradient.
maximum = binary("maximum", "max(a, b)", (
    lambda grad, other, self: masked(where_row(self == other, grad / 2, grad), (self < other).logical_not()),
    lambda grad, other, self: masked(where_row(self == other, grad / 2, grad), (self > other).logical_not())),
    fast=_ORDERED, fast_scalar="", takes="bif", c_kinds="fib", numbers="none", inplace=False, foreach=2,
    refusal=_no_complex("maximum"))
minimum = binary("minimum", "min(a, b)", (
    lambda grad, other, self: masked(where_row(self == other, grad / 2, grad), (self > other).logical_not()),
    lambda grad, other, self: masked(where_row(self == other, grad / 2, grad), (self < other).logical_not())),
    fast=_ORDERED, fast_scalar="", takes="bif", c_kinds="fib", numbers="none", inplace=False, foreach=2,
    refusal=_no_complex("minimum"))
fmax = binary("fmax", "fmax(a, b)", (lambda grad, other, self: masked(grad, (self >= other) | other.isnan()),
                                     lambda grad, other, self: masked(grad, ~((self >= other) | other.isnan()))),
              fast=_ORDERED, fast_scalar="", takes="bif", c_kinds="fib", numbers="none", inplace=False)
fmin = binary("fmin", "fmin(a, b)", (lambda grad, other, self: masked(grad, (self <= other) | other.isnan()),
                                     lambda grad, other, self: masked(grad, ~((self <= other) | other.isnan()))),
              fast=_ORDERED, fast_scalar="", takes="bif", c_kinds="fib", numbers="none", inplace=False)
heaviside = binary("heaviside", "a == 0 ? b : a > 0", (refuse("heaviside"), refuse("heaviside")), check=_one_dtype,
                   takes="bif", fast="fd", fast_scalar="", node="NotImplemented", numbers="none")
nextafter = binary("nextafter", "nextafter(a, b)", (
    lambda grad, other, self: masked(grad, self != other),
    nothing), takes="f", fast="fd", fast_scalar="", numbers="none", halves=True)
# fmt: on

for _method, _op in (("eq", eq), ("ne", ne), ("lt", lt), ("le", le), ("gt", gt), ("ge", ge), ("and", bitwise_and),
                     ("or", bitwise_or), ("xor", bitwise_xor), ("lshift", shift_left), ("rshift", shift_right)):
    setattr(Tensor, f"__{_method}__", _op.operator)
for _method, _op in (("and", bitwise_and), ("or", bitwise_or), ("xor", bitwise_xor)):
    setattr(Tensor, f"__r{_method}__", _op.operator)
    setattr(Tensor, f"__i{_method}__", _op.inplace_operator)
Tensor.__rlshift__, Tensor.__rrshift__ = _right(shift_left, "shift_left"), _right(shift_right, "shift_right")
Tensor.__ilshift__, Tensor.__irshift__ = shift_left.inplace_operator, shift_right.inplace_operator


def _invert(self: Any) -> Any:
    """~x: not, bit by bit."""
    if isinstance(self, Tensor) and self._array.dtype.kind in "fcV":
        raise TypeError("~ (operator.invert) is only implemented on integer and Boolean-type tensors")
    return bitwise_not(self)


Tensor.__invert__ = _invert


# -------------------------------------------------------------------------------------------------------- where
@public(out="exact")
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """input where the condition holds and other elsewhere; with the condition alone, the indices where it holds."""
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if input is None or other is None:
        raise TypeError("where() received an invalid combination of arguments: expected condition, input and other, or "
                        "condition alone")
    if condition.dtype is not _dtypes.bool_:
        if condition.dtype is not _dtypes.uint8:
            raise RuntimeError("where expected condition to be a boolean tensor, but got a tensor with dtype "
                               f"{condition.dtype.word}")
        warnings.warn("where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future "
                      "version of PyTorch. Use a boolean condition instead.", stacklevel=3)
        condition = condition != 0
    return where_row(condition, input, other)


def _where_method(self: Any, condition: Any, other: Any = None) -> Any:
    """self where the condition holds and other elsewhere."""
    return where(condition, self, other)


Tensor.where = _where_method


# -------------------------------------------------------------------------------------------------------- clamp
def _clamp_self(grad: Any, self: Any, min: Any, max: Any) -> Any:
    if min is None:
        return masked(grad, self <= max)
    if max is None:
        return masked(grad, self >= min)
    return masked(grad, (self >= min) & (self <= max))


def _clamp_min(grad: Any, self: Any, min: Any, max: Any) -> Any:
    return masked(grad, self < min if max is None else (min < max) & (self < min))


def _clamp_max(grad: Any, self: Any, min: Any, max: Any) -> Any:
    return masked(grad, self > max if min is None else (self > max) | (max < min))


def _bounded(self: Any = None, min: Any = 0, max: Any = 0) -> str:
    return "min(a, c)" if min is None else "max(a, b)" if max is None else "min(max(a, b), c)"


_clamp = Pointwise("clamp", "self min max", kind="same", takes="bif", c=_bounded, halves=True,
                   c_kinds="fi", backward=dict(self=_clamp_self, min=_clamp_min, max=_clamp_max))
_clamp_numbers = Pointwise("clamp_numbers", "self min max", kind="same", kernel="clamp", takes="bif", halves=True,
                           c=_bounded, c_kinds="fi", node="ClampBackward1", backward=dict(self=_clamp_self))


def _one_sided(name: str, kernel: str, c: str, inside: Any, tensor: bool) -> Pointwise:
    """clamp_min and clamp_max: by a number, or by a tensor that takes the gradient where it is the result."""
    bound = name[-3:]
    formulas = {"self": inside}
    if tensor:
        formulas[bound] = _OUTSIDE[bound]
    return Pointwise(name + "_tensor" * tensor, f"self {bound}", kind="same", kernel=kernel, c=c, takes="bif", c_kinds="fib",
                     halves=True, node=f"Clamp{bound.title()}Backward{int(tensor)}", backward=formulas)


def _above_min(grad: Any, self: Any, min: Any) -> Any:
    return masked(grad, self >= min)


def _below_max(grad: Any, self: Any, max: Any) -> Any:
    return masked(grad, self <= max)


def _at_min(grad: Any, self: Any, min: Any) -> Any:
    return masked(grad, self < min)


def _at_max(grad: Any, self: Any, max: Any) -> Any:
    return masked(grad, self > max)


_OUTSIDE = {"min": _at_min, "max": _at_max}
_clamp_min_row = _one_sided("clamp_min", "maximum", "max(a, b)", _above_min, False)
_clamp_max_row = _one_sided("clamp_max", "minimum", "min(a, b)", _below_max, False)
_clamp_min_tensor = _one_sided("clamp_min", "maximum", "max(a, b)", _above_min, True)
_clamp_max_tensor = _one_sided("clamp_max", "minimum", "min(a, b)", _below_max, True)


@public(inplace="function", aliases=("clip",))
def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Values below min become min, those above max become max."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    min, max = plain_number(min), plain_number(max)
    for name, bound in (("min", min), ("max", max)):
        if bound is not None and not isinstance(bound, (Tensor, bool, int, float, complex)):
            raise TypeError(f"clamp(): argument '{name}' must be a Number or Tensor, not {type(bound).__name__}")
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        if min is not None is not max and input.dtype.name == "bool":
            check_dtype("clamp_cpu", promoted((input, min, max)), "if")
        return _clamp(input, min, max)
    if any(isinstance(b, float) and b != b for b in (min, max)):
        from ...creation.like import full_like
        return full_like(input, float("nan"))
    return _clamp_numbers(input, min, max)


@public(inplace="function", foreach=2)
def clamp_min(input: Any, min: Any) -> Any:
    """Values below min become min."""
    if not isinstance(input, Tensor):
        raise TypeError(f"clamp_min(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return (_clamp_min_tensor if isinstance(min, Tensor) else _clamp_min_row)(input, min)


@public(inplace="function", foreach=2)
def clamp_max(input: Any, max: Any) -> Any:
    """Values above max become max."""
    if not isinstance(input, Tensor):
        raise TypeError(f"clamp_max(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    return (_clamp_max_tensor if isinstance(max, Tensor) else _clamp_max_row)(input, max)


# --------------------------------------------------------------------------------------------- closeness, equality
_isclose = Pointwise("isclose", "self other rtol atol equal_nan", kind="bool", takes="bifch", as_given="rtol atol equal_nan",
                     c="a == b || (e && a != a && b != b) || (isfinite(a - b) && fabs(a - b) <= d + fabs(c * b))")


def _two_tensors(name: str, input: Any, other: Any) -> None:
    for argument, value in (("input", input), ("other", other)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}(): argument '{argument}' must be Tensor, not {type(value).__name__}")


@public(out=False)
def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    """Whether |input - other| <= atol + rtol * |other|, element by element."""
    _two_tensors("isclose", input, other)
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{_type_word(input.dtype)} did not match {_type_word(other.dtype)}")
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {value}")
    return _isclose(input, other, rtol, atol, equal_nan)


@public(out=False)
def allclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@public(out=False)
def equal(input: Any, other: Any) -> bool:
    """Whether the two have one shape and equal elements."""
    _two_tensors("equal", input, other)
    if input.device != other.device:
        raise RuntimeError(f"Cannot compare two tensors on different devices. Got: {input.device} and {other.device}")
    if input.is_meta:
        raise NotImplementedError("equal: a meta tensor has no values to compare")
    if input._array.shape != other._array.shape:
        return False
    return bool((input == other).all()) if input.numel() else True

