"""Questions about the pieces of distributed tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ...tensors.tensor import Tensor
from ..device_mesh import DeviceMesh
from .layout import local_geometry
from .placement_types import Placement, Shard

__all__ = ["compute_global_tensor_info", "compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(global_shape: Sequence[int], mesh: DeviceMesh,
                                          placements: Sequence[Placement]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, offset) of this process's piece."""
    return local_geometry(global_shape, mesh, placements)


def compute_global_tensor_info(tensor: Tensor, mesh: DeviceMesh,
                               placements: Sequence[Placement]) -> tuple[list[int], list[int]]:
    """(shape, strides) of the whole of even pieces."""
    shape = list(tensor.shape)
    for i, p in enumerate(placements):
        if isinstance(p, Shard):
            shape[p.dim] *= mesh.shape[i]
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return shape, strides
