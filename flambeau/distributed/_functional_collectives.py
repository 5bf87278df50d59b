"""`torch.distributed._functional_collectives`: collectives that give new tensors and leave their arguments alone.

Their results are there when they return, so `wait_tensor` has nothing left to do.
"""

from __future__ import annotations

from typing import Any

from ..autograd.function import Function
from ..creation.factories import empty
from ..ops.shape.joining import cat
from ..tensors.tensor import Tensor
from . import collectives, groups, messages
from .nn import functional
from .reductions import ReduceOp

__all__ = ["AsyncCollectiveTensor", "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_reduce_coalesced",
           "all_to_all_single", "all_to_all_single_autograd", "broadcast", "permute_tensor", "reduce_scatter_tensor",
           "reduce_scatter_tensor_autograd", "wait_tensor"]


class AsyncCollectiveTensor(Tensor):
    """A result that may not be there yet: none is made, for they are there."""

    _answers_itself = True

    _without_overrides = True


def _group(group: Any, tag: str = "") -> groups.ProcessGroup:
    """A group given as itself, its name, its ranks, a mesh of one dimension, or a pair of a mesh and a dimension."""
    if isinstance(group, str):
        return groups._resolve_process_group(group)
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        return group[0].get_group(group[1])
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        return group.get_group()
    if isinstance(group, list):
        found = next((g for g in groups._groups.values() if g.ranks == [r for r in group]), None)
        if found is None:
            raise ValueError(f"there is no process group of the ranks {group}: make it with new_group")
        return found
    return groups.world(group)


def _op(name: str) -> ReduceOp:
    known = {"product": "PRODUCT"}
    return ReduceOp[known.get(name.lower(), name.upper())]


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself: it is there."""
    return tensor


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    made = self.detach().clone()
    collectives.broadcast(made, src, _group(group))
    return made


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """The tensors of all processes combined ("sum", "avg", "max", ...)."""
    made = self.detach().clone()
    collectives.all_reduce(made, _op(reduceOp), _group(group))
    return made


def all_reduce_coalesced(self: list[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    made = [t.detach().clone() for t in self]
    collectives.all_reduce_coalesced(made, _op(reduceOp), _group(group))
    return made


def all_gather_tensor(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all processes, joined along a dimension."""
    found = _group(group)
    source = self.detach().contiguous()
    made = empty((found.size(), *source.shape), dtype=source.dtype, device=source.device)
    collectives.all_gather_into_tensor(made, source, found)
    return made.flatten(0, 1) if gather_dim == 0 and source.ndim else cat(list(made), gather_dim)


def reduce_scatter_tensor(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all processes combined, of which each gets its piece along a dimension."""
    found = _group(group)
    if self.shape[scatter_dim] % found.size():
        raise AssertionError(f"input dimension {scatter_dim} ({self.shape[scatter_dim]}) must be a multiple of group_size "
                             f"{found.size()}")
    pieces = [p.contiguous() for p in self.detach().chunk(found.size(), scatter_dim)]
    made = empty(tuple(pieces[0].shape), dtype=self.dtype, device=self.device)
    collectives.reduce_scatter(made, pieces, _op(reduceOp), found)
    return made


def all_to_all_single(self: Tensor, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None, group: Any,
                      tag: str = "") -> Tensor:
    """Rows of the tensor go to the processes, and theirs come."""
    found = _group(group)
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    made = empty((rows, *self.shape[1:]), dtype=self.dtype, device=self.device)
    collectives.all_to_all_single(made, self.detach().contiguous(), output_split_sizes, input_split_sizes, found)
    return made


def permute_tensor(self: Tensor, src_dst: list[int], group: Any, tag: str = "") -> Tensor:
    """Process i's tensor goes to process src_dst[i]."""
    found = _group(group)
    if sorted(src_dst) != list(range(found.size())):
        raise ValueError(f"src_dst: expected a permutation of the group's {found.size()} ranks, got {src_dst}")
    own = found.rank()
    to, source = src_dst[own], src_dst.index(own)
    if to == own:
        return self.detach().clone()
    made = empty(tuple(self.shape), dtype=self.dtype, device=self.device)
    works = [messages.isend(self.detach(), group=found, group_dst=to), messages.irecv(made, group=found, group_src=source)]
    for work in works:
        work.wait()
    return made


# ------------------------------------------------------------------------------------------------------- with gradients
class _Gathered(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return all_gather_tensor(tensor, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return reduce_scatter_tensor(grad, "sum", ctx.dim, ctx.group), None, None


class _Scattered(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: str, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group, ctx.divide = dim, group, _group(group).size() if op == "avg" else 1
        return reduce_scatter_tensor(tensor, op, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return all_gather_tensor(grad / ctx.divide, ctx.dim, ctx.group), None, None, None


def all_gather_tensor_autograd(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """all_gather_tensor that gradients flow through."""
    return _Gathered.apply(self, gather_dim, group)


def reduce_scatter_tensor_autograd(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """reduce_scatter_tensor that gradients flow through; of sums and means."""
    if reduceOp.lower() not in ("sum", "avg"):
        raise NotImplementedError(f"reduce_scatter_tensor_autograd: reduceOp={reduceOp!r} has no gradient here")
    return _Scattered.apply(self, reduceOp.lower(), scatter_dim, group)


def all_to_all_single_autograd(self: Tensor, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None,
                               group: Any, tag: str = "") -> Tensor:
    """all_to_all_single that gradients flow through."""
    rows = self.shape[0] if output_split_sizes is None else sum(output_split_sizes)
    made = empty((rows, *self.shape[1:]), dtype=self.dtype, device=self.device)
    return functional.all_to_all_single(made, self, output_split_sizes, input_split_sizes, _group(group))
