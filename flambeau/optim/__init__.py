"""Optimizers, learning-rate schedules and weight averaging."""

from __future__ import annotations

import importlib
from typing import Any

from .optimizer import Optimizer

_WHERE = {"SGD": "sgd", "Adam": "adam", "AdamW": "adam", "RMSprop": "rules", "Adagrad": "rules", "Adadelta": "rules",
          "Adamax": "rules", "NAdam": "rules", "RAdam": "rules", "Rprop": "rules", "ASGD": "rules",
          "Adafactor": "matrices", "Muon": "matrices", "LBFGS": "lbfgs", "SparseAdam": "sparse_adam",
          "lr_scheduler": None, "swa_utils": None}
__all__ = ["Optimizer", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'flambeau.optim' has no attribute '{name}'")
    module = importlib.import_module(f".{_WHERE[name] or name}", __name__)
    value = module if _WHERE[name] is None else getattr(module, name)
    globals()[name] = value
    return value
