"""Tools around training: hooks, checkpointing, data loading."""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = ("hooks", "checkpoint", "data", "dlpack", "tensorboard", "weak", "_pytree", "deterministic", "collect_env",
         "model_zoo", "benchmark", "cpp_extension", "mobile_optimizer", "bundled_inputs", "backcompat")
__all__ = ["hooks", "checkpoint", "data", "swap_tensors", "set_module"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module 'flambeau.utils' has no attribute '{name}'")


def set_module(obj: Any, mod: str) -> None:
    """Says in which module an object is to be found."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchanges everything of two tensors: data, place in the graph, attributes and class."""
    from ..autograd.node import AccumulateGrad
    for t in (t1, t2):
        if t._node is not None and t._node.__class__ is not AccumulateGrad:
            raise RuntimeError("swap_tensors: a tensor that an operation made cannot be swapped; detach() it first")
    wants = t1.requires_grad, t2.requires_grad
    for name in ("_array", "_counter", "__dict__", "__class__"):
        first, second = getattr(t1, name), getattr(t2, name)
        setattr(t1, name, second)
        setattr(t2, name, first)
    for t, wanted in zip((t1, t2), reversed(wants)):
        t._node = None  # the accumulator belongs to the object, not to its contents
        if wanted:
            t.requires_grad_(True)
