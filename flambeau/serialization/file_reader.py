"""`torch.PyTorchFileReader`: the records of a checkpoint, one by one, for programs that load parts of it."""

from __future__ import annotations

import os
from typing import Any

from ..backends import registry
from ..tensors.dtypes import dtype as _dtype
from ..tensors.dtypes import uint8
from ..tensors.tensor import Tensor, wrap
from .archive import ArchiveReader


class PyTorchFileReader:
    """A checkpoint that stays open: a path, or an open binary file.

    >>> torch.save({"a": torch.ones(2)}, "two.pt")
    >>> "data/0" in torch.PyTorchFileReader("two.pt").get_all_records()
    True
    """

    def __init__(self, file: Any):
        self._archive = ArchiveReader(open(file, "rb") if isinstance(file, (str, os.PathLike)) else file)

    def get_all_records(self) -> list[str]:
        """The names of all records, in the order of the file."""
        return list(self._archive.entries)

    def has_record(self, name: str) -> bool:
        return name in self._archive

    def get_record(self, name: str) -> bytes:
        return self._archive.read(self._found(name))

    def get_record_size(self, name: str) -> int:
        return self._archive.entry(self._found(name)).size

    def get_record_offset(self, name: str) -> int:
        """Where the record's bytes begin in the file."""
        return self._archive.entry(self._found(name)).start

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Tensor:
        """A tensor without elements whose storage holds the record: numel elements of a dtype, or bytes for a storage class."""
        kind = dtype if isinstance(dtype, _dtype) else uint8
        memory = registry.cpu.empty((numel,), kind.native)
        entry = self._archive.entry(self._found(name))
        if numel * kind.itemsize > entry.size:
            raise RuntimeError(f"record '{name}' has {entry.size} bytes, not the {numel * kind.itemsize} that were asked for")
        self._archive.read_into(entry, memory.view("uint8"))
        return wrap(memory)[:0]

    def serialization_id(self) -> str:
        """The number that `save` made from the contents."""
        return self.get_record(".data/serialization_id").decode() if self.has_record(".data/serialization_id") else ""

    def _found(self, name: str) -> str:
        if name not in self._archive:
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        return name
