"""Averages over small groups often and over all processes seldom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from .... import distributed as dist
from . import utils
from .averagers import ModelAverager, checked

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(ModelAverager):
    """period_group_size_dict: how often, and among how many neighbours, from the shortest period to the longest, whose group is
    all of `process_group`: {2: 4, 16: 64}. At a step that several periods divide, the longest counts."""

    def __init__(self, period_group_size_dict: OrderedDict[int, int] | None = None, warmup_steps: int = 0,
                 process_group: Any = None):
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        self._periods, sizes = list(period_group_size_dict), list(period_group_size_dict.values())
        checked(self._periods[0], warmup_steps, "The minimum period in arg ``period_group_size_dict``")
        whole = dist.get_world_size(self.process_group)
        if sizes[-1] != whole:
            raise ValueError(f"The last value in arg ``period_process_group_dict`` {sizes[-1]} must be equal to the size of "
                             f"arg ``process_group`` {whole}.")
        self.warmup_steps = warmup_steps
        self.period_process_group_dict = OrderedDict(
            (period, self.process_group if size == whole else dist.new_subgroups(size, group=self.process_group)[0])
            for period, size in period_group_size_dict.items())

    def _find_process_group(self) -> Any:
        return next((self.period_process_group_dict[p] for p in reversed(self._periods) if self.step % p == 0), None)

    def average_parameters(self, params: Iterable[Any]) -> None:
        group = self._find_process_group() if self.step >= self.warmup_steps else None
        if group is not None:
            utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
