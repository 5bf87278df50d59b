"""The pickler of `save`: tensors become calls that PyTorch knows, their storages go into records of their own.

It is Python's own `pickle._Pickler` underneath, because the C version insists on importing every class it names, and
the names written here are PyTorch's.
"""

from __future__ import annotations

import io
import pickle
import warnings
from collections import OrderedDict
from types import FunctionType
from typing import Any

from ..backends import registry
from ..tensors import dtypes as _dtypes
from ..tensors import formats
from ..tensors import parameter as _parameter
from ..tensors import storage as _storage
from ..tensors.device import device
from ..tensors.storage import TypedStorage, UntypedStorage
from ..tensors.tensor import Tensor
from . import rebuild
from .locations import location_tag
from .names import STORAGE_NAMES, get_layout, torch_name


class Storages:
    """The storages of one checkpoint, each once, in the order in which they are met."""

    def __init__(self, legacy: bool) -> None:
        self.tail = (None,) if legacy else ()  # there, parts of storages were described too
        self.keys: dict[int, str] = {}     # address -> key; the storages below keep the addresses taken
        self.dtypes: dict[int, Any] = {}
        self.found: list[tuple[UntypedStorage, Any]] = []

    def identify(self, obj: Any) -> tuple[Any, ...] | None:
        """What the pickle says of a storage, ('storage', type, key, location, number of elements); None for other
        objects."""
        if isinstance(obj, TypedStorage):
            raw, dtype = obj.untyped(), obj.dtype
            kind = getattr(_storage, STORAGE_NAMES[dtype]) if dtype in STORAGE_NAMES else UntypedStorage
        elif isinstance(obj, UntypedStorage):
            raw, dtype, kind = obj, _dtypes.uint8, UntypedStorage
        else:
            return None
        if kind is UntypedStorage:
            dtype = _dtypes.uint8
        key = self._key(raw, dtype)
        return "storage", kind, key, location_tag(raw), raw.nbytes() // dtype.itemsize, *self.tail

    def _key(self, raw: UntypedStorage, dtype: Any) -> str:
        address = raw.data_ptr() or -1 - len(self.found)  # empty storages have no address: each is its own
        known = self.dtypes.setdefault(address, dtype)
        if known is not dtype:
            raise RuntimeError("Cannot save multiple tensors or storages that view the same data as different types "
                               f"({known} and {dtype})")
        if address not in self.keys:
            self.keys[address] = str(len(self.found))
            self.found.append((raw, dtype))
        return self.keys[address]


# ------------------------------------------------------------------------------------------------------------- tensors
def _reduce_tensor(tensor: Tensor) -> tuple[Any, tuple[Any, ...]]:
    """How a tensor is made again."""
    if tensor._backward_hooks:
        warnings.warn(f"backward hooks of a tensor of shape {list(tensor.shape)} will not be saved", stacklevel=2)
    make, args = _maker(tensor)
    attributes = _parameter._attributes(tensor)
    if type(tensor) is Tensor and not attributes:
        return make, args
    return rebuild._rebuild_from_type_v2, (make, type(tensor), args, attributes)


def _maker(tensor: Tensor) -> tuple[Any, tuple[Any, ...]]:
    if tensor.is_sparse:
        data = tensor._indices(), tensor._values(), tensor.size(), tensor.is_coalesced()
        return rebuild._rebuild_sparse_tensor, (tensor.layout, data)
    size, stride, grad = tuple(tensor.shape), tensor.stride(), tensor.requires_grad
    if tensor.device.type == "meta":
        return rebuild._rebuild_meta_tensor_no_storage, (tensor.dtype, size, stride, grad)
    raw, rest = UntypedStorage._of(tensor), (tensor.storage_offset(), size, stride, grad, OrderedDict())
    bits = {name: True for name, is_set in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_set}
    metadata = (bits,) if bits else ()
    if tensor.dtype in STORAGE_NAMES:
        return rebuild._rebuild_tensor_v2, (TypedStorage(wrap_storage=raw, dtype=tensor.dtype), *rest, *metadata)
    return rebuild._rebuild_tensor_v3, (raw, *rest, tensor.dtype, *metadata)


