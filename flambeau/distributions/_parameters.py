"""Distributions that are given by probabilities or by logits: one is a field, the other is made when first read."""

from __future__ import annotations

from typing import Any

from .. import Size, Tensor
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


def check_one(probs: Any, logits: Any) -> None:
    """Exactly one of the two must be given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class ProbsOrLogits:
    """A subclass sets `probs` or `logits`, and `_param` to the same."""

    _binary = True  # log odds of one probability, not log probabilities along the last dimension
    _param: Tensor
    _expands = "_param"

    def _hold_given(self, probs: Any, logits: Any) -> Size:
        """Keeps whichever is given; gives the batch's shape."""
        check_one(probs, logits)
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        shape = self._hold(**{name: given})
        self._param = getattr(self, name)
        return shape

    def _hold_counted(self, total_count: Any, probs: Any, logits: Any) -> Size:
        """The same with a number of trials for each."""
        check_one(probs, logits)
        count, self._param = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = count.type_as(self._param)
        setattr(self, "logits" if probs is None else "probs", self._param)
        return self._param.size()

    @lazy_property
    def logits(self) -> Tensor:
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> Tensor:
        return logits_to_probs(self.logits, is_binary=self._binary)

    param_shape = property(lambda self: self._param.size())

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)


class OnCategorical:
    """A subclass sets `_categorical`, whose parameters are its own."""

    _categorical: Any
    _param = property(lambda self: self._categorical._param)
    probs = property(lambda self: self._categorical.probs)
    logits = property(lambda self: self._categorical.logits)
    param_shape = property(lambda self: self._categorical.param_shape)

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._categorical._new(*args, **kwargs)
