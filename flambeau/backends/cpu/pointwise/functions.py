"""Pointwise kernels: NumPy's own functions under PyTorch's names, and the few it lacks.

Kernels of two arguments take `out=` as NumPy's do (`out=...` asks for an array where NumPy would give a scalar).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy import ndarray

from ...dtypes import PARTS
from ..layouts import laid_out
from ..parallel import NATIVE, native, native_from_two
from ..table import KERNELS, add, kernel
from .loops import enter, run

add(add=np.add, mul=np.multiply, div=np.true_divide, neg=np.negative, atan2=np.arctan2, hypot=np.hypot,
    maximum=np.maximum, minimum=np.minimum, fmax=np.fmax, fmin=np.fmin, logaddexp2=np.logaddexp2,
    copysign=np.copysign, nextafter=np.nextafter, gcd=np.gcd, lcm=np.lcm, sub=np.subtract)
add(concatenate=np.concatenate)
add(eq=np.equal, ne=np.not_equal, lt=np.less, le=np.less_equal, gt=np.greater, ge=np.greater_equal)
add(logical_and=np.logical_and, logical_or=np.logical_or, logical_xor=np.logical_xor, logical_not=np.logical_not)
add(bitwise_and=np.bitwise_and, bitwise_or=np.bitwise_or, bitwise_xor=np.bitwise_xor, bitwise_not=np.invert)
add(exp=np.exp, exp2=np.exp2, expm1=np.expm1, log=np.log, log2=np.log2, log10=np.log10)
add(sin=np.sin, cos=np.cos, tan=np.tan, asin=np.arcsin, acos=np.arccos, atan=np.arctan)
add(sinh=np.sinh, cosh=np.cosh, tanh=np.tanh, asinh=np.arcsinh, acosh=np.arccosh, atanh=np.arctanh)
add(sqrt=np.sqrt, abs=np.absolute, floor=np.floor, ceil=np.ceil, trunc=np.trunc)
add(signbit=np.signbit, isnan=np.isnan, isinf=np.isinf, isfinite=np.isfinite)


def two(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enters a kernel of two arguments written without `out`."""

    @functools.wraps(function)
    def wrapped(x, y, out=None):
        made = function(x, y)
        if out is None or out is ...:
            return np.asanyarray(made)  # those of meta tensors keep their type
        out[...] = made
        return out

    KERNELS[function.__name__.rstrip("_")] = wrapped
    return wrapped


def is_integer(x: Any) -> bool:
    return type(x) is ndarray and x.dtype.kind in "iu"


def check_divisor(x: Any, y: Any) -> None:
    """Integer division by zero is an error, as in PyTorch; NumPy only warns."""
    if is_integer(x) and not np.all(y):
        raise RuntimeError("ZeroDivisionError: integer division by zero")


# -------------------------------------------------------------------------------------------------- arithmetic
@kernel
@native
def add_scaled(x, y, alpha):
    """x + alpha * y, in the dtype of x and y."""
    return np.asarray(x + y * _like(alpha, y))


@kernel
@native
def sub_scaled(x, y, alpha):
    return np.asarray(x - y * _like(alpha, y))


def _like(value: Any, x: Any) -> Any:
    """A Python number in the dtype of x (bool of an int, complex of a float...)."""
    return np.asarray(value).astype(x.dtype)


@kernel
@native
def addcmul(x, a, b, value):
    return np.asarray(x + _like(value, x) * a * b)


@kernel
@native
def addcdiv(x, a, b, value):
    return np.asarray(x + _like(value, x) * a / b)


@two
def floor_divide(x, y):
    check_divisor(x, y)
    return np.floor_divide(x, y)


@kernel
def div_floor(x, y, rounding_mode):
    return floor_divide(x, y)


@kernel
def div_trunc(x, y, rounding_mode):
    check_divisor(x, y)
    if is_integer(x):
        down = np.floor_divide(x, y)
        return down + ((down < 0) & (down * y != x)).astype(x.dtype)
    return np.trunc(np.true_divide(x, y))


@two
def remainder(x, y):
    check_divisor(x, y)
    made = np.remainder(x, y)
    if made.dtype.kind not in "fV":
        return made
    return np.where(made == 0, np.copysign(made, x), made)  # NumPy gives a zero the divisor's sign, PyTorch the dividend's


@two
def fmod(x, y):
    check_divisor(x, y)
    return np.fmod(x, y)


@two
def pow_(x, y):
    """x ** y. Small constant exponents are products and roots, as in PyTorch."""
    if not isinstance(y, ndarray) or (y.ndim == 0 and type(y) is ndarray):
        easy = _EASY.get(y.item() if isinstance(y, ndarray) else y)
        kind = x.dtype.kind if isinstance(x, ndarray) else "b"
        if easy is not None and (kind in "fc" or (kind in "iu" and easy in (np.square, _cube))):
            return easy(x)
    if is_integer(x):
        return _integer_power(x, np.asarray(y))
    if type(x) is ndarray and x.dtype.kind == "b":
        return x | ~np.asarray(y, bool)
    return np.power(x, y)


