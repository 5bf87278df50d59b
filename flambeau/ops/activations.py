"""Activations that PyTorch also offers outside of `nn.functional` (relu itself is a row of pointwise.py)."""

from __future__ import annotations

from typing import Any

from .elementwise import Pointwise
from .pointwise import masked, threshold_backward, where_row
from .table import FUNCTIONS, make_inplace, public

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _elu_self(grad: Any, self: Any, alpha: float, scale: float, input_scale: float) -> Any:
    # The clamp keeps exp finite where its value is not used: second derivatives multiply it by zero.
    slope = (self * input_scale).clamp(max=0).exp() * (input_scale * alpha * scale)
    return where_row(self <= 0, grad * slope, grad * scale)


# fmt: off
_threshold = Pointwise("threshold", "self threshold value", kind="same", plain="threshold value", takes="if",
                       c="a <= b ? c : a", backward=dict(
                           self=lambda grad, self, threshold: threshold_backward(grad, self, threshold)))
_hardshrink = Pointwise("hardshrink", "self lambd", kind="same", plain="lambd", takes="f",
                        c="a >= -b && a <= b ? 0 : a", backward=dict(
                            self=lambda grad, self, lambd: masked(grad, ~((self >= -lambd) & (self <= lambd)))))
_elu = Pointwise("elu", "self alpha scale input_scale", kind="same", plain="alpha scale input_scale", takes="f",
                 c="a <= 0 ? expm1(a * d) * b * c : a * c", backward=dict(self=_elu_self))
_celu = Pointwise("celu", "self alpha", kind="same", plain="alpha", takes="f", c="a <= 0 ? expm1(a / b) * b : a",
                  backward=dict(self=lambda grad, self, alpha: _elu_self(grad, self, alpha, 1.0, 1.0 / alpha)))
_prelu = Pointwise("prelu", "self weight", kind="same", takes="f", c="a > 0 ? a : b * a", node="PreluKernelBackward0",
                   backward=dict(self=lambda grad, self, weight: where_row(self > 0, grad, weight * grad),
                                 weight=lambda grad, self: where_row(self > 0, 0, self * grad)))
_leaky = Pointwise("rrelu", "self noise", kind="same", kernel="prelu", takes="f", c="a > 0 ? a : b * a",
                   node="RreluWithNoiseBackward0",
                   backward=dict(self=lambda grad, self, noise: where_row(self > 0, grad, noise * grad)))
# fmt: on


def _exported(function: Any) -> Any:
    """A function of the top level with its in-place twin, but no method (as in PyTorch)."""
    made = public(function, method=False)
    FUNCTIONS[made.__name__ + "_"] = make_inplace(made.__name__, made)
    return made


@_exported
def threshold(input: Any, threshold: float, value: float) -> Any:
    """input where it is above the threshold, value elsewhere."""
    return _threshold(input, threshold, value)


@_exported
def celu(input: Any, alpha: float = 1.0) -> Any:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _celu(input, alpha)


@_exported
def selu(input: Any) -> Any:
    """scale * elu(x, alpha) with the two constants that keep mean and variance."""
    return _elu(input, _SELU_ALPHA, _SELU_SCALE, 1.0)


@public
def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """input, with zero where |input| <= lambd."""
    return _hardshrink(input, lambd)


@public(out=False)
def prelu(input: Any, weight: Any) -> Any:
    """max(0, x) + weight * min(0, x), with one weight or one for each channel."""
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}")
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}")
    if weight.numel() != 1:
        if input.ndim == 0:
            raise RuntimeError("prelu: Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.ndim > 1 else 1
        if channels != weight.numel():
            raise RuntimeError(f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                               f"{weight.numel()} and channel size = {channels}.")
    if input.ndim > 1:
        weight = weight.reshape([1, weight.numel()] + [1] * (input.ndim - 2))
    elif input.ndim == 0:
        weight = weight.reshape([])
    return _prelu(input, weight)


@_exported
def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, generator: Any = None) -> Any:
    """x, times a slope where negative: drawn from [lower, upper] in training, their mean otherwise."""
    if not lower <= upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if not training:
        return _leaky(input, (lower + upper) / 2)
    noise = input.detach().clone().uniform_(lower, upper, generator=generator)
    return _leaky(input, noise)

