"""Collective operations in a group of one: each gives what it was given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..autograd.modes import no_grad
from ..tensors.tensor import Tensor
from .groups import ReduceOp, Work, world

__all__ = ["P2POp", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
           "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
           "broadcast_object_list", "gather", "gather_object", "irecv", "isend", "monitored_barrier", "recv", "reduce",
           "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"]


def _done(group: Any, tensors: Any, async_op: bool) -> Work | None:
    """Checks the group and the tensors, and answers what an operation returns."""
    world(group)
    for t in tensors if isinstance(tensors, (list, tuple)) else (tensors,):
        if not isinstance(t, Tensor):
            raise TypeError(f"Invalid function argument. Expected a torch.Tensor, got {type(t).__name__}")
    return Work(tensors) if async_op else None


def _one(rank: int | None, what: str) -> None:
    if rank not in (None, 0):
        raise ValueError(f"{what}={rank} is not in a group of one process")


def _copy(target: Tensor, source: Tensor) -> None:
    with no_grad():
        target.copy_(source.reshape(target.shape))


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensor stays as it is: sums, means and extremes over one process are its own."""
    return _done(group, tensor, async_op)


def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    return _done(group, tensors, async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    _one(dst, "dst")
    return _done(group, tensor, async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Work | None:
    _one(src, "src")
    return _done(group, tensor, async_op)


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """tensor_list[0] becomes the tensor."""
    made = _done(group, [*tensor_list, tensor], async_op)
    if len(tensor_list) != 1:
        raise ValueError(f"all_gather: expected a list of 1 tensor, got {len(tensor_list)}")
    _copy(tensor_list[0], tensor)
    return made


def all_gather_coalesced(output_tensor_lists: Any, input_tensor_list: Any, group: Any = None,
                         async_op: bool = False) -> Work | None:
    for outputs, tensor in zip(output_tensor_lists, input_tensor_list):
        all_gather(outputs if isinstance(outputs, list) else [outputs], tensor, group)
    return _done(group, input_tensor_list, async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None,
                           async_op: bool = False) -> Work | None:
    made = _done(group, [output_tensor, input_tensor], async_op)
    _copy(output_tensor, input_tensor)
    return made


def gather(tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Work | None:
    _one(dst, "dst")
    if gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    return all_gather(gather_list, tensor, group, async_op)


def scatter(tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Work | None:
    _one(src, "src")
    if scatter_list is None:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
    made = _done(group, [tensor, *scatter_list], async_op)
    _copy(tensor, scatter_list[0])
    return made


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Work | None:
    return scatter(output, input_list, 0, group, async_op)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Work | None:
    return all_gather_into_tensor(output, input, group, async_op)


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None,
               async_op: bool = False) -> Work | None:
    made = _done(group, [*output_tensor_list, *input_tensor_list], async_op)
    for target, source in zip(output_tensor_list, input_tensor_list):
        _copy(target, source)
    return made


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
                      group: Any = None, async_op: bool = False) -> Work | None:
    return all_gather_into_tensor(output, input, group, async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Work | None:
    """Waits for nobody."""
    return _done(group, [], async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    barrier(group)


# ------------------------------------------------------------------------------------------------------------ objects
def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    world(group)
    object_list[0] = copy.deepcopy(obj)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None,
                  group_dst: int | None = None) -> None:
    _one(dst, "dst")
    if object_gather_list is None:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    all_gather_object(object_gather_list, obj, group)


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                          group_src: int | None = None) -> None:
    _one(src, "src")
    world(group)


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
                        src: int | None = None, group: Any = None, group_src: int | None = None) -> None:
    _one(src, "src")
    if not scatter_object_input_list:
        raise ValueError("source rank must provide non-empty scatter_object_input_list")
    all_gather_object(scatter_object_output_list, scatter_object_input_list[0], group)


# --------------------------------------------------------------------------------------------------- one to another
def _nobody(name: str) -> Callable[..., Any]:
    def function(tensor: Tensor | None = None, dst: int | None = None, group: Any = None, tag: int = 0, **named: Any) -> Any:
        world(group)
        raise ValueError(f"{name}: there is no other process in a group of one")

    function.__name__, function.__doc__ = name, "Needs a second process."
    return function


send, recv, isend, irecv = (_nobody(_name) for _name in ("send", "recv", "isend", "irecv"))
batch_isend_irecv = _nobody("batch_isend_irecv")


class P2POp:
    """One of the operations for batch_isend_irecv."""

    def __init__(self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0,
                 group_peer: int | None = None):
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer
