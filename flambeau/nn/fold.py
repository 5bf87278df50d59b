"""Unfold and Fold: windows as columns, and back."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .layer import Layer

__all__ = ["Fold", "Unfold"]


class Fold(Layer, function=F.fold):
    """The sum of columns of windows at their places."""

    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1


class Unfold(Layer, function=F.unfold):
    """All windows of an image as columns."""

    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1
