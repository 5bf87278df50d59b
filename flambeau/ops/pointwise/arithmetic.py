"""Arithmetic of two and more tensors, and Python's arithmetic operators."""

from __future__ import annotations

import cmath
import math
from typing import Any

from ...autograd.node import bump
from ...autograd.state import state
from ...backends import values
from ...backends.cpu.pointwise.loops import run
from ...backends.cpu.table import KERNELS
from ...backends.strides import contiguous_strides, elementwise_strides
from ...settings import warn_once
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from ..core import overrides as _overrides
from ..core.row import LARGE, check_overlap, constant, enter_inplace, export, make_inplace, ndarray, public
from .families import Pointwise, binary, inplace_operator, plain_number, promoted, untracked
from .functions import abs_, conj, masked, neg, nothing, where_row

_NOT_BOOL = "bBhHiIlLqQefdFDE"
_FLOATS = "efdFDE"
_NUMBERS = (bool, int, float, complex)


def _no_bools(self: Any, other: Any, alpha: Any = 1) -> None:
    bools = [a.dtype is _dtypes.bool_ if isinstance(a, Tensor) else isinstance(a, bool) for a in (self, other)]
    if all(bools):
        raise RuntimeError("Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
                           "`logical_xor()` operator instead.")
    if any(bools):
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to "
                           "invert a mask, use the `~` or `logical_not()` operator instead.")


def refuse(name: str):
    """The derivative of an operation that has none in PyTorch either: an error in the backward pass."""

    def formula(grad):
        raise RuntimeError(f"derivative for aten::{name} is not implemented")

    formula.refused = True
    return formula


# fmt: off
mul = binary("mul", "a * b", (lambda grad, other: grad * conj(other), lambda grad, self: grad * conj(self)),
             aliases=("multiply",), takes="bifch", numbers="all", rounds=False, foreach=2,
             fused=("mul(grad, other)", "mul(grad, self)"), c_kinds="fib")
_add = binary("add", "a + b", ("grad", "grad"), takes="bifch", numbers="all", c_kinds="fib")
_sub = binary("sub", "a - b", ("grad", "neg(grad)"), takes="ifch", fast=_NOT_BOOL,
              check=_no_bools, numbers="all", c_kinds="fi")
_rsub = binary("rsub", "b - a", ("neg(grad)", "grad"), takes="ifch", fast=_NOT_BOOL,
               check=_no_bools, node="RsubBackward1", inplace=False, method=False, c_kinds="fi")
_div = binary("div", "a / b", (lambda grad, other: grad / conj(other),
                               lambda grad, self, other: -grad * conj(self / other / other)), kind="float",
              fast=_FLOATS, numbers="all", rounds=False)
_remainder = binary("remainder", "remainder(a, b)", (
    lambda grad: grad, lambda grad, self, other: -grad * _div_mode(self, other, "floor")), fast="fd", takes="if",
    safe=values.DIVISION, node="RemainderBackward1", cpu_name="remainder_cpu", numbers="both")
_fmod = binary("fmod", "fmod(a, b)", (
    lambda grad: grad, lambda grad, self, other: -grad * _div_mode(self, other, "trunc")), fast="fd", takes="if",
    safe=values.DIVISION, node="FmodBackward1", cpu_name="fmod_cpu")
floor_divide = binary("floor_divide", "floor_divide(a, b)", (refuse("floor_divide"), refuse("floor_divide")),
                      safe=values.DIVISION, fast="fd",
                      takes="if", node="NotImplemented", cpu_name="div_floor_cpu", numbers="all", rounds=False)
_add_scaled = Pointwise("add_scaled", "self other alpha", kind="same", as_given="alpha", rounds=True,
                        c="a + b * c", c_kinds="fi",
                        node="AddBackward0",
                        backward=dict(self=lambda grad: grad, other=lambda grad, alpha: grad * conj(alpha)))
_sub_scaled = Pointwise("sub_scaled", "self other alpha", kind="same", as_given="alpha", rounds=True,
                        c="a - b * c", c_kinds="fi",
                        node="SubBackward0", check=_no_bools,
                        backward=dict(self=lambda grad: grad, other=lambda grad, alpha: -grad * conj(alpha)))
_remainder_scalar = Pointwise("remainder_scalar", "self other", kind="same", rounds=True, kernel="remainder", takes="if",
                              node="RemainderBackward0", backward=dict(self=lambda grad: grad))
