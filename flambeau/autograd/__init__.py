"""Automatic differentiation: `backward`, `grad`, the modes, custom functions and the open graph.

Parts load when they are first used: importing this package must not need the operations, which need it themselves.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..complete import show_complete
from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled

# name -> the module that has it; None: the name is a module itself
_LAZY = {
    "backward": "passes", "grad": "passes", "Function": "function", "NestedIOFunction": "function",
    "gradcheck": "gradcheck", "gradgradcheck": "gradcheck", "detect_anomaly": "anomaly",
    "set_detect_anomaly": "anomaly",
    "Variable": "variable", "is_multithreading_enabled": "variable", "set_multithreading_enabled": "variable",
    "functional": None, "forward_ad": None, "graph": None, "function": None, "variable": None, "profiler": None,
    "grad_mode": None, "anomaly_mode": None, "kineto_available": "profiler",
}
__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", *_LAZY]
_LAZY |= {"_force_original_view_tracking": "grad_mode", "is_view_replay_enabled": "grad_mode",
          "_unsafe_preserve_version_counter": "grad_mode", "_profiler_enabled": "profiler",
          "SavedTensor": "saved_tensors"}


def _calculate_shape(output: Any, grad: Any, is_grads_batched: bool) -> tuple[Any, Any]:
    """The shapes that a result and the gradient given for it must share (PyTorch's tests call it)."""
    from .graph import GradientEdge
    if isinstance(output, GradientEdge):
        if is_grads_batched:
            raise RuntimeError("Batched grads are not supported with GradientEdge")
        return output.node._input_metadata[output.output_nr].shape, grad.shape
    return output.shape, grad.shape[1:] if is_grads_batched else grad.shape


def __getattr__(name: str) -> Any:
    if name == "torch":  # PyTorch's package imports it, and programs have found it there
        return importlib.import_module("flambeau")
    if name not in _LAZY:
        raise AttributeError(f"module 'flambeau.autograd' has no attribute '{name}'")
    source = _LAZY[name]
    module = importlib.import_module(f".{source or name}", __name__)
    value = module if source is None else getattr(module, name)
    globals()[name] = value  # also over a module of the same name, which the import has put there
    return value


show_complete(__name__)
