"""Padding layers."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from . import functional as F
from .layer import Spatial
from .modules.utils import _ntuple

__all__ = ["CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
           "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
           "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d"]


class _Pad(Spatial):
    """The last `_dims` dimensions are padded; one number stands for all sides."""

    __constants__ = ["padding"]
    mode = "constant"

    def __init__(self, padding: Any):
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

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
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise ValueError(f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.dim()}D input)")


class ConstantPad1d(_ConstantPadNd, dims=1):
    """Pads the last dimension with a value.

    >>> nn.ConstantPad1d((1, 2), 9.0)(torch.tensor([[1.0, 2.0]]))
    tensor([[9., 1., 2., 9., 9.]])
    """


class ConstantPad2d(_ConstantPadNd, dims=2):
    """Pads the last two dimensions with a value.

    >>> nn.ConstantPad2d(1, 0.0)(torch.ones(1, 2, 2)).shape
    torch.Size([1, 4, 4])
    """


class ConstantPad3d(_ConstantPadNd, dims=3):
    """Pads the last three dimensions with a value.

    >>> nn.ConstantPad3d(1, 0.0)(torch.ones(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """


class _Zeros(_ConstantPadNd):
    def __init__(self, padding: Any):
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


class ZeroPad1d(_Zeros, ConstantPad1d):
    """Pads the last dimension with zeros.

    >>> nn.ZeroPad1d(1)(torch.tensor([[1.0, 2.0]]))
    tensor([[0., 1., 2., 0.]])
    """


class ZeroPad2d(_Zeros, ConstantPad2d):
    """Pads the last two dimensions with zeros.

    >>> nn.ZeroPad2d((1, 0, 0, 2))(torch.ones(1, 2, 2)).shape
    torch.Size([1, 4, 3])
    """


class ZeroPad3d(_Zeros, ConstantPad3d):
    """Pads the last three dimensions with zeros.

    >>> nn.ZeroPad3d(1)(torch.ones(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """


class ReflectionPad1d(_ReflectionPadNd, dims=1):
    """Pads the last dimension with its mirror image.

    >>> nn.ReflectionPad1d(2)(torch.tensor([[0.0, 1.0, 2.0]]))
    tensor([[2., 1., 0., 1., 2., 1., 0.]])
    """


class ReflectionPad2d(_ReflectionPadNd, dims=2):
    """Pads the last two dimensions with their mirror image.

    >>> nn.ReflectionPad2d(1)(torch.ones(1, 2, 2)).shape
    torch.Size([1, 4, 4])
    """


class ReflectionPad3d(_ReflectionPadNd, dims=3):
    """Pads the last three dimensions with their mirror image.

    >>> nn.ReflectionPad3d(1)(torch.ones(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """


class ReplicationPad1d(_ReplicationPadNd, dims=1):
    """Pads the last dimension with the values at its ends.

    >>> nn.ReplicationPad1d(1)(torch.tensor([[0.0, 1.0, 2.0]]))
    tensor([[0., 0., 1., 2., 2.]])
    """


class ReplicationPad2d(_ReplicationPadNd, dims=2):
    """Pads the last two dimensions with the values at their ends.

    >>> nn.ReplicationPad2d(1)(torch.ones(1, 2, 2)).shape
    torch.Size([1, 4, 4])
    """


class ReplicationPad3d(_ReplicationPadNd, dims=3):
    """Pads the last three dimensions with the values at their ends.

    >>> nn.ReplicationPad3d(1)(torch.ones(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """


class CircularPad1d(_CircularPadNd, dims=1):
    """Pads the last dimension with its other end.

    >>> nn.CircularPad1d(1)(torch.tensor([[0.0, 1.0, 2.0]]))
    tensor([[2., 0., 1., 2., 0.]])
    """


class CircularPad2d(_CircularPadNd, dims=2):
    """Pads the last two dimensions with their other ends.

    >>> nn.CircularPad2d(1)(torch.ones(1, 2, 2)).shape
    torch.Size([1, 4, 4])
    """


class CircularPad3d(_CircularPadNd, dims=3):
    """Pads the last three dimensions with their other ends.

    >>> nn.CircularPad3d(1)(torch.ones(1, 1, 2, 2, 2)).shape
    torch.Size([1, 1, 4, 4, 4])
    """
