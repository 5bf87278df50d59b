"""Activations and their derivatives, in as few passes as NumPy allows.

`np.where` on a mask without pattern costs ten times a multiplication, since the processor guesses every element wrong.
So branches are written with maximum and minimum here, and masks are applied to the bits of a number (`kept`).
Every kernel works block by block, so that its steps find their data in the cache, and on all cores when it is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from .. import memory
from ..parallel import NATIVE, SPLIT, early, run, split
from ..table import kernel
from .functions import stepwise as _stepwise
from .special import erf

_ZERO = {np.dtype(t): np.zeros((), t) for t in (np.float32, np.float64)}
_BLOCK = 1 << 15
_BITS = {2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_RSQRT_2PI = 1 / math.sqrt(2 * math.pi)
# erf(x / sqrt(2)) = tanh(x * P(x * x)) to 1.3e-7: what float32 can hold. Fitted for |x| <= 5.4; beyond it is 1.
_ERF = tuple(np.float32(c) for c in (0.7978849415525369, 0.03633308405562344, -3.2594279277795246e-05,
                                     -5.530654057116318e-05, 3.964818907003029e-06, -1.322702762859325e-07,
                                     1.7563985374255947e-09))
_ERF_LIMIT = np.float32(5.4 * 5.4)


def stepwise(core: Callable[..., None], x: ndarray, *numbers: Any) -> ndarray:
    """core(x, out, *numbers), block by block; a zero-dim array is worked on as one of length one."""
    if not x.ndim:
        return _stepwise(core, x.reshape(1), *numbers).reshape(())
    return _stepwise(core, x, *numbers)


def paired(core: Callable[..., None], a: ndarray, b: ndarray, *numbers: Any) -> ndarray:
    """core(a, b, out, *numbers) for two arrays of one shape: block by block, on all cores if large."""
    if not b.ndim:
        return paired(core, a.reshape(1), b.reshape(1), *numbers).reshape(())
    if a.size < _BLOCK or not (a.flags.c_contiguous and b.flags.c_contiguous) or a.shape != b.shape:
        out = np.empty_like(b) if b.size < _BLOCK else memory.like(b)
        core(a, b, out, *numbers)
        return out
    out = memory.empty(b.shape, b.dtype)
    x, y, z = a.reshape(-1), b.reshape(-1), out.reshape(-1)

    def work(start: int, stop: int) -> None:
        for i in range(start, stop, _BLOCK):
            j = min(i + _BLOCK, stop)
            core(x[i:j], y[i:j], z[i:j], *numbers)

    if a.size < SPLIT:
        work(0, a.size)
    else:
        split(a.size, work)
    return out


def kept(values: ndarray, mask: ndarray, out: ndarray) -> None:
    """out = values where the mask holds, else 0: by their bits, so that inf and nan leave no trace."""
    bits = _BITS[values.dtype.itemsize]
    np.multiply(values.view(bits), mask.view(np.int8), out=out.view(bits), casting="unsafe")


# ------------------------------------------------------------------------------------------------------------ relu
@kernel
def threshold_backward(grad: ndarray, x: ndarray, limit: Any) -> ndarray:
    """grad where x is above the limit or nan, else 0."""
    zero = _ZERO.get(x.dtype)
    if zero is not None and limit == 0 and grad.size < NATIVE and grad.dtype is x.dtype and grad.shape == x.shape and (
            grad.flags.c_contiguous):
        out = grad.copy()
        np.putmask(out, x <= zero, zero)
        return out
    return _threshold_backward(grad, x, limit)


def _threshold_backward(grad: ndarray, x: ndarray, limit: Any) -> ndarray:
    if grad.size > 1 and (made := run("threshold_backward", grad, x, limit)) is not None:
        return made
    if grad.dtype.kind != "f" or x.dtype.kind != "f" or grad.ndim == 0:
        return np.where(x <= limit, grad.dtype.type(0), grad)
    return paired(_threshold_grad, grad, x, limit)


def _threshold_grad(grad: ndarray, x: ndarray, out: ndarray, limit: Any) -> None:
    mask = x <= limit  # nan passes its gradient on
    kept(grad if grad.dtype is out.dtype else grad.astype(out.dtype), np.logical_not(mask, out=mask), out)


@kernel
@early
def hardtanh_backward(grad: ndarray, x: ndarray, low: float, high: float) -> ndarray:
    return paired(_hardtanh_grad, grad, x, low, high)


def _hardtanh_grad(grad: ndarray, x: ndarray, out: ndarray, low: float, high: float) -> None:
    mask = x <= low
    mask |= x >= high
    kept(grad, np.logical_not(mask, out=mask), out)


@kernel
@early
def leaky_relu(x: ndarray, slope: float) -> ndarray:
    return stepwise(_leaky_relu, x, slope)


def _leaky_relu(x: ndarray, out: ndarray, slope: float) -> None:
    low = np.minimum(x, 0)
    np.multiply(low, slope, out=low)
    np.maximum(x, 0, out=out)
    np.add(out, low, out=out)


@kernel
@early
def leaky_relu_backward(grad: ndarray, x: ndarray, slope: float) -> ndarray:
    return paired(_leaky_relu_grad, grad, x, slope)


def _leaky_relu_grad(grad: ndarray, x: ndarray, out: ndarray, slope: float) -> None:
    positive = x > 0
    kept(grad, positive, out)
    rest = np.empty_like(out)
    kept(grad, np.logical_not(positive, out=positive), rest)
    np.multiply(rest, slope, out=rest)
    np.add(out, rest, out=out)


# ------------------------------------------------------------------------------------------------------------- elu
@kernel
@early
def elu(x: ndarray, alpha: float, scale: float, input_scale: float) -> ndarray:
    return stepwise(_elu, x, alpha, scale, input_scale)


def _elu(x: ndarray, out: ndarray, alpha: float, scale: float, input_scale: float) -> None:
    low = np.minimum(x, 0)
    if input_scale != 1:
        np.multiply(low, input_scale, out=low)
    np.expm1(low, out=low)
    np.multiply(low, alpha * scale, out=low)
    np.maximum(x, 0, out=out)
    if scale != 1:
        np.multiply(out, scale, out=out)
    np.add(out, low, out=out)


@kernel
@early
def celu(x: ndarray, alpha: float) -> ndarray:
    return elu(x, alpha, 1.0, 1.0 / alpha)


@kernel
@early
def elu_backward(grad: ndarray, x: ndarray, alpha: float, scale: float, input_scale: float) -> ndarray:
    return paired(_elu_grad, grad, x, alpha, scale, input_scale)


def _elu_grad(grad: ndarray, x: ndarray, out: ndarray, alpha: float, scale: float, input_scale: float) -> None:
    positive = x <= 0
    np.logical_not(positive, out=positive)  # nan counts as positive, as in PyTorch
    np.fmin(x, 0, out=out)
    np.multiply(out, input_scale, out=out)
    np.exp(out, out=out)
    np.multiply(out, alpha * scale * input_scale, out=out)
    gap = out - x.dtype.type(scale)   # where positive the slope is `scale` instead
    kept(gap, positive, gap)
    np.subtract(out, gap, out=out)
    np.multiply(out, grad, out=out)


# ------------------------------------------------------------------------------------------------------------ gelu
def _erf_of_half(x: ndarray, out: ndarray, square: ndarray) -> None:
    """out = erf(x / sqrt(2)); square = x * x, limited to where the polynomial holds."""
    if x.dtype.char == "d":
        out[...] = erf(x * math.sqrt(0.5))
        return
    np.multiply(x, x, out=square)
    np.minimum(square, _ERF_LIMIT, out=square)
    np.multiply(square, _ERF[-1], out=out)
    for c in _ERF[-2:0:-1]:
        np.add(out, c, out=out)
        np.multiply(out, square, out=out)
    np.add(out, _ERF[0], out=out)
    np.multiply(out, x, out=out)
    np.tanh(out, out=out)


@kernel
@early
def gelu(x: ndarray, approximate: str) -> ndarray:
    return stepwise(_gelu_tanh if approximate == "tanh" else _gelu, x)


def _gelu(x: ndarray, out: ndarray) -> None:
    half = np.empty_like(x)
    _erf_of_half(x, out, half)
    np.multiply(x, 0.5, out=half)
    np.multiply(out, half, out=out)
    np.add(out, half, out=out)


def _inner(x: ndarray, out: ndarray, square: ndarray) -> None:
    """out = tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)); square = x * x."""
    np.multiply(x, x, out=square)
    np.multiply(square, 0.044715 * math.sqrt(2 / math.pi), out=out)
    np.add(out, math.sqrt(2 / math.pi), out=out)
    np.multiply(out, x, out=out)
    np.tanh(out, out=out)


def _gelu_tanh(x: ndarray, out: ndarray) -> None:
    half = np.empty_like(x)
    _inner(x, out, half)
    np.multiply(x, 0.5, out=half)
    np.multiply(out, half, out=out)
    np.add(out, half, out=out)


@kernel
@early
def gelu_backward(grad: ndarray, x: ndarray, approximate: str) -> ndarray:
    return paired(_gelu_tanh_grad if approximate == "tanh" else _gelu_grad, grad, x)


def _gelu_grad(grad: ndarray, x: ndarray, out: ndarray) -> None:
    square = np.empty_like(x)
    _erf_of_half(x, out, square)
    np.multiply(x, x, out=square)
    np.multiply(square, -0.5, out=square)
    np.exp(square, out=square)
    np.multiply(square, x, out=square)
    np.multiply(square, _RSQRT_2PI, out=square)     # x times the density
    np.add(out, 1, out=out)
    np.multiply(out, 0.5, out=out)                  # the probability
    np.add(out, square, out=out)
    np.multiply(out, grad, out=out)


def _gelu_tanh_grad(grad: ndarray, x: ndarray, out: ndarray) -> None:
    square = np.empty_like(x)
    _inner(x, out, square)
    k = math.sqrt(2 / math.pi)
    np.multiply(square, 3 * 0.044715 * k, out=square)
    np.add(square, k, out=square)
    np.multiply(square, x, out=square)              # x times the derivative of the inner function
    rest = out * out
    np.subtract(1, rest, out=rest)
    np.multiply(square, rest, out=square)
    np.add(square, 1, out=square)
    np.add(out, square, out=out)
    np.multiply(out, 0.5, out=out)
    np.multiply(out, grad, out=out)


# ---------------------------------------------------------------------------------------------- sigmoid and its kin
def _sigmoid(x: ndarray, out: ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


@kernel
@early
def silu(x: ndarray) -> ndarray:
    return stepwise(_silu, x)


def _silu(x: ndarray, out: ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.divide(x, out, out=out)


@kernel
@early
def silu_backward(grad: ndarray, x: ndarray) -> ndarray:
    return paired(_silu_grad, grad, x)


def _silu_grad(grad: ndarray, x: ndarray, out: ndarray) -> None:
    _sigmoid(x, out)
    rest = 1 - out
    np.multiply(rest, x, out=rest)
    np.add(rest, 1, out=rest)
    np.multiply(out, rest, out=out)
    np.multiply(out, grad, out=out)


def _log1p_exp(x: ndarray, out: ndarray) -> None:
    """log(1 + exp(x)) without overflow."""
    np.absolute(x, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    np.add(out, np.maximum(x, 0), out=out)


@kernel
@early
def softplus(x: ndarray, beta: float, threshold: float) -> ndarray:
    return stepwise(_softplus, x, beta, threshold)


def _softplus(x: ndarray, out: ndarray, beta: float, threshold: float) -> None:
    scaled = x * x.dtype.type(beta)
    _log1p_exp(scaled, out)
    if beta != 1:
        np.divide(out, beta, out=out)
    plain = scaled > threshold
    if plain.any():
        np.copyto(out, x, where=plain)


@kernel
@early
def softplus_backward(grad: ndarray, x: ndarray, beta: float, threshold: float) -> ndarray:
    return paired(_softplus_grad, grad, x, beta, threshold)


def _softplus_grad(grad: ndarray, x: ndarray, out: ndarray, beta: float, threshold: float) -> None:
    scaled = x * x.dtype.type(beta)
    _sigmoid(scaled, out)
    plain = scaled > threshold
    if plain.any():
        np.copyto(out, 1, where=plain)
    np.multiply(out, grad, out=out)


@kernel
@early
def log_sigmoid(x: ndarray) -> ndarray:
    return stepwise(_log_sigmoid, x)


def _log_sigmoid(x: ndarray, out: ndarray) -> None:
    np.absolute(x, out=out)
    np.negative(out, out=out)
    np.exp(out, out=out)
    np.log1p(out, out=out)
    np.subtract(np.minimum(x, 0), out, out=out)


@kernel
@early
def log_sigmoid_backward(grad: ndarray, x: ndarray) -> ndarray:
    return paired(_log_sigmoid_grad, grad, x)


def _log_sigmoid_grad(grad: ndarray, x: ndarray, out: ndarray) -> None:
    _sigmoid(np.negative(x), out)
    np.multiply(out, grad, out=out)


@kernel
@early
def mish(x: ndarray) -> ndarray:
    return stepwise(_mish, x)


def _mish(x: ndarray, out: ndarray) -> None:
    _log1p_exp(x, out)
    np.tanh(out, out=out)
    np.multiply(out, x, out=out)


@kernel
@early
def mish_backward(grad: ndarray, x: ndarray) -> ndarray:
    return paired(_mish_grad, grad, x)


def _mish_grad(grad: ndarray, x: ndarray, out: ndarray) -> None:
    _log1p_exp(x, out)
    np.tanh(out, out=out)
    slope = np.empty_like(out)
    _sigmoid(x, slope)
    np.multiply(slope, x, out=slope)
    np.multiply(slope, 1 - out * out, out=slope)
    np.add(out, slope, out=out)
    np.multiply(out, grad, out=out)


# --------------------------------------------------------------------------------------------------- the hard ones
@kernel
@early
def hardswish(x: ndarray) -> ndarray:
    return stepwise(_hardswish, x)


def _hardswish(x: ndarray, out: ndarray) -> None:
    np.add(x, 3, out=out)
    np.maximum(out, 0, out=out)
    np.minimum(out, 6, out=out)
    np.multiply(out, x, out=out)
    np.divide(out, 6, out=out)


@kernel
@early
def hardsigmoid(x: ndarray) -> ndarray:
    return stepwise(_hardsigmoid, x)


def _hardsigmoid(x: ndarray, out: ndarray) -> None:
    np.add(x, 3, out=out)
    np.maximum(out, 0, out=out)
    np.minimum(out, 6, out=out)
    np.divide(out, 6, out=out)


@kernel
@early
def softshrink(x: ndarray, lambd: float) -> ndarray:
    return stepwise(_softshrink, x, lambd)


def _softshrink(x: ndarray, out: ndarray, lambd: float) -> None:
    """What stands out above lambd or below -lambd; a number between is its own limit and leaves 0."""
    np.clip(x, -lambd, lambd, out=out)
    np.subtract(x, out, out=out)


@kernel
def glu(x: ndarray, axis: int) -> ndarray:
    value, gate = np.split(x, 2, axis=axis)
    wide = np.float32 if x.dtype.itemsize < 4 else x.dtype
    made = stepwise(_sigmoid, np.ascontiguousarray(gate, dtype=wide))
    np.multiply(made, value, out=made)
    return made if made.dtype == x.dtype else made.astype(x.dtype)
