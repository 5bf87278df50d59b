"""A hook for local SGD: gradients are averaged over all processes at first, then over few or none."""

from __future__ import annotations

from typing import Any

from .... import distributed as dist
from ....futures import Future
from .debugging_hooks import noop_hook
from .default_hooks import mean_of

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Until step `start_localSGD_iter` gradients are averaged over `process_group` (all processes), then over `subgroup` (the
    machine's), or not at all where post_local_gradient_allreduce is False."""

    def __init__(self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True):
        self.process_group, self.subgroup, self.start_localSGD_iter = process_group, subgroup, start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Counts a step with its last bucket."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Future:
    """The mean over all, over some, or the bucket as it is, as the state says."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return mean_of(bucket.buffer(), dist.group.WORLD if state.process_group is None else state.process_group)
    if not state.post_local_gradient_allreduce:
        return noop_hook(state, bucket)
    if state.subgroup is None:
        state.subgroup, _ = dist.new_subgroups()
    return mean_of(bucket.buffer(), state.subgroup)
