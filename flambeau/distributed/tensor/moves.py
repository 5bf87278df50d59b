"""From one placement to another, with derivatives.

What holds for gradients: that of a replicated tensor is the same on all processes, that of a piece is the piece of the
gradient, and that of a summand is the gradient of the sum, the same on all. Every move below keeps this true; an operation
that each process does for its own piece needs `shared` for operands that all have, whose gradients have to be added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import distributed as dist
from ...autograd.function import Function
from ...creation.factories import empty, zeros
from ...ops.core.export import FUNCTIONS
from ...tensors.tensor import Tensor
from ..device_mesh import DeviceMesh
from .layout import length_before, piece, split_order
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["redistributed", "shared"]

_OPS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN,
        "product": dist.ReduceOp.PRODUCT}


def _in_front(x: Tensor, dim: int, length: int) -> Tensor:
    """A dimension in front, filled up with zeros to a length."""
    x = x.detach().movedim(dim, 0)
    if x.shape[0] < length:
        x = FUNCTIONS["cat"]([x, zeros((length - x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)])
    return x.contiguous()


def gather(x: Tensor, dim: int, length: int, group: Any) -> Tensor:
    """All pieces along a dimension, joined to one of this length."""
    parts = dist.get_world_size(group)
    front = _in_front(x, dim, -(-length // parts))
    made = empty((parts * front.shape[0], *front.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(made, front, group=group)
    made = made[:length]
    return made.movedim(0, dim).contiguous() if dim else made


def reduce_scatter(x: Tensor, dim: int, op: str, group: Any) -> Tensor:
    """This process's piece of the sum along a dimension."""
    parts, length = dist.get_world_size(group), x.shape[dim]
    size = -(-length // parts)
    front = _in_front(x, dim, size * parts)
    made = empty((size, *front.shape[1:]), dtype=x.dtype, device=x.device)
    dist.reduce_scatter_tensor(made, front, op=_OPS[op], group=group)
    made = made[:piece(length, parts, dist.get_rank(group))[1]]
    return made.movedim(0, dim).contiguous() if dim else made


def cut(x: Tensor, dim: int, group: Any) -> Tensor:
    """This process's piece along a dimension, in memory of its own."""
    start, length = piece(x.shape[dim], dist.get_world_size(group), dist.get_rank(group))
    return x.detach().narrow(dim, start, length).clone()


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, length: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return gather(x, dim, length, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _Cut.apply(grad, ctx.dim, ctx.group), None, None, None


class _Cut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.length, ctx.group = dim, x.shape[dim], group
        return cut(x, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return _Gather.apply(grad, ctx.dim, ctx.length, ctx.group), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, op: str, group: Any) -> Tensor:
        ctx.op, ctx.group = op, group
        made = x.detach().clone().contiguous()
        dist.all_reduce(made, op=_OPS[op], group=group)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.op not in ("sum", "avg"):
            raise NotImplementedError(f"DTensor: Partial({ctx.op}) has no derivative")
        return (grad if ctx.op == "sum" else grad / dist.get_world_size(ctx.group)), None, None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, op: str, group: Any) -> Tensor:
        ctx.dim, ctx.length, ctx.op, ctx.group = dim, x.shape[dim], op, group
        return reduce_scatter(x, dim, op, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.op not in ("sum", "avg"):
            raise NotImplementedError(f"DTensor: Partial({ctx.op}) has no derivative")
        made = _Gather.apply(grad, ctx.dim, ctx.length, ctx.group)
        return (made if ctx.op == "sum" else made / dist.get_world_size(ctx.group)), None, None, None


class _ToPartial(Function):
    """The whole as summands: one process has it, the others zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        made = x.detach().clone()
        return made if dist.get_rank(group) == 0 else made.zero_()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad, None


class _Shared(Function):
    """Unchanged; the gradients of all processes are added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Any) -> Tensor:
        ctx.groups = groups
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        for group in ctx.groups:
            grad = _Reduce.apply(grad, "sum", group)
        return grad, None


def shared(x: Tensor, mesh: DeviceMesh, dims: Sequence[int]) -> Tensor:
    """An operand that all processes along some dimensions of the mesh have, and of whose use each does a part."""
    groups = [mesh.get_group(i) for i in dims if mesh.shape[i] > 1]
    return _Shared.apply(x, groups) if groups and x.requires_grad else x


# ------------------------------------------------------------------------------------------------------- all together
def _opened(current: list[Placement], target: Sequence[Placement]) -> list[int]:
    """The dimensions of the mesh whose placement has to go before others can come, the last cut first.

    What is cut again by another dimension of the mesh, in the same dimension of the tensor, can only be joined after it.
    """
    order = split_order(current)
    wrong = {i for i in range(len(current)) if current[i] != target[i]}
    for i in order:  # whatever was cut later than one that goes, or would be cut earlier than one that comes, goes as well
        same = [j for j in order if current[j].dim == current[i].dim]
        comes = any(isinstance(target[j], Shard) and target[j].dim == current[i].dim and current[j] != target[j]
                    and (j < i) for j in range(len(target)))
        if comes or any(j in wrong and order.index(j) < order.index(i) for j in same):
            wrong.add(i)
    return [i for i in reversed(order) if i in wrong] + [i for i in wrong if isinstance(current[i], Partial)]


def redistributed(x: Tensor, mesh: DeviceMesh, shape: Sequence[int], source: Sequence[Placement],
                  target: Sequence[Placement]) -> Tensor:
    """The local tensor of the same distributed tensor in other placements."""
    current = list(source)
    opened = _opened(current, target)
    for i in opened:
        group, p, goal = mesh.get_group(i), current[i], target[i]
        if isinstance(p, Shard):
            x = _Gather.apply(x, p.dim, length_before(shape, mesh, current, i), group) if mesh.shape[i] > 1 else x
            current[i] = Replicate()
        elif isinstance(goal, Shard) and type(goal) is Shard and not any(
                isinstance(t, Shard) and t.dim == goal.dim for j, t in enumerate((*current, *target)) if j % len(target) != i):
            x = _ReduceScatter.apply(x, goal.dim, p.reduce_op, group) if mesh.shape[i] > 1 else x
            current[i] = goal
        else:
            x = _Reduce.apply(x, p.reduce_op, group) if mesh.shape[i] > 1 else x
            current[i] = Replicate()
    for i in split_order(target):
        if current[i] != target[i]:
            x = _Cut.apply(x, target[i].dim, mesh.get_group(i)) if mesh.shape[i] > 1 else x
    for i, goal in enumerate(target):
        if isinstance(goal, Partial) and current[i] != goal:
            if goal.reduce_op == "sum":
                x = _ToPartial.apply(x, mesh.get_group(i)) if mesh.shape[i] > 1 else x
            else:  # the mean, or an extreme, of equal values is the value
                x = shared(x, mesh, [i])
    return x
