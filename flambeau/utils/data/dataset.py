"""Datasets: where samples come from. Map-style ones are asked by index, iterable ones are walked through."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ...creation import random as _random
from ...ops.random import factories as _draws
from ...tensors.tensor import Tensor

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

__all__ = ["Dataset", "IterableDataset", "TensorDataset", "StackDataset", "ConcatDataset", "ChainDataset", "Subset",
           "random_split"]


class Dataset(Generic[T_co]):
    """Samples by key. A subclass gives `__getitem__`, mostly `__len__`, and `__getitems__` where it can fetch a whole
    batch at once.

    >>> from flambeau.utils.data import DataLoader, Dataset
    >>> class Squares(Dataset):
    ...     def __len__(self):
    ...         return 3
    ...     def __getitem__(self, i):
    ...         return i * i
    >>> next(iter(DataLoader(Squares(), batch_size=3)))
    tensor([0, 1, 4])
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Samples in a stream. Each worker process walks its own copy: `get_worker_info()` says which part is its own.

    >>> from flambeau.utils.data import DataLoader, IterableDataset
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> next(iter(DataLoader(Count(), batch_size=3)))
    tensor([0, 1, 2])
    """

    def __add__(self, other: Dataset[T_co]) -> ChainDataset:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of tensors that have one length.

    >>> from flambeau.utils.data import TensorDataset
    >>> TensorDataset(torch.arange(3), torch.zeros(3))[1]
    (tensor(1), tensor(0.))
    """

    def __init__(self, *tensors: Tensor):
        if any(t.size(0) != tensors[0].size(0) for t in tensors):
            raise AssertionError(f"Size mismatch between tensors: the first dimensions are {[t.size(0) for t in tensors]}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple([t[index] for t in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset[Any]):
    """Several datasets of one length side by side: samples are tuples, or dicts where the datasets have names.

    >>> from flambeau.utils.data import StackDataset
    >>> StackDataset([1, 2], ["a", "b"])[1]
    (2, 'b')
    """

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]):
        if args and kwargs:
            raise ValueError("Supported either datasets by position (samples are tuples) or by name (samples are "
                             "dicts), but both kinds were given")
        if not args and not kwargs:
            raise ValueError("At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        lengths = [len(d) for d in (args or kwargs.values())]
        if any(n != lengths[0] for n in lengths):
            raise ValueError(f"Size mismatch between datasets: their lengths are {lengths}")
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """The samples of a batch, through the datasets' own `__getitems__` where they have it."""
        named = isinstance(self.datasets, dict)
        columns = [_fetched(d, indices) for d in (self.datasets.values() if named else self.datasets)]
        rows = list(zip(*columns)) if indices else []
        return [dict(zip(self.datasets, row)) for row in rows] if named else rows

    def __len__(self) -> int:
        return self._length


def _fetched(dataset: Any, indices: list[Any]) -> Sequence[Any]:
    fetch = getattr(dataset, "__getitems__", None)
    if not callable(fetch):
        return [dataset[i] for i in indices]
    items = fetch(indices)
    if len(items) != len(indices):
        raise ValueError(f"Nested dataset's output size mismatch. Expected {len(indices)}, got {len(items)}")
    return items


class ConcatDataset(Dataset[T_co]):
    """Map-style datasets one after the other.

    >>> from flambeau.utils.data import ConcatDataset
    >>> len(ConcatDataset([[1, 2], [3]]))
    3
    """

    datasets: list[Dataset[T_co]]
    cumulative_sizes: list[int]

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        return list(itertools.accumulate(len(e) for e in sequence))

    def __init__(self, datasets: Iterable[Dataset[T_co]]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise ValueError(f"absolute value of index should not exceed dataset length: got {idx} for {len(self)}")
            idx += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, idx)
        return self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]

    @property
    def cummulative_sizes(self) -> list[int]:
        warnings.warn("cummulative_sizes attribute is renamed to cumulative_sizes", DeprecationWarning, stacklevel=2)
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after the other; each is opened when its turn comes.

    >>> from flambeau.utils.data import ChainDataset, IterableDataset
    >>> class Count(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(range(2))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 0, 1]
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]):
        super().__init__()
        self.datasets = datasets

    def _members(self) -> Iterator[Any]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise AssertionError(f"ChainDataset only supports IterableDataset, got {type(dataset).__name__}")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._members())

    def __len__(self) -> int:
        return sum(len(d) for d in self._members())


class Subset(Dataset[T_co]):
    """Some samples of a dataset, by their indices.

    >>> from flambeau.utils.data import Subset
    >>> Subset([10, 20, 30], [2, 0])[0]
    30
    """

    dataset: Dataset[T_co]
    indices: Sequence[int]

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]):
        self.dataset = dataset
        self.indices = indices
        kind = type(self)
        if kind.__getitem__ is not Subset.__getitem__ and kind.__getitems__ is Subset.__getitems__:
            raise NotImplementedError(
                f"{kind.__name__} overrides __getitem__ but not __getitems__, which DataLoader calls for a whole "
                "batch: define it too, for example\n\n    def __getitems__(self, indices):\n"
                "        return [self.__getitem__(i) for i in indices]")

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, list):
            return self.dataset[[self.indices[i] for i in idx]]
        return self.dataset[self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        own = [self.indices[i] for i in indices]
        fetch = getattr(self.dataset, "__getitems__", None)
        return fetch(own) if callable(fetch) else [self.dataset[i] for i in own]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset[T], lengths: Sequence[int | float],
                 generator: Any = _random.default_generator) -> list[Subset[T]]:
    """Cuts a dataset at random into pieces of the given lengths, or of the given fractions where those add up to 1.

    >>> from flambeau.utils.data import random_split
    >>> [len(part) for part in random_split(range(10), [0.8, 0.2])]
    [8, 2]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _shares(len(dataset), lengths)
    if sum(lengths) != len(dataset):
        raise ValueError("Sum of input lengths does not equal the length of the input dataset! "
                         f"(they add up to {sum(lengths)}, the dataset has {len(dataset)})")
    order = _draws.randperm(sum(lengths), generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[end - n:end]) for end, n in zip(ends, lengths)]


def _shares(total: int, fractions: Sequence[float]) -> list[int]:
    """Whole numbers close to the fractions; what rounding leaves over goes one by one to the first ones."""
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueError(f"Fraction at index {i} is not between 0 and 1: {fraction}")
    counts = [math.floor(total * fraction) for fraction in fractions]
    for i in range(total - sum(counts)):
        counts[i % len(counts)] += 1
    for i, count in enumerate(counts):
        if count == 0:
            warnings.warn(f"Length of split at index {i} is 0. This might result in an empty dataset.", stacklevel=3)
    return counts
