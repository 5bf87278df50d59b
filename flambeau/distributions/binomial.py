"""The binomial distribution."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, arange, binomial, lgamma
from ..autograd.modes import no_grad
from . import constraints
from ._parameters import ProbsOrLogits
from .distribution import Distribution

__all__ = ["Binomial"]


def _clamp_by_zero(x: Tensor) -> Tensor:
    """x where positive, else 0, with slope 1/2 at 0: half of what clamping from either side gives."""
    return (x.clamp(min=0) + x - x.clamp(max=0)) / 2


class Binomial(ProbsOrLogits, Distribution, example=("4, torch.tensor(0.5)", "torch.tensor(2.0)", "tensor(-0.9808)")):
    """How many of `total_count` trials succeed."""

    arg_constraints = {"total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval,
                       "logits": constraints.real}
    has_enumerate_support = True

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(self._hold_counted(total_count, probs, logits), validate_args=validate_args)

    support = constraints.dependent_property(lambda self: constraints.integer_interval(0, self.total_count),
                                             is_discrete=True, event_dim=0)
    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            return binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        n, logits = self.total_count, self.logits
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        # n log(1 + exp(logits)), so that large logits do not overflow
        normalizer = n * _clamp_by_zero(logits) + n * (-logits.abs()).exp().log1p()
        return value * logits + ways - normalizer

    def _one_count(self, what: str) -> int:
        total = int(self.total_count.max())
        if not self.total_count.min() == total:
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{what}`.")
        return total

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._one_count("enumerate_support")
        return self._spread_support(arange(1 + count, dtype=self._param.dtype, device=self._param.device), expand)
