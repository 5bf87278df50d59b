"""Distances as layers."""

from __future__ import annotations

from ..tensors.tensor import Tensor
from . import functional as F
from .layer import Layer
from .module import Module

__all__ = ["PairwiseDistance", "CosineSimilarity"]


class PairwiseDistance(Module):
    """The p-norm of x1 - x2 along the last dimension.

    Shapes: (batch, features) twice, to (batch).

    >>> nn.PairwiseDistance()(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([5.0000])
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Layer, function=F.cosine_similarity, inputs="x1, x2"):
    """The cosine of the angle between vectors along dim.

    Shapes: (batch, features) twice, to (batch).

    >>> nn.CosineSimilarity()(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([1.])
    """

    dim: int = 1
    eps: float = 1e-8
    _layer_shown = ()
