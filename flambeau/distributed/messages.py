"""Messages from one process to another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from ..autograd.state import PROFILE, state
from ..tensors.tensor import Tensor
from .collectives import _finish, _outside, _profiled, _root, _tensor
from .groups import ProcessGroup, get_group_rank, world
from .work import Work

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def _other(group: ProcessGroup, rank: int, name: str) -> int:
    if rank == group.rank():
        raise ValueError(f"Invalid {name} rank: {name} rank should not be the same as the rank of the current process.")
    return rank


def _started(kind: str, group: ProcessGroup, tensor: Tensor, other: int | None, tag: int) -> Work:
    work = getattr(group.engine(tensor.device.type), kind)(tensor, other, tag)
    if state.mode & PROFILE:
        _profiled(group, kind if other is not None else "recvAnySource", {"tensor": tensor}, work)
    return work


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> Work | None:
    """Starts to send a tensor to a process; it must not be changed before wait()."""
    _tensor(tensor, "tensor")
    if _outside(group, "isend"):
        return None
    found = world(group)
    to = _other(found, _root(found, dst, group_dst, "isend"), "destination")
    return _finish(found, _started("send", found, tensor, to, tag), True)


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> Work | None:
    """Starts to receive a tensor from a process, or from whoever sends one (src None)."""
    _tensor(tensor, "tensor")
    if _outside(group, "irecv"):
        return None
    found = world(group)
    source = None
    if src is not None or group_src is not None:
        source = _other(found, _root(found, src, group_src, "irecv"), "source")
    return _finish(found, _started("recv", found, tensor, source, tag), True)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends a tensor to a process."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receives a tensor from a process, or from whoever sends one (src None); the sender's rank, -1 outside of the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work._source_rank()


class P2POp:
    """A message for `batch_isend_irecv`: op is `isend` or `irecv`."""

    def __init__(self, op: Callable[..., Any], tensor: Tensor, peer: int | None = None, group: Any = None, tag: int = 0,
                 group_peer: int | None = None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                             "``torch.distributed.irecv``.")
        _tensor(tensor, "tensor")
        self.op, self.tensor, self.group, self.tag = op, tensor, world(group), tag
        if group_peer is not None:
            if peer is not None:
                raise ValueError("Can't specify both group_rank and global_rank")
            peer = self.group.ranks[group_peer]
        elif peer is None:
            raise ValueError("Must specify global_rank or group_rank")
        self.peer, self.group_peer = peer, get_group_rank(self.group, peer)

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__} pg={self.group!r}, peer={self.peer}, {tuple(self.tensor.shape)}, {self.tensor.dtype})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Starts several messages."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    if any(op.group is not p2p_op_list[0].group for op in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    peers, made = [_other(op.group, op.group_peer, "peer") for op in p2p_op_list], []
    with contextlib.ExitStack() as bundles:
        engines = {op.tensor.device.type: op.group.engine(op.tensor.device.type) for op in p2p_op_list}
        for engine in engines.values():
            bundles.enter_context(engine.together())
        for op, to in zip(p2p_op_list, peers):
            made.append(_started(op.op.__name__.removeprefix("i"), op.group, op.tensor, to, op.tag).watch())
    return made
