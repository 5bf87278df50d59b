"""`torch._dynamo`: settings that programs change before they compile (remembered, without effect) and other names they use."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

from .compiler import (
    InvalidBackend,
    OptimizedModule,
    allow_in_graph,
    assume_constant_result,
    disable,
    explain,
    is_compiling,
    list_backends,
    reset,
)
from .compiler_settings import Settings

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "config", "disable", "exc", "explain",
           "graph_break", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "mark_static_address",
           "maybe_mark_dynamic", "reset"]

config = sys.modules[f"{__name__}.config"] = Settings(f"{__name__}.config", "Settings of PyTorch's compiler.")
exc = sys.modules[f"{__name__}.exc"] = ModuleType(f"{__name__}.exc", "Errors of PyTorch's compiler.")
exc.InvalidBackend = InvalidBackend
# Errors of PyTorch's capture, which flambeau never raises: programs name them in `except`.
for _name in ("InternalTorchDynamoError", "TorchDynamoException", "TorchRuntimeError", "Unsupported", "UserError"):
    setattr(exc, _name, type(_name, (RuntimeError,), {"__module__": exc.__name__}))


def __getattr__(name: str) -> Any:
    """Private modules of PyTorch's that are there without an import of their own."""
    from .internals import HOMES
    if f"_dynamo.{name}" not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def mark_dynamic(t: Any, index: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Programs that are made for this tensor as an argument read sizes when they run, instead of knowing them. (All sizes that
    can be read, not only this dimension's; min and max bound nothing, as a program serves any size.)"""
    dims = index if isinstance(index, (list, tuple)) else (index,)
    for d in dims:
        t.size(d)
    t._dynamic_dims = {*getattr(t, "_dynamic_dims", ()), *[d % t.dim() for d in dims]}


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Takes back `mark_dynamic`."""
    if not isinstance(t, type):
        t.__dict__.pop("_dynamic_dims", None)


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Does nothing: programs find memory anew at each call."""


def graph_break(msg: str = "") -> None:
    """Ends a capture: the call goes on eagerly."""
    from .autograd.state import not_repeatable
    not_repeatable(msg or "graph_break() was called", refused=True)
