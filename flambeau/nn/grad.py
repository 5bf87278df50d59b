"""Gradients of convolutions as functions of their own."""

from __future__ import annotations

from typing import Any

from ..ops.layers.conv import conv_input, conv_weight, spread
from ..tensors.tensor import Tensor

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _input(dims: int) -> Any:
    def function(input_size: Any, weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1) -> Tensor:
        window = [spread(v, dims, n) for v, n in ((stride, "stride"), (padding, "padding"), (dilation, "dilation"))]
        return conv_input(grad_output, weight, None, tuple(input_size)[2:], *window, groups)

    function.__name__ = f"conv{dims}d_input"
    function.__doc__ = f"The gradient of conv{dims}d for its input, of the given size."
    return function


def _weight(dims: int) -> Any:
    def function(input: Tensor, weight_size: Any, grad_output: Tensor, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1) -> Tensor:
        window = [spread(v, dims, n) for v, n in ((stride, "stride"), (padding, "padding"), (dilation, "dilation"))]
        return conv_weight(grad_output, input, tuple(weight_size)[2:], *window, groups)

    function.__name__ = f"conv{dims}d_weight"
    function.__doc__ = f"The gradient of conv{dims}d for its weight, of the given size."
    return function


conv1d_input, conv2d_input, conv3d_input = [_input(d) for d in (1, 2, 3)]
conv1d_weight, conv2d_weight, conv3d_weight = [_weight(d) for d in (1, 2, 3)]
