"""Nested state as a flat dict, and where the pieces of its tensors belong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...tensors.tensor import Tensor
from ..tensor.dtensor import DTensor, local_of
from ..tensor.layout import local_geometry
from ..tensor.placement_types import Replicate

__all__ = ["Chunk", "Stateful", "chunk_of", "flattened", "overlap", "put"]


@runtime_checkable
class Stateful(Protocol):
    """An object that gives its state and takes it back."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Chunk(NamedTuple):
    """A block of a tensor: where it begins, and its sizes."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def flattened(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, value) of all values in nested dicts, and in lists and tuples that hold tensors or dicts."""
    if isinstance(state, dict) and state:
        for key, value in state.items():
            yield from flattened(value, (*path, key))
    elif isinstance(state, (list, tuple)) and any(isinstance(v, (Tensor, dict, list)) for v in state):
        for i, value in enumerate(state):
            yield from flattened(value, (*path, i))
    else:
        yield path, state


def lists_in(state: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the lists and tuples into which `flattened` goes."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from lists_in(value, (*path, key))
    elif isinstance(state, (list, tuple)) and any(isinstance(v, (Tensor, dict, list)) for v in state):
        yield path
        for i, value in enumerate(state):
            yield from lists_in(value, (*path, i))


def name_of(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def put(state: Any, path: tuple[Any, ...], value: Any) -> None:
    """Replaces a value of the nested state."""
    for key in path[:-1]:
        state = state[key]
    if isinstance(state, tuple):
        raise TypeError(f"the value at '{name_of(path)}' is in a tuple, which cannot be changed: use a list")
    state[path[-1]] = value


def chunk_of(value: Tensor) -> tuple[Chunk, Tensor, bool]:
    """(the block that this process has, its elements, whether this process is the one that saves it)."""
    if not isinstance(value, DTensor):
        return Chunk((0,) * value.ndim, tuple(value.shape)), value.detach(), True
    spec = value._spec
    if any(p.is_partial() for p in spec.placements):
        raise ValueError(f"a DTensor in {spec.placements} cannot be saved: redistribute it first")
    sizes, offsets = local_geometry(spec.shape, spec.mesh, spec.placements)
    coordinate = spec.mesh.get_coordinate()
    first = coordinate is not None and all(c == 0 for c, p in zip(coordinate, spec.placements) if isinstance(p, Replicate))
    return Chunk(offsets, sizes), local_of(value).detach(), first


def overlap(a: Chunk, b: Chunk) -> Chunk | None:
    """The block that two blocks share."""
    starts = tuple(max(x, y) for x, y in zip(a.offsets, b.offsets))
    ends = tuple(min(x + n, y + m) for x, n, y, m in zip(a.offsets, a.sizes, b.offsets, b.sizes))
    if any(e <= s for s, e in zip(starts, ends)):
        return None
    return Chunk(starts, tuple(e - s for s, e in zip(starts, ends)))


def inside(chunk: Chunk, block: Chunk, elements: Tensor) -> Tensor:
    """The elements of a block that lies in a chunk, of those of the chunk."""
    for dim, (start, size, own) in enumerate(zip(block.offsets, block.sizes, chunk.offsets)):
        elements = elements.narrow(dim, start - own, size)
    return elements
