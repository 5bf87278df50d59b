"""What the arguments of factories mean (sizes, dtypes, devices, layouts, numbers, `out`), and how they finish."""

from __future__ import annotations

import math
from typing import Any

from ..backends import registry
from ..backends.cpu import creation as _cpu
from ..ops.core.row import _type_word, write_out
from ..settings import fills_memory
from ..tensors import dtypes as _dtypes
from ..tensors import pinning
from ..tensors.device import CPU, defaults, device, to_device
from ..tensors.dtypes import dtype as _dtype
from ..tensors.formats import channels_last, channels_last_3d, strided
from ..tensors.shapes import check_dims
from ..tensors.tensor import Tensor, wrap

factory = {"method": False, "out": False}


def set_default_device(device: Any) -> None:
    """New tensors are made on this device unless told otherwise; None goes back to the CPU.

    >>> torch.set_default_device("meta")
    >>> torch.ones(2).device
    device(type='meta')
    >>> torch.set_default_device(None)
    """
    if device is None:
        defaults.device = None
        return
    d = to_device(device)
    registry.backend_for(d)
    defaults.device = d


def get_default_device() -> device:
    """The device on which factories make tensors in this thread."""
    if defaults.stack:
        return defaults.stack[-1]
    return defaults.device or CPU


def place(device: Any) -> Any:
    """The backend of a `device` argument."""
    if device is None:
        if not defaults.stack and defaults.device is None:
            return registry.cpu
        return registry.backend_for(get_default_device())
    return registry.backend_for(to_device(device))


_PYTHON_TYPES = {float: _dtypes.float64, int: _dtypes.int64, bool: _dtypes.bool_, complex: _dtypes.complex128}


def element_type(dtype: Any, name: str) -> _dtype | None:
    """A `dtype` argument, or None; Python's own number types stand for the widest of their kind."""
    if dtype is None or dtype.__class__ is _dtype:
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON_TYPES:
        return _PYTHON_TYPES[dtype]
    if isinstance(dtype, _dtype):
        return dtype.native  # one of PyTorch's that flambeau has no tensors of: says so
    raise TypeError(f"{name}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")


def check_options(name: str, layout: Any, pin_memory: Any, pins: bool = False) -> None:
    """pins: the function looks after pin_memory itself (`pinned_if`)."""
    if layout is not None and layout is not strided:
        raise NotImplementedError(f"{name}(): only the strided layout is implemented, not {layout}")
    if pin_memory and not pinning.has_device():
        raise RuntimeError("pin_memory=True requires a CUDA or other accelerator backend; no pinned memory allocator "
                           "is available on this system.")
    if pin_memory and not pins:
        raise NotImplementedError(f"{name}(pin_memory=True) is not implemented: {name}(...).pin_memory() pins what it makes")


def pinned_if(pin_memory: Any, array: Any) -> Any:
    """An array, in page-locked memory where that was asked for."""
    return pinning.pinned(array) if pin_memory else array


def finish(array: Any, requires_grad: Any = False) -> Tensor:
    """A new leaf. Its own requires_grad argument counts even under no_grad."""
    made = wrap(array)
    if requires_grad:
        if not (made.dtype.is_floating_point or made.dtype.is_complex):
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        made.requires_grad_(True)
    return made


def read_size(name: str, size: Any, *, single: bool = False) -> tuple[int, ...]:
    """The sizes given as f(2, 3), f((2, 3)), f([2, 3]) or f(size=...); every one checked."""
    if size.__class__ is tuple and len(size) == 1 and not single:
        only = size[0]
        if only.__class__ is not int:
            if isinstance(only, (tuple, list)):
                size = only
            elif isinstance(only, Tensor):
                if only.dim() or only.is_floating_point():
                    raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not Tensor")
            elif not hasattr(only, "__index__") or isinstance(only, bool):
                raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, not {type(only).__name__}")
    check_dims(len(size))
    out = []
    for position, n in enumerate(size):
        if n.__class__ is not int:
            if isinstance(n, bool) or not hasattr(n, "__index__"):
                raise TypeError(f"{name}(): argument 'size' (position 1) must be tuple of ints, but found element of "
                                f"type {type(n).__name__} at pos {position}")
            n = n.__index__()
        if n < 0:
            raise RuntimeError(f"{name}: Dimension size must be non-negative, but size {position} is {n} in "
                               f"{list(size)}: Trying to create tensor with negative dimension {n}")
        if n >= 1 << 63:
            raise TypeError(f"{name}(): argument 'size' failed to unpack the object at pos {position + 1}: {n} does "
                            "not fit in 64 bits")
        out.append(n)
    return tuple(out)


