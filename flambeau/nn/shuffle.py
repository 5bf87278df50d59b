"""Layers that rearrange pixels and channels."""

from __future__ import annotations

from . import functional as F
from .layer import Layer

__all__ = ["PixelShuffle", "PixelUnshuffle", "ChannelShuffle"]


class PixelShuffle(Layer, function=F.pixel_shuffle):
    """(..., c * r * r, h, w) -> (..., c, h * r, w * r).

    Shapes: (*, channels r^2, height, width) to (*, channels, height r, width r).

    >>> nn.PixelShuffle(2)(torch.randn(1, 8, 4, 4)).shape
    torch.Size([1, 2, 8, 8])
    """

    upscale_factor: int


class PixelUnshuffle(Layer, function=F.pixel_unshuffle):
    """(..., c, h * r, w * r) -> (..., c * r * r, h, w).

    Shapes: (*, channels, height r, width r) to (*, channels r^2, height, width).

    >>> nn.PixelUnshuffle(2)(torch.randn(1, 2, 8, 8)).shape
    torch.Size([1, 8, 4, 4])
    """

    downscale_factor: int


class ChannelShuffle(Layer, function=F.channel_shuffle):
    """Channels as (groups, c), transposed.

    Shapes: (batch, channels, *), kept.

    >>> nn.ChannelShuffle(2)(torch.arange(4.0).view(1, 4, 1, 1)).flatten()
    tensor([0., 2., 1., 3.])
    """

    groups: int