@kernel
@native
def rsqrt(x):
    return 1 / np.sqrt(x)


def _cube(x):
    return x * x * x


def _inverse_square(x):
    return 1 / (x * x)


_EASY = {2: np.square, 3: _cube, 0.5: np.sqrt, -0.5: rsqrt, -1: np.reciprocal, -2: _inverse_square}


def _integer_power(x, y):
    """Negative exponents: 1 and -1 have a whole power, everything else rounds to 0."""
    negative = y < 0
    if not np.any(negative):
        return np.power(x, y)
    power = np.power(x, np.where(negative, 0, y).astype(y.dtype))
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0)).astype(x.dtype)
    return np.where(negative, inverse, power)


@kernel
def square(x):
    return np.square(x if x.dtype.kind != "b" else x.astype(np.int64))


@kernel
def log1p(x):
    """Complex numbers near 0 keep their digits: log|1 + x| comes from |1 + x|^2 - 1 = re (2 + re) + im^2."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    near = np.abs(x) < 0.5
    small = np.where(near, x, 0)
    size = 0.5 * np.log1p(small.real * (2 + small.real) + small.imag * small.imag)
    return np.where(near, size + 1j * np.arctan2(small.imag, 1 + small.real), np.log1p(x)).astype(x.dtype)


@two
def logaddexp(x, y):
    if x.dtype.kind != "c":
        return np.logaddexp(x, y)
    swap = x.real < y.real
    high, low = np.where(swap, y, x), np.where(swap, x, y)
    level = np.isinf(high.real) & (high.real == low.real)  # the difference of equal infinities is no number
    with np.errstate(invalid="ignore", over="ignore"):
        usual = high + log1p(np.exp(low - high))
        return np.where(level, np.where(high.real > 0, np.log(np.exp(low) + np.exp(high)), high), usual)


@kernel
def reciprocal(x):
    return np.reciprocal(x)


@kernel
@native_from_two
def sign(x):
    # NumPy gives nan for nan; PyTorch compares, and so gives 0.
    if x.dtype.kind in "fV":
        return np.asarray((x > 0).astype(x.dtype) - (x < 0).astype(x.dtype))
    if x.dtype.kind == "c":  # NumPy gives units for infinities
        size, made = np.abs(x), np.empty_like(x)
        made.real, made.imag = x.real / size, x.imag / size
        made[size == 0] = 0
        return made
    return x.copy() if x.dtype.kind == "b" else np.sign(x)


add(sgn=sign)


@kernel
def sigmoid(x):
    if x.size >= NATIVE and (made := run("sigmoid", x)) is not None:
        return made
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    one, out = _ONE.get(x.dtype, 1), np.negative(x, out=...)
    np.exp(out, out)  # of a large number it is inf, and the inverse 0: the limits come out right
    np.add(out, one, out)
    return np.divide(one, out, out)


@kernel
def frac(x):
    return x - np.trunc(x)


@kernel
def rint(x):
    return x.copy() if x.dtype.kind in "iub" else np.rint(x)


@kernel
def rsub(x, y, out=None):
    return np.subtract(y, x, out=out)


# Numbers as arrays: in a call on a small array NumPy takes longer over a Python number than over the work.
_ZERO, _ONE = ({np.dtype(t): np.asarray(value, t) for t in (np.float32, np.float64)} for value in (0, 1))


@kernel
def tanh_backward(grad, output, out=None):
    if grad.size >= NATIVE and (made := run("tanh_backward", grad, output)) is not None:
        return made
    slope = np.multiply(output, output, out=...)
    np.subtract(_ONE.get(slope.dtype, 1), slope, out=slope)
    return np.multiply(grad, _conjugate(slope), out=slope if slope.shape == grad.shape else ...)


@kernel
def sigmoid_backward(grad, output, out=None):
    if grad.size >= NATIVE and (made := run("sigmoid_backward", grad, output)) is not None:
        return made
    slope = np.subtract(_ONE.get(output.dtype, 1), output, out=...)
    np.multiply(slope, output, out=slope)
    return np.multiply(grad, _conjugate(slope), out=slope if slope.shape == grad.shape else ...)


def _conjugate(x):
    return np.conjugate(x, out=x) if x.dtype.kind == "c" else x


@kernel
@native
def round_decimals(x, decimals):
    scale = x.dtype.type(10.0 ** abs(decimals))
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


@two
def heaviside(x, y):
    return np.where(x == 0, y, np.where(np.isnan(x), 0, x > 0)).astype(x.dtype) if x.dtype.kind != "f" else np.where(
        np.isnan(x), x.dtype.type(0), np.heaviside(x, y))


@two
def ldexp(x, y):
    return x * np.power(x.dtype.type(2), y)


@kernel
def frexp(x):
    mantissa, exponent = np.frexp(x)
    return np.asarray(mantissa), np.asarray(exponent)


@kernel
@native
def nan_to_num(x, nan, posinf, neginf):
    if x.dtype.kind == "c":
        out = np.empty_like(x)
        out.real = nan_to_num(x.real, nan, posinf, neginf)
        out.imag = nan_to_num(x.imag, nan, posinf, neginf)
        return out
    if x.dtype.kind not in "fV":
        return x.copy()
    info = ml_dtypes.finfo(x.dtype)
    out = np.array(x)
    out[np.isnan(x)] = 0.0 if nan is None else nan
    out[x == np.inf] = info.max if posinf is None else posinf
    out[x == -np.inf] = info.min if neginf is None else neginf
    return out


@kernel
@native
def lerp(start, end, weight):
    """From both ends towards the middle, so that weight 1 gives `end` exactly."""
    near = np.abs(weight) < 0.5
    return np.where(near, start + weight * (end - start), end - (end - start) * (1 - weight))


# ---------------------------------------------------------------------------------------------- bits and choice
@two
def shift_left(x, y):
    out_of_range = (y < 0) | (y >= x.dtype.itemsize * 8)
    return np.where(out_of_range, 0, np.left_shift(x, np.where(out_of_range, 0, y))).astype(x.dtype)


@two
def shift_right(x, y):
    # Shifted by its width a number loses every digit, and then a negative one is -1.
    width = x.dtype.itemsize * 8
    out_of_range = (y < 0) | (y >= width)
    if x.dtype.kind == "u":
        return np.where(out_of_range, 0, np.right_shift(x, np.where(out_of_range, 0, y))).astype(x.dtype)
    return np.right_shift(x, np.where(out_of_range, width - 1, y)).astype(x.dtype)


_clip = np._core.umath.clip  # one pass; np.clip takes four times as long to get there


@kernel
@native
def clamp(x, low, high):
    if not getattr(low, "ndim", 0) and not getattr(high, "ndim", 0):  # numbers, or arrays of no dimension
        if low is None or high is None:
            return np.minimum(x, high, out=...) if low is None else np.maximum(x, low, out=...)
        return _clip(x, low, high, out=...)
    if low is not None:
        x = np.maximum(x, low)
    return np.asarray(x if high is None else np.minimum(x, high))


@kernel(safe=True, batch="pointwise")
@native_from_two
def clamp_within(x, low, high):
    """clamp of floats by two numbers that are not nan."""
    return np.where(x < low, x.dtype.type(low), np.where(x > high, x.dtype.type(high), x))


enter("clamp_within", 3, "atmost(atleast(a, b), c)", numbers_only=(1, 2))


@kernel
@native
def where(condition, x, y):
    return np.where(condition, x, y)


@kernel
@native_from_two
def isclose(x, y, rtol, atol, equal_nan):
    close = x == y
    if equal_nan:
        close |= np.isnan(x) & np.isnan(y)
    if x.dtype.kind in "fc":
        allowed = atol + np.abs(rtol * y)
        difference = np.abs(x - y)
    else:
        wide = np.float64 if x.dtype.kind != "b" else np.int8
        x, y = x.astype(wide), y.astype(wide)
        allowed, difference = atol + np.abs(rtol * y), np.abs(x - y)
    return np.asarray(close | (np.isfinite(difference) & (difference <= allowed)))


# -------------------------------------------------------------------------------------------------- activations
@kernel
def relu(x):
    if x.size >= NATIVE and (made := run("relu", x)) is not None:
        return made
    return np.maximum(x, _ZERO.get(x.dtype, 0))


# ------------------------------------------------------------------------------------------------------ complex
_WHOLE = {part: whole for whole, part in PARTS.items()} | {np.dtype(ml_dtypes.bfloat16): np.dtype(np.complex64)}


@kernel
def real(x):
    return x.real if x.dtype.kind != "W" else view_as_real(x)[..., 0]


@kernel
def imag(x):
    return x.imag if x.dtype.kind != "W" else view_as_real(x)[..., 1]


@kernel
def conj(x):
    return np.conjugate(x)


@kernel
def angle(x):
    if x.dtype.kind == "c":
        return np.angle(x)
    return np.where(np.isnan(x), x, np.where(x < 0, x.dtype.type(math.pi), x.dtype.type(0)))


@laid_out
def complex_(re, im):
    out = np.empty(np.broadcast_shapes(re.shape, im.shape), _WHOLE[re.dtype])
    parts = view_as_real(out)
    parts[..., 0], parts[..., 1] = re, im
    return out


@laid_out
def polar(magnitude, angle):
    return complex_(magnitude * np.cos(angle), magnitude * np.sin(angle))


@kernel
def view_as_real(x):
    return x[..., None].view(PARTS[x.dtype])


@kernel
def view_as_complex(x):
    return x.view(_WHOLE[x.dtype])[..., 0]
