"""The few names of PyTorch's compiled module that programs in Python reach for."""

from __future__ import annotations

from types import SimpleNamespace as _Namespace
from typing import Any

from .autograd import function as _function
from .autograd.modes import is_grad_enabled, is_inference_mode_enabled
from .autograd.node import AccumulateGrad as _AccumulateGrad
from .overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
    _EnableTorchFunction,
)
from .tensor import Size
from .tensor import Tensor as TensorBase

_functions = _Namespace(AccumulateGrad=_AccumulateGrad, UndefinedGrad=_function.UndefinedGrad,
                        DelayedError=_function.DelayedError, Error=_function.Error)
_FunctionBase = _function.BackwardCFunction


def _set_grad_enabled(mode: bool) -> None:
    from .autograd.modes import set_grad_enabled
    set_grad_enabled(mode)


def __getattr__(name: str) -> Any:
    if name == "Generator":
        from .random import Generator
        return Generator
    if name == "dtype":
        from .dtypes import dtype
        return dtype
    if name == "device":
        from .device import device
        return device
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"flambeau._C has no {name}: there is no compiled module behind flambeau")


__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Size", "TensorBase", "_EnableTorchFunction",
           "_disabled_torch_function_impl", "is_grad_enabled", "is_inference_mode_enabled"]
