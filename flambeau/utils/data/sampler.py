"""Samplers: in which order the samples of a dataset are taken, and how they are grouped into batches.

From one seed the orders are PyTorch's, and as many numbers are taken from the default generator as PyTorch takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ...creation import random as _random
from ...creation.factories import as_tensor, empty
from ...ops.random import factories as _draws
from ...ops.random.distributions import multinomial
from ...tensors import dtypes as _dtypes

T_co = TypeVar("T_co", covariant=True)

__all__ = ["Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler",
           "BatchSampler"]


def drawn_seed(generator: Any = None) -> int:
    """A seed for another generator, taken from the given or the default one."""
    return empty((), dtype=_dtypes.int64).random_(generator=generator).item()


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value}")


class Sampler(Generic[T_co]):
    """What a DataLoader asks for indices: a subclass gives `__iter__`, and `__len__` where the number is known.

    >>> class Backwards(torch.utils.data.Sampler):
    ...     def __init__(self, data):
    ...         self.data = data
    ...     def __iter__(self):
    ...         return iter(range(len(self.data) - 1, -1, -1))
    >>> list(torch.utils.data.DataLoader([1, 2, 3], batch_size=None, sampler=Backwards([1, 2, 3])))
    [3, 2, 1]
    """

    def __init__(self, data_source: Any = None):
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not implement __iter__")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    >>> from flambeau.utils.data import SequentialSampler
    >>> list(SequentialSampler(range(3)))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """All samples in random order (several times over if num_samples asks for more), or draws with replacement.

    >>> from flambeau.utils.data import RandomSampler
    >>> sorted(RandomSampler(range(3)))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: int | None = None, generator: Any = None):
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement should be a boolean value, but got replacement={replacement}")
        _positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        # a generator function: the seed is drawn when the first index is asked for, after the loader's own draw
        source = self.generator
        if source is None:
            source = _random.Generator().manual_seed(drawn_seed())
        yield from self._replaced(source) if self.replacement else self._shuffled(source)

    def _replaced(self, source: Any) -> Iterator[int]:
        wanted, total = self.num_samples, len(self.data_source)
        for start in range(0, wanted - wanted % 32 + 1, 32):
            count = min(32, wanted - start)
            yield from _draws.randint(high=total, size=(count,), dtype=_dtypes.int64, generator=source).tolist()

    def _shuffled(self, source: Any) -> Iterator[int]:
        rounds, rest = divmod(self.num_samples, len(self.data_source))
        for _ in range(rounds):
            yield from _draws.randperm(len(self.data_source), generator=source).tolist()
        # drawn also when nothing is taken from it: the generator is where PyTorch leaves it
        yield from _draws.randperm(len(self.data_source), generator=source).tolist()[:rest]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in random order.

    >>> from flambeau.utils.data import SubsetRandomSampler
    >>> sorted(SubsetRandomSampler([1, 4]))
    [1, 4]
    """

    def __init__(self, indices: Sequence[int], generator: Any = None):
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in _draws.randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn with the given weights, which need not add up to one.

    >>> from flambeau.utils.data import WeightedRandomSampler
    >>> list(WeightedRandomSampler([0.0, 1.0], 3))
    [1, 1, 1]
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Any = None):
        _positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise ValueError(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=_dtypes.float64)
        if self.weights.dim() != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}")
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        drawn = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        yield from drawn.tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of batch_size indices from another sampler; a shorter last one is kept unless drop_last.

    >>> from flambeau.utils.data import BatchSampler, SequentialSampler
    >>> list(BatchSampler(SequentialSampler(range(5)), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool):
        _positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        full_batches, rest = divmod(len(self.sampler), self.batch_size)
        return full_batches if self.drop_last or not rest else full_batches + 1
