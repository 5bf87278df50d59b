"""Tools around training: hooks, checkpointing, data loading."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ..missing import refused_modules

_LAZY = ("hooks", "checkpoint", "data", "dlpack", "tensorboard", "weak", "_pytree", "deterministic", "collect_env",
         "model_zoo", "benchmark", "cpp_extension", "flop_counter", "module_tracker", "backcompat")
__all__ = ["hooks", "checkpoint", "data", "swap_tensors", "set_module"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
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
    "_python_dispatch": "TorchDispatchMode BaseTorchDispatchMode return_and_correct_aliasing transform_subclass",
    "_triton": "",
})
ThroughputBenchmark = sys.modules[f"{__name__}.throughput_benchmark"].ThroughputBenchmark
sys.modules[f"{__name__}._triton"].has_triton = lambda: False
_dispatch = sys.modules[f"{__name__}._python_dispatch"]
_dispatch.is_traceable_wrapper_subclass = lambda t: False
_dispatch._get_current_dispatch_mode, _dispatch._get_current_dispatch_mode_stack = lambda: None, list


def set_module(obj: Any, mod: str) -> None:
    """Says in which module an object is to be found."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def _poisoned(grads: Any) -> None:
    raise RuntimeError("Trying to execute AccumulateGrad node that was poisoned by swap_tensors: its tensor was swapped after "
                       "the graph was recorded. With torch.__future__.set_swap_module_params_on_conversion(True), change a "
                       "module's device or dtype before running forward, or after both forward and backward.")


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
        if t._node is not None:
            t._node.register_prehook(_poisoned)  # of use only to graphs that were recorded before
        t._node = None  # the accumulator belongs to the object, not to its contents
        if wanted:
            t.requires_grad_(True)
