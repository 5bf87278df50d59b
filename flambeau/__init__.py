"""flambeau: PyTorch's semantics and names, Python all the way down."""

from __future__ import annotations

import importlib as _importlib
import math as _math
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
from . import settings as _settings  # noqa: E402
from . import tensor_methods as _tensor_methods  # noqa: E402,F401
from .autograd import hooks as _hooks  # noqa: E402,F401  (gives Tensor register_hook and retain_grad)
from .autograd import passes as _passes  # noqa: E402,F401  (gives Tensor backward)

globals().update(_FUNCTIONS)
globals().update(_dtypes.ALIASES)
globals().update({name: getattr(_creation, name) for name in _creation.__all__})
globals().update({name: getattr(_random, name) for name in _random.__all__})
globals().update({name: getattr(_interop, name) for name in _interop.__all__})
globals().update({name: getattr(_settings, name) for name in _settings.__all__})

inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e
newaxis = None

# Imported when first asked for: what a program does not use costs nothing at start.
_LAZY = ("autograd", "linalg", "fft", "special", "nn", "optim", "utils", "testing", "overrides", "return_types",
         "random", "signal", "masked", "types", "serialization", "compiler", "amp", "cuda", "backends", "distributions",
         "func", "jit", "sparse", "version", "multiprocessing", "_C", "_tensor_str", "storage", "viz", "profiler", "hub",
         "distributed", "onnx", "package", "quantization", "ao", "export", "fx", "library", "monitor", "accelerator", "cpu",
         "futures", "nested", "mps", "xpu", "_dynamo", "_inductor", "__future__", "torch_version")
_ELSEWHERE = {"set_printoptions": "printing", "get_printoptions": "printing", "UntypedStorage": "storage",
              "TypedStorage": "storage", "is_storage": "storage", "save": "serialization", "load": "serialization",
              "compile": "compiler", "vmap": "func", "autocast": "amp", "GradScaler": "amp"}


class MissingName(AttributeError, NotImplementedError):
    """A name of PyTorch's that flambeau does not have. (An AttributeError, so that hasattr says no.)"""


def __getattr__(name: str) -> Any:
    home = _ELSEWHERE.get(name)
    if home is not None or name in _LAZY:
        try:
            value = _importlib.import_module(f".{home or name}", __name__)
            value = getattr(value, name) if home else value
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{home or name}":
                raise
            raise MissingName(f"module 'flambeau' has no attribute '{name}': this part is not implemented") from None
        except AttributeError:
            raise MissingName(f"module 'flambeau' has no attribute '{name}': not implemented in flambeau.{home}") from None
    else:
        raise MissingName(f"module 'flambeau' has no attribute '{name}' (if PyTorch has one: it is not implemented)")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_ELSEWHERE})


def typename(obj: Any) -> str:
    """The dotted name of an object's type, as PyTorch's tools print it."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that all of the given ones broadcast to."""
    return Size(_broadcast_shapes(*shapes))


for _public in (Tensor, Size, device, dtype, finfo, iinfo, _random.Generator):
    _public.__module__ = __name__  # where a user finds it, and how it prints

__all__ = ["Tensor", "Size", "is_tensor", "device", "dtype", "finfo", "iinfo", "can_cast", "promote_types",
           "get_default_dtype", "set_default_dtype", "no_grad", "enable_grad", "set_grad_enabled", "inference_mode",
           "is_grad_enabled", "is_inference_mode_enabled", "broadcast_shapes", "typename", "inf", "nan", "pi", "e", "newaxis",
           *_settings.__all__, *_FUNCTIONS, *_creation.__all__,
           *_random.__all__, *_interop.__all__]
