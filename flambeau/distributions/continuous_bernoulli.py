"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

from .. import Size, Tensor, log1p, ones_like, rand, where, zeros_like
from ..autograd.modes import no_grad
from ..nn.functional import binary_cross_entropy_with_logits
from ..types import _Number
from . import constraints
from ._parameters import ProbsOrLogits, check_one
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily,
                          example=("torch.tensor(0.25)", "torch.tensor(0.5)", "tensor(-0.0498)")):
    """Numbers x between 0 and 1 with a density proportional to probs**x (1 - probs)**(1 - x).

    Near probs = 1/2, within `lims`, the formulas divide 0 by 0: there their Taylor series stand in.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample = True
    _keeps = "_lims"

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None):
        check_one(probs, logits)
        given = logits if probs is None else probs
        (param,) = broadcast_all(given)
        if probs is None:
            self.logits = param
        else:
            # Checked here, since clamping hides what is out of range from the base class
            if validate_args is not None and validate_args and not self.arg_constraints["probs"].check(param).all():
                raise ValueError("The parameter probs has invalid values")
            self.probs = param = clamp_probs(param)
        self._param, self._lims = param, lims
        super().__init__(Size() if isinstance(given, _Number) else param.size(), validate_args=validate_args)

    def _outside_unstable_region(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        """The probabilities, with a harmless one where the Taylor series are used."""
        return where(self._outside_unstable_region(), self.probs, self._lims[0] * ones_like(self.probs))

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of the constant that makes the density's integral 1: 2 atanh(1 - 2 p) / (1 - 2 p)."""
        p = self._cut_probs()
        below = where(p <= 0.5, p, zeros_like(p))
        above = where(p >= 0.5, p, ones_like(p))
        exact = (log1p(-p) - p.log()).abs().log() - where(p <= 0.5, log1p(-2.0 * below), (2.0 * above - 1.0).log())
        x = (self.probs - 0.5).pow(2)
        taylor = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return where(self._outside_unstable_region(), exact, taylor)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        exact = p / (2.0 * p - 1.0) + 1.0 / (log1p(-p) - p.log())
        x = self.probs - 0.5
        taylor = 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x
        return where(self._outside_unstable_region(), exact, taylor)

    stddev = property(lambda self: self.variance.sqrt())

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (log1p(-p) - p.log()).pow(2)
        x = (self.probs - 0.5).pow(2)
        taylor = 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x
        return where(self._outside_unstable_region(), exact, taylor)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        return self.icdf(rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        return -binary_cross_entropy_with_logits(logits, value, reduction="none") + self._cont_bern_log_norm()

    def cdf(self, value: Tensor) -> Tensor:
        self._check_value(value)
        p = self._cut_probs()
        exact = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = where(self._outside_unstable_region(), exact, value)
        return where(value <= 0.0, zeros_like(value), where(value >= 1.0, ones_like(value), inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._cut_probs()
        exact = (log1p(-p + value * (2.0 * p - 1.0)) - log1p(-p)) / (p.log() - log1p(-p))
        return where(self._outside_unstable_region(), exact, value)

    def entropy(self) -> Tensor:
        log0, log1 = log1p(-self.probs), self.probs.log()
        return self.mean * (log0 - log1) - self._cont_bern_log_norm() - log0

    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x: Tensor) -> Tensor:
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= low) | (x > high)
        cut = where(outside, x, low * ones_like(x))
        exact = (cut.exp() - 1.0).abs().log() - cut.abs().log()
        taylor = 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0
        return where(outside, exact, taylor)
