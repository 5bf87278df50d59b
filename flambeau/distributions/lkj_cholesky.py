"""The LKJ distribution of correlation matrices, as their Cholesky factors."""

from __future__ import annotations

import math
from typing import Any

from .. import Size, Tensor, arange, cat, diag_embed, finfo, get_default_dtype, mvlgamma, randn, tensor
from ..autograd.modes import no_grad
from ..types import _Number
from . import constraints
from .beta import Beta
from .distribution import Distribution

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Factors L of dim x dim correlation matrices L L^T with density proportional to det(L L^T)**(concentration - 1).

    >>> factor = torch.distributions.LKJCholesky(3).sample()
    >>> torch.allclose((factor @ factor.T).diagonal(), torch.ones(3))
    True
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _keeps = "dim"

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        if isinstance(concentration, _Number):
            concentration = tensor(concentration, dtype=get_default_dtype())
        self.concentration = concentration
        # The onion method: row i's squared length below the diagonal is a beta number
        options = {"dtype": concentration.dtype, "device": concentration.device}
        offset = cat([concentration.new_zeros((1,)), arange(dim - 1, **options)])
        marginal = concentration + 0.5 * (dim - 2)
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(concentration.size(), Size((dim, dim)), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> LKJCholesky:
        batch_shape = Size(batch_shape)
        return self._expand(batch_shape, _instance, _beta=self._beta.expand(batch_shape + (self.dim,)))

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with no_grad():
            lengths = self._beta.sample(sample_shape).unsqueeze(-1)
            c = self.concentration
            normals = randn(self._extended_shape(sample_shape), dtype=c.dtype, device=c.device).tril(-1)
            directions = normals / normals.norm(dim=-1, keepdim=True)
            directions[..., 0, :].fill_(0.0)
            w = lengths.sqrt() * directions
            rest = (1 - w.pow(2).sum(dim=-1)).clamp(min=finfo(w.dtype).tiny).sqrt()
            return w + diag_embed(rest)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalized = (order * diagonal.log()).sum(dim=-1)
        count = self.dim - 1
        alpha = self.concentration + 0.5 * count
        normalizer = 0.5 * count * math.log(math.pi) + mvlgamma(alpha - 0.5, count) - alpha.lgamma() * count
        return unnormalized - normalizer
