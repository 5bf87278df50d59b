"""`async_save`: a checkpoint that is written while training goes on."""

from __future__ import annotations

import copy
import enum
import os
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...tensors.tensor import Tensor
from ...utils._pytree import tree_map
from .files import _states, save

__all__ = ["AsyncCheckpointerType", "async_save"]

_own_groups: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # by the group that saves: one for its thread
_writer: list[ThreadPoolExecutor] = []  # one thread: checkpoints are written in the order in which they were asked for


class AsyncCheckpointerType(enum.Enum):
    """Who writes: a thread of this process, or another process."""

    THREAD = "thread"
    PROCESS = "process"


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike | None = None, storage_writer: Any = None,
               planner: Any = None, process_group: Any = None,
               async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD, async_stager: Any = None,
               no_dist: bool = False, use_collectives: bool = True) -> Future:
    """`save` of a copy of the state that is made now, by a thread that goes on after this returns. To be called by all.

    The future's `result()` is what `save` returns, or raises what went wrong; until then the checkpoint that was there stays.
    The processes' threads talk in a group of their own, which the first call makes.
    """
    if async_checkpointer_type is not AsyncCheckpointerType.THREAD:
        raise NotImplementedError("async_save: a process that writes is not implemented in flambeau; a thread is")
    if async_stager is not None or planner is not None:
        raise NotImplementedError("async_save: async_stager and planner are not implemented in flambeau")
    alone = no_dist or not dist.is_initialized() or dist.get_world_size(process_group) == 1
    group = None if alone else _group_of_threads(process_group)
    with no_grad():
        staged = tree_map(_copied, _states(state_dict))
    if not _writer:
        _writer.append(ThreadPoolExecutor(1, thread_name_prefix="flambeau checkpoint"))
    return _writer[0].submit(save, staged, checkpoint_id=checkpoint_id, storage_writer=storage_writer, process_group=group,
                             no_dist=alone)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else copy.deepcopy(value)


def _group_of_threads(process_group: Any) -> Any:
    wanted = process_group if process_group is not None else dist.group.WORLD
    if wanted not in _own_groups:
        _own_groups[wanted] = dist.new_group(dist.get_process_group_ranks(process_group), backend="gloo",
                                             use_local_synchronization=True)
    return _own_groups[wanted]
