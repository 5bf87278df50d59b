"""The Bernoulli distribution."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, arange, bernoulli, log1p, nan
from ..autograd.modes import no_grad
from ..nn.functional import binary_cross_entropy_with_logits
from . import constraints
from ._parameters import ProbsOrLogits
from .exp_family import ExponentialFamily
from .utils import broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(ProbsOrLogits, ExponentialFamily, example=("torch.tensor(0.25)", "torch.tensor(1.0)", "tensor(-1.3863)")):
    """1 with probability `probs` (or log odds `logits`), else 0."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        super().__init__(self._hold_given(probs, logits), validate_args=validate_args)

    mean = property(lambda self: self.probs)

    @property
    def mode(self) -> Tensor:
        mode = (self.probs >= 0.5).to(self.probs)
        mode[self.probs == 0.5] = nan
        return mode

    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with no_grad():
            return bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._spread_support(arange(2, dtype=self._param.dtype, device=self._param.device), expand)

    _natural_params = property(lambda self: (self.probs.logit(),))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        return log1p(x.exp())
