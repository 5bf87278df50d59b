"""Functions behind the layers. Each subject has its file; all their names are here."""

from __future__ import annotations

import importlib
import os

_PARTS = ("conv", "pooling", "norms", "vision", "linear_ops", "activations", "losses", "embedding", "dropout",
          "padding",
          "attention", "rnn", "distance")
_HERE = {entry.partition(".")[0] for entry in os.listdir(os.path.dirname(__file__))}
__all__: list[str] = []

for _part in _PARTS:
    if _part in _HERE:
        _module = importlib.import_module(f".{_part}", __name__)
        globals().update({name: getattr(_module, name) for name in _module.__all__})
        __all__ += _module.__all__

# What PyTorch's file imports, and programs take from there.
from ...overrides import (  # noqa: E402, F401
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from ...tensor import Tensor  # noqa: E402, F401
