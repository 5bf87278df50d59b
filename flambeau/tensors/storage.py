"""Storages: the memory behind tensors, as bytes (`UntypedStorage`) or as elements of a dtype (`TypedStorage`)."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from ..autograd.state import looked_at
from ..backends import registry
from ..backends.cpu import creation as _cpu
from ..backends.pending import window_of
from ..backends.strides import contiguous_strides
from . import dtypes as _dtypes
from . import pinning
from .device import to_device
from .tensor import Tensor, wrap
from .typed_storage_warning import (  # noqa: F401  users find them here
    _get_always_warn_typed_storage_removal,
    _reset_warn_typed_storage_removal,
    _set_always_warn_typed_storage_removal,
    _warn_typed_storage_removal,
)


class _Memory:
    """What storages of bytes and of elements have in common."""

    __slots__ = ()
    is_sparse = False

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def is_pinned(self, device: Any = None) -> bool:
        return pinning.is_pinned(self.untyped()._bytes)

    def resizable(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __copy__(self) -> Any:
        return self.clone()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()


_IN_USE: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()  # by the id of the memory's owner
_ATTRIBUTES: dict[int, dict[str, Any]] = {}  # what users hung on storages that nobody holds now, while the memory lives


class UntypedStorage(_Memory):
    """Plain bytes. All tensors over one memory have one storage: it is the same object for as long as somebody holds it, and
    its attributes are there for as long as the memory.

    >>> torch.zeros(3).untyped_storage().nbytes()
    12
    """

    __module__ = "flambeau.storage"  # where users find it

    __slots__ = ("__dict__", "__weakref__", "_file", "_owner", "_raw", "_tensors")  # _file: only where a file is mapped

    def __init__(self, *args: Any, device: Any = None):
        self._tensors, self._owner = [], None
        home = registry.cpu if device is None else registry.backend_for(to_device(device))
        byte = _dtypes.uint8.native
        if not args:
            self._bytes = home.empty((0,), byte)
        elif isinstance(args[0], int):
            if args[0] < 0:
                raise RuntimeError(f"a storage was asked for with a negative number of bytes: {args[0]}")
            self._bytes = home.empty((args[0],), byte)
        elif not isinstance(args[0], Sequence) or isinstance(args[0], str):
            raise RuntimeError(f"torch.UntypedStorage(): Expected a sequence type, but got {type(args[0]).__name__}")
        else:
            self._bytes = registry.move(registry.cpu.asarray(list(args[0]), byte), home)

    @classmethod
    def _of(cls, tensor: Tensor) -> UntypedStorage:
        looked_at(tensor._array, "a tensor's storage was asked for", writing=True)
        array = tensor._array
        owner, _ = whole_storage(array)
        made = _IN_USE.get(id(owner))
        if made is None or type(made) is not cls:
            made = cls._over(registry.backend_of(array).storage_bytes(array))
            made._owner = owner
            made.__dict__.update(_ATTRIBUTES.pop(id(owner), {}))
            _IN_USE[id(owner)] = made
        made._tensors = [t for t in made._tensors if t() is not None and t() is not tensor] + [weakref.ref(tensor)]
        return made

    def __del__(self):
        owner = getattr(self, "_owner", None)
        if owner is not None and self.__dict__:
            _ATTRIBUTES[id(owner)] = self.__dict__
            weakref.finalize(owner, _ATTRIBUTES.pop, id(owner), None).atexit = False

    @classmethod
    def _over(cls, raw: Any) -> UntypedStorage:
        made = object.__new__(cls)
        made._bytes, made._tensors, made._owner = raw, [], None
        return made

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file. shared: writes go to the file, which is made or lengthened if need be."""
        from ..backends.cpu.data.checkpoint import mapped_file
        made = cls._over(mapped_file(os.fspath(filename), shared, nbytes))
        made._file = filename if shared else None
        return made

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0, *,
                    dtype: Any = None) -> UntypedStorage:
        """A copy of the elements in a buffer of bytes, which are in "native", "little" or "big" order."""
        if dtype is None:
            raise TypeError("function missing required argument 'dtype' (pos 5)")
        if byte_order not in ("native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        raw = bytes(memoryview(buffer))
        if offset < 0 or offset > len(raw):
            raise ValueError(f"offset must be non-negative and no greater than buffer length ({len(raw)}), but got {offset}")
        raw = raw[offset:]
        if count < 0 and len(raw) % dtype.itemsize:
            raise ValueError(f"buffer size ({len(raw)}) must be a multiple of element size ({dtype.itemsize})")
        if count > 0 and count * dtype.itemsize > len(raw):
            raise ValueError(f"buffer has only {len(raw)} bytes after offset {offset}, but specified a size of {count}")
        raw = raw[:(len(raw) // dtype.itemsize if count < 0 else count) * dtype.itemsize]
        if dtype is _dtypes.bool_:
            raw = bytes(map(bool, raw))
        made = cls(raw)
        if byte_order not in ("native", sys.byteorder):
            made.byteswap(dtype)
        return made

    @property
    def _bytes(self) -> Any:
        """The bytes, to be read or written. What a followed call has pending runs first."""
        looked_at(self._raw, "a tensor's storage was used", writing=True)
        return self._raw

    @_bytes.setter
    def _bytes(self, raw: Any) -> None:
        self._raw = raw

    def _elements(self) -> Any:
        return self._bytes

    def array(self, native: Any, shape: Any, stride: Any, offset: int = 0) -> Any:
        """An array over these bytes."""
        size = native.itemsize
        last = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
        if last * size > self.nbytes():
            raise RuntimeError(f"setStorage: sizes {list(shape)}, strides {list(stride)}, storage offset {offset}, and "
                               f"itemsize {size} requiring a storage size of {last * size} are out of bounds for "
                               f"storage of size {self.nbytes()}")
        return registry.backend_of(self._raw).over_bytes(self._bytes, shape, stride, offset, native)

    # ------------------------------------------------------------------------------------------------- questions
    def nbytes(self) -> int:
        return self._raw.nbytes

    size = nbytes
    __len__ = nbytes

    def element_size(self) -> int:
        return 1

    itemsize = property(element_size)

    @property
    def device(self) -> Any:
        return registry.backend_of(self._bytes).device_of(self._bytes)

    is_hpu = False

    def get_device(self) -> int:
        return self.device.index if self.is_cuda else -1

    def _moved(self, device: Any) -> UntypedStorage:
        device = registry.placed(to_device(device))
        return self if device == self.device else UntypedStorage._over(
            registry.move(self._bytes, registry.backend_for(device)))

    def cpu(self) -> UntypedStorage:
        """The bytes in the host's memory: a copy, unless they are there."""
        return self._moved("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """The bytes on a CUDA device: a copy, unless they are there."""
        return self._moved("cuda" if device is None else device)

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        return self._moved(device)

    def pin_memory(self, device: Any = None) -> UntypedStorage:
        """The bytes in page-locked memory."""
        return self if self.is_pinned() else UntypedStorage._over(pinning.pinned(self._bytes))

    def data_ptr(self) -> int:
        return registry.backend_of(self._bytes).address(self._bytes) if self.nbytes() else 0

    @property
    def _cdata(self) -> int:
        """A number that only storages of the same memory share."""
        return self.data_ptr() or id(self)

    def _weak_ref(self) -> Any:
        """A weak reference to the memory, which outlives this object while a tensor shows it."""
        return weakref.ref(self._raw if self._owner is None else self._owner)

    def is_shared(self) -> bool:
        return hasattr(self, "_file") or registry.backend_of(self._bytes).is_shared(self._bytes)

    @property
    def filename(self) -> str | None:
        return getattr(self, "_file", None)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> str:
        return "torch.storage.UntypedStorage"

    def untyped(self) -> UntypedStorage:
        return self

    # -------------------------------------------------------------------------------------------------- elements
    def _values(self) -> Any:
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self._bytes

    def tolist(self) -> list[int]:
        return self._values().tolist()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.nbytes())
            if step != 1:
                raise RuntimeError(f"Trying to slice with a step of {step}, but only a step of 1 is supported")
            from ..backends.cpu.data.checkpoint import part
            return UntypedStorage._over(part(self._bytes, start, stop))
        _check_index(index, self.nbytes())
        return self._values()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            _check_index(index, self.nbytes())
        self._values()[index] = value

    # --------------------------------------------------------------------------------------------------- changes
    def resize_(self, size: int) -> UntypedStorage:
        """Grows or shrinks the memory; the tensors that this storage was asked of follow."""
        old = self._bytes
        home = registry.backend_of(old)
        fresh = home.empty((size,), _dtypes.uint8.native)
        count = min(size, old.nbytes)
        fresh[:count] = old[:count]
        self._bytes = fresh
        if self._owner is not None:
            _IN_USE.pop(id(self._owner), None)
            self._owner = whole_storage(fresh)[0]
            _IN_USE[id(self._owner)] = self
        for tensor in [t() for t in self._tensors if t() is not None]:
            shape, stride, offset = tensor._array.shape, tensor.stride(), tensor.storage_offset()
            needed = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
            if needed * tensor.itemsize <= size:
                tensor._array = home.over_bytes(fresh, shape, stride, offset, tensor._array.dtype)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> UntypedStorage:
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes")
        given = source.untyped()._bytes
        self._bytes[:] = given if registry.backend_of(given) is registry.backend_of(self._raw) else registry.move(
            given, registry.backend_of(self._raw))
        return self

    def fill_(self, value: int) -> UntypedStorage:
        self._bytes[:] = value
        return self

    def clone(self) -> UntypedStorage:
        return type(self)(self.nbytes(), device=self.device).copy_(self)

    def byteswap(self, dtype: Any) -> None:
        """Turns the bytes of each element around; a complex number is two elements."""
        size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        turned = self._bytes.reshape(-1, size)[:, ::-1].copy()
        self._bytes[...] = turned.reshape(-1)

    def share_memory_(self) -> UntypedStorage:
        self._bytes = registry.cpu.to_shared(self._bytes)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        owner, raw = whole_storage(self._bytes)
        shared = memo.setdefault("flambeau storages", {})  # tensors over this memory find their copy there, too
        if id(owner) not in shared:
            shared[id(owner)] = (raw.copy(), owner)
        return UntypedStorage._over(shared[id(owner)][0])

    def __reduce__(self):
        if self.is_cuda:
            return _rebuild, (self.cpu()._bytes.tobytes(), str(self.device))
        return _rebuild, (self._bytes.tobytes(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and (
            self.data_ptr() == other.data_ptr() and self.nbytes() == other.nbytes())

    def __hash__(self) -> int:
        return hash((self.data_ptr(), self.nbytes()))

    def __repr__(self) -> str:
        body = "..." if self.device.type == "meta" else "\n".join(f" {v}" for v in self.tolist())
        return f"{body}\n[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


def _rebuild(data: bytes, device: str = "cpu") -> UntypedStorage:
    return UntypedStorage(data, device=device)


def whole_storage(array: Any) -> tuple[Any, Any]:
    """What owns an array's memory, and all its bytes."""
    array = window_of(array)
    backend = registry.backend_of(array)
    if backend.NAME != "cuda":
        return _cpu.storage_bytes(array)
    return backend.Storage(array).owner, backend.storage_bytes(array)


def _check_index(index: Any, length: int) -> None:
    if not isinstance(index, int):
        raise TypeError(f"can't index a torch.UntypedStorage with {type(index).__name__}")
    if not -length <= index < length:
        raise IndexError(f"index {index} out of range for storage of size {length}")


def _check_wrapped(start: str, args: tuple[Any, ...], storage: Any, dtype: Any, device: Any) -> None:
    """What goes with `wrap_storage=`: a dtype, and nothing else."""
    if args:
        raise RuntimeError(f"{start}No positional arguments should be given when using 'wrap_storage'")
    if dtype is None:
        raise RuntimeError(f"{start}Argument 'dtype' must be specified")
    if not isinstance(dtype, _dtypes.dtype):
        raise TypeError(f"{start}Argument 'dtype' must be torch.dtype, not {type(dtype)}")
    if device is not None:
        raise RuntimeError(f"{start}Argument 'device' should not be specified when 'wrap_storage' is given")
    if not isinstance(storage, UntypedStorage):
        raise TypeError(f"{start}Argument 'wrap_storage' must be UntypedStorage, but got {type(storage)}")


class TypedStorage(_Memory):
    """A storage read as elements of one dtype.

    >>> torch.tensor([1, 2, 3]).storage().tolist()
    [1, 2, 3]
    """

    __module__ = "flambeau.storage"  # where users find it

    def __init__(self, *args: Any, wrap_storage: UntypedStorage | None = None, dtype: Any = None, device: Any = None,
                 _internal: bool = False):
        name = type(self).__name__
        if wrap_storage is not None:
            _check_wrapped(f"{name}(): ", args, wrap_storage, dtype, device)
            self.dtype, self._untyped_storage = dtype, wrap_storage
            return
        self.dtype = dtype or _dtypes.get_default_dtype()
        if device is not None and to_device(device).type not in ("cpu", "cuda", "meta"):
            raise RuntimeError(f"Storage device not recognized: {to_device(device).type}")
        place = {} if device is None or to_device(device).type == "meta" else {"device": device}
        if len(args) > 1:
            raise RuntimeError(f"{name}(): Too many positional arguments")
        size = self.dtype.itemsize
        if args and not isinstance(args[0], int):
            if isinstance(args[0], str):
                raise TypeError(f"{name}(): invalid data type 'str'")
            if isinstance(args[0], Tensor) or not isinstance(args[0], Sequence):
                raise TypeError(f"{name}(): Argument type not recognized: {type(args[0])}")
            data = registry.cpu.asarray(list(args[0]), self.dtype.native)
            self._untyped_storage = UntypedStorage(data.nbytes, **place)
            self._elements()[:] = data
        else:
            self._untyped_storage = UntypedStorage((args[0] if args else 0) * size, **place)

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, size: int = 0) -> TypedStorage:
        """The first elements of a file (see UntypedStorage.from_file)."""
        dtype = getattr(cls, "dtype", None) or _dtypes.get_default_dtype()
        raw = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return cls(wrap_storage=raw, dtype=dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: Any = None, **kwargs: Any) -> TypedStorage:
        """A copy of the elements in a buffer of bytes (see UntypedStorage.from_buffer)."""
        dtype = getattr(cls, "dtype", None) or dtype or _dtypes.get_default_dtype()
        return cls(wrap_storage=UntypedStorage.from_buffer(*args, dtype=dtype, **kwargs), dtype=dtype)

    @property
    def filename(self) -> str | None:
        return self._untyped_storage.filename

    @classmethod
    def _of(cls, tensor: Tensor) -> TypedStorage:
        return cls(wrap_storage=UntypedStorage._of(tensor), dtype=tensor.dtype)

    def _elements(self) -> Any:
        shape = (self.size(),)
        return self._untyped_storage.array(self.dtype.native, shape, contiguous_strides(shape))

    def _with(self, raw: UntypedStorage) -> TypedStorage:
        return self if raw is self._untyped_storage else TypedStorage(wrap_storage=raw, dtype=self.dtype)

    def cpu(self) -> TypedStorage:
        return self._with(self._untyped_storage.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        return self._with(self._untyped_storage.cuda(device))

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        return self._with(self._untyped_storage.to(device=device))

    def get_device(self) -> int:
        return self._untyped_storage.get_device()

    def pin_memory(self, device: Any = None) -> TypedStorage:
        return self._with(self._untyped_storage.pin_memory())

    def untyped(self) -> UntypedStorage:
        return self._untyped_storage

    def size(self) -> int:
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    __len__ = _size = size

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    _nbytes = nbytes

    def element_size(self) -> int:
        return self.dtype.itemsize

    _element_size = element_size

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def _weak_ref(self) -> Any:
        return self._untyped_storage._weak_ref()

    @property
    def device(self) -> Any:
        return self._untyped_storage.device

    def is_shared(self) -> bool:
        return self._untyped_storage.is_shared()

    def tolist(self) -> list[Any]:
        return self._elements().tolist()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__; or slice a tensor over the storage")
        if not isinstance(index, int):
            raise RuntimeError(f"can't index a {type(self)} with {type(index)}")
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        _check_index(index, self.size())
        return wrap(self._elements())[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            _check_index(index, self.size())
        self._elements()[index] = value._array if isinstance(value, Tensor) else value

    def resize_(self, size: int) -> TypedStorage:
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def fill_(self, value: Any) -> TypedStorage:
        self._elements()[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> TypedStorage:
        if source.size() != self.size():
            raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes")
        self._elements()[:] = source._elements()
        return self

    def clone(self) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def share_memory_(self) -> TypedStorage:
        self._untyped_storage.share_memory_()
        return self

    def type(self, dtype: Any = None, non_blocking: bool = False) -> str:
        return f"torch.{_legacy(self.dtype)}"

    def _to(self, dtype: Any) -> TypedStorage:
        made = TypedStorage(self.size(), dtype=dtype)
        made._elements()[:] = self._elements()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        return TypedStorage(wrap_storage=self._untyped_storage.__deepcopy__(memo), dtype=self.dtype)

    def __reduce__(self):
        return _rebuild_typed, (self._untyped_storage, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.dtype is other.dtype and self.untyped() == other.untyped()

    def __hash__(self) -> int:
        return hash((self.dtype, self._untyped_storage))

    def __repr__(self) -> str:
        body = "\n".join(f" {v}" for v in self.tolist())
        return f"{body}\n[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {self.size()}]"


for _name, _type in {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32",
                     "long": "int64", "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool",
                     "complex_float": "complex64", "complex_double": "complex128"}.items():
    setattr(TypedStorage, _name, lambda self, _d=_dtypes.ALIASES[_type]: self._to(_d))
for _name in ("resize_", "is_shared", "share_memory_"):
    setattr(TypedStorage, "_" + _name, getattr(TypedStorage, _name))  # without the warning that PyTorch has for users
TypedStorage._setitem, TypedStorage._deepcopy = TypedStorage.__setitem__, TypedStorage.__deepcopy__
TypedStorage.pickle_storage_type = TypedStorage._pickle_storage_type = lambda self: _legacy(self.dtype)


def _rebuild_typed(storage: UntypedStorage, dtype: Any) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def from_file(filename: str, shared: bool | None = None, size: int = 0, *, dtype: Any = None, layout: Any = None,
              device: Any = None, pin_memory: bool = False) -> Tensor:
    """A tensor of the first elements of a file. shared: writes go to the file, which is made or lengthened if need be.

    >>> written = torch.from_file("numbers.bin", shared=True, size=3, dtype=torch.int32).fill_(7)
    >>> torch.from_file("numbers.bin", size=3, dtype=torch.int32)
    tensor([7, 7, 7], dtype=torch.int32)
    """
    if pin_memory:
        raise RuntimeError("tensors constructed from a file cannot be pinned")
    dtype = dtype or _dtypes.get_default_dtype()
    raw = UntypedStorage.from_file(filename, bool(shared), size * dtype.itemsize)
    return wrap(raw.array(dtype.native, (size,), (1,)))


def _legacy(dtype: Any) -> str:
    return f"{dtype.word}Storage"


def _dtype_to_storage_type_map() -> dict[Any, str]:
    """The name of the typed storage of each dtype that has one."""
    return {d: _legacy(d) for d in dict.fromkeys(_dtypes.BY_NUM.values()) if _legacy(d)[0].isupper()}


def _legacy_class(name: str, dtype: Any) -> type:
    """`FloatStorage(3)` and the like: typed storages under the names of old programs and checkpoints."""
    def __init__(self, *args: Any, wrap_storage: UntypedStorage | None = None, **kwargs: Any):
        own = type(self).dtype
        kwargs.pop("_internal", None)
        for option, value in kwargs.items():
            if option not in ("dtype", "device"):
                raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{option}'")
            if not (option == "dtype" and value is own and wrap_storage is not None):
                raise RuntimeError(f"{name}(): '{option}' cannot be specified for a storage of one dtype and device")
        TypedStorage.__init__(self, *args, wrap_storage=wrap_storage, dtype=own)

    doc = f"A typed storage of {str(dtype).removeprefix('torch.')}.\n\n>>> torch.{name}(3).size()\n3"
    members = {"__init__": __init__, "dtype": dtype, "_dtype": dtype, "__module__": TypedStorage.__module__, "__doc__": doc}
    return type(name, (TypedStorage,), members)


for _type in set(_dtypes.BY_NUM.values()):
    globals()[_legacy(_type)] = _legacy_class(_legacy(_type), _type)
StorageBase = _StorageBase = UntypedStorage
_LegacyStorage = TypedStorage  # what PyTorch's code asks isinstance for
Storage = globals()["FloatStorage"]  # of the default dtype, as in PyTorch
