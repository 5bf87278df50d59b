"""What a program can set about saving and loading (the names of torch.serialization)."""

from __future__ import annotations

import mmap
import threading
from enum import Enum
from typing import Any


class LoadEndianness(Enum):
    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options(threading.local):
    endianness: LoadEndianness | None = None
    crc32 = True
    mmap_flags = getattr(mmap, "MAP_PRIVATE", None)
    skip_data = False


current = _Options()


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed for files that do not say theirs."""
    return current.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError(f"Invalid argument type in function set_default_load_endianness: expected a LoadEndianness or "
                        f"None, got {type(endianness).__name__}")
    current.endianness = endianness


def get_crc32_options() -> bool:
    """Whether save computes a checksum for each record."""
    return current.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    current.crc32 = bool(compute_crc32)


def get_default_mmap_options() -> int | None:
    """The flag that load(mmap=True) maps files with: private (writes stay in memory) or shared
    (writes reach the file)."""
    return current.mmap_flags


class set_default_mmap_options:
    """Sets the flag of load(mmap=True), at once or for a `with` block."""

    def __init__(self, flags: int):
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError("Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or "
                             f"mmap.MAP_SHARED, but got {flags}")
        self.previous, current.mmap_flags = current.mmap_flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        current.mmap_flags = self.previous


class skip_data:
    """In this block save writes zeros for the storages and load leaves them unread: only the structure is kept."""

    def __init__(self, materialize_fake_tensors: bool = False):
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self.previous, current.skip_data = current.skip_data, True

    def __exit__(self, *exc: Any) -> None:
        current.skip_data = self.previous
