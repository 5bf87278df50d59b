"""Optimizers, learning-rate schedules and weight averaging."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from ..complete import show_complete
from .optimizer import Optimizer

_WHERE = {"SGD": "sgd", "Adam": "adam", "AdamW": "adam", "RMSprop": "rules", "Adagrad": "rules", "Adadelta": "rules",
          "Adamax": "rules", "NAdam": "rules", "RAdam": "rules", "Rprop": "rules", "ASGD": "rules",
          "Adafactor": "matrices", "Muon": "matrices", "LBFGS": "lbfgs", "SparseAdam": "sparse_adam",
          "expect_gradients": "expect", "lr_scheduler": None, "swa_utils": None}
__all__ = ["Optimizer", *_WHERE]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'flambeau.optim' has no attribute '{name}'")
    module = importlib.import_module(f".{_WHERE[name] or name}", __name__)
    value = module if _WHERE[name] is None else getattr(module, name)
    globals()[name] = value
    return value


class _OneOptimizer(ModuleType):
    """`optim.rmsprop`, say: PyTorch has one module for each optimizer, here several share a file."""

    def __init__(self, optimizer: str):
        super().__init__(f"{__name__}.{optimizer.lower()}", f"Where PyTorch keeps {optimizer}.")
        self.__dict__["_optimizer"] = optimizer
        sys.modules[self.__name__] = self

    def __getattr__(self, name: str) -> Any:
        if name in (self._optimizer, "Optimizer"):
            return getattr(sys.modules[__name__], name)
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")


for _name, _file in _WHERE.items():
    if _file not in (None, _name.lower(), "sparse_adam", "expect"):
        globals()[_name.lower()] = _OneOptimizer(_name)
show_complete(__name__)
