"""In and out of a call of vmap: operations with derivatives, so gradients go through (func/batching.py)."""

from __future__ import annotations

from typing import Any

from ...autograd import state as _state
from ...autograd.state import state
from ...backends import registry
from ...backends.batched.arrays import Level, levels_of
from ...tensors.tensor import Tensor, wrap
from .row import row

_enter = row("add_batch_dim", "self dim level", view=True, node="AddBatchDimBackward0",
             backward=dict(self=lambda grad, dim, level: leave(grad, dim, level)), forward="linear")
_leave = row("remove_batch_dim", "self dim level", view=True, node="RemoveBatchDimBackward0",
             backward=dict(self=lambda grad, dim, level: enter(grad, dim, level)), forward="linear")


def _crossed(operation: Any, tensor: Tensor, dim: int, level: Level) -> Tensor:
    made = operation(tensor, dim, level)
    if made._view_fn is None and made._base is not None:  # as_strided knows nothing of levels
        before = tensor._view_fn
        made._view_fn = (lambda base: operation(base, dim, level)) if tensor._base is None or before is None else (
            lambda base: operation(before(base), dim, level))
        if tensor._base is not None and before is None:
            size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
            made._view_fn = lambda base: operation(base.as_strided(size, stride, offset), dim, level)
    return made


def enter(tensor: Tensor, dim: int, level: Level) -> Tensor:
    """The tensor as one example of itself: `dim` is the batch of a level."""
    return _crossed(_enter, tensor, dim, level)


def leave(tensor: Tensor, dim: int, level: Level) -> Tensor:
    """All examples of a tensor at a level, in dimension `dim`; what is the same for all examples is repeated."""
    if level in levels_of(tensor._array):
        if tensor.requires_grad or state.mode & _state.FORWARD_AD:
            return _crossed(_leave, tensor, dim, level)
        # Without a history it is the bare memory: a view would keep the level alive, and backward passes looking for it.
        made = wrap(registry.batched.removed(tensor._array, dim, level))
        made._counter = tensor._counter
        return made
    shape = tensor.shape
    return tensor.unsqueeze(dim).expand((*shape[:dim], level.size, *shape[dim:]))
