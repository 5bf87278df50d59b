"""Pointwise operations of one tensor, one row each: name, C expression (of `a`), derivative.

Operations of several tensors are in arithmetic.py and comparison.py, the rarer functions in special.py.
"""

from __future__ import annotations

import math
from typing import Any

from ...autograd.state import INFERENCE, NO_GRAD, state
from ...backends.cpu.pointwise.loops import enter
from ..core.row import check_on_cpu, public
from .families import Pointwise, binary, of_pair, unary

_NUMBERS = frozenset((float, int, bool, complex))


def conj(x: Any) -> Any:
    """The complex conjugate where that makes a difference."""
    if x.__class__ in _NUMBERS or not hasattr(x, "_array"):
        return x.conjugate()
    return x.conj() if x.is_complex() else x


def nothing(grad: Any) -> Any:
    """The gradient of a function that is flat almost everywhere."""
    from ...creation.like import zeros_like
    return zeros_like(grad)


LN2, LN10 = math.log(2.0), math.log(10.0)

# fmt: off
# ---------------------------------------------------------------------------------------- signs and roundings
neg = unary("neg", "-a", "neg(grad)", kind="same", takes="ifch", aliases=("negative",), c_kinds="fi",
            refusal=lambda d: RuntimeError(
                "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the "
                "`~` or `logical_not()` operator instead."))
abs_ = unary("abs", "fabs(a)", lambda grad, self: grad * self.sgn(), kind="same", takes="ifch",
             aliases=("absolute",), c_kinds="fi")
sign = unary("sign", "(a > 0) - (a < 0)", nothing, kind="same", complex_ok=False, c_kinds="fi", inplace=True)
floor = unary("floor", "floor(a)", nothing, kind="same", takes="if")
ceil = unary("ceil", "ceil(a)", nothing, kind="same", takes="if")
trunc = unary("trunc", "trunc(a)", nothing, kind="same", takes="if", aliases=("fix",))
frac = unary("frac", "a - trunc(a)", "grad", kind="same", takes="f")
_round = unary("round", "rint(a)", nothing, kind="same", kernel="rint", takes="if", cpu_name="round_vml_cpu")
signbit = unary("signbit", "signbit(a)", kind="bool", complex_ok=False, inplace=False, c_kinds="fi", out="exact")

deg2rad = unary("deg2rad", "a * 0.017453292519943295", lambda grad: grad.deg2rad(), takes="bif", node="Deg2RadBackward0")
rad2deg = unary("rad2deg", "a * 57.29577951308232", lambda grad: grad.rad2deg(), takes="bif", node="Rad2DegBackward0")

# ------------------------------------------------------------------------------------------ powers and logarithms
square = unary("square", "a * a", lambda grad, self: grad * (2 * conj(self)), kind="same", node="PowBackward0",
               c_kinds="fi", out=True)
sqrt = unary("sqrt", "sqrt(a)", lambda grad, result: grad / (2 * conj(result)))
rsqrt = unary("rsqrt", "1 / sqrt(a)", lambda grad, result: -0.5 * grad * conj(result ** 3))
reciprocal = unary("reciprocal", "1 / a", lambda grad, result: -grad * conj(result * result))
exp = unary("exp", "exp(a)", lambda grad, result: grad * conj(result), fused="mul(grad, result)")
exp2 = unary("exp2", "exp2(a)", lambda grad, result: grad * conj(result) * LN2)
expm1 = unary("expm1", "expm1(a)", lambda grad, result: grad * conj(result + 1))
log = unary("log", "log(a)", lambda grad, self: grad / conj(self), fused="div(grad, self)")
log2 = unary("log2", "log2(a)", lambda grad, self: grad / (conj(self) * LN2))
log10 = unary("log10", "log10(a)", lambda grad, self: grad / (conj(self) * LN10))
log1p = unary("log1p", "log1p(a)", lambda grad, self: grad / conj(self + 1))
sigmoid = unary("sigmoid", "sigmoid(a)", "sigmoid_backward(grad, result)")

# -------------------------------------------------------------------------------------- trigonometric, hyperbolic
sin = unary("sin", "sin(a)", lambda grad, self: grad * conj(self.cos()))
cos = unary("cos", "cos(a)", lambda grad, self: grad * -conj(self.sin()))
tan = unary("tan", "tan(a)", lambda grad, result: grad * conj(1 + result * result))
asin = unary("asin", "asin(a)", lambda grad, self: grad * conj((1 - self * self).rsqrt()), aliases=("arcsin",))
acos = unary("acos", "acos(a)", lambda grad, self: grad * -conj((1 - self * self).rsqrt()), aliases=("arccos",))
atan = unary("atan", "atan(a)", lambda grad, self: grad / conj(self * self + 1), aliases=("arctan",))
sinh = unary("sinh", "sinh(a)", lambda grad, self: grad * conj(self.cosh()))
cosh = unary("cosh", "cosh(a)", lambda grad, self: grad * conj(self.sinh()))
tanh = unary("tanh", "tanh(a)", "tanh_backward(grad, result)")
asinh = unary("asinh", "asinh(a)", lambda grad, self: grad * conj((self * self + 1).rsqrt()), aliases=("arcsinh",))
acosh = unary("acosh", "acosh(a)", lambda grad, self: grad * conj((self + 1).rsqrt() * (self - 1).rsqrt()) if
              self.is_complex() else grad * (self * self - 1).rsqrt(), aliases=("arccosh",))