_fmod_scalar = Pointwise("fmod_scalar", "self other", kind="same", kernel="fmod", takes="if", node="FmodBackward0",
                         backward=dict(self=lambda grad: grad))
_floor_mode = Pointwise("div_floor", "self other rounding_mode", safe=values.DIVISION, kind="same", kernel="div_floor",
                        takes="bif",
                        as_given="rounding_mode", c="floor_divide(a, b)", node="DivBackward2",
                        backward=dict(self=nothing, other=nothing))
_trunc_mode = Pointwise("div_trunc", "self other rounding_mode", safe=values.DIVISION, kind="same", kernel="div_trunc",
                        takes="bif",
                        as_given="rounding_mode", c="trunc(a / b)", node="DivBackward2",
                        backward=dict(self=nothing, other=nothing))
# fmt: on


def _check_alpha(input: Any, other: Any, alpha: Any) -> None:
    common = promoted((input, other))
    if isinstance(alpha, bool) and common is not _dtypes.bool_:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, complex) and not common.is_complex:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")
    if isinstance(alpha, float) and not (common.is_floating_point or common.is_complex):
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")


def _number(alpha: Any, name: str) -> Any:
    """alpha= may be a zero-dim tensor without gradient."""
    if isinstance(alpha, Tensor):
        if alpha.requires_grad or alpha.ndim:
            raise TypeError(f"{name}(): argument 'alpha' must be a Number, not Tensor")
        return alpha.item()
    return plain_number(alpha)


def old_order(name: str, before: str, now: str) -> None:
    """Warns, once per process, of numbers that come before the tensors that they belong to."""
    warn_once("old order", f"This overload of {name} is deprecated:\n\t{name}({before}, *, Tensor out = None)\n"
              f"Consider using one of the following signatures instead:\n\t{name}({now}, Tensor out = None)")


@public(out=False, aliases=(), foreach=2)
def add(input: Any, other: Any, *more: Any, alpha: Any = 1, out: Any = None) -> Any:
    """input + alpha * other."""
    return _scaled("add", _add, _add_scaled, input, other, more, alpha, out)


@public(out=False, aliases=("subtract",), foreach=2)
def sub(input: Any, other: Any, *more: Any, alpha: Any = 1, out: Any = None) -> Any:
    """input - alpha * other."""
    return _scaled("sub", _sub, _sub_scaled, input, other, more, alpha, out)


def _scaled(name: str, unscaled: Any, scaled: Any, input: Any, other: Any, more: tuple[Any, ...], alpha: Any, out: Any) -> Any:
    if more:
        old_order(name, "Tensor input, Number alpha, Tensor other", "Tensor input, Tensor other, *, Number alpha = 1")
        other, alpha = more[0], other
    if alpha.__class__ is int and alpha == 1:
        return unscaled(input, other, out=out)
    alpha = _number(alpha, name)
    _check_alpha(input, other, alpha)
    return _finish(name, scaled(input, other, alpha), out)


def _finish(name: str, result: Any, out: Any) -> Any:
    if out is None:
        return result
    from ..core.row import write_out
    return write_out(name, out, result, (), {})


_multiply = KERNELS["mul"]


def _scaled_inplace(name: str, unscaled: Any, general: Any) -> Any:
    """x.add_(y, alpha=...): the inner loop of most optimizers, so that without recording it is two kernel calls."""
    recorded = make_inplace(name, general)
    scaled, kernel = f"{name}_scaled", KERNELS[name]

    def inplace(self, other, *more, alpha=1):
        if alpha.__class__ is int and alpha == 1 and not more:
            return unscaled.inplace(self, other)
        mode = state.mode
        if mode < 2 and not more and alpha.__class__ in (int, float) and isinstance(other, Tensor) and (
                other._array.dtype.char in "fd") and (mode or (untracked(self) and untracked(other))):
            x, y = self._array, other._array
            if x.shape == y.shape and x.dtype is y.dtype and type(x) is type(y) is ndarray and x.flags.c_contiguous and (
                    not self._inference and not other.is_sparse and not self.is_sparse):
                if x.base is not None or y.base is not None:
                    check_overlap(x, (y,))
                if x.size < LARGE:
                    kernel(x, _multiply(y, constant(alpha, x.dtype)), out=x)
                elif run(scaled, x, y, alpha, out=x) is None:
                    return unscaled.inplace(self, mul(other, alpha))
                bump(self)
                return self
            return unscaled.inplace(self, mul(other, alpha))
        return recorded(self, other, *more, alpha=alpha)

    inplace.__name__, inplace.__qualname__ = name + "_", f"Tensor.{name}_"
    inplace.__doc__ = f"In-place form of {name}."
    _overrides.STAND_INS[recorded] = _overrides.STAND_INS[unscaled.inplace] = inplace
    return inplace


