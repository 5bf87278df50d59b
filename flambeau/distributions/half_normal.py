"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import Tensor, inf, where
from ._half import Half
from .normal import Normal

__all__ = ["HalfNormal"]


class HalfNormal(Half, example=("torch.tensor(1.0)", "torch.tensor(0.5)", "tensor(-0.3508)")):
    """Absolute values of normal numbers of mean 0 and standard deviation `scale`."""

    base_dist: Normal

    def __init__(self, scale: Any, validate_args: bool | None = None):
        super().__init__(Normal(0, scale, validate_args=False), validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: self.scale.new_zeros(self.scale.shape))
    variance = property(lambda self: self.scale.pow(2) * (1 - 2 / math.pi))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        log_prob = self.base_dist.log_prob(value) + math.log(2)
        return where(value >= 0, log_prob, -inf)