atanh = unary("atanh", "atanh(a)", lambda grad, self: grad / conj(1 - self * self), aliases=("arctanh",))

# ------------------------------------------------------------------------------------------------- what a value is
isnan = unary("isnan", "isnan(a)", kind="bool", takes="bifch", inplace=False, c_kinds="fib")
isinf = unary("isinf", "isinf(a)", kind="bool", takes="bifch", inplace=False, c_kinds="fib")
isfinite = unary("isfinite", "isfinite(a)", kind="bool", takes="bifch", inplace=False, c_kinds="fib")
logical_not = unary("logical_not", "!a", kind="bool", inplace=True, c_kinds="fib")
bitwise_not = unary("bitwise_not", "~a", kind="same", inplace=True, takes="bi", cpu_name="bitwise_not_cpu", fast="?bBhHiIlLqQ",
                    c_kinds="ib")

# --------------------------------------------------------------------------------------------------- activations
relu = unary("relu", "a <= 0 ? 0 : a", "threshold_backward(grad, result, 0)", kind="same", takes="if", c_kinds="fi")
enter("sgn", 1, "(a > 0) - (a < 0)")
# fmt: on
# Derivatives that deserve a kernel of their own: one pass instead of three.
tanh_backward = binary("tanh_backward", "a * (1 - b * b)", (
    lambda grad, output: tanh_backward(grad, conj(output)),
    lambda grad, grad_output, output: conj(grad) * grad_output * conj(output) * -2),
    args="grad_output output", fast="fd", fast_scalar="", toplevel=False, method=False, inplace=False)
sigmoid_backward = binary("sigmoid_backward", "a * (1 - b) * b", (
    lambda grad, output: sigmoid_backward(grad, conj(output)),
    lambda grad, grad_output, output: conj(grad) * grad_output * conj(1 - 2 * output)),
    args="grad_output output", fast="fd", fast_scalar="", toplevel=False, method=False, inplace=False)
threshold_backward = of_pair("threshold_backward", "b <= c ? 0 : a", "threshold", takes="if", c_kinds="fi", backward=dict(
    grad="threshold_backward(grad, self, threshold)", self=nothing))
where_row = Pointwise("where", "condition self other", kind="same", takes="bifch", as_given="condition", mask="condition",
                      c="a ? b : c", halves=True, c_kinds="fib",
                      backward=dict(self=lambda grad, condition: where_row(condition, grad, 0),
                                    other=lambda grad, condition: where_row(condition, 0, grad)))


def _rounded(self: Any = None, decimals: int = 0) -> str:
    scale = 10.0 ** abs(decimals)
    return f"rint(a * {scale!r}) / {scale!r}" if decimals > 0 else f"rint(a / {scale!r}) * {scale!r}"


def masked(grad: Any, keep: Any) -> Any:
    """grad where `keep` holds and zero elsewhere (a product would turn inf into nan)."""
    return where_row(keep, grad, 0)


def tied(grad: Any, self: Any) -> Any:
    """A gradient that does not depend on its input, recorded as if it did, with a slope of zero: PyTorch's functions that
    are linear in pieces give zeros as second derivatives, and not None."""
    if state.mode & (NO_GRAD | INFERENCE) or not self.requires_grad:
        return grad
    return threshold_backward(grad, self, -math.inf)


round_decimals = Pointwise("round_decimals", "self decimals", kind="same", as_given="decimals", takes="f", c=_rounded,
                           node="RoundBackward1", backward=dict(self=nothing))


@public(name="round", inplace="function", out="exact", foreach=1)
def round_(input: Any, *, decimals: int | None = None) -> Any:
    """The nearest whole number, halves to even; with `decimals`, that many digits after the point."""
    if decimals == 0:
        check_on_cpu("round_vml_cpu", input, "f")
    return round_decimals(input, decimals) if decimals else _round(input)


@public
def positive(input: Any) -> Any:
    """+input: the tensor itself."""
    if input.dtype.name == "bool":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def isposinf(input: Any) -> Any:
    return _infinity(input, float("inf"))


def isneginf(input: Any) -> Any:
    return _infinity(input, float("-inf"))


def _infinity(input: Any, which: float) -> Any:
    if input.is_complex():
        raise RuntimeError("isposinf and isneginf do not support complex inputs")
    if not input.is_floating_point():
        from ...creation.like import zeros_like
        from ...tensors.dtypes import bool_
        return zeros_like(input, dtype=bool_)
    return input == which


public(isposinf, out="exact")
public(isneginf, out="exact")

