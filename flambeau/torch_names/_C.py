"""The few names of PyTorch's compiled module that programs in Python reach for."""

from __future__ import annotations

import enum as _enum
import sys as _sys
import weakref as _weakref
from contextlib import nullcontext as _nullcontext
from types import ModuleType as _ModuleType
from types import SimpleNamespace as _Namespace
from typing import Any

from .autograd import function as _function
from .autograd.modes import is_grad_enabled, is_inference_mode_enabled
from .autograd.node import AccumulateGrad as _AccumulateGrad
from .missing import refused
from .ops.core.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
    _EnableTorchFunction,
)
from .tensors.tensor import Size
from .tensors.tensor import Tensor as TensorBase

__path__: list[str] = []  # private modules below it are found by name (internals.py)

_SCRIPT = frozenset("""
    Graph ScriptDict ScriptObject ScriptFunction ScriptList ScriptMethod ScriptModule AnyType AwaitType BoolType
    ClassType ComplexType DeviceObjType DictType EnumType FloatType FutureType IntType InterfaceType ListType NoneType
    NumberType OptionalType PyObjectType RRefType StreamObjType StringType SymBoolType SymIntType TensorType TupleType
    Type UnionType""".split())
_functions = _Namespace(AccumulateGrad=_AccumulateGrad, UndefinedGrad=_function.UndefinedGrad,
                        DelayedError=_function.DelayedError, Error=_function.Error)
_FunctionBase = _function.BackwardCFunction


