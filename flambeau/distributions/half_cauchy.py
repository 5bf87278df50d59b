"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import Tensor, as_tensor, full, inf, where, zeros_like
from ._half import Half
from .cauchy import Cauchy

__all__ = ["HalfCauchy"]


class HalfCauchy(Half, example=("torch.tensor(1.0)", "torch.tensor(0.5)", "tensor(-0.6747)")):
    """Absolute values of Cauchy numbers around 0."""

    base_dist: Cauchy

    def __init__(self, scale: Any, validate_args: bool | None = None):
        super().__init__(Cauchy(0, scale, validate_args=False), validate_args)

    @property
    def mean(self) -> Tensor:
        return full(self._extended_shape(), math.inf, dtype=self.scale.dtype, device=self.scale.device)

    mode = property(lambda self: zeros_like(self.scale))
    variance = property(lambda self: self.base_dist.variance)

    def log_prob(self, value: Any) -> Tensor:
        self._check_value(value)
        value = as_tensor(value, dtype=self.scale.dtype, device=self.scale.device)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -inf)
