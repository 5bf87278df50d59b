"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, inf, lgamma, ones_like
from . import constraints
from ._parameters import OnCategorical
from .binomial import Binomial
from .categorical import Categorical
from .distribution import Distribution
from .utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(OnCategorical, Distribution):
    """How often each of K outcomes comes in `total_count` draws.

    >>> d = torch.distributions.Multinomial(3, torch.tensor([0.5, 0.5]))
    >>> d.log_prob(torch.tensor([1.0, 2.0]))
    tensor(-0.9808)
    >>> d.sample((3,)).shape
    torch.Size([3, 2])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int
    _expands = "_categorical"
    _keeps = "total_count _binomial"

    def __init__(self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None,
                 validate_args: bool | None = None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported: expected an int, got "
                                      f"{type(total_count).__name__}")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    support = constraints.dependent_property(lambda self: constraints.multinomial(self.total_count),
                                             is_discrete=True, event_dim=1)
    mean = property(lambda self: self.probs * self.total_count)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        sample_shape = Size(sample_shape)
        draws = self._categorical.sample(Size((self.total_count,)) + sample_shape).movedim(0, -1)
        counts = self._new(self._extended_shape(sample_shape)).zero_()
        counts.scatter_add_(-1, draws, ones_like(draws, dtype=counts.dtype))
        return counts.type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        logits, value = broadcast_all(self.logits, value)
        logits = logits.clone()
        ways = lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1)
        logits[(value == 0) & (logits == -inf)] = 0
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = self.probs.new_tensor(self.total_count)
        support = self._binomial.enumerate_support(expand=False)[1:]
        expected = (self._binomial.log_prob(support).exp() * lgamma(support + 1)).sum([0, -1])
        return n * self._categorical.entropy() - lgamma(n + 1) + expected