def _reduce_parameter(parameter: Any) -> tuple[Any, tuple[Any, ...]]:
    args = parameter.data, parameter.requires_grad, OrderedDict()
    attributes = _parameter._attributes(parameter)
    if attributes:
        return rebuild._rebuild_parameter_with_state, (*args, attributes)
    return rebuild._rebuild_parameter, args


def _reduce_uninitialized(tensor: Any) -> tuple[Any, tuple[Any, ...]]:
    options = tensor._options()
    return type(tensor), (options["requires_grad"], options["device"], options["dtype"])


def _reduce_device(place: device) -> tuple[Any, tuple[Any, ...]]:
    return device, (place.type,) if place.index is None else (place.type, place.index)


def _reduce_layout(layout: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_layout, (repr(layout),)


class Reducers:
    """pickle's dispatch table: by exact type for the small things, by base class for tensors that do not say
    themselves how they are pickled."""

    exact = {device: _reduce_device, formats.layout: _reduce_layout}

    def get(self, kind: type, default: Any = None) -> Any:
        found = self.exact.get(kind)
        if found is not None:
            return found
        if not issubclass(kind, Tensor):
            return pickle.dispatch_table.get(kind, default)
        if kind.is_sparse is True:
            return _maker
        own = kind.__reduce_ex__
        if hasattr(kind, "cls_to_become"):  # of a lazy module: without a shape
            return _reduce_uninitialized
        if own is _parameter.Parameter.__reduce_ex__:
            return _reduce_parameter if kind is _parameter.Parameter else _reduce_tensor
        return _reduce_tensor if own is Tensor.__reduce_ex__ and kind.__reduce__ is object.__reduce__ else default

    def __getitem__(self, kind: type) -> Any:
        found = self.get(kind)
        if found is None:
            raise KeyError(kind)
        return found


class _Named:
    """For picklers written in Python: names of PyTorch's for what is flambeau's."""

    def save_global(self, obj: Any, name: str | None = None) -> None:
        known = torch_name(obj) if name is None else None
        if known is None:
            super().save_global(obj, name)
            return
        self._write_global(*known)
        self.memoize(obj)

    def _write_global(self, module: str, name: str) -> None:
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())

    def _save_dtype(self, dtype: Any) -> None:
        self._write_global("torch", dtype.name)
        self.memoize(dtype)


# What Python's own pickler does with its types, by method: packages that pickle more (dill) write into its public table.
_METHODS = {type(None): "none", bool: "bool", int: "long", float: "float", bytes: "bytes", bytearray: "bytearray", str: "str",
            tuple: "tuple", list: "list", dict: "dict", set: "set", frozenset: "frozenset", type: "type",
            pickle.PickleBuffer: "picklebuffer"}


def _pickler_class(base: type) -> type:
    python = issubclass(base, pickle._Pickler)
    parents = (_Named, base) if python else (base,)
    made = type("Pickler", parents, {"persistent_id": lambda self, obj: self.storages.identify(obj)})
    if python:
        own = {kind: getattr(base, f"save_{name}") for kind, name in _METHODS.items()}
        known = own if base is pickle._Pickler else base.dispatch
        made.dispatch = {**known, FunctionType: made.save_global, _dtypes.dtype: made._save_dtype}
    return made


_DEFAULT = _pickler_class(pickle._Pickler)


def pickled(obj: Any, pickle_module: Any, protocol: int, legacy: bool = False) -> tuple[bytes, Storages]:
    """The pickle of an object, and the storages that it refers to."""
    kind = _DEFAULT if pickle_module is pickle else _pickler_class(pickle_module.Pickler)
    out, storages = io.BytesIO(), Storages(legacy)
    pickler = kind(out, protocol=protocol)
    pickler.dispatch_table = Reducers()
    pickler.storages = storages
    pickler.dump(obj)
    return out.getvalue(), storages


def contents(storage: UntypedStorage) -> Any:
    """A storage's bytes, on the CPU."""
    return registry.backend_of(storage._bytes).to_cpu(storage._bytes)
