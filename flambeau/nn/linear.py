"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

from ..ops.layers.linear import bilinear, linear
from ..tensors.tensor import Tensor
from . import init
from .explain import wrong_size
from .lazy import LazyModuleMixin
from .module import Module
from .parameter import UninitializedParameter, learn

__all__ = ["Linear", "Bilinear", "LazyLinear", "NonDynamicallyQuantizableLinear"]


class Linear(Module):
    """y = x A.T + b, for x of shape (*, in_features).

    Shapes: (*, in_features) to (*, out_features). weight: (out_features, in_features); bias: (out_features).

    >>> nn.Linear(20, 30)(torch.randn(128, 20)).shape
    torch.Size([128, 30])
    """

    __constants__ = ["in_features", "out_features"]
    in_features: int
    out_features: int
    weight: Tensor

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        learn(self, "weight", (out_features, in_features), device, dtype)
        learn(self, "bias", out_features if bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(in_features), weight and bias alike."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in = self.weight.shape[1]
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        own = self.__dict__.get("_parameters")
        try:
            return linear(input, own["weight"], own["bias"])
        except KeyError:  # a parametrization or a tied tensor stands in a parameter's place
            return linear(input, self.weight, self.bias)

    def _mismatch(self, input: Tensor, name: str) -> str:
        flat = input.ndim > 2 and math.prod(input.shape[1:]) == self.in_features
        advice = "Flatten it first: torch.flatten(x, 1), or nn.Flatten()." if flat else ""
        return wrong_size(input, -1, self.in_features, "in_features", name, advice, self.weight)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A Linear that quantization leaves alone (the projections of attention).

    >>> nn.modules.linear.NonDynamicallyQuantizableLinear(2, 3)(torch.ones(1, 2)).shape
    torch.Size([1, 3])
    """


class Bilinear(Module):
    """y[k] = x1 . A[k] . x2 + b[k].

    Shapes: (*, in1_features) and (*, in2_features) to (*, out_features).

    >>> nn.Bilinear(20, 30, 40)(torch.randn(8, 20), torch.randn(8, 30)).shape
    torch.Size([8, 40])
    """

    __constants__ = ["in1_features", "in2_features", "out_features"]

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        learn(self, "weight", (out_features, in1_features, in2_features), device, dtype)
        learn(self, "bias", out_features if bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in +-1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def _mismatch(self, input1: Tensor, name: str) -> str:
        return wrong_size(input1, -1, self.in1_features, "in1_features", name)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose in_features comes with the first input.

    Shapes: (*, any) to (*, out_features).

    >>> layer = nn.LazyLinear(30)
    >>> layer(torch.randn(128, 20)).shape
    torch.Size([128, 30])
    >>> layer.in_features
    20
    """

    weight: UninitializedParameter
    bias: UninitializedParameter

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Takes in_features from the first input's last dimension."""
        if self.has_uninitialized_params():
            from ..autograd.modes import no_grad
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(f"The in_features inferred from input: {input.shape[-1]} is not equal to "
                                     f"in_features from self.weight: {self.weight.shape[-1]}")
            self.in_features = input.shape[-1]
