"""Collectives that gradients flow through. The backward pass of each is a collective: all ranks do it, in the same order."""

from __future__ import annotations

from typing import Any

from ...autograd.function import Function
from ...creation.like import empty_like, zeros_like
from ...tensors.tensor import Tensor
from .. import collectives
from ..groups import get_group_rank, world
from ..reductions import ReduceOp

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter",
           "scatter"]


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """One process' tensor in all of them; its gradient is the sum of theirs."""
    return _Broadcast.apply(src, group, tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes in one; zeros in the others."""
    return _Gather.apply(dst, group, tensor)


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """The i-th of one process' tensors in process i. All give a list; that of the others only tells shapes."""
    return _Scatter.apply(src, group, *tensors)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensors of all processes combined in one."""
    return _Reduce.apply(dst, op, group, tensor)


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The i-th tensors of all processes combined in process i."""
    return _ReduceScatter.apply(op, group, output, *input_list)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes in each."""
    return _AllGather.apply(group, tensor)


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """The tensors of all processes in one, in each."""
    return _AllGatherBase.apply(output_tensor, input_tensor, group)


def all_to_all(output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """Process i's j-th tensor becomes process j's i-th."""
    return _AllToAll.apply(group, output_tensor_list, *input_tensor_list)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
                      input_split_sizes: list[int] | None = None, group: Any = None) -> Tensor:
    """Rows of the input go to the processes, and theirs come into the output."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensors of all processes combined, in each; so are their gradients."""
    return _AllReduce.apply(op, group, tensor)


def _mine(group: Any, rank: int) -> bool:
    """Whether a rank of the world is this process."""
    return get_group_rank(world(group), rank) == world(group).rank()


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        made = tensor.clone()
        collectives.broadcast(made, src, group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        total = grad.contiguous().clone()
        collectives.reduce(total, ctx.src, ReduceOp.SUM, ctx.group)
        return None, None, total if _mine(ctx.group, ctx.src) else zeros_like(total)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        made = [zeros_like(tensor) for _ in range(world(group).size())]
        collectives.gather(tensor.contiguous(), made if _mine(group, dst) else None, dst, group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        made = empty_like(grads[0])
        collectives.scatter(made, [g.contiguous() for g in grads] if _mine(ctx.group, ctx.dst) else None, ctx.dst, ctx.group)
        return None, None, made


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        made = zeros_like(tensors[0])
        collectives.scatter(made, [t.contiguous() for t in tensors] if _mine(group, src) else None, src, group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = [zeros_like(grad) for _ in range(world(ctx.group).size())]
        collectives.gather(grad.contiguous(), made if _mine(ctx.group, ctx.src) else None, ctx.src, ctx.group)
        return None, None, *made


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, group
        made = tensor.clone()
        collectives.reduce(made, dst, op, group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = grad.contiguous().clone()
        collectives.broadcast(made, ctx.dst, ctx.group)
        return None, None, None, made


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, output: Tensor, *inputs: Tensor) -> Tensor:
        ctx.group = group
        made = empty_like(output)
        collectives.reduce_scatter(made, [i.contiguous() for i in inputs], op, group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = [empty_like(grad) for _ in range(world(ctx.group).size())]
        collectives.all_gather(made, grad.contiguous(), ctx.group)
        return None, None, None, *made


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        made = [empty_like(tensor) for _ in range(world(group).size())]
        collectives.all_gather(made, tensor.contiguous(), group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        made = empty_like(grads[0])
        collectives.reduce_scatter(made, [g.contiguous() for g in grads], ReduceOp.SUM, ctx.group)
        return None, made


class _AllGatherBase(Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, tensor: Tensor, group: Any) -> Tensor:
        ctx.group, ctx.like = group, tensor.detach()
        made = empty_like(output)
        collectives.all_gather_into_tensor(made, tensor.contiguous(), group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = empty_like(ctx.like)
        collectives.reduce_scatter_tensor(made, grad.contiguous(), ReduceOp.SUM, ctx.group)
        return None, made, None


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outputs: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group, ctx.shapes = group, [t.detach() for t in tensors]
        made = [empty_like(o) for o in outputs]
        collectives.all_to_all(made, [t.contiguous() for t in tensors], group)
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        made = [empty_like(t) for t in ctx.shapes]
        collectives.all_to_all(made, [g.contiguous() for g in grads], ctx.group)
        return None, None, *made


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, output: Tensor, wanted: list[int] | None, given: list[int] | None,
                tensor: Tensor) -> Tensor:
        ctx.group, ctx.wanted, ctx.given, ctx.like = group, wanted, given, tensor.detach()
        made = empty_like(output)
        collectives.all_to_all_single(made, tensor.contiguous(), wanted, given, group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        made = empty_like(ctx.like)
        collectives.all_to_all_single(made, grad.contiguous(), ctx.given, ctx.wanted, ctx.group)
        return None, None, None, None, made


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        made = tensor.clone()
        collectives.all_reduce(made, op, group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad.contiguous())
