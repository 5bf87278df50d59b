"""Pooling layers: rows that hold the arguments of one function."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from . import functional as F
from .layer import Layer, Spatial, family
from .modules.utils import _ntuple

__all__ = ["MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "AvgPool1d", "AvgPool2d",
           "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d", "LPPool3d",
           "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d",
           "AdaptiveAvgPool3d"]


class _Windows(Layer):
    """Windows that lie side by side unless a stride is given."""

    def _layer_prepare(self) -> None:
        self.stride = self.stride if self.stride is not None else self.kernel_size


class _MaxPoolNd(_Windows):
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    return_indices: bool = False
    ceil_mode: bool = False
    _layer_shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


MaxPool1d, MaxPool2d, MaxPool3d = family(
    "MaxPool{n}d", lambda n: (_MaxPoolNd,),
    """The largest element of each window of (batch, channels, {size}).

    Shapes: (batch, channels, {size}) to (batch, channels, {new}).

    >>> nn.MaxPool{n}d(2)(torch.randn(4, 3, {times[8]})).shape
    torch.Size([4, 3, {times[4]}])
    """, options=lambda n: {"function": getattr(F, f"max_pool{n}d")})


class _MaxUnpoolNd(Spatial):
    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        super().__init__()
        many = _ntuple(self._dims)
        self.kernel_size = many(kernel_size)
        self.stride = many(stride if stride is not None else kernel_size)
        self.padding = many(padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return self._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)


MaxUnpool1d, MaxUnpool2d, MaxUnpool3d = family(
    "MaxUnpool{n}d", lambda n: (_MaxUnpoolNd,),
    """Puts the maxima of MaxPool{n}d(return_indices=True) back at their places.

    Shapes: (batch, channels, {size}) to (batch, channels, {new}).

    >>> pooled, where = nn.MaxPool{n}d(2, return_indices=True)(torch.randn(1, 1, {times[4]}))
    >>> nn.MaxUnpool{n}d(2)(pooled, where).shape
    torch.Size([1, 1, {times[4]}])
    """, options=lambda n: {"dims": n, "function": getattr(F, f"max_unpool{n}d")})


# ------------------------------------------------------------------------------------------------------------ average
class _AvgPoolNd(_Windows):
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    _layer_shown = ("kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd, function=F.avg_pool1d):
    """The mean of each window of (batch, channels, length).

    Shapes: (batch, channels, length) to (batch, channels, new length).

    >>> nn.AvgPool1d(2)(torch.arange(6.0).view(1, 1, 6))
    tensor([[[0.5000, 2.5000, 4.5000]]])
    """

    def _layer_prepare(self) -> None:
        super()._layer_prepare()
        single = _ntuple(1)
        self.kernel_size, self.stride, self.padding = single(self.kernel_size), single(self.stride), single(self.padding)


class AvgPool2d(_AvgPoolNd, function=F.avg_pool2d):
    """The mean of each window of (batch, channels, height, width).

    Shapes: (batch, channels, height, width) to (batch, channels, new height, new width).

    >>> nn.AvgPool2d(2)(torch.randn(4, 3, 32, 32)).shape
    torch.Size([4, 3, 16, 16])
    """

    divisor_override: int | None = None


class AvgPool3d(AvgPool2d, function=F.avg_pool3d):
    """The mean of each window of (batch, channels, depth, height, width).

    Shapes: (batch, channels, depth, height, width) to (batch, channels, ...).

    >>> nn.AvgPool3d(2)(torch.randn(1, 3, 8, 8, 8)).shape
    torch.Size([1, 3, 4, 4, 4])
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name, value in (("padding", 0), ("ceil_mode", False), ("count_include_pad", True)):
            self.__dict__.setdefault(name, value)


# --------------------------------------------------------------------------------------------- fractional and p-norms
class _FractionalMaxPoolNd(Layer):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _layer_options = ("kernel_size", "output_size", "output_ratio", "return_indices", "_random_samples")
    _layer_shown = ()
    _dims = 0

    def __init__(self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
                 return_indices: bool = False, _random_samples: Any = None):
        super().__init__()
        many = _ntuple(self._dims)
        name = type(self).__name__
        if min(many(kernel_size)) <= 0:
            raise ValueError(f"kernel_size must be greater than zero for all dimensions, but got {kernel_size}")
        self.kernel_size = many(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = many(output_size) if output_size is not None else None
        self.output_ratio = many(output_ratio) if output_ratio is not None else None
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class FractionalMaxPool2d(_FractionalMaxPoolNd, function=F.fractional_max_pool2d):
    """The maxima of windows at random distances.

    Shapes: (batch, channels, height, width) to (batch, channels, *output_size).

    >>> nn.FractionalMaxPool2d(2, output_size=5)(torch.randn(1, 3, 8, 8)).shape
    torch.Size([1, 3, 5, 5])
    """

    _dims = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd, function=F.fractional_max_pool3d):
    """The maxima of windows at random distances.

    Shapes: (batch, channels, depth, height, width) to (batch, channels, *output_size).

    >>> nn.FractionalMaxPool3d(2, output_size=3)(torch.randn(1, 3, 6, 6, 6)).shape
    torch.Size([1, 3, 3, 3, 3])
    """

    _dims = 3


class _LPPoolNd(Layer):
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False


LPPool1d, LPPool2d, LPPool3d = family(
    "LPPool{n}d", lambda n: (_LPPoolNd,),
    """The p-norm of each window of (batch, channels, {size}).

    Shapes: (batch, channels, {size}) to (batch, channels, {new}).

    >>> nn.LPPool{n}d(2, 2)(torch.randn(1, 3, {times[8]})).shape
    torch.Size([1, 3, {times[4]}])
    """, options=lambda n: {"function": getattr(F, f"lp_pool{n}d")})


# ----------------------------------------------------------------------------------------------------------- adaptive
class _AdaptiveMaxPoolNd(Layer):
    output_size: Any
    return_indices: bool = False
    _layer_shown = ("output_size",)


AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d = family(
    "AdaptiveMaxPool{n}d", lambda n: (_AdaptiveMaxPoolNd,),
    """The maxima of windows that cover the input evenly; None in output_size keeps one of several dimensions.

    Shapes: (batch, channels, {size}) to (batch, channels, *output_size).

    >>> nn.AdaptiveMaxPool{n}d(5)(torch.randn(1, 64, {times[8]})).shape
    torch.Size([1, 64, {times[5]}])
    """, options=lambda n: {"function": getattr(F, f"adaptive_max_pool{n}d")})


class _AdaptiveAvgPoolNd(Layer):
    output_size: Any


AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d = family(
    "AdaptiveAvgPool{n}d", lambda n: (_AdaptiveAvgPoolNd,),
    """The mean over windows that cover the input evenly; None in output_size keeps one of several dimensions.

    Shapes: (batch, channels, {size}) to (batch, channels, *output_size).

    >>> nn.AdaptiveAvgPool{n}d(5)(torch.randn(1, 64, {times[8]})).shape
    torch.Size([1, 64, {times[5]}])
    """, options=lambda n: {"function": getattr(F, f"adaptive_avg_pool{n}d")})
