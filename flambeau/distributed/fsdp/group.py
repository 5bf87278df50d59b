"""The parameters of one `fully_shard` call: they are gathered, and their gradients are spread, together.

Each process holds a piece of each parameter, cut along its first dimension and filled up to one size. All pieces of a process
are one stretch of memory while they travel, so that a group costs one all-gather before its forward pass, one before its
backward pass, and one reduce-scatter after it.
"""

from __future__ import annotations

import weakref
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...backends import registry
from ...creation.factories import empty, zeros
from ...nn.parameter import Parameter
from ...ops.core.export import FUNCTIONS
from ...tensors.tensor import Tensor
from ..tensor.dtensor import DTensor, as_dtensor, local_of
from ..tensor.layout import piece
from ..tensor.placement_types import Replicate, Shard, _StridedShard

__all__ = ["Member", "ParameterGroup"]


class Member:
    """A parameter: its sharded form, which the optimizer sees, and the whole one, which the module computes with."""

    def __init__(self, module: Any, name: str, parameter: Tensor, group: ParameterGroup):
        self.places = [(module, name)]  # every module that has it
        self.name, self.group = name, group
        self.requires_grad = parameter.requires_grad
        outer = parameter if isinstance(parameter, DTensor) else None  # tensor parallel has cut it already
        whole = local_of(parameter).detach() if outer is not None else parameter.detach()
        self.shape, self.dtype, self.outer = whole.shape, parameter.dtype, outer._spec if outer is not None else None
        parts, rank = group.shards, group.rank
        rows = self.shape[0] if whole.ndim else 1
        self.rows = -(-rows // parts)             # of each piece, filled up
        start, self.own_rows = piece(rows, parts, rank)
        flat = whole if whole.ndim else whole.reshape(1)
        self.row_shape = flat.shape[1:]
        local = flat.narrow(0, start, self.own_rows).clone() if not whole.is_meta else empty(
            (self.own_rows, *self.row_shape), dtype=whole.dtype, device=whole.device)
        self.sharded = Parameter(self._distributed(local), self.requires_grad)
        self.whole: Any = None                    # the gathered parameter, once there was one
        self.arrived = False                      # its gradient has come in this pass

    @property
    def count(self) -> int:
        """The elements of a piece, filled up."""
        n = self.rows
        for length in self.row_shape:
            n *= length
        return n

    def _distributed(self, local: Tensor) -> DTensor:
        """A piece as a DTensor."""
        group = self.group
        shape = tuple(self.shape) if len(self.shape) else (1,)
        inner: tuple[Any, ...] = (*[Replicate()] * (group.mesh.ndim - 1), Shard(0))
        if self.outer is None:
            return as_dtensor(local, group.mesh, inner, shape)
        cuts = 1
        for i, p in enumerate(self.outer.placements):
            cuts *= self.outer.mesh.shape[i] if isinstance(p, Shard) and p.dim == 0 else 1
        if cuts > 1:
            inner = (*inner[:-1], _StridedShard(0, cuts))
        return as_dtensor(local, group.joined_mesh(self.outer.mesh), (*inner, *self.outer.placements), self.outer.shape)

    def show(self, parameter: Tensor) -> None:
        """Makes one of the two forms the module's."""
        for module, name in self.places:
            module._parameters[name] = parameter


class ParameterGroup:
    """All parameters of a module that no inner `fully_shard` has."""

    def __init__(self, parameters: list[tuple[Any, str, Tensor]], mesh: Any, policy: Any, reshard: bool):
        self.mesh, self.policy, self.reshard_after_forward = mesh, policy, reshard
        shard_dim = mesh.ndim - 1
        self.group, self.shards, self.rank = mesh.get_group(shard_dim), mesh.shape[shard_dim], mesh.get_coordinate()[shard_dim]
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.members: list[Member] = []
        known: dict[int, Member] = {}
        for module, name, p in parameters:
            if id(p) in known:
                known[id(p)].places.append((module, name))
            else:
                known[id(p)] = Member(module, name, p, self)
                self.members.append(known[id(p)])
        for member in self.members:
            member.show(member.sharded)
        self.sync = self.reshard_after_backward = True
        self.divisor: float | None = None
        self.gathered: Any = None      # the versions of the pieces that whole parameters were made of, while there are any
        self.waiting: Any = None       # (work, memory) of a gathering under way
        self.reducing: list[Any] = []  # works of this pass
        self.owner: Any = None

    def joined_mesh(self, outer: Any) -> Any:
        """The mesh of data parallel and tensor parallel together, of which both are parts."""
        root = outer._root
        names = (*(self.mesh.mesh_dim_names or ()), *(outer.mesh_dim_names or ()))
        if root is not self.mesh._root or not names or any(n not in (root.mesh_dim_names or ()) for n in names):
            raise ValueError("fully_shard of DTensor parameters: both meshes have to be parts, by name, of one mesh "
                             f"(init_device_mesh with mesh_dim_names); got {self.mesh} and {outer}")
        return root[names]

    # ---------------------------------------------------------------------------------------------------- gathering
    def start_gathering(self) -> None:
        """Sends the own pieces; `unshard` will wait for all others'."""
        if self.gathered is not None or self.waiting is not None or not self.members:
            return
        dtype = self.policy.param_dtype
        with no_grad():
            kinds = {dtype or m.dtype for m in self.members}
            sent = []
            for kind in kinds:
                members = [m for m in self.members if (dtype or m.dtype) is kind]
                device = members[0].sharded.device
                total = sum(m.count for m in members)
                own = zeros(total, dtype=kind, device=device)
                place = 0
                for m in members:
                    local = local_of(m.sharded).detach()
                    own[place:place + local.numel()].copy_(local.reshape(-1))
                    place += m.count
                memory = empty(self.shards * total, dtype=kind, device=device)
                work = dist.all_gather_into_tensor(memory, own, group=self.group, async_op=True)
                sent.append((work, own, memory, members))
            self.waiting = sent

    def unshard(self) -> None:
        """Lets the module compute with whole parameters."""
        if not self.members or self.gathered == self._versions():
            return
        if self.gathered is not None:
            self.reshard()  # its pieces were changed since
        self.start_gathering()
        with no_grad():
            for work, _, memory, members in self.waiting:
                if work is not None:
                    work.wait()
                self._lay(memory.view(self.shards, -1), members)
        self.waiting, self.gathered = None, self._versions()
        for m in self.members:
            m.show(m.whole)

    def _versions(self) -> list[Any]:
        return [(id(m.sharded._array), m.sharded._version) for m in self.members]

    def _lay(self, rows: Tensor, members: list[Member]) -> None:
        """Makes whole parameters of all processes' pieces (one row each)."""
        place = 0
        for m in members:
            pieces = rows[:, place:place + m.count].reshape(self.shards * m.rows, *m.row_shape)
            place += m.count
            count = m.shape[0] if len(m.shape) else 1
            data = pieces[:count].reshape(m.shape).contiguous()
            if m.whole is None:
                m.whole = self._gathered_parameter(m, data)
            else:
                m.whole.data = data if m.outer is None else as_dtensor(data, m.outer.mesh, m.outer.placements, m.outer.shape)

    def _gathered_parameter(self, m: Member, data: Tensor) -> Any:
        if m.outer is not None:
            data = as_dtensor(data, m.outer.mesh, m.outer.placements, m.outer.shape)
        made = Parameter(data, m.requires_grad)
        if m.requires_grad:
            group = weakref.ref(self)
            made.register_post_accumulate_grad_hook(lambda _: group()._arrived(m) if group() is not None else None)
        return made

    def reshard(self) -> None:
        """Gives the memory of whole parameters back. (Their objects stay: graphs and gradients hang on them.)"""
        if self.waiting is not None:
            for work, *_ in self.waiting:
                if work is not None:
                    work.wait()
            self.waiting = None
        if self.gathered is None:
            return
        self.gathered = None
        for m in self.members:
            m.show(m.sharded)
            m.whole._array = _nothing(m.whole._array)
            if m.whole._node is not None:
                m.whole._node._array = m.whole._array

    # ---------------------------------------------------------------------------------------------------- gradients
    def _arrived(self, m: Member) -> None:
        """A gradient has come; when all have, they go to their owners."""
        if self.owner is not None:
            self.owner.pass_has_begun()
        m.arrived = True
        if self.sync and all(k.arrived for k in self.members if k.requires_grad):
            self.reduce()

    def reduce(self) -> None:
        """Sends the gradients of this pass off; `finish` adds them to the pieces'."""
        members = [m for m in self.members if m.requires_grad and m.whole is not None]
        if not any(m.whole._grad is not None for m in members):
            return
        kinds: dict[Any, list[Member]] = {}
        for m in members:
            grad = m.whole._grad
            kinds.setdefault(self.policy.reduce_dtype or (grad.dtype if grad is not None else m.whole.dtype), []).append(m)
        with no_grad():
            for kind, some in kinds.items():
                self._send(kind, some)
        for m in members:
            m.whole._grad, m.arrived = None, False

    def _send(self, kind: Any, members: list[Member]) -> None:
        device = members[0].sharded.device
        total = sum(m.count for m in members)
        # After the gradients, a number for each parameter: not 0 if some process has a gradient of it.
        rows, place = zeros((self.shards, total + len(members)), dtype=kind, device=device), 0
        for number, m in enumerate(members):
            grad = m.whole._grad
            if grad is not None:
                rows[:, total + number] = 1
                flat = grad.detach().reshape(m.shape[0] if len(m.shape) else 1, -1)
                for r in range(self.shards):
                    own = flat[r * m.rows:(r + 1) * m.rows]
                    rows[r, place:place + own.numel()].copy_(own.reshape(-1))
            place += m.count
        made = empty(total + len(members), dtype=kind, device=device)
        factor = self.divisor or self.mesh.size()
        rows.div_(factor)
        work = dist.reduce_scatter_tensor(made, rows.view(-1), group=self.group, async_op=True)
        self.reducing.append((work, rows, made, [(m, m.whole._grad is not None) for m in members]))

    def finish(self) -> None:
        """The end of a backward pass: gradients of the pieces are complete."""
        if self.sync and any(m.arrived or (m.whole is not None and m.whole._grad is not None) for m in self.members):
            self.reduce()
        for m in self.members:
            m.arrived = False
        with no_grad():
            for work, _, made, members in self.reducing:
                if work is not None:
                    work.wait()
                if self.replicas is not None:
                    dist.all_reduce(made, group=self.replicas)
                self._add(made, members)
        self.reducing = []
        if self.reshard_after_backward:
            self.reshard()

    def _add(self, made: Tensor, members: list[tuple[Member, bool]]) -> None:
        """members: with whether this process had a gradient. What no process used keeps the gradient it has, or none: with
        zeros optimizers would let it decay."""
        place, total = 0, sum(m.count for m, _ in members)
        for number, (m, used) in enumerate(members):
            local = local_of(m.sharded)
            new = made[place:place + local.numel()].view(local.shape).to(m.dtype)
            place += m.count
            if not used and not made[total + number].item():
                continue
            old = m.sharded._grad
            m.sharded._grad = new.clone() if old is None else FUNCTIONS["add"](old, new)


def _nothing(array: Any) -> Any:
    """An array of the same shape without memory of its own: one element, shown everywhere."""
    backend = registry.backend_of(array)
    one = backend.zeros((1,) * array.ndim, array.dtype) if array.ndim else backend.zeros((), array.dtype)
    return backend.as_strided(one, array.shape, (0,) * array.ndim, 0)
