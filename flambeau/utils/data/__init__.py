"""Datasets, samplers and the DataLoader."""

from __future__ import annotations

import importlib
from typing import Any

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

# Pipes are imported when asked for: few programs still use them.
_PIPES = frozenset("IterDataPipe MapDataPipe DataChunk functional_datapipe".split())
_MISSING = frozenset("""DFIterDataPipe argument_validation guaranteed_datapipes_determinism non_deterministic
    runtime_validation runtime_validation_disabled graph graph_settings""".split())


def __getattr__(name: str) -> Any:
    if name in _PIPES:
        from .datapipes import datapipe
        return getattr(datapipe, name)
    if name in _MISSING:
        from ... import MissingName
        raise MissingName(f"flambeau.utils.data.{name} is not implemented: of PyTorch's DataPipes flambeau has only "
                          "the frequent ones; use a Dataset or an IterableDataset")
    if name == "datapipes":
        return importlib.import_module(".datapipes", __name__)
    raise AttributeError(f"module 'flambeau.utils.data' has no attribute '{name}'")
