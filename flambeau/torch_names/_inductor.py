"""`torch._inductor`: the settings that programs change before they compile. They are remembered and have no effect."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .compiler import cudagraph_mark_step_begin
from .compiler_settings import Settings

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["config", "cudagraph_mark_step_begin"]

config = sys.modules[f"{__name__}.config"] = Settings(f"{__name__}.config", "Settings of PyTorch's compiler.")


def __getattr__(name: str) -> Any:
    """Private modules of PyTorch's that are there without an import of their own."""
    from .internals import HOMES
    if f"_inductor.{name}" not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
