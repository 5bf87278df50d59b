"""When parameters are averaged: every so many steps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from .... import distributed as dist
from . import utils

__all__ = ["ModelAverager", "PeriodicModelAverager"]
_EVERY_STEP = ("When period is 1, no need to use model averaging because the communication cost of all-reducing parameters "
               "will be no less than the cost of all-reducing gradients by DistributedDataParallel in the backward pass.")


def checked(period: int, warmup_steps: int, name: str = "Arg ``period``") -> None:
    if warmup_steps < 0:
        raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
    if period < 1:
        raise ValueError(f"{name} must be a positive value.")
    if period == 1:
        warnings.warn(_EVERY_STEP, stacklevel=3)


class ModelAverager(ABC):
    """Called after every step of an optimizer; `step` counts the calls."""

    def __init__(self, process_group: Any = None):
        self.process_group = dist.group.WORLD if process_group is None else process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """Averages parameters, or those of an optimizer's groups, if it is time."""


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps, from the step `warmup_steps` on: until then gradients should be averaged."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        checked(period, warmup_steps)
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
