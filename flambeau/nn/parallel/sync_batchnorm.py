"""Batch normalization over the batches of several processes.

Each process sends the mean, the sum of squared deviations and the number of its elements per channel; from these all compute
the same mean and variance of the whole batch. The exchange has a derivative, so gradients need nothing of their own.
"""

from __future__ import annotations

from typing import Any

from ...autograd.modes import no_grad
from ...creation.factories import full
from ...distributed.nn.functional import all_gather
from ...ops.core.export import FUNCTIONS
from ...tensors.dtypes import float32
from ...tensors.tensor import Tensor


def normalize(layer: Any, input: Tensor) -> Tensor:
    """The layer's output in training: its input normalized by the statistics of all processes' inputs."""
    x = input if input.dtype.itemsize >= 4 else input.to(float32)
    shape = [1, x.shape[1], *(1,) * (x.ndim - 2)]
    mean, variance, count = _statistics(x, layer.process_group)
    _remember(layer, mean, variance, count)
    made = (x - mean.view(shape)) * FUNCTIONS["rsqrt"](variance + layer.eps).view(shape)
    if layer.weight is not None:
        made = made * layer.weight.to(x.dtype).view(shape)
    if layer.bias is not None:
        made = made + layer.bias.to(x.dtype).view(shape)
    return made.to(input.dtype)


def _statistics(x: Tensor, group: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance per channel over all processes, and how many elements that are."""
    dims = [d for d in range(x.ndim) if d != 1]
    own = x.numel() // x.shape[1]
    if own:
        mean = x.mean(dims, keepdim=True)
        own_mean, squares = mean.view(-1), (x - mean).square().sum(dims)
    else:
        own_mean = squares = x.sum(dims)  # zeros, with a place in the graph
    sent = FUNCTIONS["stack"]([own_mean, squares, full((x.shape[1],), float(own), dtype=x.dtype, device=x.device)])
    means, squares, counts = FUNCTIONS["stack"](all_gather(sent, group)).unbind(1)
    count = counts.sum(0)
    mean = (means * counts).sum(0) / count
    squares = squares.sum(0) + (counts * (means - mean).square()).sum(0)
    if float(count[0].item()) <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {tuple(x.shape)}")
    return mean, squares / count, count


def _remember(layer: Any, mean: Tensor, variance: Tensor, count: Tensor) -> None:
    """The running statistics."""
    if not layer.training or not layer.track_running_stats or layer.running_mean is None:
        return
    with no_grad():
        layer.num_batches_tracked.add_(1)
        share = layer.momentum if layer.momentum is not None else 1.0 / float(layer.num_batches_tracked.item())
        unbiased = variance * (count / (count - 1))
        for running, new in ((layer.running_mean, mean), (layer.running_var, unbiased)):
            running.mul_(1 - share).add_(new.to(running.dtype), alpha=share)
