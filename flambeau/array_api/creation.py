"""Where arrays come from."""

from __future__ import annotations

from typing import Any

import flambeau

from ..backends import registry
from ..tensors.interop import has_buffer
from ..tensors.tensor import Tensor
from .dtypes import DType

__all__ = ["arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
           "ones", "ones_like", "tril", "triu", "zeros", "zeros_like"]


def asarray(obj: Any, /, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """An array of a number, a nested sequence, a buffer, or another array; copy=False raises where one cannot be avoided."""
    if has_buffer(obj) and not hasattr(obj, "__array__"):
        obj = registry.cpu.asarray(memoryview(obj))  # which knows the type of its elements: PyTorch asks the caller
    if copy is not False and not _can_be_shared(obj):
        obj, copy = obj.copy(), None
    return flambeau.asarray(obj, dtype=dtype, device=device, copy=copy)


def _can_be_shared(obj: Any) -> bool:
    """Whether a tensor may lie over the object's memory: not over NumPy's that is read-only or runs backwards."""
    flags = getattr(obj, "flags", None)
    return flags is None or (getattr(flags, "writeable", True) and min(obj.strides, default=0) >= 0)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Another library's array, through DLPack: in the same memory where copy allows it."""
    return flambeau.from_dlpack(x, device=device, copy=copy)


def empty(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array whose elements are not set."""
    return flambeau.empty(shape, dtype=dtype, device=device)


def zeros(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of zeros."""
    return flambeau.zeros(shape, dtype=dtype, device=device)


def ones(shape: Any, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of ones."""
    return flambeau.ones(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: complex, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of one number."""
    return flambeau.full((shape,) if isinstance(shape, int) else shape, fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """An array of the shape of x, whose elements are not set."""
    return flambeau.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Zeros in the shape of x."""
    return flambeau.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Ones in the shape of x."""
    return flambeau.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: complex, *, dtype: DType | None = None, device: Any = None) -> Tensor:
    """One number in the shape of x."""
    return flambeau.full_like(x, fill_value, dtype=dtype, device=device)


def arange(start: float, /, stop: float | None = None, step: float = 1, *, dtype: DType | None = None,
           device: Any = None) -> Tensor:
    """Numbers from start up to, and without, stop; none where step leads away from it."""
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ValueError("arange: step must not be 0")
    if (stop - start) / step <= 0:
        integral = all(isinstance(number, int) for number in (start, stop, step))
        return flambeau.empty(0, dtype=dtype or (flambeau.int64 if integral else None), device=device)
    return flambeau.arange(start, stop, step, dtype=dtype, device=device)


def linspace(start: complex, stop: complex, /, num: int, *, dtype: DType | None = None, device: Any = None,
             endpoint: bool = True) -> Tensor:
    """Evenly spaced numbers from start to stop; endpoint=False leaves the last of one more out."""
    made = flambeau.linspace(start, stop, num if endpoint else num + 1, dtype=dtype, device=device)
    return made if endpoint else made[:-1]


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere."""
    rows = flambeau.arange(n_rows, device=device).unsqueeze(1)
    columns = flambeau.arange(n_rows if n_cols is None else n_cols, device=device)
    return (columns - rows == k).to(dtype or flambeau.get_default_dtype())


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """The coordinates of a grid whose axes have the given ones."""
    return tuple(flambeau.meshgrid(*arrays, indexing=indexing)) if arrays else ()


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and below the k-th diagonal of each matrix, zeros above it."""
    return flambeau.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The elements on and above the k-th diagonal of each matrix, zeros below it."""
    return flambeau.triu(x, k)
