"""Functions behind the layers. Each subject has its file; all their names are here."""

from __future__ import annotations

import importlib
import os
from typing import Any

_PARTS = ("conv", "pooling", "norms", "vision", "linear_ops", "activations", "losses", "embedding", "dropout",
          "padding", "attention", "rnn", "distance")
_HERE = {entry.partition(".")[0] for entry in os.listdir(os.path.dirname(__file__))}
__all__: list[str] = []

for _part in _PARTS:
    if _part in _HERE:
        _module = importlib.import_module(f".{_part}", __name__)
        globals().update({name: getattr(_module, name) for name in _module.__all__})
        __all__ += _module.__all__

from ...ops.core.examples import attach_module as _attach_module  # noqa: E402

_attach_module("nn.functional", globals())

# What PyTorch's file imports, and programs take from there.
from ...ops.core.overrides import (  # noqa: E402, F401
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from ...tensors.tensor import Tensor  # noqa: E402, F401

# Private names of PyTorch's file that programs borrow -> where they are here.
_BORROWED = {**dict.fromkeys(("_single", "_pair", "_triple", "_list_with_default"), "flambeau.nn.modules.utils"),
             **dict.fromkeys(("_in_projection", "_in_projection_packed"), "flambeau.nn.functional.attention"),
             "_Reduction": "flambeau.nn._reduction", "_VF": "flambeau._VF", "grad": "flambeau.nn.grad", "math": "math",
             "warnings": "warnings", "torch": "flambeau"}


def __getattr__(name: str) -> Any:
    if name not in _BORROWED:
        raise AttributeError(f"module 'flambeau.nn.functional' has no attribute '{name}'")
    module = importlib.import_module(_BORROWED[name])
    return getattr(module, name) if name.startswith("_") and name not in ("_Reduction", "_VF") else module
