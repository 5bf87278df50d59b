"""Tools around training: hooks, checkpointing, data loading."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..missing import refused_modules
from ..ops.rare import swap_tensors

_LAZY = ("hooks", "checkpoint", "data", "dlpack", "tensorboard", "weak", "_pytree", "_cxx_pytree", "deterministic",
         "collect_env",
         "model_zoo", "benchmark", "cpp_extension", "flop_counter", "module_tracker", "backcompat", "progress",
         "_python_dispatch")
__all__ = ["hooks", "checkpoint", "data", "swap_tensors", "set_module"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("_") and not name.startswith("__"):
        from ..internals import HOMES
        if f"utils.{name}" in HOMES:
            return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'flambeau.utils' has no attribute '{name}'")


refused_modules(__name__, "it prepares programs for other runtimes and is not implemented", {
    "mobile_optimizer": "optimize_for_mobile generate_mobile_module_lints LintCode",
    "bundled_inputs": "augment_model_with_bundled_inputs augment_many_model_functions_with_bundled_inputs bundle_inputs",
    "throughput_benchmark": "ThroughputBenchmark",
    "backend_registration": "rename_privateuse1_backend generate_methods_for_privateuse1_backend",
    "_triton": "",
})
ThroughputBenchmark = sys.modules[f"{__name__}.throughput_benchmark"].ThroughputBenchmark
sys.modules[f"{__name__}._triton"].has_triton = lambda: False


def set_module(obj: Any, mod: str) -> None:
    """Says in which module an object is to be found."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod
