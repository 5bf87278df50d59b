"""Folding a batch norm, in evaluation mode, into the convolution or linear layer before it."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]
M = TypeVar("M")


def fuse_conv_bn_eval(conv: M, bn: Any, transpose: bool = False) -> M:
    """A copy of the convolution that does the batch norm, too; both must be in evaluation mode.

    >>> fused = nn.utils.fuse_conv_bn_eval(nn.Conv2d(3, 4, 3).eval(), nn.BatchNorm2d(4).eval())
    >>> type(fused).__name__
    'Conv2d'
    """
    return _fuse(conv, bn, lambda *tensors: fuse_conv_bn_weights(*tensors, transpose))


def fuse_linear_bn_eval(linear: M, bn: Any) -> M:
    """A copy of the linear layer that does the batch norm, too; both must be in evaluation mode.

    >>> fused = nn.utils.fuse_linear_bn_eval(nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval())
    >>> type(fused).__name__
    'Linear'
    """
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(f"To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
                             f"{linear.out_features} and {bn.num_features}")
    return _fuse(linear, bn, fuse_linear_bn_weights)


def _fuse(layer: Any, bn: Any, weights: Any) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None for fusion")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = weights(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    return fused


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                         bn_w: Tensor | None, bn_b: Tensor | None,
                         transpose: bool = False) -> tuple[Parameter, Parameter]:
    """The convolution's weight and bias with the batch norm folded in.

    >>> conv, bn = nn.Conv1d(2, 3, 1), nn.BatchNorm1d(3).eval()
    >>> weight, bias = nn.utils.fuse_conv_bn_weights(
    ...     conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    >>> x = torch.ones(1, 2, 4)
    >>> torch.allclose(F.conv1d(x, weight, bias), bn(conv(x)), atol=1e-6)
    True
    """
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                           bn_w: Tensor, bn_b: Tensor) -> tuple[Parameter, Parameter]:
    """The linear layer's weight and bias with the batch norm folded in.

    >>> linear, bn = nn.Linear(2, 3), nn.BatchNorm1d(3).eval()
    >>> weight, bias = nn.utils.fuse_linear_bn_weights(
    ...     linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    >>> torch.allclose(F.linear(torch.ones(1, 2), weight, bias), bn(linear(torch.ones(1, 2))), atol=1e-6)
    True
    """
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _folded(weight, bias, mean, variance, eps, scale, shift, shape):
    bias_dtype = weight.dtype if bias is None else bias.dtype
    bias = mean.new_zeros(mean.shape) if bias is None else bias
    scale = variance.new_ones(variance.shape) if scale is None else scale
    shift = mean.new_zeros(mean.shape) if shift is None else shift
    factor = scale * (variance + eps).rsqrt()
    fused_weight = (weight * factor.reshape(shape)).to(dtype=weight.dtype)
    fused_bias = ((bias - mean) * factor + shift).to(dtype=bias_dtype)
    return Parameter(fused_weight, weight.requires_grad), Parameter(fused_bias, bias.requires_grad)
