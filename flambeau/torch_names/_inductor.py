"""`torch._inductor`: the settings that programs change before they compile. They are remembered and have no effect."""

from __future__ import annotations

import sys

from .compiler import cudagraph_mark_step_begin
from .compiler_settings import Settings

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["config", "cudagraph_mark_step_begin"]

config = sys.modules[f"{__name__}.config"] = Settings(f"{__name__}.config", "Settings of PyTorch's compiler.")
