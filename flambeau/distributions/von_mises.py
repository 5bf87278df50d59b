"""The von Mises distribution of angles."""

from __future__ import annotations

import math
from typing import Any

from .. import Size, Tensor, empty, float64, rand, where, zeros
from .. import bool as _bool
from ..autograd.modes import no_grad
from ..special import i0e, i1e
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


def _log_modified_bessel_fn(x: Tensor, order: int = 0) -> Tensor:
    """log of the modified Bessel function of order 0 or 1; the scaled one does not overflow."""
    return (i1e if order else i0e)(x).log() + x


def _rejection_sample(loc: Tensor, concentration: Tensor, proposal_r: Tensor, x: Tensor) -> Tensor:
    """Best and Fisher's method: wrapped Cauchy angles, each kept with the ratio of the densities."""
    done = zeros(x.shape, dtype=_bool, device=loc.device)
    while not done.all():
        u1, u2, u3 = rand((3,) + x.shape, dtype=loc.dtype, device=loc.device).unbind()
        z = (math.pi * u1).cos()
        f = (1 + proposal_r * z) / (proposal_r + z)
        c = concentration * (proposal_r - f)
        accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
        if accept.any():
            x = where(accept, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accept
    return (x + math.pi + loc) % (2 * math.pi) - math.pi


class VonMises(Distribution, example=("torch.tensor(0.0), torch.tensor(1.0)", "torch.tensor(0.5)", "tensor(-1.1962)")):
    """Angles around `loc`: the normal distribution's counterpart on the circle."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _expands = "_loc _concentration _proposal_r"

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, Size(), validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return (self.concentration * (value - self.loc).cos() - math.log(2 * math.pi)
                - _log_modified_bessel_fn(self.concentration))

    # Sampling works in float64: float32 is not fine enough for small concentrations.
    @lazy_property
    def _loc(self) -> Tensor:
        return self.loc.to(float64)

    @lazy_property
    def _concentration(self) -> Tensor:
        return self.concentration.to(float64)

    @lazy_property
    def _proposal_r(self) -> Tensor:
        kappa = self._concentration
        tau = 1 + (1 + 4 * kappa ** 2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho ** 2) / (2 * rho))

    @no_grad()
    def sample(self, sample_shape: Any = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        x = empty(shape, dtype=self._loc.dtype, device=self.loc.device)
        return _rejection_sample(self._loc, self._concentration, self._proposal_r, x).to(self.loc.dtype)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance."""
        return 1 - (_log_modified_bessel_fn(self.concentration, 1) - _log_modified_bessel_fn(self.concentration)).exp()