Tensor.add_ = _scaled_inplace("add", _add, add)
Tensor.sub_ = Tensor.subtract_ = _scaled_inplace("sub", _sub, sub)


@public(out=False, method=False)
def rsub(input: Any, other: Any, alpha: Any = 1) -> Any:
    """other - alpha * input."""
    if alpha.__class__ is int and alpha == 1:
        made = _rsub(input, other)
        if not isinstance(other, Tensor) or (input.is_contiguous() and other.is_contiguous()):
            return made
        from ..shape.views import relaid
        stride = elementwise_strides(made.shape, [(t.shape, t.stride()) for t in (other, input) if t.ndim])
        return relaid(made, contiguous_strides(made.shape) if stride is None else stride)
    alpha = _number(alpha, "rsub")
    _check_alpha(input, other, alpha)
    if not isinstance(other, Tensor):
        from ...creation.factories import tensor
        other = tensor(other, dtype=promoted((input, other)), device=input.device)
    return _sub_scaled(other, input, alpha)


def _no_bool_kernel(kernel: str, *args: Any) -> None:
    if all(a.dtype is _dtypes.bool_ if isinstance(a, Tensor) else a.__class__ is bool for a in args):
        raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")


def _div_mode(input: Any, other: Any, rounding_mode: str) -> Any:
    return (_floor_mode if rounding_mode == "floor" else _trunc_mode)(input, other, rounding_mode)


