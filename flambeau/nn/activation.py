"""Activations as layers. Most are rows: they hold a few numbers and call the function of the same name."""

from __future__ import annotations

import warnings
from typing import Any

from ..creation.factories import empty
from ..tensors.tensor import Tensor
from . import functional as F
from . import init
from .layer import Layer
from .module import Module
from .parameter import Parameter

__all__ = ["Threshold", "ReLU", "RReLU", "Hardtanh", "ReLU6", "Sigmoid", "Hardsigmoid", "Tanh", "SiLU", "Mish",
           "Hardswish", "ELU", "CELU", "SELU", "GLU", "GELU", "Hardshrink", "LeakyReLU", "LogSigmoid", "Softplus",
           "Softshrink", "PReLU", "Softsign", "Tanhshrink", "Softmin", "Softmax", "Softmax2d", "LogSoftmax"]


class Threshold(Layer, function=F.threshold):
    threshold: float
    value: float
    inplace: bool = False


class ReLU(Layer, function=F.relu):
    inplace: bool = False


class RReLU(Layer, function=F.rrelu):
    """leaky_relu with random slopes in training.

    Shapes: Any shape, kept.

    >>> nn.RReLU().eval()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2292,  2.0000])
    """

    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False


class Hardtanh(Module):
    """x limited to [min_val, max_val].

    Shapes: Any shape, kept.

    >>> nn.Hardtanh()(torch.tensor([-2.0, 0.5, 2.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
                 min_value: float | None = None, max_value: float | None = None):
        super().__init__()
        for old, new, value in (("min_value", "min_val", min_value), ("max_value", "max_val", max_value)):
            if value is not None:
                warnings.warn(f"keyword argument `{old}` is deprecated and rename to `{new}`", FutureWarning, stacklevel=2)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val must be larger than min_val, got {self.max_val} and {self.min_val}")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class ReLU6(Hardtanh):
    """min(max(x, 0), 6).

    Shapes: Any shape, kept.

    >>> nn.ReLU6()(torch.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """

    def __init__(self, inplace: bool = False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Shapes: Any shape, kept.

    >>> nn.Sigmoid()(torch.tensor([0.0, 2.0]))
    tensor([0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.sigmoid()


class Tanh(Module):
    """The hyperbolic tangent.

    Shapes: Any shape, kept.

    >>> nn.Tanh()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.tanh()


class SiLU(Layer, function=F.silu):
    inplace: bool = False


class Mish(Layer, function=F.mish):
    inplace: bool = False


class Hardsigmoid(Layer, function=F.hardsigmoid):
    inplace: bool = False

    extra_repr = Module.extra_repr


class Hardswish(Layer, function=F.hardswish):
    inplace: bool = False

    extra_repr = Module.extra_repr


class SELU(Layer, function=F.selu):
    inplace: bool = False


class ELU(Layer, function=F.elu):
    alpha: float = 1.0
    inplace: bool = False


class CELU(ELU, function=F.celu):
    pass


class GLU(Layer, function=F.glu, shapes="(*, 2 n) to (*, n)."):
    dim: int = -1


class GELU(Layer, function=F.gelu):
    approximate: str = "none"


class Hardshrink(Layer, function=F.hardshrink):
    lambd: float = 0.5

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(Hardshrink, function=F.softshrink):
    pass


class LeakyReLU(Layer, function=F.leaky_relu):
    negative_slope: float = 1e-2
    inplace: bool = False


class LogSigmoid(Layer, function=F.logsigmoid):
    pass


class Softplus(Layer, function=F.softplus):
    beta: float = 1.0
    threshold: float = 20.0


class PReLU(Module):
    """leaky_relu with learned slopes: one, or one per channel.

    Shapes: Any shape, kept.

    >>> nn.PReLU()(torch.tensor([-1.0, 2.0])).detach()
    tensor([-0.2500,  2.0000])
    """

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All slopes the initial one."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softsign(Layer, function=F.softsign):
    pass


class Tanhshrink(Layer, function=F.tanhshrink):
    pass


class _Along(Module):
    """A normalisation along a dimension."""

    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(_Along):
    """softmax(-x) along dim.

    Shapes: Any shape, kept.

    >>> nn.Softmin(dim=0)(torch.tensor([1.0, 2.0, 3.0]))
    tensor([0.6652, 0.2447, 0.0900])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class Softmax(_Along):
    """exp(x) / sum(exp(x)) along dim.

    Shapes: Any shape, kept.

    >>> nn.Softmax(dim=1)(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0.0900, 0.2447, 0.6652]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class LogSoftmax(_Along):
    """log(softmax(x)) along dim.

    Shapes: Any shape, kept.

    >>> nn.LogSoftmax(dim=1)(torch.tensor([[0.0, 0.0]]))
    tensor([[-0.6931, -0.6931]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """softmax over the channels of (N, C, H, W) or (C, H, W).

    Shapes: (batch, channels, height, width), kept: the channels of each pixel sum to one.

    >>> nn.Softmax2d()(torch.zeros(1, 4, 2, 2))[0, :, 0, 0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)
