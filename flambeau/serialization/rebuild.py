"""What pickles call to make tensors again: flambeau's own (first part), and those that checkpoints name (PyTorch's).

A checkpoint's geometry is checked against its storage before an array is made: nothing a file says can reach memory
outside its own bytes, or make flambeau allocate more than these.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

from ..backends import pending, registry
from ..backends.cpu import creation as _cpu
from ..ops.core.export import FUNCTIONS
from ..tensors import formats
from ..tensors import parameter as _parameter
from ..tensors.device import META, to_device
from ..tensors.dtypes import dtype as _dtype
from ..tensors.dtypes import int64
from ..tensors.parameter import Parameter
from ..tensors.storage import TypedStorage
from ..tensors.tensor import Tensor, wrap, wrap_as


def rebuild_tensor(cls: type, flat: Any, shape: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool,
                   attributes: dict[str, Any], device: str = "cpu", conj: bool = False, neg: bool = False) -> Tensor:
    """A leaf with the saved elements and strides."""
    array = _cpu.unpacked(flat, shape, stride)
    if device != "cpu":
        array = registry.move(array, registry.backend_for(to_device(device)))
    return _dressed(wrap_as(cls, pending.flipped(array, conj, neg)), requires_grad, attributes)


def rebuild_meta(cls: type, shape: tuple[int, ...], stride: tuple[int, ...], dtype: Any, requires_grad: bool,
                 attributes: dict[str, Any]) -> Tensor:
    array = registry.backend_for(META).empty_strided(shape, stride, dtype.native)
    return _dressed(wrap_as(cls, array), requires_grad, attributes)


def rebuild_parameter(data: Tensor, requires_grad: bool) -> Tensor:
    return Parameter(data, requires_grad)


def _dressed(made: Tensor, requires_grad: bool, attributes: dict[str, Any]) -> Tensor:
    if requires_grad:
        made.requires_grad_(True)
    made.__dict__.update(attributes)
    return made


# -------------------------------------------------------------------------------------------- the names of checkpoints
_LIMIT = 1 << 62
_MAX_DIMS = 64
_PRIVATE = frozenset(name for name in (*Tensor.__slots__, *vars(Tensor)) if name.startswith("_")) - {"__dict__"}


def _ints(values: Any, what: str) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)) or len(values) > _MAX_DIMS:
        raise UnpicklingError(f"a tensor's {what} must be a tuple of at most {_MAX_DIMS} integers")
    for n in values:
        if type(n) is not int or not 0 <= n < _LIMIT:
            raise UnpicklingError(f"a tensor's {what} must be non-negative integers, got {_short(n)}")
    return tuple(values)


def _short(value: Any) -> str:
    """A value of a file for an error message; huge ones are only described."""
    if type(value) is int:
        return str(value) if value.bit_length() < 200 else f"an integer of {value.bit_length()} bits"
    return f"a {type(value).__name__}"


def _checked_geometry(offset: Any, size: Any, stride: Any, itemsize: int) -> tuple[int, tuple, tuple, int]:
    """Offset, size and stride, and how many bytes they reach."""
    size, stride, (offset,) = _ints(size, "size"), _ints(stride, "stride"), _ints((offset,), "storage offset")
    if len(size) != len(stride):
        raise UnpicklingError(f"a tensor has {len(size)} sizes, but {len(stride)} strides")
    count, reach = 1, offset + 1
    for n, s in zip(size, stride):
        count *= max(n, 1)
        reach += (n - 1) * s if n else 0
    if count * itemsize >= _LIMIT or any(s * itemsize >= _LIMIT for s in stride) or reach * itemsize >= _LIMIT:
        raise UnpicklingError("a tensor's size and stride are beyond any memory")
    return offset, size, stride, reach * itemsize if all(size) else 0


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor over a loaded storage."""
    if not isinstance(storage, TypedStorage):
        raise UnpicklingError(f"a tensor needs a storage, the file gives it {_short(storage)}")
    return _over(storage, storage.dtype, storage_offset, size, stride, None)


