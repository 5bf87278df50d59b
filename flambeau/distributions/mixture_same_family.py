"""Mixtures of one family of distributions."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, log_softmax, logsumexp
from ..autograd.modes import no_grad
from . import constraints
from .categorical import Categorical
from .constraints import MixtureSameFamilyConstraint
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """One of K components, picked by a Categorical; they are the last batch dimension of `component_distribution`.

    >>> d = torch.distributions
    >>> mixture = d.MixtureSameFamily(d.Categorical(torch.ones(2)), d.Normal(torch.tensor([-1.0, 1.0]), torch.ones(2)))
    >>> mixture.mean
    tensor(0.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}
    has_rsample = False
    _mixture_distribution: Categorical
    _component_distribution: Distribution
    _expands = "_mixture_distribution"
    _keeps = "_num_component _event_ndims"

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution,
                 validate_args: bool | None = None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical, "
                             f"not {type(mixture_distribution).__name__}")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution, "
                             f"not {type(component_distribution).__name__}")
        weights, components = mixture_distribution.batch_shape, component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(weights), reversed(components)):
            if a != 1 and b != 1 and a != b:
                raise ValueError(f"`mixture_distribution.batch_shape` ({weights}) is not compatible with "
                                 f"`component_distribution.batch_shape`({components})")
        km, kc = mixture_distribution.logits.shape[-1], component_distribution.batch_shape[-1]
        if km is not None and kc is not None and km != kc:
            raise ValueError(f"`mixture_distribution component` ({km}) does not equal "
                             f"`component_distribution.batch_shape[-1]` ({kc})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = km
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(components, event_shape, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> MixtureSameFamily:
        components = self._component_distribution.expand(Size(batch_shape) + (self._num_component,))
        return self._expand(batch_shape, _instance, _component_distribution=components)

    support = constraints.dependent_property(
        lambda self: MixtureSameFamilyConstraint(self._component_distribution.support))

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @property
    def mean(self) -> Tensor:
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return (probs * self.component_distribution.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self) -> Tensor:
        """The mean of the components' variances and the variance of their means."""
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        within = probs * self.component_distribution.variance
        between = probs * (self.component_distribution.mean - self._pad(self.mean)).pow(2.0)
        return within.sum(-1 - self._event_ndims) + between.sum(-1 - self._event_ndims)

    def cdf(self, x: Tensor) -> Tensor:
        values = self.component_distribution.cdf(self._pad(x))
        return (values * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        self._check_value(x)
        log_probs = self.component_distribution.log_prob(self._pad(x))
        return logsumexp(log_probs + log_softmax(self.mixture_distribution.logits, dim=-1), dim=-1)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with no_grad():
            sample_shape = Size(sample_shape)
            gather_dim = len(sample_shape) + len(self.batch_shape)
            picks = self.mixture_distribution.sample(sample_shape)
            samples = self.component_distribution.sample(sample_shape)
            # The picked index for every number of an event
            ones = Size([1] * (self._event_ndims + 1))
            repeats = Size([1] * picks.dim()) + Size([1]) + self.event_shape
            index = picks.reshape(picks.shape + ones).repeat(repeats)
            return samples.gather(gather_dim, index).squeeze(gather_dim)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Tensor) -> Tensor:
        """Mixture weights with dimensions of 1 for the batch dimensions they lack and for the event."""
        missing = len(self.batch_shape) - len(self.mixture_distribution.batch_shape)
        front = self.mixture_distribution.batch_shape
        return x.reshape(front[:-1] + Size([1] * missing if front else ()) + front[-1:] + x.shape[-1:]
                         + Size([1] * self._event_ndims))

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
