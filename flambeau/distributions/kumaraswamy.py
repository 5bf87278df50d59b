"""The Kumaraswamy distribution."""

from __future__ import annotations

from typing import Any

from .. import Tensor, digamma, full_like, lgamma, nan
from . import constraints
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution,
                  example=("torch.tensor(2.0), torch.tensor(2.0)", "torch.tensor(0.5)", "tensor(0.4055)")):
    """Numbers between 0 and 1, much like the beta distribution, with a closed form of everything."""

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(full_like(self.concentration0, 0), full_like(self.concentration0, 1), validate_args=validate_args)
        transforms = [PowerTransform(exponent=self.concentration0.reciprocal()), AffineTransform(loc=1.0, scale=-1.0),
                      PowerTransform(exponent=self.concentration1.reciprocal())]
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return b * (lgamma(1 + n / a) + lgamma(b) - lgamma(1 + n / a + b)).exp()

    mean = property(lambda self: self._moment(1))

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        log_mode = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return log_mode.masked_fill((b < 1) | (a < 1), nan).exp()

    variance = property(lambda self: self._moment(2) - self.mean.pow(2))

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * (digamma(b + 1) + euler_constant) - a.log() - b.log()
