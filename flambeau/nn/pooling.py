"""Pooling layers: rows that hold the arguments of one function."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from . import functional as F
from .layer import Layer, Spatial
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


class MaxPool1d(_MaxPoolNd, function=F.max_pool1d):
    """The largest element of each window of (batch, channels, length)."""


class MaxPool2d(_MaxPoolNd, function=F.max_pool2d):
    """The largest element of each window of (batch, channels, height, width)."""


class MaxPool3d(_MaxPoolNd, function=F.max_pool3d):
    """The largest element of each window of (batch, channels, depth, height, width)."""


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


class MaxUnpool1d(_MaxUnpoolNd, dims=1, function=F.max_unpool1d):
    """Puts the maxima of MaxPool1d(return_indices=True) back at their places."""


class MaxUnpool2d(_MaxUnpoolNd, dims=2, function=F.max_unpool2d):
    """Puts the maxima of MaxPool2d(return_indices=True) back at their places."""


class MaxUnpool3d(_MaxUnpoolNd, dims=3, function=F.max_unpool3d):
    """Puts the maxima of MaxPool3d(return_indices=True) back at their places."""


# ------------------------------------------------------------------------------------------------------------ average
class _AvgPoolNd(_Windows):
    kernel_size: Any
    stride: Any = None
    padding: Any = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    _layer_shown = ("kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd, function=F.avg_pool1d):
    """The mean of each window of (batch, channels, length)."""

    def _layer_prepare(self) -> None:
        super()._layer_prepare()
        single = _ntuple(1)
        self.kernel_size, self.stride, self.padding = single(self.kernel_size), single(self.stride), single(self.padding)


class AvgPool2d(_AvgPoolNd, function=F.avg_pool2d):
    """The mean of each window of (batch, channels, height, width)."""

    divisor_override: int | None = None


class AvgPool3d(AvgPool2d, function=F.avg_pool3d):
    """The mean of each window of (batch, channels, depth, height, width)."""

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
    """The maxima of windows at random distances."""

    _dims = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd, function=F.fractional_max_pool3d):
    """The maxima of windows at random distances."""

    _dims = 3


class _LPPoolNd(Layer):
    norm_type: float
    kernel_size: Any
    stride: Any = None
    ceil_mode: bool = False


class LPPool1d(_LPPoolNd, function=F.lp_pool1d):
    """The p-norm of each window of (batch, channels, length)."""


class LPPool2d(_LPPoolNd, function=F.lp_pool2d):
    """The p-norm of each window of (batch, channels, height, width)."""


class LPPool3d(_LPPoolNd, function=F.lp_pool3d):
    """The p-norm of each window of (batch, channels, depth, height, width)."""


# ----------------------------------------------------------------------------------------------------------- adaptive
class _AdaptiveMaxPoolNd(Layer):
    output_size: Any
    return_indices: bool = False
    _layer_shown = ("output_size",)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd, function=F.adaptive_max_pool1d):
    """The maxima of output_size windows that cover the input evenly."""


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd, function=F.adaptive_max_pool2d):
    """The maxima of windows that cover the input evenly; None keeps a dimension."""


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd, function=F.adaptive_max_pool3d):
    """The maxima of windows that cover the input evenly; None keeps a dimension."""


class _AdaptiveAvgPoolNd(Layer):
    output_size: Any


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd, function=F.adaptive_avg_pool1d):
    """The mean over output_size windows that cover the input evenly."""


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd, function=F.adaptive_avg_pool2d):
    """The mean over windows that cover the input evenly; None keeps a dimension."""


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd, function=F.adaptive_avg_pool3d):
    """The mean over windows that cover the input evenly; None keeps a dimension."""
