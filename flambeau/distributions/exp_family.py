"""Distributions whose density is h(x) exp(t(x) . theta - F(theta)): entropy follows from the log normalizer F."""

from __future__ import annotations

from typing import Any

from .. import Tensor
from ..autograd import grad
from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A subclass gives `_natural_params` (theta), `_log_normalizer` (F) and `_mean_carrier_measure` (E[log h]).

    >>> torch.distributions.Normal(0.0, 1.0).entropy()
    tensor(1.4189)
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError(f"{type(self).__name__} does not give its natural parameters")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not give its log normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not give the mean of its carrier measure")

    def entropy(self) -> Tensor:
        """F - theta . F' - E[log h], with F' from autograd."""
        theta = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*theta)
        slopes = grad(normalizer.sum(), theta, create_graph=True)
        result = -self._mean_carrier_measure + normalizer
        for p, slope in zip(theta, slopes):
            result = result - (p * slope).reshape(self._batch_shape + (-1,)).sum(-1)
        return result
