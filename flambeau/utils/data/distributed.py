"""DistributedSampler: each of several training processes sees its own share of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ...creation import random as _random
from ...ops.random import factories as _draws
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th index, starting at `rank`. All replicas shuffle alike, by seed and epoch: `set_epoch`
    before each epoch gives another order. All shares have one size: indices are repeated from the start, or the tail is
    left out with drop_last.

    >>> list(torch.utils.data.DistributedSampler(range(6), num_replicas=2, rank=1, shuffle=False))
    [1, 3, 5]
    """

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False):
        if num_replicas is None or rank is None:
            from ... import distributed as group
            num_replicas = group.get_world_size() if num_replicas is None else num_replicas
            rank = group.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        share = len(dataset) / num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        if self.shuffle:
            source = _random.Generator().manual_seed(self.seed + self.epoch)
            indices = _draws.randperm(count, generator=source).tolist()
        else:
            indices = list(range(count))
        if self.drop_last:
            del indices[self.total_size:]
        elif count:
            indices = (indices * math.ceil(self.total_size / count))[:self.total_size]
        if len(indices) != self.total_size:
            raise AssertionError(f"Number of indices ({len(indices)}) does not match total_size ({self.total_size})")
        return iter(indices[self.rank::self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch comes, so that all replicas shuffle alike and each epoch has its own order."""
        self.epoch = epoch
