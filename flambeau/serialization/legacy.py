"""Checkpoints of the format before PyTorch 1.6: pickles one after the other, then the storages' bytes."""

from __future__ import annotations

import pickle
import struct
from typing import Any

from ..backends.cpu.data import checkpoint as _memory
from ..tensors.storage import TypedStorage
from . import locations
from .archive import fill
from .loading import _TRUST, _Reading, storage_fields
from .rebuild import _ints, _short, sparse_checked_at_the_end
from .saving import MAGIC_NUMBER, PROTOCOL_VERSION


def load_legacy(reading: _Reading, file: Any) -> Any:
    if _is_tar(file):
        if reading.safe:
            raise RuntimeError("Cannot use ``weights_only=True`` with files saved in the legacy .tar format. " + _TRUST)
        raise NotImplementedError("this file has the .tar format of PyTorch 0.1, which flambeau does not read: load it "
                                  "with PyTorch and save it again")
    if reading.unpickle(file) != MAGIC_NUMBER:
        raise RuntimeError("Invalid magic number; corrupt file?")
    version = reading.unpickle(file)
    if version != PROTOCOL_VERSION:
        raise RuntimeError(f"Invalid protocol version: {_short(version)}")
    reading.unpickle(file)  # about the machine that wrote it: the storages are little-endian whatever it says
    storages = _Storages(reading, _bytes_left(file))
    with sparse_checked_at_the_end():
        result = reading.unpickle(file, storages)
        storages.read(file, reading.unpickle(file))
    return result


def _is_tar(file: Any) -> bool:
    here = file.tell()
    head = file.read(512)
    file.seek(here)
    return head[257:262] == b"ustar"


def _bytes_left(file: Any) -> int:
    here = file.tell()
    file.seek(0, 2)
    end = file.tell()
    file.seek(here)
    return end - here


class _Storages:
    """The storages as the pickle describes them; their bytes come after it."""

    def __init__(self, reading: _Reading, available: int):
        self.reading, self.available = reading, available
        self.raw: dict[str, Any] = {}    # key -> bytes to be read
        self.made: dict[str, TypedStorage] = {}
        self.described: dict[str, tuple[Any, int]] = {}

    def __call__(self, pid: Any) -> Any:
        if isinstance(pid, tuple) and pid and pid[0] in ("module", b"module"):
            return pid[1]  # a class, with its source code, which is not compared
        dtype, key, location, numel, view = storage_fields(pid, 6)
        made = self.made.get(key)
        if made is None:
            made = self.made[key] = self._new(dtype, key, location, numel)
            self.described[key] = dtype, numel
        elif self.described[key] != (dtype, numel):
            raise pickle.UnpicklingError(f"storage '{key}' is described in two different ways")
        return made if view is None else self._part(made, view)

    def _new(self, dtype: Any, key: str, location: str, numel: int) -> TypedStorage:
        self.available -= 8 + numel * dtype.itemsize
        if self.available < 0:  # before any memory is taken
            raise pickle.UnpicklingError(f"storage '{key}' should have {_short(numel)} elements, more than the file "
                                         "has data for")
        self.raw[key] = raw = _memory.zero_bytes(numel * dtype.itemsize)
        where = locations.storage_over(raw)
        moved = locations.meta_storage(raw.nbytes) if self.reading.to_meta else self.reading.restore(where, location)
        moved = moved.untyped() if isinstance(moved, TypedStorage) else moved
        if moved.device.type == "cpu":
            self.raw[key] = moved._bytes
        elif moved.device.type != "meta":
            raise NotImplementedError("a file of the old format can only be loaded to the CPU: use map_location='cpu'")
        made = TypedStorage(wrap_storage=moved, dtype=dtype)
        made._unread = True
        return made

    def _part(self, storage: TypedStorage, view: Any) -> TypedStorage:
        if type(view) is not tuple or len(view) != 3:
            raise pickle.UnpicklingError("a part of a storage must be described by a key, an offset and a size")
        key, (offset, size) = view[0], _ints(view[1:], "part of a storage")
        if offset + size > storage.size():
            raise pickle.UnpicklingError(f"elements {offset} to {offset + size} of a storage of {storage.size()} are "
                                         "asked for")
        if not isinstance(key, str):
            raise pickle.UnpicklingError(f"a storage's key must be text, got {_short(key)}")
        if key not in self.made:
            item, raw = storage.dtype.itemsize, storage.untyped()._bytes
            part = locations.storage_over(_memory.slice_of(raw, offset * item, (offset + size) * item))
            self.made[key] = TypedStorage(wrap_storage=part, dtype=storage.dtype)
            self.made[key]._unread = True
        return self.made[key]

    def read(self, file: Any, keys: Any) -> None:
        if isinstance(keys, list):  # encoding="bytes" leaves the text of Python 2 undecoded
            keys = [k.decode("ascii", "replace") if isinstance(k, bytes) else k for k in keys]
        if not isinstance(keys, list) or len(keys) > len(self.raw) or not all(isinstance(k, str) for k in keys):
            raise pickle.UnpicklingError("the list of storages is malformed")
        for key in keys:
            if key not in self.raw:
                raise pickle.UnpicklingError(f"the file has a storage '{key[:40]}' that nothing refers to")
            head = file.read(8)
            if len(head) != 8:
                raise EOFError(f"the file ended early: storage '{key}' is missing")
            count, made = struct.unpack("<q", head)[0], self.made[key]
            raw = self.raw[key]
            if count * made.dtype.itemsize != raw.nbytes:
                raise pickle.UnpicklingError(f"storage '{key}' has {count} elements in the file, but "
                                             f"{raw.nbytes // made.dtype.itemsize} in its description")
            fill(file, memoryview(raw).cast("B") if raw.nbytes else memoryview(b""))
            made.__dict__.pop("_unread", None)
        if set(self.raw) - set(keys):
            raise EOFError(f"the file has no data for {len(set(self.raw) - set(keys))} of its storages")
