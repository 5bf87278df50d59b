"""Pipes that are asked by key."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from .datapipe import MapDataPipe, functional_datapipe

__all__ = ["MapDataPipe", "Mapper", "SequenceWrapper"]


class SequenceWrapper(MapDataPipe):
    """A list or dict as a pipe; a copy of it, unless deepcopy is off."""

    def __init__(self, sequence: Any, deepcopy: bool = True):
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe):
    def __init__(self, datapipe: Any, fn: Callable[..., Any]):
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


def __getattr__(name: str) -> Any:
    from .... import MissingName
    raise MissingName(f"flambeau.utils.data.datapipes.map has no '{name}' (if PyTorch has it: not implemented)")
