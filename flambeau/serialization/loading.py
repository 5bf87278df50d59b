"""`load`: checkpoints of PyTorch and flambeau, safely unless told otherwise."""

from __future__ import annotations

import contextlib
import io
import mmap as _mmap
import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..backends.cpu.data import checkpoint as _memory
from ..tensors.storage import TypedStorage
from . import locations
from .archive import ArchiveReader, corrupt
from .names import StorageType, resolve
from .options import LoadEndianness, current
from .rebuild import _short
from .safe_globals import DEFAULT, user_globals
from .unpickler import Unpickler, globals_in

_TRUST = ("Re-running `torch.load` with `weights_only` set to `False` will likely succeed, but it can result in "
          "arbitrary code execution. Do it only if you got the file from a trusted source.")
_TRUE = ("1", "y", "yes", "true")


def load(f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None,
         mmap: bool | None = None, **pickle_load_args: Any) -> Any:
    """Loads what torch.save or flambeau.save wrote, from a path or an object with `read` and `seek`.

    With weights_only=True (the default) only tensors, plain containers and classes marked by `add_safe_globals` are
    built; a file can run no code. weights_only=False is Python's pickle, which can: only for files you trust.
    """
    weights_only, pickle_module = _trust(weights_only, pickle_module)
    if weights_only and pickle_load_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    pickle_load_args.setdefault("encoding", "utf-8")
    is_path = isinstance(f, (str, os.PathLike))
    if is_path and os.fsdecode(f).endswith(".safetensors"):
        from .safetensors import load_file
        return load_file(f, device=_one_device(map_location))
    reading = _Reading(map_location, None if weights_only else pickle_module, pickle_load_args)
    with opened(f) as file:
        _check_seekable(file)
        try:
            if is_zip(file):
                return _load_zip(reading, file, f if is_path else None, bool(mmap))
            if mmap:
                raise RuntimeError("mmap can only be used with files saved with `torch.save("
                                   "_use_new_zipfile_serialization=True)`, please torch.save your checkpoint with this "
                                   "option in order to use mmap.")
            from .legacy import load_legacy
            return load_legacy(reading, file)
        except pickle.UnpicklingError as error:
            if not weights_only:
                raise
            raise pickle.UnpicklingError(_advice(str(error))) from None


def _trust(weights_only: bool | None, pickle_module: Any) -> tuple[bool, Any]:
    """Whether to load safely, and the pickle module otherwise."""
    unset = weights_only is None
    if unset:
        weights_only = pickle_module is None
    force = os.getenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
    force_not = os.getenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
    if force and force_not:
        raise RuntimeError("Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should "
                           "be set, but both were set.")
    if force:
        weights_only = True
    elif force_not and unset:
        warnings.warn("Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` "
                      "argument was not explicitly passed to `torch.load`, forcing "
                      "weights_only=False.", UserWarning, stacklevel=3)
        weights_only = False
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    return bool(weights_only), pickle_module or pickle


def _advice(message: str) -> str:
    """The unpickler's error with what can be done about it."""
    if "was not an allowed global" in message:
        return ("Weights only load failed. This file can still be loaded, to do so you have two options, do those "
                f"steps only if you trust the source of the checkpoint.\n\t(1) {_TRUST}\n\t(2) Alternatively, to load "
                "with `weights_only=True` please check the recommended steps in the following error message.\n\t"
                f"WeightsUnpickler error: {message}")
    return f"Weights only load failed. {_TRUST}\nWeightsUnpickler error: {message}"


def _one_device(map_location: Any) -> Any:
    if isinstance(map_location, dict) or callable(map_location):
        raise RuntimeError("Loading safetensors file with dict or callable map_location is not supported. Use a device "
                           "string or torch.device instead.")
    return "cpu" if map_location is None else map_location


# --------------------------------------------------------------------------------------------------------------- files
@contextlib.contextmanager
def opened(f: Any) -> Iterator[Any]:
    """A file from a path, or the object itself."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file
        return
    yield f


def _check_seekable(file: Any) -> None:
    for name in ("read", "seek", "tell"):
        if not hasattr(file, name):
            raise AttributeError(f"'{type(file).__name__}' object has no attribute '{name}'. You can only torch.load "
                                 "from a file that is seekable. Please pre-load the data into a buffer like io.BytesIO "
                                 "and try to load from it instead.")
    try:
        file.seek(file.tell())
    except (io.UnsupportedOperation, AttributeError) as error:
        raise type(error)(f"{error}. You can only torch.load from a file that is seekable. Please pre-load the data "
                          "into a buffer like io.BytesIO and try to load from it instead.") from None


def is_zip(file: Any) -> bool:
    here = file.tell()
    head = file.read(4)
    file.seek(here)
    return head == b"PK\x03\x04"


# ------------------------------------------------------------------------------------------------------------- reading
class _Reading:
    """How a checkpoint is read: safely (pickle_module None) or by pickle, and where its storages go."""

    def __init__(self, map_location: Any, pickle_module: Any, pickle_args: dict[str, Any]):
        self.restore = locations.restorer(map_location)
        self.to_meta = locations.is_meta(map_location)
        self.pickle_module, self.pickle_args = pickle_module, pickle_args

    @property
    def safe(self) -> bool:
        return self.pickle_module is None

    def unpickle(self, file: Any, persistent_load: Callable[[Any], Any] | None = None) -> Any:
        if self.safe:
            return Unpickler(file, encoding=self.pickle_args["encoding"], persistent_load=persistent_load).load()
        kind = type("Unpickler", (self.pickle_module.Unpickler,), {"find_class": _find_class})
        unpickler = kind(file, **self.pickle_args)
        if persistent_load is not None:
            unpickler.persistent_load = persistent_load
        return unpickler.load()


def _find_class(self: Any, module: str, name: str) -> Any:
    """pickle's look-up, with flambeau's objects for PyTorch's names."""
    if module == "torch" or module.startswith("torch."):
        return resolve(module, name)
    return super(type(self), self).find_class(module, name)


