"""Dropout: masks drawn as PyTorch's CPU draws them, then a product.

A mask is one bernoulli draw per element (per channel for the feature forms), in the order of the memory; for p = 0 and
p = 1 nothing is drawn.
"""

from __future__ import annotations

import math

from ...autograd.state import state
from ...backends import registry
from ...backends.cpu.table import KERNELS
from ...creation.like import empty_like
from ...creation.random import call as draw
from ...creation.random import default_generator
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap
from .. import rules
from ..core.row import NO_RECORD, ROWS, Row, public
from ..pointwise import arithmetic as _arithmetic  # noqa: F401  (enters mul)

ndarray = registry.CPU_ARRAY
_ALPHA = 1.7580993408473766  # -SELU's limit for large negative numbers, alpha * scale
_mul = ROWS["mul"]


def check_probability(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")


def _noise(input: Tensor, p: float, features: bool) -> Tensor:
    """A tensor of 0 and 1 like the input, or one per channel of it; ones with probability 1 - p."""
    if not features:
        return empty_like(input.detach()).bernoulli_(1 - p)
    if input.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    shape = list(input.shape[:2]) + [1] * (input.ndim - 2)
    return input.detach().new_empty(shape).bernoulli_(1 - p)


# On a device: what is kept is a mask of booleans, a quarter of the memory of factors.
_masked_scale = Row("masked_scale", "self mask scale", shape=rules.pointwise, node="NativeDropoutBackward0", forward="linear",
                    backward={"self": lambda grad, mask, scale: _masked_scale(grad, mask, scale)})


def _kept(input: Tensor, made: Tensor, mask: Tensor, p: float) -> Tensor:
    if not state.mode & NO_RECORD:
        _masked_scale.record(made, input, mask, 1 / (1 - p))
    return made


def _drop(input: Tensor, p: float, train: bool, features: bool, alpha: bool) -> Tensor:
    check_probability(p)
    if p == 0 or not train or not input.numel():
        return input
    if p == 1:
        return input * input.detach().new_zeros(())
    x = input._array
    if not (alpha or features) and registry.backend_of(x).NAME == "cuda":
        made, mask = draw(None, "draw_dropout", x, float(p))
        return _kept(input, wrap(made), wrap(mask), p)
    if not (alpha or features) and x.dtype.char in "fd" and x.flags.c_contiguous and registry.backend_of(x).NAME == "cpu":
        return input * wrap(draw(None, "draw_noise", x.shape, x.dtype, float(p)))
    noise = _noise(input, p, features)
    if not alpha:
        return input * noise.div_(1 - p)
    scale = 1 / math.sqrt(float((_ALPHA * _ALPHA * p + 1) * (1 - p)))
    shift = (noise - 1).mul_(_ALPHA * scale).add_(_ALPHA * scale * p)
    return input * noise.mul_(scale) + shift


def dropout_on_device(input: Tensor, p: float) -> Tensor | None:
    """Dropout in place, in training, of a tensor on a CUDA device: PyTorch draws factors there; None for any other."""
    if not isinstance(input, Tensor) or not input.is_cuda or not 0 < p < 1 or not input.numel():
        return None
    return input.mul_(_noise(input, p, False).div_(1 - p))


def dropout_fast(input: Tensor, p: float) -> Tensor | None:
    """Dropout in training of a plain contiguous float tensor, the product in one pass with the draw; None for any other."""
    mode = state.mode
    kind = input.__class__
    x = input._array
    if mode > 1 or not (kind is Tensor or kind is Parameter) or x.dtype.char not in "fd" or type(x) is not ndarray or (
            not x.flags.c_contiguous or not 0 < p < 1 or not x.size):
        return None
    source = default_generator
    with source._lock:
        made, noise = KERNELS["draw_dropout"](source._engine.words, x, p)
    result = wrap(made)
    if mode == 0:
        _mul.record(result, input, wrap(noise))
    return result


@public(method=False, out=False, inplace="function")
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Each element zero with probability p, the others divided by 1 - p."""
    return _drop(input, p, train, False, False)


@public(method=False, out=False, inplace="function")
def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Each channel zero with probability p, the others divided by 1 - p.

    >>> torch.feature_dropout(torch.ones(1, 3, 2), 0.5, train=True)
    tensor([[[0., 0.],
             [0., 0.],
             [2., 2.]]])
    """
    return _drop(input, p, train, True, False)


@public(method=False, out=False, inplace="function")
def alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout that keeps mean and variance of SELU's outputs."""
    return _drop(input, p, train, False, True)


@public(method=False, out=False, inplace="function")
def feature_alpha_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """alpha_dropout of whole channels."""
    return _drop(input, p, train, True, True)


@public(method=False, out=False)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(dropout(input), the mask as booleans)."""
    if train is False or not input.numel():
        return input, input.detach().new_ones(input.shape).bool()
    if registry.backend_of(input._array).NAME == "cuda" and p < 1:
        made, mask = map(wrap, draw(None, "draw_dropout", input._array, float(p)))
        return _kept(input, made, mask, p), mask
    mask = _noise(input, p, False).bool()
    return input * mask * (0.0 if p == 1 else 1 / (1 - p)), mask
