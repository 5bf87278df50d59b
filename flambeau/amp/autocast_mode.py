"""autocast: inside it, operations choose their precision as PyTorch's do on the device that they run on.

Products and convolutions run in the lower precision, delicate functions (losses, decompositions, FFTs) in float32, and a few
that join tensors in the widest dtype of their arguments: each says so where it is defined (`public(autocast=...)`). All others
take what they are given. CUDA has a longer list of its own (on_cuda.py).

While nobody uses autocast it costs nothing: `overrides.active`, which every operation reads anyway, is switched on as
long as a block is entered, and `overrides.dispatch` asks `cast_call`.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ..autograd import state as _state
from ..autograd.state import state
from ..backends import registry
from ..backends.registry import CPU_ARRAY
from ..ops.core import overrides as _overrides
from ..ops.core.export import AUTOCAST
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor
from . import on_cuda

__all__ = ["autocast", "autocast_decorator", "custom_fwd", "custom_bwd", "is_autocast_available"]

_DEVICES = ("cpu", "cuda", "xpu", "hpu", "mps", "mtia", "maia", "xla", "ipu")
_LOWERED = (_dtypes.bfloat16, _dtypes.float16)


class _Settings(threading.local):
    """The thread's switches, by type of device."""

    def __init__(self):
        self.enabled: dict[str, bool] = {}
        self.dtype: dict[str, Any] = {}
        self.cache = True
        self.depth = 0
        self.casts: dict[tuple[int, Any], Any] = {}  # parameters that were cast in this block

    def dtype_of(self, device: str) -> Any:
        return self.dtype.get(device) or (_dtypes.bfloat16 if device in ("cpu", "mtia", "maia", "xla", "hpu")
                                          else _dtypes.float16)


_settings = _Settings()
_state.CASTS.update(on_cuda.PRECISION)
_users = 0  # blocks of all threads with autocast on


def _switch(on: bool) -> None:
    """Sets this thread's bit, and tells the operations whether to ask at all."""
    global _users
    before = bool(state.mode & _state.AUTOCAST)
    if on == before:
        return
    state.mode = (state.mode & ~_state.AUTOCAST) | (_state.AUTOCAST if on else 0)
    _users += 1 if on else -1
    _overrides.autocast(cast_call if _users else None)