def storage_fields(pid: Any, count: int) -> list[Any]:
    """The checked parts of ('storage', type, key, location, numel, ...), with the dtype for the type."""
    if type(pid) is not tuple or len(pid) != count:
        raise pickle.UnpicklingError(f"a storage must be described by a tuple of {count} values, got {_short(pid)}")
    _, kind, key, location, numel, *rest = pid
    location = location.decode("ascii") if isinstance(location, bytes) else location
    key = key.decode("ascii") if isinstance(key, bytes) else key
    if not isinstance(kind, StorageType):
        raise pickle.UnpicklingError(f"a storage's type must be a storage class of torch, got {_short(kind)}")
    if not isinstance(key, str) or not isinstance(location, str):
        raise pickle.UnpicklingError(f"a storage's key and location must be text, got {_short(key)} and {_short(location)}")
    if type(numel) is not int or numel < 0:
        raise pickle.UnpicklingError(f"a storage's number of elements must be a non-negative integer, got {_short(numel)}")
    return [kind.dtype, key, location, numel, *rest]


class _ZipStorages:
    """Reads each storage of an archive when the pickle first mentions it."""

    def __init__(self, reading: _Reading, archive: ArchiveReader, mapped: Any):
        self.reading, self.archive, self.mapped = reading, archive, mapped
        self.swapped = locations.needs_swap(_byteorder(archive))
        self.loaded: dict[str, tuple[Any, int, TypedStorage]] = {}

    def __call__(self, pid: Any) -> TypedStorage:
        dtype, key, location, numel = storage_fields(pid, 5)
        if key in self.loaded:
            known_dtype, known_numel, known = self.loaded[key]
            if known_dtype is not dtype or known_numel != numel:
                raise pickle.UnpicklingError(f"storage '{key}' is described in two different ways")
            return known
        raw = self._raw(dtype, key, numel * dtype.itemsize)
        if not self.reading.to_meta:
            raw = self.reading.restore(raw, location)
            raw = raw.untyped() if isinstance(raw, TypedStorage) else raw
        made = TypedStorage(wrap_storage=raw, dtype=dtype)
        self.loaded[key] = dtype, numel, made
        return made

    def _raw(self, dtype: Any, key: str, nbytes: int) -> Any:
        entry = self.archive.entry(f"data/{key}")
        if nbytes > entry.size:
            raise pickle.UnpicklingError(f"storage '{key}' should have {_short(nbytes)} bytes, but its record "
                                         f"'{entry.name}' has {entry.size}")
        if self.reading.to_meta:
            return locations.meta_storage(nbytes)
        if self.mapped is not None and not self.swapped and entry.start % dtype.itemsize == 0 and nbytes:
            return locations.storage_over(_memory.part(self.mapped, entry.start, entry.start + nbytes))
        raw = _memory.raw_bytes(nbytes)
        if not current.skip_data:
            self.archive.read_into(entry, raw)
            if self.swapped:
                _memory.swap(raw, dtype.native)
        return locations.storage_over(raw)


def _byteorder(archive: ArchiveReader) -> bytes | None:
    if "byteorder" in archive:
        order = archive.read("byteorder")
        if order not in (b"little", b"big"):
            raise ValueError(f"Unknown endianness type: {order[:20]!r}")
        return order
    assumed = current.endianness
    return {LoadEndianness.BIG: b"big", LoadEndianness.NATIVE: None}.get(assumed, b"little")


def _load_zip(reading: _Reading, file: Any, path: Any, mmap: bool) -> Any:
    archive = ArchiveReader(file)
    if "constants.pkl" in archive:
        if reading.safe:
            raise RuntimeError("Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``. "
                               + _TRUST)
        raise NotImplementedError("this is a TorchScript archive, made by torch.jit.save: flambeau cannot run TorchScript")
    if "data.pkl" not in archive:
        raise corrupt("it has no record 'data.pkl'")
    mapped = None
    if mmap:
        if path is None:
            raise ValueError("f must be a file path in order to use the mmap argument")
        mapped = _map(path, file, archive.length)
    storages = _ZipStorages(reading, archive, mapped)
    return reading.unpickle(io.BytesIO(archive.read("data.pkl")), storages)


def _map(path: Any, file: Any, length: int) -> Any:
    if current.mmap_flags != getattr(_mmap, "MAP_SHARED", object()):
        return _memory.mapped(file, length, current.mmap_flags)
    with open(path, "r+b") as writable:
        return _memory.mapped(writable, length, current.mmap_flags)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The classes and functions that a checkpoint names and load(weights_only=True) would refuse."""
    with opened(f) as file:
        if not is_zip(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save in its zip format")
        archive = ArchiveReader(file)
        if "constants.pkl" in archive:
            raise ValueError("Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint")
        named = globals_in(archive.read("data.pkl"))
    return sorted(named - set(DEFAULT) - set(user_globals()))