def _sizes(name: str, size: tuple[Any, ...], keyword: Any) -> tuple[int, ...]:
    if keyword is not None:
        if size:
            raise TypeError(f"{name}() got multiple values for argument 'size'")
        size = (keyword,)
    elif not size:
        raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
    return read_size(name, size)


def _into(name: str, out: Tensor, dtype: _dtype | None, device: Any) -> _dtype:
    """The dtype to compute in for out=; an explicit dtype or device must be out's."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if dtype is not None and dtype is not out.dtype:
        raise RuntimeError(f"dtype {_type_word(dtype)} does not match dtype of out parameter ({_type_word(out.dtype)})")
    if device is not None and to_device(device).type != out.device.type:
        raise RuntimeError(f"device type {to_device(device)} does not match device type of out parameter ({out.device.type})")
    return out.dtype


def _deliver(name: str, array: Any, out: Tensor | None, requires_grad: Any, sequence: bool = False) -> Tensor:
    if out is None:
        return finish(array, requires_grad)
    made = wrap(array)
    if sequence and out.shape != made.shape and out.numel() == made.numel():
        made = made.reshape(out.shape)  # a sequence of as many elements fills any shape
    return write_out(name, out, made, (), {})


def _keyword(name: str, named: dict[str, Any]) -> Any:
    """`size=` and, refused with a sentence, named dimensions."""
    if not named:
        return None
    size = named.pop("size", None)
    if named.pop("names", None) is not None:
        raise NotImplementedError(f"{name}(): named dimensions (names=) are not implemented")
    if named:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
    return size


def scalar(name: str, argument: str, value: Any) -> Any:
    """A Python number from a number, a NumPy scalar or a zero-dim tensor."""
    if value.__class__ in (int, float, bool, complex):
        return value
    if isinstance(value, Tensor):
        if value.dim() == 0:
            return value.item()
    elif isinstance(value, (bool, int, float, complex)):
        return next(t for t in (bool, int, float, complex) if isinstance(value, t))(value)
    elif _cpu.is_scalar(value) and value.dtype.kind in "biufc":
        return float(value) if value.dtype.kind == "b" else value.item()  # NumPy's truth values are floats to PyTorch
    elif hasattr(value, "__index__"):
        return value.__index__()
    raise TypeError(f"{name}(): argument '{argument}' must be Number, not {type(value).__name__}")


def _fits(value: Any, dtype: _dtype) -> None:
    if not _cpu.item_fits(value, dtype.native):
        raise RuntimeError(f"value cannot be converted to type {dtype.scalar_word} without overflow: {value}")


def _unset(made: Tensor) -> Tensor:
    """Fills memory that nobody has written to, where the settings ask for that: NaN, or the largest number."""
    if fills_memory() and made._array.size and made.device.type == "cpu":
        d = made.dtype
        worst = math.nan if d.is_floating_point or d.is_complex else d is _dtypes.bool_ or _dtypes.iinfo(d).max
        made.detach().fill_(worst)
    return made


def format_order(memory_format: Any, ndim: int) -> tuple[int, ...]:
    """The order of dimensions, slowest first, that a memory format asks for."""
    if memory_format is channels_last:
        if ndim != 4:
            raise RuntimeError("required rank 4 tensor to use channels_last format")
        return (0, 2, 3, 1)
    if memory_format is channels_last_3d:
        if ndim != 5:
            raise RuntimeError("required rank 5 tensor to use channels_last_3d format")
        return (0, 2, 3, 4, 1)
    return tuple(range(ndim))


def _side(name: str, argument: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument '{argument}' must be int, not {type(value).__name__}")
    return value.__index__()
