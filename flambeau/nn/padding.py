"""Padding layers."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from . import functional as F
from .module import Module
from .modules.utils import _ntuple

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
           "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]


class _Pad(Module):
    """The last `dims` dimensions are padded; one number stands for all sides."""

    __constants__ = ["padding"]
    dims = 1
    mode = "constant"

    def __init__(self, padding: Any):
        super().__init__()
        self.padding = _ntuple(2 * self.dims)(padding)

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class _CircularPadNd(_Pad):
    mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (self.dims + 1, self.dims + 2):
            raise ValueError(f"expected {self.dims + 1}D or {self.dims + 2}D input (got {input.dim()}D input)")


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with a value."""


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with a value."""

    dims = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with a value."""

    dims = 3


class _Zeros(_ConstantPadNd):
    def __init__(self, padding: Any):
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad1d(_Zeros, ConstantPad1d):
    """Pads the last dimension with zeros."""


class ZeroPad2d(_Zeros, ConstantPad2d):
    """Pads the last two dimensions with zeros."""


class ZeroPad3d(_Zeros, ConstantPad3d):
    """Pads the last three dimensions with zeros."""


class ReflectionPad1d(_ReflectionPadNd):
    """Pads the last dimension with its mirror image."""


class ReflectionPad2d(_ReflectionPadNd):
    """Pads the last two dimensions with their mirror image."""

    dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads the last three dimensions with their mirror image."""

    dims = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Pads the last dimension with the values at its ends."""


class ReplicationPad2d(_ReplicationPadNd):
    """Pads the last two dimensions with the values at their ends."""

    dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads the last three dimensions with the values at their ends."""

    dims = 3


class CircularPad1d(_CircularPadNd):
    """Pads the last dimension with its other end."""


class CircularPad2d(_CircularPadNd):
    """Pads the last two dimensions with their other ends."""

    dims = 2


class CircularPad3d(_CircularPadNd):
    """Pads the last three dimensions with their other ends."""

    dims = 3
