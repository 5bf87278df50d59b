"""Where the pieces of a distributed tensor are: sizes and offsets, from placements and coordinates alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...tensors.tensor import Size
from ..device_mesh import DeviceMesh
from .placement_types import Partial, Placement, Replicate, Shard, _StridedShard

__all__ = ["Spec", "local_geometry", "normalized", "piece", "split_order"]


@dataclass(frozen=True)
class Spec:
    """What is known of a distributed tensor besides its elements."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: Size

    @property
    def device_mesh(self) -> DeviceMesh:
        return self.mesh


def normalized(placements: Sequence[Placement] | None, mesh: DeviceMesh, ndim: int) -> tuple[Placement, ...]:
    """Placements as a tuple, one per dimension of the mesh, with dimensions of the tensor counted from the front."""
    if placements is None:
        return (Replicate(),) * mesh.ndim
    placements = tuple(placements)
    if len(placements) != mesh.ndim:
        raise ValueError(f"`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
                         f"{len(placements)}, and device_mesh.ndim: {mesh.ndim}.")
    made = []
    for p in placements:
        if not isinstance(p, Placement):
            raise RuntimeError(f"placements must be Shard, Replicate or Partial, got {p!r}")
        if isinstance(p, Shard):
            if not -ndim <= p.dim < ndim:
                raise IndexError(f"Shard(dim={p.dim}) does not fit a tensor with {ndim} dimensions")
            if p.dim < 0:
                p = Shard(p.dim + ndim)
        made.append(p)
    return tuple(made)


def piece(length: int, parts: int, number: int) -> tuple[int, int]:
    """(start, length) of one of the pieces of a dimension: all but the last ones have the size of the first."""
    size = -(-length // parts)
    start = min(length, number * size)
    return start, min(length, start + size) - start


def split_order(placements: Sequence[Placement]) -> list[int]:
    """The dimensions of the mesh that cut the tensor, in the order of cutting: a strided one cuts what all others left."""
    cutting = [i for i, p in enumerate(placements) if isinstance(p, Shard)]
    return [i for i in cutting if not isinstance(placements[i], _StridedShard)] + [
        i for i in cutting if isinstance(placements[i], _StridedShard)]


def local_geometry(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement],
                   coordinate: Sequence[int] | None = None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, offset in the whole tensor) of the piece at a coordinate of the mesh: this process's, if none is given."""
    sizes, offsets = list(shape), [0] * len(shape)
    coordinate = mesh.get_coordinate() if coordinate is None else coordinate
    if coordinate is None:
        return (0,), (0,) * len(shape)
    for i in split_order(placements):
        dim = placements[i].dim
        start, length = piece(sizes[dim], mesh.shape[i], coordinate[i])
        sizes[dim], offsets[dim] = length, offsets[dim] + start
    return tuple(sizes), tuple(offsets)


def length_before(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], mesh_dim: int) -> int:
    """The length of what a dimension of the mesh cuts, at this process's coordinates."""
    order = split_order(placements)
    earlier = order[:order.index(mesh_dim)]
    kept = [p if i in earlier else Replicate() for i, p in enumerate(placements)]
    return local_geometry(shape, mesh, kept)[0][placements[mesh_dim].dim]


def is_partial(placements: Sequence[Any]) -> bool:
    return any(isinstance(p, Partial) for p in placements)
