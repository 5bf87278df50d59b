"""flambeau: PyTorch's semantics and names, Python all the way down."""

from __future__ import annotations

import importlib
from typing import Any

from . import dtypes as _dtypes
from . import ops as _ops
from .autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from .device import device
from .dtypes import can_cast, dtype, finfo, get_default_dtype, iinfo, promote_types, set_default_dtype
from .formats import *  # noqa: F403
from .ops.table import FUNCTIONS as _FUNCTIONS
from .parameter import Parameter as _Parameter  # noqa: F401
from .shapes import broadcast_shapes as _broadcast_shapes
from .tensor import Size, Tensor, is_tensor

__version__ = "0.1.0"

from . import creation as _creation  # noqa: E402
from . import random as _random  # noqa: E402
from . import interop as _interop  # noqa: E402
from . import tensor_methods as _tensor_methods  # noqa: E402,F401

globals().update(_FUNCTIONS)
globals().update(_dtypes.ALIASES)
globals().update({name: getattr(_creation, name) for name in _creation.__all__})
globals().update({name: getattr(_random, name) for name in _random.__all__})
globals().update({name: getattr(_interop, name) for name in _interop.__all__})

_LAZY = ("autograd", "linalg", "fft", "special", "nn", "optim", "utils", "testing", "overrides", "return_types",
         "random", "signal", "masked", "types", "serialization", "compiler", "amp", "cuda", "backends", "distributions",
         "func", "jit", "sparse", "version", "multiprocessing", "_C", "_tensor_str", "storage", "viz")
_ELSEWHERE = {"set_printoptions": "printing", "get_printoptions": "printing"}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        value = getattr(importlib.import_module(f".{_ELSEWHERE[name]}", __name__), name)
    elif name in _LAZY:
        try:
            value = importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module 'flambeau' has no attribute '{name}' (yet)") from None
    else:
        raise AttributeError(f"module 'flambeau' has no attribute '{name}'")
    globals()[name] = value
    return value


def typename(obj: Any) -> str:
    """The dotted name of an object's type, as PyTorch's tools print it."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that all of the given ones broadcast to."""
    return Size(_broadcast_shapes(*shapes))


__all__ = ["Tensor", "Size", "is_tensor", "device", "dtype", "finfo", "iinfo", "can_cast", "promote_types",
           "get_default_dtype", "set_default_dtype", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode",
           "is_grad_enabled", "is_inference_mode_enabled", "broadcast_shapes", "typename", *_FUNCTIONS, *_creation.__all__,
           *_random.__all__, *_interop.__all__]
