"""Collective operations, with PyTorch's names, arguments and errors. A wrong call is refused before it sends anything."""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..autograd.modes import no_grad
from ..autograd.state import PROFILE, state
from ..ops.pointwise.complex import view_as_real
from ..tensors.tensor import Tensor
from . import reductions
from .groups import ProcessGroup, _rank_not_in_group, get_group_rank, world
from .reductions import ReduceOp
from .work import Work, Works

__all__ = ["all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
           "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "monitored_barrier",
           "reduce", "reduce_scatter",
           "reduce_scatter_single", "reduce_scatter_tensor", "scatter"]
Done = Work | None


# -------------------------------------------------------------------------------------------------------------- checks
def _tensor(value: Any, name: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
                        f"             but got {type(value)} instead.")


def _tensor_list(values: Any, name: str) -> None:
    if not isinstance(values, list) or not all(isinstance(v, Tensor) for v in values):
        kinds = type(values) if not isinstance(values, list) else f"elements of type {[type(v) for v in values]}"
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
                        f"             but got {kinds} instead.")


def _one_dtype(*tensors: Tensor) -> None:
    for t in tensors:
        if t.dtype is not tensors[0].dtype:
            raise ValueError(f"Invalid usage of tensors with different dtypes: found {tensors[0].dtype} and {t.dtype}")


def _as_real(tensors: Any) -> list[Tensor]:
    with no_grad():
        return [view_as_real(t) if t.dtype.is_complex else t for t in tensors]


def _outside(group: Any, name: str) -> bool:
    """Whether this process is not in the group: the call then does nothing, and says so."""
    if not _rank_not_in_group(group):
        return False
    rank = world().ranks[world().rank()]
    warnings.warn(f"Running {name} on global rank {rank} which does not belong to the given group.", stacklevel=3)
    return True


def _root(group: ProcessGroup, rank: int | None, group_rank: int | None, name: str, needed: bool = True) -> int:
    """The rank in the group of the one process that gives or gets."""
    if group_rank is not None:
        if rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        if not 0 <= group_rank < group.size():
            raise RuntimeError(f"{name}: invalid root rank: {group_rank}")
        return group_rank
    if rank is None:
        if needed:
            raise ValueError("Must specify global_rank or group_rank")
        return 0
    if group is world():
        if not 0 <= rank < group.size():
            raise RuntimeError(f"{name}: invalid root rank: {rank}")
        return rank
    return get_group_rank(group, rank)


def _shapes(tensors: list[Tensor], tensor: Tensor, name: str, length: int) -> None:
    """One tensor for each rank; all have the dtype, and the shape, of this rank's."""
    if len(tensors) != length:
        raise RuntimeError(f"{name}: invalid tensor list: expected length {length}, got {len(tensors)}")
    _one_dtype(tensor, *tensors)
    for i, t in enumerate(tensors):
        if t.shape != tensor.shape:
            raise RuntimeError(f"{name}: invalid tensor size at index {i} (expected {tuple(tensor.shape)}, got "
                               f"{tuple(t.shape)})")


def _finish(group: ProcessGroup, work: Work, async_op: bool) -> Done:
    """What a collective returns: a handle, or nothing after it is done."""
    if group.coalescing is not None:
        group.coalescing.append(work.watch())
        return work if async_op else None
    if async_op:
        return work.watch()
    work.wait()
    return None


def _engine(group: ProcessGroup, tensor: Tensor) -> Any:
    if tensor.is_sparse:
        raise NotImplementedError("collectives of sparse tensors are not implemented in flambeau: to_dense() first")
    return group.engine(tensor.device.type)


_GIVEN = ("input", "input_tensor", "input_tensor_list", "input_list", "scatter_list", "tensors", "tensor")
_ENDINGS = ("_coalesced", "_into_tensor", "_tensor", "_single")  # forms of one operation to a profiler


def _profiled(group: ProcessGroup, name: str, given: dict[str, Any], work: Work) -> None:
    """Shows an operation to the profiler that runs, until it is over: as "gloo:all_reduce", with the shapes of what is sent."""
    sent = next((given[n] for n in _GIVEN if n in given), None)
    family = next((name.removesuffix(end) for end in _ENDINGS if name.endswith(end)), name)
    sent = _as_real([sent] if isinstance(sent, Tensor) else sent or ())
    work.when_over(state.profiler.beside(f"{group.backend}:{family}", sent))


_CHECKS = {"Tensor": _tensor, "list[Tensor]": _tensor_list,
           "list[Tensor] | None": lambda values, name: _tensor_list(values, name) if values else None}


