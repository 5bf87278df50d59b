"""Functions behind the layers: those of this folder's files, and operations that have a name here.

What needs the larger operations is imported when one of its names is first asked for, as the layers themselves are.
"""

from __future__ import annotations

import importlib
from typing import Any

from ...complete import show_complete as _show_complete
from ...ops.core.examples import attach_module as _attach_module
from ...ops.core.examples import attach_to as _attach_to

# What PyTorch's file imports, and programs take from there.
from ...ops.core.overrides import (  # noqa: F401
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from ...tensors.tensor import Tensor  # noqa: F401

_PARTS = ("activations", "losses", "embedding", "dropout", "padding", "distance")
# module -> the names that are taken from it when they are asked for
_LATER = {
    "ops.layers.conv": "conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d fold unfold",
    "ops.layers.pooling":
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices "
        "adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices avg_pool1d "
        "avg_pool2d avg_pool3d fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
        "fractional_max_pool3d_with_indices lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool1d_with_indices max_pool2d "
        "max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d",
    "ops.layers.normalization": "batch_norm group_norm instance_norm layer_norm local_response_norm normalize rms_norm",
    "ops.layers.resample": "affine_grid channel_shuffle grid_sample interpolate native_channel_shuffle pixel_shuffle "
                           "pixel_unshuffle upsample upsample_bilinear upsample_nearest",
    "ops.layers.linear": "linear bilinear",
    "ops.linalg.grouped": "grouped_mm",
    "nn.functional.attention": "scaled_dot_product_attention multi_head_attention_forward _canonical_mask _none_or_dtype",
}
_HOMES = {name: module for module, names in _LATER.items() for name in names.split()}
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}
__all__ = [*_HOMES, "GRID_SAMPLE_INTERPOLATION_MODES", "GRID_SAMPLE_PADDING_MODES"]

for _part in _PARTS:
    _module = importlib.import_module(f".{_part}", __name__)
    globals().update({name: getattr(_module, name) for name in _module.__all__})
    __all__ += _module.__all__
_attach_module("nn.functional", globals())

# Private names of PyTorch's file that programs borrow -> where they are here.
_BORROWED = {**dict.fromkeys(("_single", "_pair", "_triple", "_list_with_default"), "flambeau.nn.modules.utils"),
             **dict.fromkeys(("_in_projection", "_in_projection_packed"), "flambeau.nn.functional.attention"),
             "_Reduction": "flambeau.nn._reduction", "_VF": "flambeau._VF", "grad": "flambeau.nn.grad", "math": "math",
             "warnings": "warnings", "torch": "flambeau"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"flambeau.{_HOMES[name]}"), name)
        _attach_to(f"nn.functional.{name}", value)
        globals()[name] = value
        return value
    if name not in _BORROWED:
        raise AttributeError(f"module 'flambeau.nn.functional' has no attribute '{name}'")
    module = importlib.import_module(_BORROWED[name])
    return getattr(module, name) if name.startswith("_") and name not in ("_Reduction", "_VF") else module


_show_complete(__name__)
