"""Collectives as methods of a process group, and the options that these take.

PyTorch's functions (collectives.py) are written over such methods; here it is the other way round. A method starts an operation
and returns its Work.
"""

from __future__ import annotations

import copy
import datetime
from typing import Any

from .reductions import ReduceOp
from .work import Work

__all__ = ["AllToAllOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions", "BroadcastOptions",
           "GatherOptions", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions"]
_UNSET = datetime.timedelta(milliseconds=-1)


class _Options:
    """Attributes with their defaults; no others can be set. timeout: the group's, unless it is set. asyncOp is for
    PyTorch's streams: here whoever needs the result waits for the Work."""

    __slots__ = ("asyncOp", "timeout")
    _defaults: dict[str, Any] = {}

    def __init__(self) -> None:
        self.asyncOp, self.timeout = True, _UNSET
        for name, value in self._defaults.items():
            setattr(self, name, copy.copy(value))

    def __repr__(self) -> str:
        names = (*self._defaults, "asyncOp", "timeout")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _class(name: str, what: str, **defaults: Any) -> type[_Options]:
    return type(name, (_Options,), {"__slots__": tuple(defaults), "_defaults": defaults, "__module__": __name__,
                                    "__doc__": f"Options of ProcessGroup.{what}."})


AllreduceOptions = _class("AllreduceOptions", "allreduce", reduceOp=ReduceOp.SUM)
AllreduceCoalescedOptions = _class("AllreduceCoalescedOptions", "allreduce_coalesced", reduceOp=ReduceOp.SUM)
ReduceOptions = _class("ReduceOptions", "reduce", reduceOp=ReduceOp.SUM, rootRank=0, rootTensor=0)
ReduceScatterOptions = _class("ReduceScatterOptions", "reduce_scatter", reduceOp=ReduceOp.SUM)
BroadcastOptions = _class("BroadcastOptions", "broadcast", rootRank=0, rootTensor=0)
GatherOptions = _class("GatherOptions", "gather", rootRank=0)
ScatterOptions = _class("ScatterOptions", "scatter", rootRank=0)
AllToAllOptions = _class("AllToAllOptions", "alltoall")
BarrierOptions = _class("BarrierOptions", "barrier", device=None, device_ids=[])


def _given(opts: Any, name: str, default: Any) -> Any:
    """One of the options, or the value that stands in their place."""
    if not isinstance(opts, _Options):
        return default if opts is None else opts
    if opts.timeout != _UNSET:
        raise NotImplementedError(f"{type(opts).__name__}.timeout is not implemented in flambeau: give the group a timeout")
    if getattr(opts, "rootTensor", 0):
        raise ValueError("rootTensor: each process has one tensor")
    return getattr(opts, name, default)


def _one(tensors: Any) -> Any:
    """The tensor of a list of one."""
    if not isinstance(tensors, (list, tuple)):
        return tensors
    if len(tensors) != 1:
        raise ValueError(f"expected one tensor (or list of tensors) per process, got {len(tensors)}")
    return tensors[0]


class Methods:
    """What a ProcessGroup can be told to start. Roots are ranks of the group. `opts` are options, or the value itself."""

    def allreduce(self, tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import all_reduce_coalesced
        return all_reduce_coalesced(tensors, _given(opts, "reduceOp", ReduceOp.SUM), self, async_op=True)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work | None:
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None) -> Work | None:
        from .collectives import reduce
        chosen = ReduceOp.SUM if op is None else op
        if isinstance(opts, _Options):
            chosen = _given(opts, "reduceOp", chosen)
        return reduce(_one(tensors), op=chosen, group=self, async_op=True, group_dst=_given(opts, "rootRank", 0))

    def broadcast(self, tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import broadcast
        return broadcast(_one(tensors), group=self, async_op=True, group_src=_given(opts, "rootRank", 0))

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import all_gather
        _given(opts, "timeout", None)
        nested = isinstance(input_tensors, (list, tuple))
        return all_gather(_one(output_tensors) if nested else output_tensors, _one(input_tensors), self, async_op=True)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import gather
        root, nested = _given(opts, "rootRank", 0), isinstance(input_tensors, (list, tuple))
        outputs = None if self.rank() != root else _one(output_tensors) if nested else output_tensors
        return gather(_one(input_tensors), outputs, group=self, async_op=True, group_dst=root)

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import scatter
        root, nested = _given(opts, "rootRank", 0), isinstance(output_tensors, (list, tuple))
        inputs = None if self.rank() != root else _one(input_tensors) if nested else input_tensors
        return scatter(_one(output_tensors), inputs, group=self, async_op=True, group_src=root)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import reduce_scatter
        nested = isinstance(output_tensors, (list, tuple))
        return reduce_scatter(_one(output_tensors), _one(input_tensors) if nested else input_tensors,
                              _given(opts, "reduceOp", ReduceOp.SUM), self, async_op=True)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work | None:
        from .collectives import all_to_all
        _given(opts, "timeout", None)
        return all_to_all(output_tensors, input_tensors, self, async_op=True)

    def alltoall_base(self, output: Any, input: Any, output_split_sizes: Any, input_split_sizes: Any,
                      opts: Any = None) -> Work | None:
        from .collectives import all_to_all_single
        _given(opts, "timeout", None)
        return all_to_all_single(output, input, output_split_sizes or None, input_split_sizes or None, self, async_op=True)

    def barrier(self, opts: Any = None) -> Work | None:
        from .collectives import barrier
        return barrier(self, async_op=True, device_ids=_given(opts, "device_ids", None) or None)

    def monitored_barrier(self, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False) -> None:
        from .collectives import monitored_barrier
        monitored_barrier(self, timeout, wait_all_ranks)

    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work | None:
        from .messages import isend
        return isend(_one(tensors), group=self, tag=tag, group_dst=dstRank)

    def recv(self, tensors: Any, srcRank: int, tag: int = 0) -> Work | None:
        from .messages import irecv
        return irecv(_one(tensors), group=self, tag=tag, group_src=srcRank)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work | None:
        from .messages import irecv
        return irecv(_one(tensors), group=self, tag=tag)