# ------------------------------------------------------------------------------------------------------- the casts
def cast_call(function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """(True, result) if the function says in which precision it runs, else (False, None)."""
    device = _device_of(args, kwargs)
    precision = AUTOCAST.get(function.__name__) if device == "cpu" else on_cuda.PRECISION.get(function.__name__)
    if precision is None or not _settings.enabled.get(device):
        return False, None
    if precision == "unsafe":
        raise RuntimeError(f"torch.nn.functional.{function.__name__} and torch.nn.BCELoss are unsafe to autocast: a sigmoid in "
                           "half precision leaves no room near 0 and 1. Use binary_cross_entropy_with_logits")
    target = _dtypes.float32 if precision == "float32" else _settings.dtype_of(device) if precision == "lower" else (
        _widest((args, kwargs), device))
    before = state.mode
    state.mode = before & ~_state.AUTOCAST
    try:
        args = tuple([_cast_one(a, target) for a in args])
        return True, function(*args, **{k: _cast_one(v, target) for k, v in kwargs.items() if k != "out"}, **(
            {"out": kwargs["out"]} if "out" in kwargs else {}))
    finally:
        state.mode = before


def _device_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The kind of device that an operation runs on: that of the first tensor in its arguments."""
    for value in (*args, *kwargs.values()):
        if value.__class__ in (tuple, list) and value:
            value = value[0]
        if isinstance(value, Tensor):
            return "cpu" if type(value._array) is CPU_ARRAY or not value.is_cuda else "cuda"
    return "cpu"


def _eligible(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point and value.dtype is not _dtypes.float64


def _cast_one(value: Any, target: Any) -> Any:
    if isinstance(value, Tensor):
        return _cast_tensor(value, target) if _eligible(value) and value.dtype is not target else value
    if value.__class__ in (tuple, list):
        return value.__class__([_cast_one(v, target) for v in value])
    return value


def _cast_tensor(tensor: Tensor, target: Any) -> Tensor:
    """The tensor in another precision; a parameter's is kept until the outermost block ends."""
    keep = (_settings.cache and target in _LOWERED and tensor.dtype is _dtypes.float32 and tensor.requires_grad
            and tensor.is_leaf and not tensor._base)
    if not keep:
        return tensor.to(target)
    known = _settings.casts.get((id(tensor), target))
    if known is not None and known[0]() is tensor and known[2] == tensor._version and known[1].requires_grad:
        return known[1]
    made = tensor.to(target)
    if made.requires_grad:
        _settings.casts[id(tensor), target] = (weakref.ref(tensor), made, tensor._version)
    return made


def _widest(values: Any, device: str) -> Any:
    found = _settings.dtype_of(device)
    stack = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            if value.dtype.is_floating_point:
                found = _dtypes.promote_types(found, value.dtype)
        elif isinstance(value, (tuple, list)):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
    return found


# ---------------------------------------------------------------------------------------------------- with autocast():
def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows the type of device.

    >>> torch.amp.is_autocast_available("cpu")
    True
    """
    return device_type in _DEVICES


class autocast:
    """A block, or a decorated function, in which operations choose their precision.

    device_type: "cpu" or "cuda" (for others, and without a GPU, the block does nothing, with a warning); dtype: bfloat16 on
    the CPU and float16 on CUDA unless given; cache_enabled: parameters are cast once in a block, not at every use.

    >>> with torch.autocast("cpu", dtype=torch.bfloat16):
    ...     product = torch.ones(2, 2) @ torch.ones(2, 2)
    >>> product.dtype
    torch.bfloat16
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = _settings.dtype_of(device_type) if dtype is None else dtype
        self._cache_enabled = _settings.cache if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda":
            if not registry.cuda_count():
                warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=2)
                enabled = False
        elif enabled and self.fast_dtype not in _LOWERED:
            name = device_type.upper()
            warnings.warn(f"In {name} autocast, but the target dtype is not supported. Disabling autocast.\n{name} "
                          f"Autocast only supports dtypes of {', '.join(map(str, _LOWERED))} currently.", stacklevel=2)
            enabled = False
        self._enabled = enabled

    def __enter__(self) -> autocast:
        s = _settings
        self.prev = is_autocast_enabled(self.device)
        self.prev_fastdtype = s.dtype_of(self.device)
        self.prev_cache_enabled = s.cache
        set_autocast_enabled(self.device, self._enabled)
        set_autocast_dtype(self.device, self.fast_dtype)
        autocast_increment_nesting()
        s.cache = self._cache_enabled
        return self

    def __exit__(self, *exc: Any) -> bool:
        if autocast_decrement_nesting() == 0:
            clear_autocast_cache()
        set_autocast_enabled(self.device, self.prev)
        set_autocast_dtype(self.device, self.prev_fastdtype)
        _settings.cache = self.prev_cache_enabled
        return False

    def __call__(self, function: Callable) -> Callable:
        return autocast_decorator(self, function)


def autocast_decorator(instance: autocast, function: Callable) -> Callable:
    """The function, run inside the block."""

    @functools.wraps(function)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with instance:
            return function(*args, **kwargs)

    return decorated


def _enter_autocast(*values: Any) -> autocast:
    mode = autocast(*values)
    mode.__enter__()
    return mode


def _exit_autocast(mode: autocast) -> None:
    mode.__exit__(None, None, None)


