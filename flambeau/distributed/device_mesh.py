"""Device meshes: arrangements of processes, here of one."""

from __future__ import annotations

import math
from typing import Any

from .groups import GroupMember, ProcessGroup
from .initialize import init_process_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """An array of ranks, whose dimensions may have names."""

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: tuple[str, ...] | None = None,
                 backend_override: Any = None, **options: Any):
        from ..creation.factories import tensor
        self.device_type, self.mesh, self.mesh_dim_names = device_type, tensor(mesh), mesh_dim_names
        if self.mesh.numel() != 1:
            raise NotImplementedError(f"DeviceMesh over {self.mesh.numel()} processes is not implemented in flambeau")
        if GroupMember.WORLD is None:
            init_process_group("gloo", rank=0, world_size=1)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.mesh.shape)

    @property
    def ndim(self) -> int:
        return self.mesh.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        return 1

    def get_group(self, mesh_dim: Any = None) -> ProcessGroup | None:
        return GroupMember.WORLD

    def get_rank(self) -> int:
        return 0

    def get_local_rank(self, mesh_dim: Any = None) -> int:
        return 0

    def get_coordinate(self) -> list[int]:
        return [0] * self.ndim

    def __getitem__(self, names: Any) -> DeviceMesh:
        names = (names,) if isinstance(names, str) else tuple(names)
        if not set(names) <= set(self.mesh_dim_names or ()):
            raise KeyError(f"Invalid mesh_dim_names {names} specified.")
        return DeviceMesh(self.device_type, self.mesh.reshape((1,) * len(names)).tolist(), mesh_dim_names=names)

    def __repr__(self) -> str:
        return f"DeviceMesh({self.device_type!r}, {self.mesh.tolist()}, mesh_dim_names={self.mesh_dim_names})"


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None,
                     backend_override: Any = None) -> DeviceMesh:
    """A mesh of that shape: all its sizes must be one."""
    if mesh_dim_names is not None and len(mesh_dim_names) != len(mesh_shape):
        raise RuntimeError("mesh_shape and mesh_dim_names should have same length!")
    ranks: Any = list(range(math.prod(mesh_shape)))
    for n in reversed(mesh_shape[1:]):
        ranks = [ranks[i:i + n] for i in range(0, len(ranks), n)]
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