@public(out=False, aliases=("divide",), foreach=2)
def div(input: Any, other: Any, *, rounding_mode: str | None = None, out: Any = None) -> Any:
    """input / other; rounding_mode "trunc" rounds towards zero, "floor" down."""
    if rounding_mode is None:
        return _div(input, other, out=out)
    if rounding_mode not in ("trunc", "floor"):
        raise RuntimeError(f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {rounding_mode!r}")
    _no_bool_kernel(f"div_{rounding_mode}_cpu", input, other)
    return _finish("div", _div_mode(input, other, rounding_mode), out)


_div_recorded = make_inplace("div", div)


def _div_inplace(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """In-place form of div."""
    if rounding_mode is None:
        return _div.inplace(self, other)
    return _div_recorded(self, other, rounding_mode=rounding_mode)


_div_inplace.__name__, _div_inplace.__qualname__ = "div_", "Tensor.div_"
Tensor.div_ = Tensor.divide_ = _div_inplace
_overrides.STAND_INS[_div_recorded] = _overrides.STAND_INS[_div.inplace] = _div_inplace
export("true_divide", _div)
Tensor.true_divide_ = _div.inplace


def _by_number(name: str, tensors: Any, number: Any) -> Any:
    """remainder and fmod: a number as divisor has a node of its own, which saves nothing."""

    def function(input, other, *, out=None):
        if other.__class__ in _NUMBERS and isinstance(input, Tensor):
            return _finish(name, number(input, other), out)
        return tensors(input, other, out=out)

    function.__doc__ = f"{name}(input, other, *, out=None): what is left of the division, element by element."
    return public(function, name=name, out=False, inplace=True)


remainder = _by_number("remainder", _remainder, _remainder_scalar)
fmod = _by_number("fmod", _fmod, _fmod_scalar)


# ------------------------------------------------------------------------------------------------------- powers
def _pow_number(grad: Any, exponent: Any, self: Any) -> Any:
    if exponent == 0:
        return nothing(grad)
    if exponent == 2:
        return grad * (2 * conj(self))
    return grad * conj(exponent * _pow_scalar(self, exponent - 1))


def _pow_self(grad: Any, exponent: Any, self: Any) -> Any:
    return masked(grad * conj(exponent * _pow_tensor(self, exponent - 1)), exponent != 0)


def _pow_exponent(grad: Any, self: Any, exponent: Any, result: Any) -> Any:
    several = exponent.is_complex()
    flat = (self == 0) & ((exponent.real if several else exponent) >= 0)
    log = (self.to(result.dtype) if several and not self.is_complex() else self).log()
    return grad * where_row(flat, 0, conj(result * log))


def _pow_of_number(grad: Any, self: Any, exponent: Any, result: Any) -> Any:
    if self == 0:
        flat = exponent.real >= 0 if exponent.is_complex() else exponent >= 0
        return grad * where_row(flat, 0, conj(result * -math.inf))
    if isinstance(self, complex):
        log = cmath.log(self)
    else:
        log = math.log(float(self)) if self > 0 else cmath.log(float(self)) if exponent.is_complex() else math.nan
    return grad * conj(result * log)


_POWERS = {2: "a * a", 3: "a * a * a", 0.5: "sqrt(a)", -0.5: "1 / sqrt(a)", -1: "1 / a", -2: "1 / (a * a)"}


def _power(base: Any = None, exponent: Any = None) -> str:
    """Small constant exponents are products and roots, as in the kernel."""
    if isinstance(exponent, ndarray) and not exponent.ndim:
        exponent = exponent.item()
    return _POWERS.get(exponent, "pow(a, b)") if exponent.__class__ in (int, float) else "pow(a, b)"


_pow_scalar = binary("pow_scalar", _power, (_pow_number, None), safe=values.NO_INTEGERS, args="self exponent", kernel="pow",
                     node="PowBackward0", fast="fd", toplevel=False, method=False, inplace=False)
_pow_tensor = binary("pow", _power, (_pow_self, _pow_exponent), args="self exponent", node="PowBackward1", fast="fdFD")
_pow_base = Pointwise("pow_base", "self exponent", kind="same", kernel="pow", c=_power, node="PowBackward2",
                      backward=dict(exponent=_pow_of_number))


@public(out=False, foreach=2)
def pow(input: Any, exponent: Any, *, out: Any = None) -> Any:
    """input ** exponent; either may be a number."""
    if not (isinstance(input, Tensor) and isinstance(exponent, Tensor)):
        input, exponent = plain_number(input), plain_number(exponent)
    if isinstance(exponent, _NUMBERS):
        if exponent.__class__ in (int, bool) and exponent < 0 and isinstance(input, Tensor) and not (
                input.is_floating_point() or input.is_complex()):
            raise RuntimeError("Integers to negative integer powers are not allowed.")
        return _pow_scalar(input, exponent, out=out)
    if isinstance(input, _NUMBERS) and isinstance(exponent, Tensor):
        return _finish("pow", _pow_base(input, exponent), out)
    _no_bool_kernel("pow", input, exponent)
    return _pow_tensor(input, exponent, out=out)


Tensor.pow_ = make_inplace("pow", pow)


def _double_of(*values: Any) -> Any:
    return _dtypes.complex128 if any(isinstance(a, complex) or (isinstance(a, Tensor) and a.is_complex())
                                     for a in values) else _dtypes.float64


@public(out="double")
def float_power(input: Any, exponent: Any) -> Any:
    """input ** exponent in double precision (complex where either is)."""
    double = _double_of(input, exponent)
    input, exponent = (a.to(double) if isinstance(a, Tensor) else a for a in (input, exponent))
    return pow(input, exponent)


_float_power_inplace = make_inplace("float_power", float_power)


def _float_power_(self: Tensor, exponent: Any) -> Tensor:
    """In-place form of float_power, for a tensor that is of double precision."""
    double = _double_of(self, exponent)
    if self.dtype is not double:
        raise RuntimeError(f"the base given to float_power_ has dtype {self.dtype.word} but the operation's result requires "
                           f"dtype {double.word}")
    return _float_power_inplace(self, exponent)


_float_power_.__name__, _float_power_.__qualname__ = "float_power_", "Tensor.float_power_"
enter_inplace(_float_power_, "float_power", (), True)


# ------------------------------------------------------------------------------------------- other functions of two
def _finite(self: Any = None, nan: Any = None, posinf: Any = None, neginf: Any = None) -> str:
    low, high, none = ["abcd"[i + 1] if value is not None else other for i, value, other in (
        (2, neginf, "-largest()"), (1, posinf, "largest()"), (0, nan, "0"))]
    return f"a != a ? {none} : a == INFINITY ? {high} : a == -INFINITY ? {low} : a"


def _atan2_part(grad: Any, self: Any, other: Any) -> Any:
    square = self * self + other * other
    return masked(grad / square, square != 0)


# fmt: off
atan2 = binary("atan2", "atan2(a, b)", (lambda grad, other, self: _atan2_part(grad, self, other) * other,
                                        lambda grad, other, self: _atan2_part(grad, self, other) * -self),
               kind="float", fast="fd", complex_ok=False, aliases=("arctan2",), numbers="none", cpu_name="atan2_cpu",
               fast_scalar="")
hypot = binary("hypot", "hypot(a, b)", (lambda grad, self, result: grad * (self / result),
                                        lambda grad, other, result: grad * (other / result)), fast="fd", takes="f",
               numbers="none", fast_scalar="", cpu_name="hypot_cpu")
logaddexp = binary("logaddexp", "a == b ? a + M_LN2 : max(a, b) + log1p(exp(-fabs(a - b)))", (
    lambda grad, other, self: grad / (1 + conj((other - self).exp())),
    lambda grad, other, self: grad / (1 + conj((self - other).exp()))), fast="fd", fast_scalar="", inplace=False,
    takes="fc", numbers="none")
logaddexp2 = binary("logaddexp2", "a == b ? a + 1 : max(a, b) + log1p(exp2(-fabs(a - b))) * M_LOG2E", (
    lambda grad, other, self: grad / (1 + (other - self).exp2()),
    lambda grad, other, self: grad / (1 + (self - other).exp2())), fast="fd", fast_scalar="", inplace=False, takes="f",
    numbers="none")
copysign = binary("copysign", "copysign(a, b)", (
    lambda grad, self, result: grad * masked(result / self, self != 0), nothing), kind="float", fast="fd",
    complex_ok=False, cpu_name="copysign_cpu")
ldexp = binary("ldexp", "a * exp2(b)", (lambda grad, other: grad * conj(_two_to(other)),
                                        lambda grad, result: grad * conj(result) * math.log(2.0)), kind="float",
               fast="", fast_scalar="", numbers="none", inplace="function")
_frexp = Pointwise("frexp", "self", safe=False, kind="same", takes="f", constant=(1,), backward=dict(
    self=lambda grad, result1: grad / _two_to(result1)))
_nan_to_num = Pointwise("nan_to_num", "self nan posinf neginf", kind="same", as_given="nan posinf neginf", halves=True,
                        c=_finite, backward=dict(
    self=lambda grad, self: masked(grad, self.isfinite())))
# fmt: on


def _two_to(exponent: Any) -> Any:
    return _pow_base(2.0, exponent)


@public(out="exact")
def frexp(input: Any) -> Any:
    """Mantissa in [0.5, 1) and exponent of each element: input = mantissa * 2 ** exponent."""
    from ...tensors.return_types import frexp as structure
    return structure(*_frexp(input))


@public(inplace="function", out="exact")
def nan_to_num(input: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    """nan, inf and -inf replaced by numbers: 0 and the limits of the dtype unless given."""
    return _nan_to_num(input, nan, posinf, neginf)


# ------------------------------------------------------------------------------------------- three and more tensors
# fmt: off
_addcmul = Pointwise("addcmul", "self tensor1 tensor2 value", kind="same", takes="bifch", as_given="value", c="a + d * b * c",
                     c_kinds="fi", backward=dict(
    self=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * conj(tensor2 * value),
    tensor2=lambda grad, tensor1, value: grad * conj(tensor1 * value)))
_addcdiv = Pointwise("addcdiv", "self tensor1 tensor2 value", kind="same", as_given="value", c="a + d * b / c",
                     takes="fc", backward=dict(
    self=lambda grad: grad,
    tensor1=lambda grad, tensor2, value: grad * conj(value / tensor2),
    tensor2=lambda grad, tensor1, tensor2, value: -grad * conj(value * tensor1 / (tensor2 * tensor2))))
_LERP = "fabs(c) < 0.5 ? a + c * (b - a) : b - (b - a) * (1 - c)"
_lerp_scalar = Pointwise("lerp_scalar", "self end weight", kernel="lerp", kind="same", c=_LERP, takes="fc",
                        cpu_name="lerp_kernel_scalar",
                         node="LerpBackward0", as_given="weight", backward=dict(
    self=lambda grad, weight: grad * (1 - conj(weight)),
    end=lambda grad, weight: grad * conj(weight)))
_lerp = Pointwise("lerp", "self end weight", kind="same", c=_LERP, takes="fc",
                 cpu_name="lerp_kernel_tensor", node="LerpBackward1",
                  backward=dict(
    self=lambda grad, weight: grad * conj(1 - weight),
    end=lambda grad, weight: grad * conj(weight),
    weight=lambda grad, self, end: grad * conj(end - self)))
# fmt: on


def _same_dtype(name: str, *tensors: Any) -> None:
    first = tensors[0].dtype
    for t in tensors[1:]:
        if isinstance(t, Tensor) and t.dtype is not first:
            which = "end" if t is tensors[1] else "weight"
            raise RuntimeError(f"expected dtype {first.c_word} for `{which}` but got dtype {t.dtype.c_word}")


_OLD_PRODUCT = "Tensor input, Number value, Tensor tensor1, Tensor tensor2"
_NEW_PRODUCT = "Tensor input, Tensor tensor1, Tensor tensor2, *, Number value = 1"


@public(inplace=True, foreach=3)
def addcmul(input: Any, tensor1: Any, tensor2: Any, *more: Any, value: Any = 1) -> Any:
    """input + value * tensor1 * tensor2."""
    if more:
        old_order("addcmul", _OLD_PRODUCT, _NEW_PRODUCT)
        value, tensor1, tensor2 = tensor1, tensor2, more[0]
    _no_bool_kernel("addcmul_cpu_out", input, tensor1, tensor2)
    return _addcmul(input, tensor1, tensor2, value)


@public(inplace=True, foreach=3)
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *more: Any, value: Any = 1) -> Any:
    """input + value * tensor1 / tensor2."""
    if more:
        old_order("addcdiv", _OLD_PRODUCT, _NEW_PRODUCT)
        value, tensor1, tensor2 = tensor1, tensor2, more[0]
    if not (promoted((tensor1, tensor2)).is_floating_point or promoted((tensor1, tensor2)).is_complex):
        raise RuntimeError("Integer division with addcdiv is no longer supported, and in a future release addcdiv will "
                           "perform a true division of tensor1 and tensor2.")
    return _addcdiv(input, tensor1, tensor2, value)


@public(inplace=True, foreach=1)
def lerp(input: Any, end: Any, weight: Any) -> Any:
    """input + weight * (end - input)."""
    _same_dtype("lerp", input, end, weight)
    if isinstance(weight, Tensor):
        return _lerp(input, end, weight)
    return _lerp_scalar(input, end, weight)


# ---------------------------------------------------------------------------------------------------- operators
def _right(function: Any, name: str) -> Any:
    """number ∘ tensor."""

    def operator(self, other):
        try:
            return function(other, self)
        except TypeError:
            return NotImplemented

    operator.__name__ = operator.__qualname__ = name
    return operator


def _pow_operator(self: Any, other: Any) -> Any:
    if other.__class__ is float or (other.__class__ is int and other >= 0):
        return _pow_scalar.operator(self, other)
    try:
        return pow(self, other)
    except TypeError:
        return NotImplemented


def _rtruediv(self: Any, other: Any) -> Any:
    if _overrides.active:
        done, value = _overrides.dispatch(_rtruediv, (self, other), {})
        if done:
            return value
    return mul.operator(self.reciprocal(), other)


_rtruediv.__name__ = "__rdiv__"
Tensor.__mul__ = Tensor.__rmul__ = mul.operator
Tensor.__add__ = Tensor.__radd__ = _add.operator
Tensor.__sub__, Tensor.__rsub__ = _sub.operator, _rsub.operator
_overrides.STAND_INS[_rsub] = _rsub.operator
Tensor.__truediv__, Tensor.__rtruediv__ = _div.operator, _rtruediv
Tensor.__div__, Tensor.__rdiv__ = _div.operator, _rtruediv
Tensor.__floordiv__, Tensor.__rfloordiv__ = floor_divide.operator, _right(floor_divide, "floor_divide")
Tensor.__mod__, Tensor.__rmod__ = remainder, _right(remainder, "remainder")
Tensor.__pow__, Tensor.__rpow__ = _pow_operator, _right(pow, "pow")
Tensor.__neg__, Tensor.__abs__, Tensor.__pos__ = neg, abs_, lambda self: self.positive()
Tensor.__imul__, Tensor.__iadd__, Tensor.__isub__ = mul.inplace_operator, _add.inplace_operator, _sub.inplace_operator
Tensor.__itruediv__ = Tensor.__idiv__ = _div.inplace_operator
Tensor.__ifloordiv__ = floor_divide.inplace_operator
Tensor.__imod__, Tensor.__ipow__ = inplace_operator(Tensor.remainder_), inplace_operator(Tensor.pow_)

__all__ = ["add", "sub", "mul", "div", "pow"]
