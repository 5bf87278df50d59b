"""Device meshes: the processes as an array with several dimensions, and a process group along each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .. import distributed as dist
from ..creation.factories import tensor

__all__ = ["DeviceMesh", "init_device_mesh"]

_entered: list[DeviceMesh] = []  # meshes of `with mesh:` blocks, which tensors are distributed over by default


def current_mesh() -> DeviceMesh:
    """The mesh of the innermost `with` block."""
    if not _entered:
        raise RuntimeError("No device mesh is currently active!")
    return _entered[-1]


def _shape_of(nested: Any) -> tuple[int, ...]:
    return (len(nested), *_shape_of(nested[0])) if isinstance(nested, (list, tuple)) else ()


def _flat(nested: Any) -> Iterator[int]:
    if isinstance(nested, (list, tuple)):
        for part in nested:
            yield from _flat(part)
    else:
        yield int(nested)


class DeviceMesh:
    """An array of ranks, whose dimensions may have names.

    Processes that differ in one coordinate only are a process group: `get_group(dim)`. All processes have to make a mesh,
    those that are not in it, too, for groups are made together.
    """

    def __init__(self, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None,
                 backend_override: Any = None, _init_backend: bool = True, _groups: list[Any] | None = None,
                 _root: DeviceMesh | None = None, **options: Any):
        if backend_override is not None:
            raise NotImplementedError("DeviceMesh(backend_override=...) is not implemented in flambeau: groups use the default "
                                      "group's backend")
        nested = mesh.tolist() if hasattr(mesh, "tolist") else mesh
        nested = nested if isinstance(nested, (list, tuple)) else [nested]
        self.device_type, self.shape, self._ranks = device_type, _shape_of(nested), list(_flat(nested))
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names is not None else None
        if len(self._ranks) != math.prod(self.shape) or len(set(self._ranks)) != len(self._ranks):
            raise RuntimeError(f"DeviceMesh cannot have duplicate values, and its rows one length, but found {nested}")
        self._root = self if _root is None else _root
        if not dist.is_initialized():
            if len(self._ranks) > 1 or self._ranks != [0]:
                dist.init_process_group()  # as a launcher says in the environment
            else:
                dist.init_process_group("gloo", rank=0, world_size=1)
        world = dist.get_world_size()
        if len(self._ranks) > world or max(self._ranks, default=0) >= world:
            raise RuntimeError(f"Mesh should not be bigger than default world size {world}, but found {len(self._ranks)} "
                               "ranks!")
        self._flattened: dict[str, DeviceMesh] = {}
        self._groups = self._made_groups() if _groups is None else _groups

    # ------------------------------------------------------------------------------------------------------ groups
    def _made_groups(self) -> list[Any]:
        """The group of this process along each dimension. Every process makes all groups, in one order."""
        own: list[Any] = []
        for dim in range(self.ndim):
            mine = None
            for line in self._lines(dim):
                if line == list(range(dist.get_world_size())):
                    made = dist.group.WORLD
                else:
                    made = dist.new_group(line)
                if dist.get_rank() in line:
                    mine = made
            own.append(mine)
        return own

    def _lines(self, dim: int) -> list[list[int]]:
        """All ranks along a dimension, for all coordinates in the others."""
        step = math.prod(self.shape[dim + 1:])
        starts = [i for i in range(len(self._ranks)) if (i // step) % self.shape[dim] == 0]
        return [[self._ranks[s + k * step] for k in range(self.shape[dim])] for s in starts]

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(f"Found the DeviceMesh have {self.ndim} dimensions", "Optional kwarg `mesh_dim` needs to be "
                                   "specified when device_mesh.ndim > 1.")
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Mesh dimension '{mesh_dim}' does not exist. Available mesh dimensions are: "
                               f"mesh_dim_names={self.mesh_dim_names}")
            return self.mesh_dim_names.index(mesh_dim)
        return mesh_dim % self.ndim

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The process group along a dimension."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        return [self.get_group(i) for i in range(self.ndim)]

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *,
                   mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
        """A mesh of processes that are groups already."""
        if isinstance(group, (list, tuple)):
            if mesh is None:
                raise ValueError("Must pass mesh if passing multiple ProcessGroups")
            return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=list(group))
        return DeviceMesh(device_type, dist.get_process_group_ranks(group), mesh_dim_names=mesh_dim_names, _groups=[group])

    # --------------------------------------------------------------------------------------------------- questions
    @property
    def mesh(self) -> Any:
        return tensor(self._ranks).reshape(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, mesh_dim: int | str | None = None) -> int:
        return len(self._ranks) if mesh_dim is None else self.shape[self._dim(mesh_dim)]

    def get_rank(self) -> int:
        return dist.get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Where this process is; None if it is not in the mesh."""
        if dist.get_rank() not in self._ranks:
            return None
        place, found = self._ranks.index(dist.get_rank()), []
        for n in reversed(self.shape):
            found.append(place % n)
            place //= n
        return found[::-1]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The coordinate of this process along a dimension."""
        found = self.get_coordinate()
        if found is None:
            raise RuntimeError(f"rank {dist.get_rank()} is not part of {self!r}")
        return found[self._dim(mesh_dim)]

    # --------------------------------------------------------------------------------------------------------- parts
    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of this process along some dimensions, by name."""
        if not self.mesh_dim_names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (names,) if isinstance(names, str) else tuple(names)
        if names == self.mesh_dim_names:
            return self
        if len(names) == 1 and names[0] in self._root._flattened:
            return self._root._flattened[names[0]]
        if not set(names) <= set(self.mesh_dim_names) or not names:
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {list(self.mesh_dim_names)}.")
        dims = [self.mesh_dim_names.index(n) for n in names]
        if dims != sorted(dims):
            raise KeyError(f"Invalid mesh_dim_names {names} specified: they have to come in the order of the mesh, "
                           f"{self.mesh_dim_names}.")
        ranks = self._part(dims)
        return DeviceMesh(self.device_type, _nested(ranks, [self.shape[d] for d in dims]), mesh_dim_names=names,
                          _groups=[self._groups[d] for d in dims], _root=self._root)

    def _part(self, dims: list[int]) -> list[int]:
        """The ranks that share this process's coordinates in all other dimensions (those of rank 0 for one outside)."""
        here = self.get_coordinate() or [0] * self.ndim
        found = []
        for i, rank in enumerate(self._ranks):
            place, coordinate = i, []
            for n in reversed(self.shape):
                coordinate.append(place % n)
                place //= n
            if all(c == h for d, (c, h) in enumerate(zip(coordinate[::-1], here)) if d not in dims):
                found.append(rank)
        return found

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """This mesh as one dimension, with a group of all its processes."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if name not in self._root._flattened:
            if self.ndim == 1:
                return self
            # Every process of the root takes part in making the groups of all parts like this one.
            rows = [[self._ranks]]
            if self._root is not self:
                dims = [self._root._dim(n) for n in self.mesh_dim_names or ()]
                rows = [[row] for row in _all_parts(self._root, dims)]
            mine = None
            for (row,) in rows:
                made = dist.group.WORLD if row == list(range(dist.get_world_size())) else dist.new_group(row)
                mine = made if dist.get_rank() in row else mine
            self._root._flattened[name] = DeviceMesh(self.device_type, self._ranks, mesh_dim_names=(name,), _groups=[mine],
                                                     _root=self._root)
        return self._root._flattened[name]

    # --------------------------------------------------------------------------------------------------- Python's own
    def __enter__(self) -> DeviceMesh:
        _entered.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        _entered.pop()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        return self.device_type, self.shape, tuple(self._ranks), self.mesh_dim_names

    def __getstate__(self) -> dict[str, Any]:
        raise RuntimeError("DeviceMesh: process groups cannot be pickled; make the mesh anew in the other process")

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        return self

    def __repr__(self) -> str:
        names = f", mesh_dim_names={self.mesh_dim_names}" if self.mesh_dim_names else ""
        return f"DeviceMesh({self.device_type!r}, {_nested(self._ranks, self.shape)}{names})"


def _nested(ranks: list[int], shape: Sequence[int]) -> Any:
    """A flat list in the shape of an array."""
    if len(shape) <= 1:
        return list(ranks)
    size = math.prod(shape[1:])
    return [_nested(ranks[i:i + size], shape[1:]) for i in range(0, len(ranks), size)]


def _all_parts(root: DeviceMesh, dims: list[int]) -> list[list[int]]:
    """The ranks of a mesh in rows that differ in some dimensions only."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for i, rank in enumerate(root._ranks):
        place, coordinate = i, []
        for n in reversed(root.shape):
            coordinate.append(place % n)
            place //= n
        coordinate = coordinate[::-1]
        rows.setdefault(tuple(c for d, c in enumerate(coordinate) if d not in dims), []).append(rank)
    return list(rows.values())


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None,
                     backend_override: Any = None) -> DeviceMesh:
    """A mesh of that shape over the first processes, in the order of their ranks."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError("Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names "
                               f"{mesh_dim_names}")
        if len(mesh_dim_names) != len(mesh_shape):
            raise RuntimeError("mesh_shape and mesh_dim_names should have same length! "
                               f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.")
    if device_type and not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}. If you maintained a "
                           "'torch.device' object, it's recommended to pass in 'device.type'.")
    return DeviceMesh(device_type, _nested(list(range(math.prod(mesh_shape))), mesh_shape), mesh_dim_names=mesh_dim_names,
                      backend_override=backend_override)
