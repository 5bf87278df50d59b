"""Collectives of Python objects, which travel as pickles: reading one runs what its sender wrote. Trust the other processes."""

from __future__ import annotations

import io
import pickle
from typing import Any

from ..creation.factories import empty, tensor, zeros
from ..ops.shape.joining import cat
from ..tensors.dtypes import int64, uint8
from ..tensors.interop import frombuffer
from ..tensors.tensor import Tensor
from . import collectives, messages
from .collectives import _outside, _root
from .groups import ProcessGroup, world

__all__ = ["all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list",
           "send_object_list"]


def _device(group: ProcessGroup, device: Any) -> Any:
    """Where the bytes of an object lie on their way."""
    return device or group.home


def _packed(value: Any, device: Any) -> Tensor:
    file = io.BytesIO()
    pickle.Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return frombuffer(bytearray(file.getvalue()), dtype=uint8).to(device)


def _unpacked(data: Tensor, size: int) -> Any:
    return pickle.loads(bytes(data[:size].cpu().numpy()))


def _lengths(values: list[int], device: Any) -> Tensor:
    return tensor(values, dtype=int64, device=device)


def _padded(data: Tensor, length: int) -> Tensor:
    made = zeros(length, dtype=data.dtype, device=data.device)
    made[:data.numel()] = data
    return made


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """The objects of all processes, in object_list, in each."""
    if _outside(group, "all_gather_object"):
        return
    found = world(group)
    if len(object_list) < found.size():
        raise ValueError(f"all_gather_object: object_list has {len(object_list)} places for {found.size()} objects")
    data = _packed(obj, _device(found, None))
    sizes = _all_sizes(data, group, found)
    longest = max(sizes)
    parts = [empty(longest, dtype=data.dtype, device=data.device) for _ in sizes]
    collectives.all_gather(parts, _padded(data, longest), group)
    for i, (part, size) in enumerate(zip(parts, sizes)):
        object_list[i] = _unpacked(part, size)


def _all_sizes(data: Tensor, group: Any, found: ProcessGroup) -> list[int]:
    sizes = _lengths([0] * found.size(), data.device)
    collectives.all_gather_into_tensor(sizes, _lengths([data.numel()], data.device), group)
    return sizes.tolist()


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None,
                  group_dst: int | None = None) -> None:
    """The objects of all processes, in object_gather_list, in one."""
    if _outside(group, "gather_object"):
        return
    found = world(group)
    root = _root(found, dst, group_dst, "gather_object", needed=False)
    mine = found.rank() == root
    if mine and not object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    if not mine and object_gather_list:
        raise ValueError("Argument ``object_gather_list`` must NOT be specified on non-destination ranks.")
    data = _packed(obj, _device(found, None))
    sizes = _all_sizes(data, group, found)
    longest = max(sizes)
    parts = [empty(longest, dtype=data.dtype, device=data.device) for _ in sizes] if mine else None
    collectives.gather(_padded(data, longest), parts, group=group, group_dst=root)
    for i, part in enumerate(parts or []):
        object_gather_list[i] = _unpacked(part, sizes[i])


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                          group_src: int | None = None) -> None:
    """One process' objects, in place, in all."""
    if _outside(group, "broadcast_object_list"):
        return
    found = world(group)
    root = _root(found, src, group_src, "broadcast_object_list", needed=False)
    where, mine = _device(found, device), found.rank() == root
    data = [_packed(obj, where) for obj in object_list] if mine else []
    sizes = _lengths([d.numel() for d in data] if mine else [0] * len(object_list), where)
    collectives.broadcast(sizes, group=group, group_src=root)
    _hand_over(object_list, data, sizes.tolist(), where, mine,
               lambda joined: collectives.broadcast(joined, group=group, group_src=root))


def _hand_over(objects: list[Any], data: list[Tensor], sizes: list[int], device: Any, mine: bool, move: Any) -> None:
    """Objects' bytes, joined, from one process to others."""
    joined = cat(data) if mine and data else empty(sum(sizes), dtype=uint8, device=device)
    move(joined)
    if not mine:
        at = 0
        for i, size in enumerate(sizes):
            objects[i] = _unpacked(joined[at:at + size], size)
            at += size


def send_object_list(object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
                     group_dst: int | None = None, use_batch: bool = False) -> None:
    """Sends objects to a process."""
    if _outside(group, "send_object_list"):
        return
    found = world(group)
    to, where = _root(found, dst, group_dst, "send_object_list"), _device(found, device)
    data = [_packed(obj, where) for obj in object_list]
    sizes = [d.numel() for d in data]
    messages.send(_lengths(sizes, where), group=group, group_dst=to)
    _hand_over(object_list, data, sizes, where, True, lambda joined: messages.send(joined, group=group, group_dst=to))


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                     group_src: int | None = None, use_batch: bool = False) -> int:
    """Receives objects from a process, or from whoever sends some (src None); the sender's rank, -1 outside of the group."""
    if _outside(group, "recv_object_list"):
        return -1
    found = world(group)
    where = _device(found, device)
    sizes = _lengths([0] * len(object_list), where)
    sender = messages.recv(sizes, src, group, group_src=group_src)
    source = found.ranks.index(sender)
    _hand_over(object_list, [], sizes.tolist(), where, False,
               lambda joined: messages.recv(joined, group=group, group_src=source))
    return sender


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
                        src: int | None = None, group: Any = None, group_src: int | None = None) -> None:
    """The i-th of one process' objects, as scatter_object_output_list[0], in process i."""
    if _outside(group, "scatter_object_list"):
        return
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    found = world(group)
    root = _root(found, src, group_src, "scatter_object_list", needed=False)
    where, mine = _device(found, None), found.rank() == root
    if mine and not scatter_object_input_list:
        raise ValueError("source rank must provide non-None scatter_object_input_list")
    if mine and len(scatter_object_input_list) != found.size():
        raise RuntimeError(f"scatter_object_list: input list has {len(scatter_object_input_list)} objects, the group "
                           f"{found.size()} processes")
    data = [_packed(obj, where) for obj in scatter_object_input_list] if mine else []
    sizes = _lengths([d.numel() for d in data] if mine else [0] * found.size(), where)
    collectives.broadcast(sizes, group=group, group_src=root)
    lengths = sizes.tolist()
    part = empty(max(lengths), dtype=uint8, device=where)
    collectives.scatter(part, [_padded(d, max(lengths)) for d in data] or None, group=group, group_src=root)
    scatter_object_output_list[0] = _unpacked(part, lengths[found.rank()])
