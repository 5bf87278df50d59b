"""What the rest of flambeau asks of the meta backend: shapes and dtypes of everything, values of nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ...tensors.device import META
from ..cpu import arrays as _cpu_arrays
from ..cpu.table import KERNELS
from ..facts import POINTWISE, SHAPES, VIEWS
from ..geometry import RUNS
from ..strides import elementwise_strides
from .arrays import MetaArray, meta, reserve, reserve_like, reserve_strided, storage, windows, zeros_of

ARRAY = MetaArray
NAME = "meta"
_SMALL = 1 << 16             # elements in all up to which a kernel without a rule may run on zeros


def device_of(array: Any) -> Any:
    return META


# ----------------------------------------------------------------------------------------------------- new arrays
empty = zeros = reserve
empty_strided, like, ordered = reserve_strided, reserve_like, windows.ordered


def full(shape: tuple[int, ...], dtype: np.dtype, value: Any) -> MetaArray:
    return reserve(shape, dtype)


def arange(start: Any, step: Any, count: int, dtype: np.dtype) -> MetaArray:
    return reserve((count,), dtype)


def linspace(start: Any, end: Any, steps: int, dtype: np.dtype) -> MetaArray:
    return reserve((steps,), dtype)


def logspace(start: Any, end: Any, steps: int, base: Any, dtype: np.dtype) -> MetaArray:
    return reserve((steps,), dtype)


def eye(n: int, m: int, dtype: np.dtype) -> MetaArray:
    return reserve((n, m), dtype)


def empty_like(x: Any) -> MetaArray:
    return reserve_like(x, x.dtype)


def copy(x: Any, dtype: np.dtype | None = None) -> MetaArray:
    return reserve_like(x, dtype or x.dtype)


def copy_with_layout(source: Any, like: Any) -> MetaArray:
    return reserve_like(like, like.dtype)


def from_cpu(array: ndarray) -> MetaArray:
    return reserve_strided(array.shape, _cpu_arrays.strides(array), array.dtype)


def to_cpu(array: MetaArray) -> ndarray:
    raise NotImplementedError("Cannot copy out of meta tensor; no data!")


def check_bytes(nbytes: int, shape: Any) -> None:
    pass


def fill(target: MetaArray, value: Any) -> None:
    pass


def write(target: MetaArray, source: Any) -> None:
    """Nothing is written; shapes were checked by the caller."""


def asarray(value: Any, dtype: Any = None) -> MetaArray:
    return meta(np.asarray(value, dtype))


# ------------------------------------------------------------------------------------------------------- geometry
strides = _cpu_arrays.strides
is_contiguous = _cpu_arrays.is_contiguous
storage_offset, storage_bytes = windows.storage_offset, windows.storage_bytes
over_bytes, as_strided = windows.over_bytes, windows.as_strided


def address(x: Any) -> int:
    return 0


class Storage:
    """The length of the storage; there is no address."""

    __slots__ = ("address", "nbytes", "owner")

    def __init__(self, x: MetaArray):
        self.owner = windows.owner(x)
        self.address, self.nbytes = 0, self.owner.nbytes


def resized(x: MetaArray, shape: Any, stride: Any) -> MetaArray:
    """x's storage from x's first element on, by another geometry; a larger storage if needed."""
    root, (offset, needed) = windows.owner(x), windows.reaches(x, shape, stride)
    return over_bytes(root if needed <= root.nbytes else storage(needed), shape, stride, offset, x.dtype)


def is_shared(x: Any) -> bool:
    return False


def to_shared(x: Any) -> Any:
    return x


# -------------------------------------------------------------------------------------------------------- kernels
def call(name: str, args: tuple[Any, ...]) -> Any:
    """What a kernel makes, by its shape rule. Kernels of views run: they touch no element."""
    if name in POINTWISE:
        return _pointwise(KERNELS[name], args)
    rule = SHAPES.get(name)
    if rule is not None and rule is not RUNS:
        return windows.by_rule(rule(*args))
    found = KERNELS.get(name)
    if found is None:
        raise NotImplementedError(f"no kernel named {name!r}")
    if name in VIEWS or rule is RUNS:
        return _meta_all(found(*[_swap(a) for a in args]))
    return standing_in(found, args, {}, name)


def _swap(value: Any) -> Any:
    if isinstance(value, MetaArray):
        return zeros_of(value)
    if value.__class__ in (list, tuple):
        return type(value)(_swap(v) for v in value)
    return value


def _work(value: Any) -> int:
    """How many elements an argument has, or asks for."""
    if isinstance(value, ndarray):
        return value.size
    if value.__class__ in (list, tuple):
        numbers = [v for v in value if v.__class__ is int]
        return math.prod(map(abs, numbers)) + sum([_work(v) for v in value if v.__class__ is not int]) if value else 0
    return abs(value) if value.__class__ is int else 0


def standing_in(function: Any, args: Any, kwargs: dict[str, Any], name: str = "") -> Any:
    """Runs a function without a shape rule on zeros in place of the arrays, if these are few: else nobody knows."""
    if _work(list(args)) + _work(list(kwargs.values())) > _SMALL:
        name = name or getattr(function, "__name__", str(function))
        raise NotImplementedError(f"{name}: the shape of its result for meta tensors this large is not known (it has no shape "
                                  "rule)")
    made = function(*[_swap(a) for a in args], **{k: _swap(v) for k, v in kwargs.items()})
    return _meta_all(made)


def _meta_all(made: Any) -> Any:
    if isinstance(made, (ndarray, np.generic)):
        return meta(made)
    if made.__class__ in (list, tuple):
        return made.__class__(_meta_all(m) for m in made)
    return made


def _pointwise(kernel: Any, args: tuple[Any, ...]) -> Any:
    """One element tells the dtype; the shapes tell the rest."""
    arrays = [a for a in args if isinstance(a, ndarray)]
    _one_device(arrays)
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    made = kernel(*[np.ones((1,) * a.ndim, a.dtype) if isinstance(a, ndarray) else a for a in args])
    if isinstance(made, tuple):
        return tuple(_shaped(m, shape, arrays) for m in made)
    return _shaped(made, shape, arrays)


def _shaped(probe: Any, shape: tuple[int, ...], arrays: list[ndarray]) -> MetaArray:
    operands = [(a.shape, strides(a)) for a in arrays if a.ndim or not shape]
    stride = elementwise_strides(shape, operands)
    return reserve(shape, probe.dtype) if stride is None else reserve_strided(shape, stride, probe.dtype)


def _one_device(arrays: list[ndarray]) -> None:
    if any(type(a) is not MetaArray and a.ndim for a in arrays):
        from ..registry import two_devices
        raise two_devices(arrays)


def run_function(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Another function of NumPy's, called on MetaArrays by a kernel that took them for real ones."""
    if function in _BY_ELEMENT and len(args) > 1 and not kwargs:
        return _pointwise(function, args)
    return standing_in(function, args, kwargs)


_BY_ELEMENT = (np.where, np.clip)


def run_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy function called straight on MetaArrays, as the fast path of the pointwise operations does."""
    if any([hasattr(i, "window") for i in inputs]):
        return NotImplemented  # an array with a conjugate or negative bit (pending.py) is asked next
    out = kwargs.pop("out", None)
    if method == "__call__" and ufunc.signature is None:
        made = _pointwise(lambda *a: ufunc(*a, **kwargs), inputs)
    else:
        _one_device([a for a in inputs if isinstance(a, ndarray)])
        made = standing_in(getattr(ufunc, method), inputs, kwargs)
    if isinstance(out, tuple) and isinstance(out[0], ndarray):
        return out[0] if len(out) == 1 else out
    return made
