"""Pipes that are walked through."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..collate import default_collate
from ..worker import get_worker_info
from .datapipe import DataChunk, IterDataPipe, functional_datapipe

__all__ = ["Batcher", "Collator", "Concater", "Filter", "IterDataPipe", "IterableWrapper", "Mapper", "ShardingFilter",
           "Zipper"]


class IterableWrapper(IterDataPipe):
    """Any iterable as a pipe; each walk sees a copy of what it was at the start, unless deepcopy is off."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True):
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(self.iterable)
            except TypeError:  # a generator, say: walked as it is
                pass
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)


class _Over(IterDataPipe):
    """A pipe over another one."""

    def __init__(self, datapipe: Any):
        self.datapipe = datapipe

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("map")
class Mapper(_Over):
    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None):
        super().__init__(datapipe)
        if input_col is not None or output_col is not None:
            raise NotImplementedError("Mapper: input_col and output_col are not implemented; let fn pick the columns")
        self.fn = fn

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            yield self.fn(item)


@functional_datapipe("collate")
class Collator(Mapper):
    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Callable[..., Any] | None = None):
        super().__init__(datapipe, collate_fn or conversion or default_collate)


@functional_datapipe("filter")
class Filter(_Over):
    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None):
        super().__init__(datapipe)
        if input_col is not None:
            raise NotImplementedError("Filter: input_col is not implemented; let filter_fn pick the column")
        self.filter_fn = filter_fn

    def __iter__(self) -> Iterator[Any]:
        for item in self.datapipe:
            if self.filter_fn(item):
                yield item

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} instance doesn't have valid length")


@functional_datapipe("batch")
class Batcher(_Over):
    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: type = DataChunk):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        super().__init__(datapipe)
        self.batch_size, self.drop_last, self.wrapper_class = batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        full_batches, rest = divmod(len(self.datapipe), self.batch_size)
        return full_batches if self.drop_last or not rest else full_batches + 1


@functional_datapipe("concat")
class Concater(IterDataPipe):
    def __init__(self, *datapipes: Any):
        if not datapipes:
            raise ValueError("Expected at least one DataPipe, but got nothing")
        self.datapipes = datapipes

    def __iter__(self) -> Iterator[Any]:
        for pipe in self.datapipes:
            yield from pipe

    def __len__(self) -> int:
        return sum(len(pipe) for pipe in self.datapipes)


@functional_datapipe("zip")
class Zipper(Concater):
    def __iter__(self) -> Iterator[Any]:
        return zip(*self.datapipes)

    def __len__(self) -> int:
        return min(len(pipe) for pipe in self.datapipes)


@functional_datapipe("sharding_filter")
class ShardingFilter(_Over):
    """In a worker process: its own share of the samples."""

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, count = (0, 1) if info is None else (info.id, info.num_workers)
        for i, item in enumerate(self.datapipe):
            if i % count == first:
                yield item


def __getattr__(name: str) -> Any:
    from .... import MissingName
    raise MissingName(f"flambeau.utils.data.datapipes.iter has no '{name}' (if PyTorch has it: not implemented)")
