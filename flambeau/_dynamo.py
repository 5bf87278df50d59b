"""`torch._dynamo`: the settings that programs change before they compile. They are remembered and have no effect."""

from __future__ import annotations

import sys
from types import ModuleType

from .compiler import allow_in_graph, disable, is_compiling, reset

__all__ = ["allow_in_graph", "config", "disable", "is_compiling", "reset"]

config = sys.modules[f"{__name__}.config"] = ModuleType(f"{__name__}.config", "Settings of PyTorch's compiler.")
config.__dict__.update(suppress_errors=False, cache_size_limit=8, recompile_limit=8, verbose=False, optimize_ddp=True,
                       capture_scalar_outputs=False, capture_dynamic_output_shape_ops=False,
                       automatic_dynamic_shapes=True, assume_static_by_default=True)