def _rebuild_tensor_v2(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool,
                       backward_hooks: Any, metadata: Any = None) -> Tensor:
    if not isinstance(storage, TypedStorage):
        raise UnpicklingError(f"a tensor needs a storage, the file gives it {_short(storage)}")
    made = _over(storage, storage.dtype, storage_offset, size, stride, metadata)
    return made.requires_grad_(True) if requires_grad else made


def _rebuild_tensor_v3(storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool,
                       backward_hooks: Any, dtype: Any, metadata: Any = None) -> Tensor:
    """With its dtype named apart: those that have no storage class."""
    if not isinstance(storage, TypedStorage) or not isinstance(dtype, _dtype):
        raise UnpicklingError(f"a tensor needs a storage and a dtype, the file gives it {_short(storage)} and "
                              f"{_short(dtype)}")
    made = _over(storage, dtype, storage_offset, size, stride, metadata)
    return made.requires_grad_(True) if requires_grad else made


def _over(storage: TypedStorage, dtype: Any, offset: Any, size: Any, stride: Any, metadata: Any) -> Tensor:
    offset, size, stride, reach = _checked_geometry(offset, size, stride, dtype.itemsize)
    raw = storage.untyped()._bytes
    if reach > raw.nbytes:
        raise UnpicklingError(f"a tensor of size {list(size)}, stride {list(stride)} and storage offset {offset} needs "
                              f"{reach} bytes, but its storage has {raw.nbytes}")
    conj, neg = _bits(metadata) if metadata else (False, False)
    array = registry.backend_of(raw).over_bytes(raw, size, stride, offset, dtype.native)
    return wrap(pending.flipped(array, conj and dtype.is_complex, neg))


def _bits(metadata: Any) -> tuple[bool, bool]:
    """Whether a file says that a tensor is conjugated, and negated."""
    if not isinstance(metadata, dict) or not set(metadata) <= {"conj", "neg"}:
        raise UnpicklingError("a tensor's metadata can only be 'conj' and 'neg'")
    return bool(metadata.get("conj")), bool(metadata.get("neg"))


class LegacyTensor:
    """`torch.FloatTensor` in very old files: first an empty tensor, then BUILD tells its storage and geometry."""

    def __init__(self, dtype: Any):
        self.dtype = dtype

    def __call__(self) -> Tensor:
        return wrap(registry.cpu.empty((0,), self.dtype.native))


def set_legacy_state(tensor: Tensor, state: Any) -> None:
    """The second half of a very old file's tensor."""
    if not isinstance(state, tuple) or len(state) != 4:
        raise UnpicklingError(f"a tensor's state must be its storage, offset, size and stride, got {_short(state)}")
    tensor._array = _rebuild_tensor(*state)._array


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Tensor:
    if not isinstance(data, Tensor):
        raise UnpicklingError(f"a Parameter needs a tensor, the file gives it {_short(data)}")
    return _parameter.Parameter(data, bool(requires_grad))


def _rebuild_parameter_with_state(data: Any, requires_grad: bool, backward_hooks: Any, state: Any) -> Tensor:
    return set_attributes(_rebuild_parameter(data, requires_grad, backward_hooks), state)


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    if not isinstance(dtype, _dtype):
        raise UnpicklingError(f"a meta tensor needs a dtype, the file gives it {_short(dtype)}")
    _, size, stride, _ = _checked_geometry(0, size, stride, dtype.itemsize)
    made = wrap(registry.backend_for(META).empty_strided(size, stride, dtype.native))
    return made.requires_grad_(True) if requires_grad else made


class _Later(threading.local):
    sparse: list[Tensor] | None = None


_later = _Later()