def _collective(start: Callable[..., Work]) -> Callable[..., Done]:
    """A function that starts work in a group. Arguments are checked by their annotations; a process that is not in the group
    does nothing but warn; the function gets the group itself; and its work is waited for, unless async_op says otherwise."""
    names, name = list(inspect.signature(start).parameters), start.__name__
    place, checks = names.index("group"), {n: _CHECKS[kind] for n, kind in start.__annotations__.items() if kind in _CHECKS}

    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> Done:
        given = dict(zip(names, args)) | kwargs
        for argument, check in checks.items():
            if argument in given:
                check(given[argument], argument)
        if _outside(given.get("group"), name):
            return None
        group = world(given.get("group"))
        if len(args) > place:
            args = (*args[:place], group, *args[place + 1:])
        else:
            kwargs["group"] = group
        work = start(*args, **kwargs)
        if state.mode & PROFILE:
            _profiled(group, name, given, work)
        return _finish(group, work, given.get("async_op", False))
    return started


# ---------------------------------------------------------------------------------------------------------- reductions
@_collective
def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Done:
    """The tensors of all processes combined, in place, in each of them."""
    reductions.check(op, tensor.dtype, "all_reduce")
    return _engine(group, tensor).all_reduce(tensor, op)


@_collective
def all_reduce_coalesced(tensors: list[Tensor] | Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                         async_op: bool = False) -> Done:
    """all_reduce of several tensors of one dtype, or of a complex one and its real one."""
    tensors = [tensors] if isinstance(tensors, Tensor) else tensors
    _tensor_list(tensors, "tensors")
    _one_dtype(*_as_real(tensors))  # complex numbers go as pairs, and may go with others
    for t in tensors:
        reductions.check(op, t.dtype, "all_reduce")
    return Works([_engine(group, t).all_reduce(t, op) for t in tensors])


@_collective
def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Done:
    """The tensors of all processes combined, in place, in one of them."""
    root = _root(group, dst, group_dst, "reduce")
    reductions.check(op, tensor.dtype, "reduce")
    return _engine(group, tensor).reduce(tensor, root, op)


@_collective
def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Done:
    """The i-th tensors of all processes combined, in process i."""
    _one_dtype(output, *input_list)
    if len(input_list) != group.size():
        raise RuntimeError(f"reduce_scatter: invalid tensor list: expected length {group.size()}, got {len(input_list)}")
    if input_list[group.rank()].numel() != output.numel():
        raise RuntimeError(f"reduce_scatter: the tensor of this rank has shape {tuple(input_list[group.rank()].shape)}, the "
                           f"output {tuple(output.shape)}")
    reductions.check(op, output.dtype, "reduce_scatter")
    return _engine(group, output).reduce_scatter(output, input_list, op)


@_collective
def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Done:
    """The tensors of all processes combined; process i gets the i-th piece."""
    _one_dtype(output, input)
    _times(input, output, group.size(), "reduce_scatter_tensor: the input", "the output")
    reductions.check(op, output.dtype, "reduce_scatter_tensor")
    return _engine(group, output).reduce_scatter_tensor(output, input, op)


def _times(large: Tensor, small: Tensor, size: int, first: str, second: str) -> None:
    if large.numel() != small.numel() * size:
        raise ValueError(f"{first} of shape {tuple(large.shape)} must have {size} times as many elements as {second} of shape "
                         f"{tuple(small.shape)}")


# ----------------------------------------------------------------------------------------------------------- movements
@_collective
def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Done:
    """One process' tensor, in place, in all of them."""
    root = _root(group, src, group_src, "broadcast")
    return _engine(group, tensor).broadcast(tensor, root)


@_collective
def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Done:
    """The tensors of all processes, as a list, in each. They may differ in shape, where tensor_list says so on all ranks."""
    if len(tensor_list) != group.size():
        raise RuntimeError(f"all_gather: invalid output tensor list at index 0 (expected length {group.size()}, got "
                           f"{len(tensor_list)})")
    _one_dtype(tensor, *tensor_list)
    if tensor_list[group.rank()].shape != tensor.shape:
        raise RuntimeError(f"all_gather: invalid tensor size at index {group.rank()} (expected {tuple(tensor.shape)}, got "
                           f"{tuple(tensor_list[group.rank()].shape)})")
    return _engine(group, tensor).all_gather(tensor_list, tensor)


@_collective
def all_gather_coalesced(output_tensor_lists: list[list[Tensor]], input_tensor_list: list[Tensor], group: Any = None,
                         async_op: bool = False) -> Done:
    """all_gather of several tensors: output_tensor_lists[i][j] is the j-th of process i."""
    if not isinstance(output_tensor_lists, list):
        raise TypeError("Invalid function argument: output_tensor_lists should be a list")
    for outputs in output_tensor_lists:
        _tensor_list(outputs, "output_tensor_lists")
    works = []
    for j, tensor in enumerate(input_tensor_list):
        outputs = [outputs[j] for outputs in output_tensor_lists]
        _shapes(outputs, tensor, "all_gather_coalesced", group.size())
        works.append(_engine(group, tensor).all_gather(outputs, tensor))
    return Works(works)


