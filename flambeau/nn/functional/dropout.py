"""Dropout."""

from __future__ import annotations

import warnings
from typing import Any

from ...ops.core import overrides as _overrides
from ...ops.core.row import FUNCTIONS
from ...ops.layers import dropout as _ops
from ...tensors.tensor import Tensor
from .activations import functional

__all__ = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]


def _check(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _call(name: str, input: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
    return FUNCTIONS[name + "_" if inplace else name](input, p, training)


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training each element is zero with probability p and divided by 1 - p otherwise.

    >>> F.dropout(torch.ones(8), 0.5)
    tensor([0., 0., 2., 0., 0., 0., 2., 2.])
    >>> F.dropout(torch.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    if _overrides.active:
        done, value = _overrides.dispatch(dropout, (input,), {"p": p, "training": training, "inplace": inplace})
        if done:
            return value
    if p < 0.0 or p > 1.0:
        _check(p)
    if not training and not inplace:
        return input
    if training and not inplace and isinstance(input, Tensor):
        made = _ops.dropout_fast(input, p)
        if made is not None:
            return made
    elif training and inplace:
        made = _ops.dropout_on_device(input, p)
        if made is not None:
            return made
    return _call("dropout", input, p, training, inplace)


@functional
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU's outputs.

    >>> F.alpha_dropout(torch.ones(3), 0.5, training=False)
    tensor([1., 1., 1.])
    """
    _check(p)
    return _call("alpha_dropout", input, p, training, inplace)


@functional
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """alpha_dropout of whole channels."""
    _check(p)
    return _call("feature_alpha_dropout", input, p, training, inplace)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Any:
    """Feature dropout; an input without a batch dimension gets one for the call."""
    if batched:
        return _call("feature_dropout", input, p, training, inplace)
    made = _call("feature_dropout", input.unsqueeze_(0) if inplace else input.unsqueeze(0), p, training, inplace)
    return made.squeeze_(0) if inplace else made.squeeze(0)


def _warn_of_dims(n: int, dims: int) -> None:
    if dims not in (n + 1, n + 2):
        warnings.warn(f"dropout{n}d: Received a {dims}-D input to dropout{n}d, which is deprecated and will result in an "
                      "error in a future release. To retain the behavior and silence this warning, please use dropout "
                      f"instead. Note that dropout{n}d exists to provide channel-wise dropout on inputs with {n} spatial "
                      f"dimensions, a channel dimension, and an optional batch dimension (i.e. {n + 1}D or {n + 2}D inputs).",
                      stacklevel=4)


@functional
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L).

    >>> F.dropout1d(torch.ones(1, 2, 3), 0.5, training=False).shape
    torch.Size([1, 2, 3])
    """
    _check(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that "
                           "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, a "
                           "channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs).")
    return _channels(input, p, training, inplace, input.dim() == 3)


@functional
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, H, W).

    >>> F.dropout2d(torch.ones(1, 2, 3, 3), 0.5, training=False).shape
    torch.Size([1, 2, 3, 3])
    """
    _check(p)
    dims = input.dim()
    _warn_of_dims(2, dims)
    if dims == 3:
        warnings.warn("dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior "
                      "is desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior "
                      "will change in a future release to interpret the input as one without a batch dimension, i.e. "
                      "shape (C, H, W). To maintain the 1D channel-wise dropout behavior, please switch to using "
                      "dropout1d instead.", stacklevel=3)
    return _call("feature_dropout", input, p, training, inplace)


@functional
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W).

    >>> F.dropout3d(torch.ones(1, 2, 3, 3, 3), 0.5, training=False).shape
    torch.Size([1, 2, 3, 3, 3])
    """
    _check(p)
    dims = input.dim()
    _warn_of_dims(3, dims)
    return _channels(input, p, training, inplace, dims != 4)
