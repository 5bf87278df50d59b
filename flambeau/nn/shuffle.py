"""Layers that rearrange pixels and channels."""

from __future__ import annotations

from . import functional as F
from .layer import Layer

__all__ = ["PixelShuffle", "PixelUnshuffle", "ChannelShuffle"]


class PixelShuffle(Layer, function=F.pixel_shuffle):
    """(..., c * r * r, h, w) -> (..., c, h * r, w * r)."""

    upscale_factor: int


class PixelUnshuffle(Layer, function=F.pixel_unshuffle):
    """(..., c, h * r, w * r) -> (..., c * r * r, h, w)."""

    downscale_factor: int


class ChannelShuffle(Layer, function=F.channel_shuffle):
    """Channels as (groups, c), transposed."""

    groups: int
