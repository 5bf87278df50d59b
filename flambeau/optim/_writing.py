"""What optimizers written after PyTorch's own take from `torch.optim.optimizer`, beside `Optimizer` itself.

Private there and unused here: `optimizer.py` hands these names out when somebody asks for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..autograd.modes import set_grad_enabled
from ..ops.pointwise.complex import view_as_real
from ..tensors import dtypes as _dtypes
from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
from ..utils._foreach_utils import (
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
    _group_tensors_by_device_and_dtype,  # noqa: F401  (handed out)
)
from .optimizer import _global_post_hooks as _global_optimizer_post_hooks  # noqa: F401  (handed out)
from .optimizer import _global_pre_hooks as _global_optimizer_pre_hooks  # noqa: F401  (handed out)

_foreach_supported_types = [Tensor, Parameter]
T, R = TypeVar("T"), TypeVar("R")
Args, Kwargs, StateDict = tuple[Any, ...], dict[str, Any], dict[str, Any]
Indices, TensorListList = list[int], list[list[Any]]
ParamsT = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
DeviceDict, DeviceDtypeDict = dict[Any, Tensor], dict[Any, Tensor]
GlobalOptimizerPreHook = Callable[[Any, Args, Kwargs], Any]
GlobalOptimizerPostHook = Callable[[Any, Args, Kwargs], None]

_params_doc = "params (iterable): parameters, pairs of names and parameters, or dicts that each describe a group of them"
_foreach_doc = "foreach (bool, optional): whether whole lists of parameters are updated at once (default: None)"
_fused_doc = "fused (bool, optional): whether one kernel makes the whole update (default: None)"
_maximize_doc = "maximize (bool, optional): whether the objective is maximized instead of minimized (default: False)"
_capturable_doc = "capturable (bool, optional): whether a step can be captured in a graph (default: False)"
_differentiable_doc = "differentiable (bool, optional): whether a step is itself part of the graph (default: False)"


def _use_grad_for_differentiable(func: Callable) -> Callable:
    """A `step` that is recorded if its optimizer was made with differentiable=True, and not otherwise."""
    @functools.wraps(func)
    def use_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        with set_grad_enabled(self.defaults["differentiable"]):
            return func(self, *args, **kwargs)

    return use_grad


def _get_value(x: Any) -> Any:
    """A number, also of a tensor."""
    return x.item() if isinstance(x, Tensor) else x


def _stack_if_compiling(x: list[Any]) -> list[Any]:
    """The list itself: what is compiled here are kernel calls, to which a list of numbers is as good."""
    return x


def _to_scalar(x: Any) -> Any:
    """A tensor of one element without its dimensions; numbers as they are."""
    return x.squeeze() if isinstance(x, Tensor) and x.dim() else x


def _view_as_real(params: list[Any], *state_and_grads: list[Any]) -> None:
    """Replaces complex entries of parallel lists by views of their real and imaginary parts."""
    for place, param in enumerate(params):
        if param.is_complex():
            for entries in (params, *state_and_grads):
                entries[place] = view_as_real(entries[place])


def _get_scalar_dtype(is_fused: bool | None = None) -> Any:
    """The dtype of step counters."""
    double = _dtypes.get_default_dtype() is _dtypes.float64 and not is_fused
    return _dtypes.float64 if double else _dtypes.float32


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The device types whose steps PyTorch can capture in graphs."""
    return ["cuda", "xpu", "hpu", "privateuseone"] + ["xla"] * supports_xla


def _device_dtype_check_for_fused(p: Tensor, cuda_unsupported: bool = False) -> None:
    """Raises where fused=True is asked of a parameter that no such kernel takes."""
    devices = [d for d in _get_fused_kernels_supported_devices() if not (cuda_unsupported and d == "cuda")]
    if p.device.type not in devices or not p.is_floating_point():
        raise RuntimeError("`fused=True` requires all the params to be floating point Tensors of supported devices: "
                           f"{devices} but {p.dtype} and {p.device.type}")


def _default_to_fused_or_foreach(params: list[Any], differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
    """(fused, foreach): which implementation fits the parameters, where the user has not chosen one."""
    if differentiable:
        return False, False
    given = [p for p in params if p is not None]
    usual = all(type(p) in _foreach_supported_types for p in given)
    fused_devices, foreach_devices = _get_fused_kernels_supported_devices(), _get_foreach_kernels_supported_devices()
    fused = use_fused and usual and all(p.device.type in fused_devices and p.is_floating_point() for p in given)
    return fused, not fused and usual and all(p.device.type in foreach_devices for p in given)


def _disable_dynamo_if_unsupported(single_tensor_fn: Callable | None = None) -> Callable[[Callable], Callable]:
    """A decorator that changes nothing: every step can be compiled."""
    return lambda func: func
