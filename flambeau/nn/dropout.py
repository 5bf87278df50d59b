"""Dropout layers: in training each element or channel is zero with probability p."""

from __future__ import annotations

from ..tensors.tensor import Tensor
from . import functional as F
from .layer import Layer, family

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]


class _DropoutNd(Layer):
    p: float = 0.5
    inplace: bool = False

    def _layer_prepare(self) -> None:
        if self.p < 0 or self.p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {self.p}")

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd, function=F.dropout):
    """Single elements; the rest is scaled by 1 / (1 - p).

    Shapes: Any shape, kept.

    >>> nn.Dropout(0.5)(torch.ones(8))
    tensor([0., 0., 2., 0., 0., 0., 2., 2.])
    >>> nn.Dropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """


Dropout1d, Dropout2d, Dropout3d = family(
    "Dropout{n}d", lambda n: (_DropoutNd,),
    """Whole channels of (batch, channels, {size}).

    Shapes: (batch, channels, {size}), kept.

    >>> nn.Dropout{n}d(0.5).eval()(torch.ones(1, 2, {times[3]})).shape
    torch.Size([1, 2, {times[3]}])
    """, options=lambda n: {"function": getattr(F, f"dropout{n}d")})


class AlphaDropout(_DropoutNd):
    """Single elements, for networks of SELU: mean and variance are kept.

    Shapes: Any shape, kept.

    >>> nn.AlphaDropout(0.5).eval()(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)  # never in place, as PyTorch's


class FeatureAlphaDropout(_DropoutNd):
    """Whole channels, for networks of SELU.

    Shapes: (batch, channels, *), kept.

    >>> nn.FeatureAlphaDropout(0.5).eval()(torch.ones(1, 2, 3)).shape
    torch.Size([1, 2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)  # never in place, as PyTorch's