@_collective
def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False) -> Done:
    """The tensors of all processes in one, one after another or stacked, in each."""
    _one_dtype(input_tensor, output_tensor)
    _times(output_tensor, input_tensor, group.size(), "all_gather_into_tensor: the output", "the input")
    return _engine(group, input_tensor).all_gather_into_tensor(output_tensor, input_tensor)


def _list_of_root(tensors: list[Tensor] | None, name: str, tensor: Tensor, group: ProcessGroup, root: int, role: str) -> None:
    """One process says which tensors are moved, and no other does."""
    if group.rank() != root:
        if tensors:
            raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{role} ranks.")
    elif not tensors:
        raise ValueError(f"Argument ``{name}`` must be specified on {role} rank.")
    else:
        _shapes(tensors, tensor, name.removesuffix("_list"), group.size())


@_collective
def gather(tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Done:
    """The tensors of all processes, as a list, in one."""
    root = _root(group, dst, group_dst, "gather", needed=False)
    _list_of_root(gather_list, "gather_list", tensor, group, root, "destination")
    return _engine(group, tensor).gather(tensor, gather_list, root)


@_collective
def scatter(tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Done:
    """The i-th of one process' tensors, in process i."""
    root = _root(group, src, group_src, "scatter", needed=False)
    _list_of_root(scatter_list, "scatter_list", tensor, group, root, "source")
    return _engine(group, tensor).scatter(tensor, scatter_list, root)


@_collective
def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None,
               async_op: bool = False) -> Done:
    """Process i's j-th tensor becomes process j's i-th. They may differ in shape."""
    for name, tensors in (("output", output_tensor_list), ("input", input_tensor_list)):
        if len(tensors) != group.size():
            raise RuntimeError(f"all_to_all: invalid {name} tensor list: expected length {group.size()}, got {len(tensors)}")
    _one_dtype(*output_tensor_list, *input_tensor_list)
    if input_tensor_list[group.rank()].numel() != output_tensor_list[group.rank()].numel():
        raise RuntimeError("all_to_all: input and output tensors must have the same size")
    return _engine(group, input_tensor_list[0]).all_to_all(output_tensor_list, input_tensor_list)


@_collective
def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Any = None, async_op: bool = False) -> Done:
    """Rows of the input go to the processes, as many to each as input_split_sizes says (equally many without it), and theirs
    come into the output."""
    _one_dtype(output, input)
    wanted = _rows(output, output_split_sizes, group.size(), "output")
    given = _rows(input, input_split_sizes, group.size(), "input")
    return _engine(group, input).all_to_all_single(output, input, wanted, given)


def _rows(tensor: Tensor, sizes: list[int] | None, n: int, name: str) -> list[int]:
    rows = tensor.shape[0] if tensor.ndim else 1
    if not sizes:
        if rows % n:
            raise RuntimeError(f"all_to_all_single: the first dimension of the {name}, {rows}, is not divisible by the group's "
                               f"size {n}")
        return [rows // n] * n
    if len(sizes) != n:
        raise RuntimeError(f"all_to_all_single: number of {name} splits {len(sizes)} is not equal to the group's size {n}")
    if sum(sizes) != rows:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
    return list(sizes)


all_gather_single, reduce_scatter_single = all_gather_into_tensor, reduce_scatter_tensor  # PyTorch's newer names


# ------------------------------------------------------------------------------------------------------------ barriers
@_collective
def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Done:
    """Returns when all processes have come here. device_ids is for PyTorch's programs: NCCL takes the current device."""
    return group.engine(group.home).barrier()


def monitored_barrier(group: Any = None, timeout: datetime.timedelta | None = None, wait_all_ranks: bool = False) -> None:
    """A barrier that names the rank that does not come in time: the first one, or with wait_all_ranks all of them."""
    if _outside(group, "monitored_barrier"):
        return
    found = world(group)
    limit = found.timeout if timeout is None else timeout
    if isinstance(limit, float):
        warnings.warn(f"Please specify timeout arg as a timedelta. Converting current value of {limit} assuming it represents "
                      "seconds", stacklevel=2)
        limit = datetime.timedelta(seconds=limit)
    if not isinstance(limit, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    if found.size() > 1:
        from .monitored import monitored
        monitored(found, limit.total_seconds(), wait_all_ranks)


# ---------------------------------------------------------------------------------------------------------- coalescing
class _CoalescingManager:
    """The operations that were started in a `_coalescing_manager` block."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Work | None = None) -> None:
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        for work in self.works:
            work.wait()


@contextlib.contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_CoalescingManager]:
    """A block whose collectives are under way together; at its end, or with async_ops at the manager's wait(), all are done."""
    found, manager = world(group), _CoalescingManager()
    if found.coalescing is not None:
        raise ValueError("ProcessGroup has non-empty op list at the start of coalescing")
    found.coalescing = manager.works
    try:
        yield manager
    finally:
        found.coalescing = None
    if not async_ops:
        manager.wait()