@contextlib.contextmanager
def sparse_checked_at_the_end() -> Iterator[None]:
    """In files of the old format the indices are read after the tensors are made: until then they are zeros."""
    before, _later.sparse = _later.sparse, []
    try:
        yield
        for made in _later.sparse:
            FUNCTIONS["sparse_coo_tensor"](made._indices(), made._values(), made.shape, check_invariants=True)
    finally:
        _later.sparse = before


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Tensor:
    if layout is not formats.sparse_coo:
        raise NotImplementedError(f"tensors of layout {layout} cannot be loaded: flambeau has only strided and "
                                  "sparse_coo tensors")
    indices, values, size, *coalesced = data
    _ints(size, "size")
    for part in (indices, values):  # an expanded one would be copied in full: more memory than the file has
        if not isinstance(part, Tensor) or not part.ndim or part.nbytes > part.untyped_storage().nbytes():
            raise UnpicklingError("a sparse tensor needs dense tensors of indices and values")
    if indices.dtype is not int64:
        raise UnpicklingError(f"a sparse tensor's indices must be int64, got {indices.dtype}")
    made = FUNCTIONS["sparse_coo_tensor"](indices, values, size, check_invariants=True)
    if _later.sparse is not None:
        _later.sparse.append(made)
    return made._coalesced_(True) if coalesced and coalesced[0] is True else made


def _rebuild_from_type_v2(func: Any, new_type: type, args: tuple, state: Any) -> Tensor:
    """A tensor of a subclass, or one with attributes of its own."""
    if not isinstance(new_type, type) or not issubclass(new_type, Tensor) or func not in _MAKERS:
        raise UnpicklingError(f"{getattr(func, '__name__', func)} and {getattr(new_type, '__name__', new_type)} do not "
                              "describe a tensor: expected a function of torch._utils and a class of tensors")
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    own = getattr(new_type, "__setstate__", None)
    if own is not None and own is not Tensor.__setstate__:
        own(made, state)
        return made
    return set_attributes(made, state)


def set_attributes(made: Tensor, state: Any) -> Tensor:
    """What a program had hung onto a tensor, but none of a tensor's own records."""
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    for names in (state, slots):
        if names is None:
            continue
        if not isinstance(names, dict) or not all(type(name) is str for name in names):
            raise UnpicklingError(f"a tensor's attributes must be a dict of names, got {_short(names)}")
        made.__dict__.update({k: v for k, v in names.items() if k not in _PRIVATE})
    return made


def _rebuild_device_tensor_from_cpu_tensor(data: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    if not isinstance(data, Tensor):
        raise UnpicklingError(f"a tensor on a device needs a tensor, the file gives it {_short(data)}")
    if data.dtype is not dtype or to_device(device).type != "cpu":
        raise NotImplementedError(f"the file holds a {dtype} tensor of device '{device}', which flambeau cannot make")
    return data.requires_grad_(True) if requires_grad else data


def _not_here(name: str, what: str) -> Any:
    def refuse(*args: Any) -> Any:
        raise NotImplementedError(f"the file holds {what}, which flambeau does not have")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


_rebuild_qtensor = _not_here("_rebuild_qtensor", "a quantized tensor")
_rebuild_nested_tensor = _not_here("_rebuild_nested_tensor", "a nested tensor")
_rebuild_wrapper_subclass = _not_here("_rebuild_wrapper_subclass", "a wrapper subclass of Tensor")
_rebuild_device_tensor_from_numpy = _not_here("_rebuild_device_tensor_from_numpy",
                                              "a tensor of a device that is kept as a NumPy array")

_MAKERS = (_rebuild_tensor, _rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_parameter, _rebuild_parameter_with_state,
           _rebuild_meta_tensor_no_storage, _rebuild_sparse_tensor, _rebuild_qtensor, _rebuild_nested_tensor,
           _rebuild_wrapper_subclass, _rebuild_device_tensor_from_numpy, _rebuild_device_tensor_from_cpu_tensor)
