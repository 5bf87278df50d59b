"""The uniform distribution over an interval."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, nan, rand
from . import constraints
from .distribution import Distribution

__all__ = ["Uniform"]


class Uniform(Distribution, example=("torch.tensor(0.0), torch.tensor(2.0)", "torch.tensor(0.5)", "tensor(-0.6931)")):
    """Numbers of [low, high), all equally likely."""

    has_rsample = True
    _expands = "low high"

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        super().__init__(self._hold(low=low, high=high), validate_args=validate_args)
        if self._validate_args and not (self.low < self.high).all():
            raise ValueError("Uniform is not defined when low >= high")

    support = constraints.dependent_property(lambda self: constraints.interval(self.low, self.high),
                                             is_discrete=False, event_dim=0)
    mean = property(lambda self: (self.high + self.low) / 2)
    mode = property(lambda self: nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / 12 ** 0.5)
    variance = property(lambda self: (self.high - self.low).pow(2) / 12)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        share = rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + share * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        inside = (self.low <= value).type_as(self.low) * (self.high > value).type_as(self.low)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()
