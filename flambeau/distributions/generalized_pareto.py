"""The generalized Pareto distribution."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, inf, nan, rand, where
from ..types import _Number
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """How far a number is above a threshold `loc`: exponential where `concentration` is 0, heavier tails above it.

    >>> torch.distributions.GeneralizedPareto(0.0, 1.0, 0.5).mean
    tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        numbers = all(isinstance(v, _Number) for v in (loc, scale, concentration))
        super().__init__(Size() if numbers else self.loc.size(), validate_args=validate_args)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        u = rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u)

    def _z(self, x: Tensor) -> Tensor:
        return (x - self.loc) / self.scale

    def _near_zero(self) -> tuple[Tensor, Tensor]:
        """(where the concentration is 0 to rounding, a concentration that may be divided by)."""
        zero = self.concentration.isclose(self.concentration.new_zeros(()))
        return zero, where(zero, self.concentration.new_ones(()), self.concentration)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        z = self._z(value)
        zero, c = self._near_zero()
        heavy = (1 + 1 / c) * (c * z).log1p()
        return -self.scale.log() - where(zero, z, heavy)

    def log_survival_function(self, value: Tensor) -> Tensor:
        self._check_value(value)
        z = self._z(value)
        zero, c = self._near_zero()
        return where(zero, -z, -(c * z).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self.log_cdf(value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        zero, c = self._near_zero()
        rest = (-value).log1p()  # the logarithm of the survival function
        return where(zero, self.loc - self.scale * rest, self.loc + self.scale * (-c * rest).expm1() / c)

    @property
    def mean(self) -> Tensor:
        finite = self.concentration < 1
        c = where(finite, self.concentration, 0.5)
        return where(finite, self.loc + self.scale / (1 - c), nan)

    @property
    def variance(self) -> Tensor:
        finite = self.concentration < 0.5
        c = where(finite, self.concentration, 0.25)
        return where(finite, self.scale.pow(2) / ((1 - c).pow(2) * (1 - 2 * c)), nan)

    def entropy(self) -> Tensor:
        return (self.scale.log() + self.concentration + 1).broadcast_to(self._batch_shape)

    mode = property(lambda self: self.loc)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        upper = where(self.concentration < 0, self.loc - self.scale / self.concentration, inf)
        return constraints.interval(self.loc, upper)