# ------------------------------------------------------------------------------------------------------------ switches
def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Whether autocast is on for a type of device (CUDA, if none is named)."""
    return _settings.enabled.get("cuda" if device_type is None else _known(device_type), False)


def _known(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"autocast: argument 'device_type' must be str, not {type(device_type).__name__}")
    if device_type not in _DEVICES:
        raise RuntimeError(f"unknown device type for autocast: '{device_type}'")
    return device_type


def set_autocast_enabled(device_type: Any, enabled: bool | None = None) -> None:
    """Switches autocast on or off, without a block; with one argument for CUDA.

    >>> torch.set_autocast_enabled("cpu", False)
    """
    if enabled is None:
        device_type, enabled = "cuda", device_type
    _settings.enabled[_known(device_type)] = bool(enabled)
    _switch(any([_settings.enabled.get(kind, False) for kind in ("cpu", "cuda")]))


def get_autocast_dtype(device_type: str) -> Any:
    """The lower precision of a type of device.

    >>> torch.get_autocast_dtype("cpu")
    torch.bfloat16
    """
    return _settings.dtype_of(_known(device_type))


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """Sets the lower precision of a type of device.

    >>> torch.set_autocast_dtype("cpu", torch.bfloat16)
    """
    _settings.dtype[_known(device_type)] = dtype


def _deprecated(old: str, new: str) -> None:
    warnings.warn(f"torch.{old} is deprecated. Please use torch.{new} instead.", DeprecationWarning, stacklevel=3)


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU.

    >>> with torch.autocast("cpu"):
    ...     torch.is_autocast_cpu_enabled()
    True
    """
    _deprecated("is_autocast_cpu_enabled()", "is_autocast_enabled('cpu')")
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switches autocast for the CPU.

    >>> torch.set_autocast_cpu_enabled(False)
    """
    _deprecated("set_autocast_cpu_enabled(enabled)", "set_autocast_enabled('cpu', enabled)")
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> Any:
    """The CPU's lower precision.

    >>> torch.get_autocast_cpu_dtype()
    torch.bfloat16
    """
    _deprecated("get_autocast_cpu_dtype()", "get_autocast_dtype('cpu')")
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """Sets the CPU's lower precision.

    >>> torch.set_autocast_cpu_dtype(torch.bfloat16)
    """
    _deprecated("set_autocast_cpu_dtype(dtype)", "set_autocast_dtype('cpu', dtype)")
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> Any:
    """CUDA's lower precision.

    >>> torch.get_autocast_gpu_dtype()
    torch.float16
    """
    _deprecated("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """Sets CUDA's lower precision.

    >>> torch.set_autocast_gpu_dtype(torch.float16)
    """
    _deprecated("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether parameters are cast only once in a block.

    >>> torch.is_autocast_cache_enabled()
    True
    """
    return _settings.cache


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Whether parameters are cast only once in a block.

    >>> torch.set_autocast_cache_enabled(True)
    """
    _settings.cache = bool(enabled)


def clear_autocast_cache() -> None:
    """Forgets the parameters that were cast.

    >>> torch.clear_autocast_cache()
    """
    _settings.casts.clear()


def autocast_increment_nesting() -> int:
    """Enters one more block; the number of blocks around.

    >>> torch.autocast_increment_nesting()
    1
    >>> torch.autocast_decrement_nesting()
    0
    """
    _settings.depth += 1
    return _settings.depth


def autocast_decrement_nesting() -> int:
    """Leaves a block; the number of blocks that remain.

    >>> torch.autocast_increment_nesting()
    1
    >>> torch.autocast_decrement_nesting()
    0
    """
    _settings.depth -= 1
    return _settings.depth


# ------------------------------------------------------------------------------------------------- custom Functions
def _cast(value: Any, device_type: str, dtype: Any) -> Any:
    """Every floating-point tensor in a nested value (but float64) in another dtype."""
    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.device.type == device_type and value.dtype is not _dtypes.float64
        return value.to(dtype) if fits else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        made = [_cast(v, device_type, dtype) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: Any = None) -> Any:
    """Decorates the forward of a custom Function: with cast_inputs, casts them and runs it without autocast.

    >>> class Double(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    ...     def forward(ctx, x):
    ...         return x * 2
    >>> with torch.autocast("cpu"):
    ...     Double.apply(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        args[0]._dtype = get_autocast_dtype(device_type)
        inside = is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Any:
    """Decorates the backward of a custom Function: it runs with the autocast that its forward had.

    >>> class Square(torch.autograd.Function):
    ...     @staticmethod
    ...     @torch.amp.custom_fwd(device_type="cpu")
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     @torch.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         return 2 * ctx.saved_tensors[0] * grad
    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad
    tensor([6.])
    """
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type=device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated
