"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, lgamma, poisson
from ..autograd.modes import no_grad
from ..nn.functional import logsigmoid
from . import constraints
from ._parameters import ProbsOrLogits
from .distribution import Distribution
from .gamma import Gamma
from .utils import lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits, Distribution, example=("4, torch.tensor(0.5)", "torch.tensor(2.0)", "tensor(-1.8563)")):
    """How many trials of probability `probs` succeed before `total_count` have failed."""

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(self._hold_counted(total_count, probs, logits), validate_args=validate_args)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    @lazy_property
    def _gamma(self) -> Gamma:
        """The rates of the Poisson numbers that are mixed."""
        return Gamma(concentration=self.total_count, rate=(-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with no_grad():
            return poisson(self._gamma.sample(sample_shape=sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        n = self.total_count
        powers = n * logsigmoid(-self.logits) + value * logsigmoid(self.logits)
        ways = -lgamma(n + value) + lgamma(1.0 + value) + lgamma(n)
        return powers - ways.masked_fill(n + value == 0.0, 0.0)
