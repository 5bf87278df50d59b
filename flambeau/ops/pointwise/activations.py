"""Activations: forward and derivative side by side, with a fast path for plain tensors.

A derivative has two forms: one fused kernel for ordinary backward passes, and tensor operations where the backward pass
itself is recorded (`create_graph`, forward mode).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...autograd.node import FLOAT32
from ...tensors.shapes import wrap_dim
from ...tensors.tensor import Tensor
from .. import rules
from ..core import generate
from ..core.row import FUNCTIONS, Row, check_on_cpu, public
from .comparison import _bounded
from .families import Pointwise, any_way, number, of_pair, promoted
from .functions import conj, masked, sigmoid, tied, where_row

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_K = math.sqrt(2 / math.pi)


def activation(name: str, numbers: str, backward: Callable | str, *, c: Any, node: str | None = None, takes: str = "f",
               fused: str | None = None, **options: Any) -> Callable:
    """A pointwise function of one tensor and numbers: plain float tensors go straight to the kernel."""
    r = Pointwise(name, f"self {numbers}", kind="same", as_given=numbers, takes=takes, c=c, node=node,
                  backward=dict(self=backward), fused=None if fused is None else dict(self=fused), **options)
    call = generate.of_one(r, chars="fd", ufunc=False, fallback=any_way)
    call.row = r
    return call


# ----------------------------------------------------------------------------------------------------- derivatives
_INNER = "tanh(a * (0.7978845608028654 + 0.035677408136300125 * (a * a)))"


def _gelu_value(self: Any = None, approximate: str = "none") -> str:
    return "a * ndtr(a)" if approximate == "none" else f"0.5 * a + 0.5 * a * {_INNER}"


def _gelu_slope(grad: Any = None, self: Any = None, approximate: str = "none") -> str:
    if approximate == "none":
        return "a * (ndtr(b) + b * (exp(b * b * -0.5) * 0.3989422804014327))"
    inner = _INNER.replace("a *", "b *").replace("* a", "* b")
    return (f"a * 0.5 * (1 + {inner} + b * (0.7978845608028654 + 0.10703222440890037 * (b * b)) * (1 - square({inner})))")


of_pair("leaky_relu_backward", "b > 0 ? a : a * c", "slope")
of_pair("hardtanh_backward", "b <= c || b >= d ? 0 : a", "low high")
of_pair("elu_backward", "b <= 0 ? a * (exp(b * e) * (c * d * e)) : a * d", "alpha scale input_scale")
of_pair("gelu_backward", _gelu_slope, "approximate")
of_pair("silu_backward", "a * (sigmoid(b) * (1 + b * (1 - sigmoid(b))))")
of_pair("mish_backward", "a * (tanh_softplus(b) + b * sigmoid(b) * (1 - square(tanh_softplus(b))))")
of_pair("softplus_backward", "b * c > d ? a : a * sigmoid(b * c)", "beta threshold")
of_pair("log_sigmoid_backward", "a * sigmoid(-b)")


def _elu_self(grad: Any, self: Any, alpha: float, scale: float, input_scale: float) -> Any:
    # The clamp keeps exp finite where its value is not used: second derivatives multiply it by zero.
    slope = (self * input_scale).clamp(max=0).exp() * (input_scale * alpha * scale)
    return where_row(self <= 0, grad * slope, grad * scale)


def _leaky_self(grad: Any, self: Any, negative_slope: float) -> Any:
    return tied(where_row(self > 0, grad, grad * negative_slope), self)


def _hardtanh_self(grad: Any, self: Any, min_val: float, max_val: float) -> Any:
    return tied(masked(grad, ~((self <= min_val) | (self >= max_val))), self)


def _gelu_self(grad: Any, self: Any, approximate: str) -> Any:
    if approximate == "tanh":
        square = self * self
        inner = (self * (1 + 0.044715 * square) * _K).tanh()
        return grad * (0.5 * (1 + inner) + 0.5 * self * (1 - inner * inner) * (_K * (1 + 3 * 0.044715 * square)))
    probability = 0.5 * (1 + (self * math.sqrt(0.5)).erf())
    return grad * (probability + self * (self * self * -0.5).exp() * (1 / math.sqrt(2 * math.pi)))


def _silu_self(grad: Any, self: Any) -> Any:
    s = sigmoid(self)
    return grad * conj(s * (1 + self * (1 - s)))


def _mish_self(grad: Any, self: Any) -> Any:
    t = softplus_(self, 1.0, 20.0).tanh()
    return grad * (t + self * sigmoid(self) * (1 - t * t))


def _softplus_self(grad: Any, self: Any, beta: float, threshold: float) -> Any:
    scaled = self * beta
    return where_row(scaled > threshold, grad, grad * sigmoid(scaled))


def _hardswish_self(grad: Any, self: Any) -> Any:
    slope = where_row(self <= -3, 0, where_row(self < 3, self / 3 + 0.5, 1))
    return grad * slope


def _shrink_self(grad: Any, self: Any, lambd: float) -> Any:
    return tied(masked(grad, ~((self >= -lambd) & (self <= lambd))), self)


def _no_way_back(name: str) -> Callable:
    def formula(grad: Any) -> Any:
        raise RuntimeError(f"In-place {name} backward calculation is triggered with a negative slope which is not supported. "
                           "This is caused by calling in-place forward function with a negative slope, please call the "
                           "out-of-place version instead.")

    formula.refused = True
    return formula


# fmt: off
# --------------------------------------------------------------------------------------------------------- the rows
threshold_row = activation("threshold", "threshold value", "threshold_backward(grad, self, threshold)",
                           c="a <= b ? c : a", takes="if", c_kinds="fi")
hardshrink_row = activation("hardshrink", "lambd", _shrink_self, c="a >= -b && a <= b ? 0 : a")
softshrink_row = activation("softshrink", "lambd", _shrink_self, c="a - atmost(atleast(a, -b), b)")
elu_row = activation("elu", "alpha scale input_scale", _elu_self, c="a <= 0 ? expm1(a * d) * (b * c) : a * c",
                     fused="elu_backward(grad, self, alpha, scale, input_scale)")
celu_row = activation("celu", "alpha", lambda grad, self, alpha: _elu_self(grad, self, alpha, 1.0, 1.0 / alpha),
                      c="a <= 0 ? expm1(a / b) * b : a", fused="elu_backward(grad, self, alpha, 1.0, 1.0 / alpha)")
leaky_relu_ = activation("leaky_relu", "negative_slope", _leaky_self, c="a > 0 ? a : a * b",
                         fused="leaky_relu_backward(grad, self, negative_slope)")
# In place, with a negative slope the result does not tell on which side of zero it began.
elu_changed = activation("elu_changed", "alpha scale input_scale", _no_way_back("elu"), kernel="elu",
                         c="a <= 0 ? expm1(a * d) * (b * c) : a * c", node="EluBackward0")
leaky_changed = activation("leaky_relu_changed", "negative_slope", _no_way_back("leakyReLu"), kernel="leaky_relu",
                           c="a > 0 ? a : a * b", node="LeakyReluBackward0")
_mean_slope = activation("rrelu_eval", "negative_slope", _leaky_self, kernel="leaky_relu", c="a > 0 ? a : a * b",
                         fused="leaky_relu_backward(grad, self, negative_slope)", node="RreluWithNoiseBackward0")
hardtanh_ = activation("hardtanh", "min_val max_val", _hardtanh_self, kernel="clamp", c=_bounded, c_kinds="fi",
                       takes="if", fused="hardtanh_backward(grad, self, min_val, max_val)")
gelu_ = activation("gelu", "approximate", _gelu_self, c=_gelu_value, fused="gelu_backward(grad, self, approximate)")
silu_ = activation("silu", "", _silu_self, c="a / (1 + exp(-a))", takes="fc", fused="silu_backward(grad, self)")
mish_ = activation("mish", "", _mish_self, c="a * tanh_softplus(a)", fused="mish_backward(grad, self)")
softplus_ = activation("softplus", "beta threshold", _softplus_self,
                       c="a * b > c ? a : (atleast(a * b, 0) + log1p(exp(-fabs(a * b)))) / b",
                       fused="softplus_backward(grad, self, beta, threshold)")
log_sigmoid_ = activation("log_sigmoid", "", lambda grad, self: grad * sigmoid(-self), c="atmost(a, 0) - log1p(exp(-fabs(a)))",
                          node="LogSigmoidBackward0", fused="log_sigmoid_backward(grad, self)")
hardswish_ = activation("hardswish", "", _hardswish_self, c="a * atmost(atleast(a + 3, 0), 6) / 6")
hardsigmoid_ = activation("hardsigmoid", "", lambda grad, self: masked(grad * (1 / 6), (self > -3) & (self < 3)),
                          c="atmost(atleast(a + 3, 0), 6) / 6")
_prelu = Pointwise("prelu", "self weight", kind="same", takes="f", c="a > 0 ? a : b * a", node="PreluKernelBackward0",
                   backward=dict(self=lambda grad, self, weight: tied(where_row(self > 0, grad, weight * grad), self),
                                 weight=lambda grad, self: where_row(self > 0, 0, self * grad)))
_leaky_noise = Pointwise("rrelu", "self noise", kind="same", kernel="prelu", takes="f", c="a > 0 ? a : b * a",
                         node="RreluWithNoiseBackward0",
                         backward=dict(self=lambda grad, self, noise: where_row(self > 0, grad, noise * grad)))
# fmt: on


def _glu_self(grad: Any, self: Any, dim: int) -> Any:
    value, gate = self.chunk(2, dim)
    s = sigmoid(gate)
    left = grad * s
    return FUNCTIONS["cat"]([left, left * (1 - s) * value], dim)


glu_ = Row("glu", "self dim", safe=True, batch="first_dim", shape=rules.halved, backward=dict(self=_glu_self))


# ------------------------------------------------------------------------------------------------- public functions
def _exported(function: Any) -> Any:
    """A function of the top level with its in-place twin, but no method (as in PyTorch)."""
    return public(function, method=False, inplace="function")


@_exported
def threshold(input: Any, threshold: float, value: float) -> Any:
    """input where it is above the threshold, value elsewhere."""
    return threshold_row(input, threshold, value)


@_exported
def celu(input: Any, alpha: float = 1.0) -> Any:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return celu_row(input, alpha)


@_exported
def selu(input: Any) -> Any:
    """scale * elu(x, alpha) with the two constants that keep mean and variance."""
    return elu_row(input, SELU_ALPHA, SELU_SCALE, 1.0)


@public(out="exact")
def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """input, with zero where |input| <= lambd."""
    return hardshrink_row(input, lambd)


def hardtanh(input: Tensor, min_val: float, max_val: float) -> Tensor:
    """input between two bounds; its slope is zero at the bounds themselves (clamp's is one)."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    native = promoted((input,)).native
    native = FLOAT32 if native.itemsize < 4 and native.kind in "fV" else native
    return hardtanh_(input, number(min_val, native), number(max_val, native))


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """One half of the tensor times the sigmoid of the other."""
    if not input.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    d = wrap_dim(dim, input.ndim)
    if input.shape[d] % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {d} is size {input.shape[d]}")
    return glu_(input, d)


@public(out=False, autocast="lower")
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
    """x, times a slope where negative: drawn from [lower, upper] in training, their mean otherwise.

    >>> torch.rrelu(torch.tensor([-1.0, 2.0]), 0.1, 0.3)
    tensor([-0.2000,  2.0000])
    """
    if not lower <= upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if not training:
        return _mean_slope(input, (lower + upper) / 2)
    check_on_cpu("rrelu_with_noise_out_cpu", input, "F", "bfloat16")
    # A number is drawn for each element that is not positive, in order, and none for the others.
    low = input.detach() <= 0
    noise = input.detach().new_ones(input.shape)
    if input.is_meta:  # nobody knows how many there are
        return _leaky_noise(input, noise)
    noise[low] = input.detach().new_empty(int(low.sum())).double().uniform_(lower, upper, generator=generator).to(
        input.dtype)
    return _leaky_noise(input, noise)


