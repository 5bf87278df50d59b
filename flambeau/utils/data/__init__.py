"""Datasets, samplers and the DataLoader."""

from __future__ import annotations

from . import _utils
from .collate import default_collate, default_convert
from .dataloader import DataLoader, _DatasetKind
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .worker import get_worker_info

__all__ = ["BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler",
           "IterableDataset", "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
           "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "_DatasetKind", "_utils", "default_collate",
           "default_convert", "get_worker_info", "random_split"]

_DATAPIPES = frozenset("""IterDataPipe MapDataPipe DFIterDataPipe DataChunk functional_datapipe argument_validation
    guaranteed_datapipes_determinism non_deterministic runtime_validation runtime_validation_disabled datapipes
    graph graph_settings""".split())


def __getattr__(name: str) -> None:
    if name in _DATAPIPES:
        from ... import MissingName
        raise MissingName(f"flambeau.utils.data.{name} is not implemented: flambeau has no DataPipes, use a Dataset or an "
                          "IterableDataset")
    raise AttributeError(f"module 'flambeau.utils.data' has no attribute '{name}'")
