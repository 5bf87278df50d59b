"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import Size, Tensor, full
from . import constraints
from .distribution import Distribution

__all__ = ["Cauchy"]


class Cauchy(Distribution, example=("torch.tensor(0.0), torch.tensor(1.0)", "torch.tensor(0.5)", "tensor(-1.3679)")):
    """The ratio of two normal numbers, moved by `loc` and scaled by `scale`. It has no mean."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        super().__init__(self._hold(loc=loc, scale=scale), validate_args=validate_args)

    mean = property(lambda self: full(self._extended_shape(), math.nan, dtype=self.loc.dtype, device=self.loc.device))
    mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        return full(self._extended_shape(), math.inf, dtype=self.loc.dtype, device=self.loc.device)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        eps = self.loc.new(self._extended_shape(sample_shape)).cauchy_()
        return self.loc + eps * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return -math.log(math.pi) - self.scale.log() - ((value - self.loc) / self.scale).pow(2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
