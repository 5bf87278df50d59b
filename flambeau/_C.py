"""The few names of PyTorch's compiled module that programs in Python reach for."""

from __future__ import annotations

import sys as _sys
from types import ModuleType as _ModuleType
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


class _Bindings(_ModuleType):
    """PyTorch's compiled functions of one family, by the names that they have there."""

    def __getattr__(self, name: str) -> Any:
        import flambeau

        from .nn import functional
        if name.startswith("__"):
            raise AttributeError(name)
        for space in (flambeau, functional):
            found = getattr(space, _FUNCTION_NAMES.get(name, name), None)
            if callable(found):
                return found
        space, _, inner = name.partition("_")  # linalg_inv, fft_fft, special_i0
        found = getattr(getattr(flambeau, space, None), inner, None)
        if found is None:
            raise AttributeError(f"flambeau has no function {name}")
        return found


_FUNCTION_NAMES = {"log_sigmoid": "logsigmoid", "im2col": "unfold", "col2im": "fold", "cross_entropy_loss": "cross_entropy",
                   "nll_loss_nd": "nll_loss", "nll_loss2d": "nll_loss"}
for _family in ("_nn", "_linalg", "_fft", "_special"):
    globals()[_family] = _sys.modules[f"{__name__}.{_family}"] = _Bindings(f"{__name__}.{_family}")


def _get_tracing_state() -> None:
    """Nothing is being traced."""


def _log_api_usage_once(name: str) -> None:
    """Accepted; nobody counts."""


def _jit_set_profiling_mode(mode: bool) -> bool:
    """Accepted; there is no TorchScript."""
    return False


_jit_set_profiling_executor = _jit_set_profiling_mode


def _cuda_getDeviceCount() -> int:
    return 0


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
