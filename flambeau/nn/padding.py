"""Padding layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensors.tensor import Tensor
from . import functional as F
from .layer import Spatial, family
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


class _Zeros(_ConstantPadNd):
    def __init__(self, padding: Any):
        super().__init__(padding, 0.0)

    extra_repr = _Pad.extra_repr


def _pads(name: str, bases: Callable[[int], tuple[type, ...]], what: str, arguments: str, example: str) -> tuple[Any, ...]:
    """Layers that pad the last dimensions with `what`; example: a line of 0, 1, 2, padded by one (or as arguments say)."""
    return family(name + "Pad{n}d", bases, f"""Pads the last dimensions ({{size}}) with {what}.

    >>> nn.{name}Pad{{n}}d({arguments})(torch.ones(1, 1, {{times[2]}})).shape
    torch.Size([1, 1, {{times[4]}}])
    >>> nn.{name}Pad1d({arguments})(torch.tensor([[0.0, 1.0, 2.0]]))
    {example}
    """)


ConstantPad1d, ConstantPad2d, ConstantPad3d = _pads(
    "Constant", lambda n: (_ConstantPadNd,), "a value", "1, 9.0", "tensor([[9., 0., 1., 2., 9.]])")
ZeroPad1d, ZeroPad2d, ZeroPad3d = _pads(
    "Zero", lambda n: (_Zeros, (ConstantPad1d, ConstantPad2d, ConstantPad3d)[n - 1]), "zeros", "1",
    "tensor([[0., 0., 1., 2., 0.]])")
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = _pads(
    "Reflection", lambda n: (_ReflectionPadNd,), "their mirror image", "1", "tensor([[1., 0., 1., 2., 1.]])")
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = _pads(
    "Replication", lambda n: (_ReplicationPadNd,), "the values at their ends", "1", "tensor([[0., 0., 1., 2., 2.]])")
CircularPad1d, CircularPad2d, CircularPad3d = _pads(
    "Circular", lambda n: (_CircularPadNd,), "their other ends", "1", "tensor([[2., 0., 1., 2., 0.]])")
