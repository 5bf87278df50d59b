"""`Join`: processes with different numbers of inputs train together; who is through takes part in the others' collectives."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from ... import distributed as dist
from ...creation.factories import ones, zeros

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a joined process does: `main_hook` for each iteration of the others, `post_hook` when all have joined."""

    def main_hook(self) -> None:
        """Takes part in the collectives of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called once, after all processes have joined."""


class _JoinConfig(NamedTuple):
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """An object with collectives in each iteration, before which it calls `Join.notify_join_context(self)`."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What this process does once it has joined."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device on which processes tell each other."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The processes that join."""


class Join:
    """A block in which joinables may run for different numbers of iterations on different processes."""

    def __init__(self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any):
        if len(joinables) == 0:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable, self._throw = joinables, enable, throw_on_early_termination
        self._join_hooks = [j.join_hook(**kwargs) for j in joinables]
        self._settle()
        for i, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, i == 0)

    def _settle(self) -> None:
        """One group and one device for all joinables."""
        self._process_group, self._device = self._joinables[0].join_process_group, self._joinables[0].join_device
        self._rank = dist.get_rank(self._process_group)
        for joinable in self._joinables[1:]:
            if joinable.join_process_group is not self._process_group:
                raise ValueError("Using join context manager with multiple process groups")

    def __enter__(self) -> Join:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if not self._enable or kind is not None:
            return  # an error of this process goes up: others learn of it by waiting
        iterations, last = 0, True
        while True:
            others = self._left()
            if others == 0:
                break
            if self._throw:
                self._tell_and_raise()
            last = False
            for hook in self._join_hooks:
                hook.main_hook()
            iterations += 1
            if iterations == 1000:
                warnings.warn(f"Detected uneven input skew of greater than 1000. This means that rank {self._rank} has at "
                              "least 1000 fewer inputs than other currently-active ranks. This level of skew could lead to "
                              "performance degradation during training.", stacklevel=2)
        for hook in self._join_hooks:
            hook.post_hook(last)

    def _left(self) -> int:
        """How many processes still have inputs."""
        count = zeros(1, device=self._device)
        dist.all_reduce(count, group=self._process_group)
        return int(count.item())

    def _tell_and_raise(self) -> None:
        told = ones(1, device=self._device)
        dist.all_reduce(told, group=self._process_group)
        raise RuntimeError(f"Rank {self._rank} exhausted all inputs.")

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Tells those that have joined that this process begins another iteration; a Work whose result is the number of
        processes that do so. None outside of a Join block, and for all joinables but the first."""
        config = getattr(joinable, "_join_config", None)
        if config is None:
            raise AssertionError(f"Check that the {type(joinable)} constructor calls the ``Joinable`` constructor")
        if not config.is_first_joinable or not config.enable:
            return None
        group, device = joinable.join_process_group, joinable.join_device
        count = ones(1, device=device)
        work = dist.all_reduce(count, group=group, async_op=True)
        if config.throw_on_early_termination:
            raised = zeros(1, device=device)
            work.wait()
            if int(count.item()) != dist.get_world_size(group):
                dist.all_reduce(raised, group=group)
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return _Count(work, count)


class _Count:
    """The number of processes that take part, once it is known."""

    def __init__(self, work: Any, count: Any):
        self.work, self.count = work, count

    def wait(self, timeout: Any = None) -> bool:
        self.work.wait()
        return True

    def result(self) -> list[Any]:
        return [self.count]
