"""The categorical distribution as one-hot vectors."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, eye
from ..nn.functional import one_hot
from . import constraints
from ._parameters import OnCategorical
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(OnCategorical, Distribution):
    """Vectors with a single 1, at an index with the given probabilities or logits.

    >>> d = torch.distributions.OneHotCategorical(torch.tensor([0.25, 0.75]))
    >>> d.log_prob(torch.tensor([0.0, 1.0]))
    tensor(-0.2877)
    >>> d.sample((3,)).shape
    torch.Size([3, 2])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _expands = "_categorical"

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None):
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    mean = property(lambda self: self._categorical.probs)

    @property
    def mode(self) -> Tensor:
        probs = self._categorical.probs
        return one_hot(probs.argmax(dim=-1), num_classes=probs.shape[-1]).to(probs)

    variance = property(lambda self: self._categorical.probs * (1 - self._categorical.probs))

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        probs = self._categorical.probs
        return one_hot(self._categorical.sample(Size(sample_shape)), self._categorical._num_events).to(probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        return self._categorical.log_prob(value.max(-1)[1])

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n,) + (1,) * len(self.batch_shape) + (n,))
        return values.expand((n,) + self.batch_shape + (n,)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same, with the probabilities' gradient passed straight through the samples (a biased estimate).

    >>> probs = torch.tensor([0.2, 0.8], requires_grad=True)
    >>> torch.distributions.OneHotCategoricalStraightThrough(probs).rsample().requires_grad
    True
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        samples = self.sample(sample_shape)
        probs = self._categorical.probs
        return samples + (probs - probs.detach())
