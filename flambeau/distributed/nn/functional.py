"""Collectives with derivatives: the gradient takes the way back between the processes."""

from __future__ import annotations

from typing import Any

from ... import distributed as dist
from ...autograd.function import Function
from ...creation.factories import empty, empty_like
from ...ops.core.export import FUNCTIONS
from ...tensors.tensor import Tensor

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter",
           "scatter"]


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        made = tensor.detach().clone()
        dist.all_reduce(made, op=op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise NotImplementedError(f"all_reduce with {ctx.op} has no derivative; SUM and AVG have one")
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _AllGather(Function):
    """The tensors of all processes, stacked; each may have a gradient on each process."""

    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.group = group
        made = empty((dist.get_world_size(group), *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        dist.all_gather_into_tensor(made.view(-1), tensor.detach().contiguous().view(-1), group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, _ReduceScatter.apply(dist.ReduceOp.SUM, ctx.group, grad)


class _ReduceScatter(Function):
    """Stacked tensors: each process gets the sum of those at its place."""

    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, stacked: Tensor) -> Tensor:
        ctx.group, ctx.op = group, op
        made = empty(stacked.shape[1:], dtype=stacked.dtype, device=stacked.device)
        dist.reduce_scatter_tensor(made.view(-1), stacked.detach().contiguous().view(-1), op=op, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.op == dist.ReduceOp.AVG:
            grad = grad / dist.get_world_size(ctx.group)
        elif ctx.op != dist.ReduceOp.SUM:
            raise NotImplementedError(f"reduce_scatter with {ctx.op} has no derivative; SUM and AVG have one")
        return None, None, _AllGather.apply(ctx.group, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, sizes_out: Any, sizes_in: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.sizes = group, (sizes_in, sizes_out)
        rows = tensor.shape[0] if sizes_out is None else sum(sizes_out)
        made = empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        dist.all_to_all_single(made, tensor.detach().contiguous(), sizes_out, sizes_in, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, None, _AllToAll.apply(ctx.group, *ctx.sizes, grad)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        made = tensor.detach().clone()
        dist.broadcast(made, src=src, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, _Reduce.apply(ctx.src, dist.ReduceOp.SUM, ctx.group, grad)


class _Reduce(Function):
    """The sum at one process; zeros at all others."""

    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, group
        made = tensor.detach().clone()
        dist.all_reduce(made, op=op, group=group)
        return made if dist.get_rank() == dst else made.zero_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


def all_reduce(tensor: Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum (or another reduction) over all processes, as a new tensor."""
    return _AllReduce.apply(op, group, tensor)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    return tuple(_AllGather.apply(group, tensor).unbind(0))


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all processes of the tensors that they have for this one."""
    return _ReduceScatter.apply(op, group, FUNCTIONS["stack"](list(input_list)))


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Any = None, input_split_sizes: Any = None,
                      group: Any = None) -> Tensor:
    """Pieces of the input's first dimension go to all processes; theirs for this one come back."""
    return _AllToAll.apply(group, output_split_sizes, input_split_sizes, input)


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """One tensor for each process; those that the others have for this one come back."""
    into, out = [t.numel() for t in output_tensor_list], [t.numel() for t in input_tensor_list]
    flat = FUNCTIONS["cat"]([t.reshape(-1) for t in input_tensor_list])
    made = _AllToAll.apply(group, into, out, flat)
    return tuple([piece.view(t.shape) for piece, t in zip(made.split(into), output_tensor_list)])


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of one process."""
    return _Broadcast.apply(src, group, tensor)


def reduce(tensor: Tensor, dst: int, op: Any = dist.ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum at one process; the others get zeros."""
    return _Reduce.apply(dst, op, group, tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes, at one; the others get zeros."""
    found = all_gather(tensor, group)
    return found if dist.get_rank() == dst else tuple([empty_like(t).zero_() + 0 * t for t in found])


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """The tensor that one process has for this one."""
    return broadcast(FUNCTIONS["stack"](list(tensors)), src, group)[dist.get_rank(group)]