class _Bindings(_ModuleType):
    """PyTorch's compiled functions of one family, by the names that they have there."""

    def __getattr__(self, name: str) -> Any:
        import flambeau

        from .nn import functional
        if name in _OPERATORS:
            return getattr(TensorBase, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "_parse_to":
            from .nn.conversion import parse_to
            return parse_to
        for space in (flambeau, functional):
            found = getattr(space, _FUNCTION_NAMES.get(name, name), None)
            if callable(found):
                return found
        if name.startswith(("reflection_pad", "replication_pad")):
            from .ops.layers.padding import FORMS
            if name in FORMS:
                return FORMS[name]
        space, _, inner = name.partition("_")  # linalg_inv, fft_fft, special_i0
        found = getattr(getattr(flambeau, space, None), inner, None)
        if found is None:
            # Tables of PyTorch's tests name all that it has, to look one up: what is not here refuses when it is called.
            found = refused("_C", "it is not written", name)[name]
        setattr(self, name, found)
        return found


_OPERATORS = frozenset("__and__ __or__ __xor__ __lshift__ __rshift__".split())
_FUNCTION_NAMES = {"log_sigmoid": "logsigmoid", "im2col": "unfold", "col2im": "fold", "cross_entropy_loss": "cross_entropy",
                   "nll_loss_nd": "nll_loss", "nll_loss2d": "nll_loss"}
for _family in ("_nn", "_linalg", "_fft", "_special", "_VariableFunctions"):
    globals()[_family] = _sys.modules[f"{__name__}.{_family}"] = _Bindings(f"{__name__}.{_family}")


has_lapack = has_spectral = True
has_mkl = has_mkldnn = has_openmp = _has_cuda = False


class _TorchFunctionState(_enum.Enum):
    """How much of `__torch_function__` is switched off."""

    ENABLED = 0
    SUBCLASSES_DISABLED = 1
    ALL_DISABLED = 2


_DisableFuncTorch = _nullcontext  # there is no stack of transformations to leave
_TensorMeta = type(TensorBase)


def _are_functorch_transforms_active() -> bool:
    """False: the transformations of torch.func run functions on plain tensors."""
    return False


def _get_default_device() -> str:
    from .creation.factories import get_default_device
    return get_default_device().type


def _is_tracing() -> bool:
    """False: nothing writes TorchScript."""
    return False


def _get_cudnn_enabled() -> bool:
    from .backends import cudnn
    return cudnn.enabled


def _is_alias_of(tensor: TensorBase, other: TensorBase) -> bool:
    """Whether two tensors lie in the same storage."""
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _get_torch_function_state() -> _TorchFunctionState:
    return _TorchFunctionState.ENABLED


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"


def _get_graph_executor_optimize(mode: bool | None = None) -> bool:
    """Does nothing: there is no TorchScript."""
    return True


_set_graph_executor_optimize = _jit_set_num_profiled_runs = _get_graph_executor_optimize


def _set_warnAlways(always: bool) -> None:
    from .settings import set_warn_always
    set_warn_always(always)


def _get_tracing_state() -> None:
    """Nothing is being traced."""


def _is_torch_function_mode_enabled() -> bool:
    from .ops.core.overrides import _is_torch_function_mode_enabled as enabled
    return enabled()


def _len_torch_function_stack() -> int:
    from .ops.core.overrides import _get_current_function_mode_stack
    return len(_get_current_function_mode_stack())


def _len_torch_dispatch_stack() -> int:
    from .utils._python_dispatch import _get_current_dispatch_mode_stack
    return len(_get_current_dispatch_mode_stack())


def _get_dispatch_stack_at(position: int) -> Any:
    from .utils._python_dispatch import _get_current_dispatch_mode_stack
    return _get_current_dispatch_mode_stack()[position]


def _get_dispatch_mode(key: Any) -> None:
    """No mode stands for a key of the dispatcher."""


_unset_dispatch_mode = _get_dispatch_mode


def _has_storage(tensor: TensorBase) -> bool:
    """Whether a tensor has memory of its own to show: not if it is sparse."""
    return tensor.layout.name == "strided"


def _get_cpu_capability() -> str:
    from .backends.cpu import get_cpu_capability
    return get_cpu_capability()


def _log_api_usage_once(name: str) -> None:
    """Does nothing: nobody counts."""


def _jit_set_profiling_mode(mode: bool) -> bool:
    """Does nothing: there is no TorchScript."""
    return False


_jit_set_profiling_executor = _jit_set_profiling_mode


def _cuda_getDeviceCount() -> int:
    return 0


def _set_grad_enabled(mode: bool) -> None:
    from .autograd.modes import set_grad_enabled
    set_grad_enabled(mode)


# Questions about the backward pass that is under way -> their names in autograd/current.py
_CURRENT = {"_current_graph_task_id": "graph_task_id", "_current_autograd_node": "autograd_node",
            "_current_graph_task_execution_order": "execution_order", "_will_engine_execute_node": "will_execute"}


class _WeakTensorRef:
    """Tells whether a tensor is still there, without keeping it."""

    def __init__(self, tensor: TensorBase):
        self._reference = _weakref.ref(tensor)

    def expired(self) -> bool:
        return self._reference() is None


def __getattr__(name: str) -> Any:
    if name in _CURRENT:
        from .autograd import current
        return getattr(current, _CURRENT[name])
    if name in ("_set_fwd_grad_enabled", "_is_fwd_grad_enabled"):
        from .autograd import forward_ad
        return getattr(forward_ad, name)
    if name == "_autograd":
        import importlib
        return importlib.import_module(f"{__name__}._autograd")
    if name in ("DispatchKey", "DispatchKeySet", "_ExcludeDispatchKeyGuard"):
        from . import dispatch_keys
        return getattr(dispatch_keys, {"_ExcludeDispatchKeyGuard": "excluded"}.get(name, name))
    if name == "FileCheck":
        from .file_check import FileCheck
        return FileCheck
    if name in _SCRIPT:
        made = globals()[name] = refused("_C", "TorchScript is not implemented", name)[name]
        return made
    if name == "_LinAlgError":
        from .linalg import LinAlgError
        return LinAlgError
    if name == "Generator":
        from .creation.random import Generator
        return Generator
    if name == "dtype":
        from .tensors.dtypes import dtype
        return dtype
    if name == "device":
        from .tensors.device import device
        return device
    if name.startswith("__"):
        raise AttributeError(name)
    from .internals import HOMES
    if f"_C.{name}" in HOMES:
        import importlib
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"flambeau._C has no {name}: there is no compiled module behind flambeau")


__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "Size", "TensorBase", "_EnableTorchFunction",
           "_disabled_torch_function_impl", "is_grad_enabled", "is_inference_mode_enabled"]
