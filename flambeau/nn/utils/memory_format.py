"""Convolution weights in channels-last memory."""

from __future__ import annotations

from typing import Any, TypeVar

from ... import nn
from ..module import Module

M = TypeVar("M", bound=Module)


def convert_conv2d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lays the 4-d weights of convolutions in a module out in this memory format.

    >>> layer = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(2, 3, 3), torch.channels_last)
    >>> layer.weight.is_contiguous(memory_format=torch.channels_last)
    True
    """
    return _convert(module, memory_format, 4, "Conv2d", "ConvTranspose2d")


def convert_conv3d_weight_memory_format(module: M, memory_format: Any) -> M:
    """Lays the 5-d weights of convolutions in a module out in this memory format.

    >>> layer = nn.utils.convert_conv3d_weight_memory_format(nn.Conv3d(2, 3, 3), torch.channels_last_3d)
    >>> layer.weight.is_contiguous(memory_format=torch.channels_last_3d)
    True
    """
    return _convert(module, memory_format, 5, "Conv3d", "ConvTranspose3d")


def _convert(module: M, memory_format: Any, dimensions: int, *names: str) -> M:
    if isinstance(module, tuple(getattr(nn, name) for name in names)):
        weight = module.weight
        if weight.dim() == dimensions:
            weight.data = weight.detach().clone(memory_format=memory_format)
    for child in module.children():
        _convert(child, memory_format, dimensions, *names)
    return module
