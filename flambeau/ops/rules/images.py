"""Shape rules of convolution, pooling, resizing and padding."""

from __future__ import annotations

import math
from typing import Any

from ...backends.geometry import out_size, transposed_size
from . import INT32, INT64, UINT8, Made, with_last


def convolution(x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
                groups: int) -> Made:
    if transposed:
        size = transposed_size(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding)
        return conv_input(x, w, bias, size, stride, padding, dilation, groups)
    return Made((x.shape[0], w.shape[0], *out_size(x.shape[2:], w.shape[2:], stride, padding, dilation)), x.dtype)


def conv_input(g: Any, w: Any, bias: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Made:
    return Made((g.shape[0], w.shape[1] * groups, *size), g.dtype)


def conv_weight(g: Any, x: Any, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Made:
    return Made((g.shape[1], x.shape[1] // groups, *size), g.dtype)


def conv_weight_bias(g: Any, *rest: Any) -> list[Made]:
    return [conv_weight(g, *rest), Made((g.shape[1],), g.dtype)]


def windows(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Made:
    """im2col."""
    *batch, channels, height, width = x.shape
    count = math.prod(out_size((height, width), kernel, stride, padding, dilation))
    return Made((*batch, channels * math.prod(kernel), count), x.dtype)


def from_windows(x: Any, size: Any, kernel: Any, *rest: Any) -> Made:
    """col2im."""
    *batch, taps, _ = x.shape
    return Made((*batch, taps // math.prod(kernel), *size), x.dtype)


# ------------------------------------------------------------------------------------------------------------- pooling
def max_pool(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, size: Any, *rest: Any) -> list[Made]:
    """The largest elements, and which tap of its window each is."""
    shape = with_last(x.shape, size)
    return [Made(shape, x.dtype), Made(shape, UINT8 if math.prod(kernel) <= 256 else INT32)]


def max_pool_values(*args: Any) -> Made:
    return max_pool(*args)[0]


def max_pool_indices(which: Any, *rest: Any) -> Made:
    return Made(which.shape, INT64)


def max_pool_scatter(g: Any, which: Any, size: Any, *rest: Any) -> Made:
    return Made(with_last(g.shape, size), g.dtype)


def avg_pool(x: Any, kernel: Any, stride: Any, padding: Any, size: Any, *rest: Any) -> Made:
    return Made(with_last(x.shape, size), x.dtype)


def adaptive_max_pool(x: Any, size: Any) -> list[Made]:
    shape = with_last(x.shape, size)
    return [Made(shape, x.dtype), Made(shape, INT64)]


def fractional_max_pool(x: Any, kernel: Any, size: Any, samples: Any) -> list[Made]:
    return adaptive_max_pool(x, size)


# ---------------------------------------------------------------------------------------------------- resizing, padding
def shuffled(x: Any, factor: int) -> Made:
    *batch, channels, height, width = x.shape
    return Made((*batch, channels // (factor * factor), height * factor, width * factor), x.dtype)


def unshuffled(x: Any, factor: int) -> Made:
    *batch, channels, height, width = x.shape
    return Made((*batch, channels * factor * factor, height // factor, width // factor), x.dtype)


def edges(x: Any, pads: Any, mode: str) -> Made:
    return Made(tuple([n + a + b for n, (a, b) in zip(x.shape, pads)]), x.dtype)


def edges_backward(grad: Any, pads: Any, mode: str) -> Made:
    return Made(tuple([n - a - b for n, (a, b) in zip(grad.shape, pads)]), grad.dtype)
