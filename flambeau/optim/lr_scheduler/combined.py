"""Schedules made of others, one after another or all at once."""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, _copy, _set_rate
from .plateau import ReduceLROnPlateau


def _check_parts(name: str, schedulers: Sequence[LRScheduler], optimizer: Optimizer) -> None:
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                             f"specified when calling `step`, but got one at index {i} in the given schedulers sequence.")
        if optimizer is not scheduler.optimizer:
            raise ValueError(f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                             f"{type(scheduler).__name__} at index {i} that belongs to another one.")


class SequentialLR(LRScheduler):
    """One schedule after another, changing at the milestones.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> first = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
    >>> then = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    >>> schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [first, then], milestones=[2])
    >>> optimizer.param_groups[0]["lr"]
    0.1
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: list[int], last_epoch: int = -1):
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        _check_parts("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError("Sequential Schedulers expects number of schedulers provided to be one more than the number "
                             f"of milestone points, but got number of schedulers {len(schedulers)} and the number of "
                             f"milestones to be equal to {len(milestones)}")
        self._schedulers, self._milestones = list(schedulers), milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # as if none but the first had begun
            _set_rate(group, group["initial_lr"])
        for scheduler in self._schedulers:
            scheduler.last_epoch -= 1
        self._schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        which = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[which]
        if which > 0 and self._milestones[which - 1] == self.last_epoch:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scheduler.step(0)
            scheduler._step_count -= 1  # it begins
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        parts = state.pop("_schedulers")
        self.__dict__.update(state)
        for scheduler, part in zip(self._schedulers, parts):
            scheduler.load_state_dict(part)


class ChainedScheduler(LRScheduler):
    """Several schedules at once: their factors multiply.

    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    >>> lower = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1)
    >>> parts = [lower, torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)]
    >>> schedule = torch.optim.lr_scheduler.ChainedScheduler(parts)
    >>> round(schedule.get_last_lr()[0], 4)
    0.1
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        _check_parts("ChainedScheduler", schedulers, optimizer)
        self._schedulers, self.optimizer = list(schedulers), optimizer
        self._last_lr = [_copy(group["lr"]) for group in optimizer.param_groups]

    def step(self) -> None:
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = [_copy(group["lr"]) for group in self.optimizer.param_groups]

    state_dict = SequentialLR.state_dict
    load_state_dict = SequentialLR.load_state_dict
