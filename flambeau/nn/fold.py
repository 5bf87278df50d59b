"""Unfold and Fold: windows as columns, and back."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .layer import Layer

__all__ = ["Fold", "Unfold"]


class Fold(Layer, function=F.fold):
    """The sum of columns of windows at their places.

    Shapes: (batch, channels k, blocks) to (batch, channels, *output_size).

    >>> nn.Fold(output_size=(4, 5), kernel_size=2)(torch.randn(1, 12, 12)).shape
    torch.Size([1, 3, 4, 5])
    """

    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1


class Unfold(Layer, function=F.unfold):
    """All windows of an image as columns.

    Shapes: (batch, channels, *) to (batch, channels k, blocks).

    >>> nn.Unfold(kernel_size=2)(torch.randn(1, 3, 4, 5)).shape
    torch.Size([1, 12, 12])
    """

    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1
