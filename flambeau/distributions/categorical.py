"""The categorical distribution."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor, arange, broadcast_tensors, finfo, int64, multinomial, nan
from . import constraints
from ._parameters import ProbsOrLogits, check_one
from .distribution import Distribution

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits, Distribution, example=("torch.tensor([0.25, 0.75])", "torch.tensor(1)", "tensor(-0.2877)")):
    """Indices 0 to K - 1, with probabilities (or their logarithms, both need not be normalised) along the last dim."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _binary = False
    _keeps = "_num_events"

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None):
        check_one(probs, logits)
        if probs is not None:
            if probs.dim() < 1:
                raise ValueError("`probs` parameter must be at least one-dimensional.")
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            if logits.dim() < 1:
                raise ValueError("`logits` parameter must be at least one-dimensional.")
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._param = self.logits if probs is None else self.probs
        self._num_events = self._param.size()[-1]
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    def _undefined(self) -> Tensor:
        return self._param.new_full(self._extended_shape(), nan)

    mean = property(lambda self: self._undefined())
    mode = property(lambda self: self.probs.argmax(dim=-1))
    variance = property(lambda self: self._undefined())

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        sample_shape = Size(sample_shape)
        rows = multinomial(self.probs.reshape(-1, self._num_events), sample_shape.numel(), True)
        return rows.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._check_value(value)
        index, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=finfo(self.logits.dtype).min)  # -inf times a probability of 0 must be 0
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._spread_support(arange(self._num_events, dtype=int64, device=self._param.device), expand)
