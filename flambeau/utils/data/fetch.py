"""Fetchers: from what a sampler says to a collated batch."""

from __future__ import annotations

from typing import Any

from ...autograd.frames import is_ours, location, raised_in
from ...autograd.state import looked_at
from ...backends import registry
from ...backends.cpu.data import loading as _cpu
from ...tensors.tensor import Tensor, wrap
from . import collate as _collate
from .dataset import Subset, TensorDataset

__all__ = ["_MapDatasetFetcher", "_IterableDatasetFetcher", "_BaseDatasetFetcher"]


class _BaseDatasetFetcher:
    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool):
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not implement fetch")


class _IterableDatasetFetcher(_BaseDatasetFetcher):
    """The next batch of a stream; the sampler only says how many samples that is."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool):
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False
        self.taken = 0  # samples so far

    def fetch(self, possibly_batched_index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        data = []
        for _ in possibly_batched_index:
            try:
                data.append(next(self.dataset_iter))
            except StopIteration:
                self.ended = True
                break
            except Exception as error:
                _note(error, f"sample {self.taken + len(data)} of the stream")
                raise
        if not data or (self.drop_last and len(data) < len(possibly_batched_index)):
            raise StopIteration
        self.taken += len(data)
        try:
            return self.collate_fn(data)
        except Exception as error:
            _note(error, f"samples {self.taken - len(data)} to {self.taken - 1} of the stream, when they were put together")
            raise


class _MapDatasetFetcher(_BaseDatasetFetcher):
    def fetch(self, possibly_batched_index: Any) -> Any:
        dataset = self.dataset
        if not self.auto_collation:
            try:
                return self.collate_fn(dataset[possibly_batched_index])
            except Exception as error:
                _note(error, f"index {possibly_batched_index!r}")
                raise
        if self.collate_fn is _collate.default_collate:
            batch = _whole_batch(dataset, possibly_batched_index)
            if batch is not None:
                return batch
        data = self._samples(possibly_batched_index)
        try:
            return self.collate_fn(data)
        except Exception as error:
            _note(error, f"the samples of indices {_few(possibly_batched_index)}, when they were put together")
            raise

    def _samples(self, indices: Any) -> Any:
        dataset, i, data = self.dataset, None, []
        many = getattr(dataset, "__getitems__", None)
        try:
            if many:
                return many(indices)
            for i in indices:  # not a comprehension: i is to be known where it fails
                data.append(dataset[i])
        except Exception as error:
            _note(error, f"one of the indices {_few(indices)}" if many else f"index {i!r} (of the batch {_few(indices)})")
            raise
        return data


def _few(indices: Any, most: int = 8) -> str:
    """The indices of a batch, the first of them if they are many."""
    known = list(indices)
    return f"[{', '.join([repr(i) for i in known[:most]])}{', ...' if len(known) > most else ''}]"


def _note(error: Exception, which: str) -> None:
    """Says of an error for which sample it was raised, and at which line of the user's. A worker's traceback shows it, too."""
    frames = [(f.f_code, at) for f, at in raised_in(error.__traceback__) if not is_ours(f)]
    error.add_note(f"The DataLoader got this error for {which}" + (f", at {location(frames[-1])}" if frames else "."))


def _whole_batch(dataset: Any, indices: Any) -> list[Tensor] | None:
    """The batch of a TensorDataset (or part of one) by one indexing call for each tensor. The same as collating its
    rows: None where it might not be (a subclass, gradients, another device, an index that is out of range)."""
    while type(dataset) is Subset:
        try:
            indices = [dataset.indices[i] for i in indices]
        except (IndexError, KeyError, TypeError):
            return None
        dataset = dataset.dataset
    if type(dataset) is not TensorDataset or \
            _collate.default_collate_fn_map.get(Tensor) is not _collate.collate_tensor_fn:
        return None
    columns = []
    for t in dataset.tensors:
        if type(t) is not Tensor or type(t._array) is not registry.CPU_ARRAY or t.requires_grad:
            return None
        looked_at(t._array, "rows of a dataset were taken")
        columns.append(t._array)
    made = _cpu.rows(columns, indices) if columns else None
    return None if made is None else [wrap(array) for array in made]
