"""`save`: PyTorch's zip format, written so that a crash never leaves half a file."""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import stat
import struct
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from .archive import ALIGNMENT, ArchiveWriter
from .options import current
from .pickler import Storages, contents, pickled

DEFAULT_PROTOCOL = 2
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001


def save(obj: Any, f: Any, pickle_module: Any = pickle, pickle_protocol: int = DEFAULT_PROTOCOL,
         _use_new_zipfile_serialization: bool = True) -> None:
    """Saves an object to a file, readable by flambeau.load and torch.load.

    `f` is a path or an object with `write`. A path is replaced only once the new file is complete and on disk: after a
    crash or an exception the old one is still there.
    """
    is_path = isinstance(f, (str, os.PathLike))
    if not is_path and not hasattr(f, "write"):
        raise AttributeError(f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, got "
                             f"{type(f).__name__}")
    if pickle_module is None:
        pickle_module = pickle
    data, storages = pickled(obj, pickle_module, pickle_protocol, not _use_new_zipfile_serialization)
    write = _write_archive if _use_new_zipfile_serialization else _write_legacy
    if not is_path:
        write(f, "archive", data, storages, pickle_module, pickle_protocol)
        if hasattr(f, "flush"):
            f.flush()
        return
    path = os.fspath(f)
    with replacing(path) as file:
        write(file, archive_name(path), data, storages, pickle_module, pickle_protocol)


def archive_name(path: Any) -> str:
    """The folder inside the archive: the file's name without its ending, as PyTorch names it."""
    name = os.path.splitext(os.path.basename(os.fsdecode(path)))[0]
    return name if name and name.isascii() and not set(name) & set("\\:/\0") and name != ".." else "archive"


def _write_archive(file: Any, name: str, data: bytes, storages: Storages, pickle_module: Any, protocol: int) -> None:
    writer = ArchiveWriter(file, name, current.crc32)
    writer.record("data.pkl", data)
    writer.record(".format_version", b"1")
    writer.record(".storage_alignment", str(ALIGNMENT).encode())
    writer.record("byteorder", sys.byteorder.encode())
    for key, (storage, _) in enumerate(storages.found):
        writer.record(f"data/{key}", bytes(storage.nbytes()) if current.skip_data else contents(storage))
    writer.finish()


def _write_legacy(file: Any, name: str, data: bytes, storages: Storages, pickle_module: Any, protocol: int) -> None:
    """The format before PyTorch 1.6: several pickles one after the other, then the storages."""
    if current.skip_data:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    info = {"protocol_version": PROTOCOL_VERSION, "little_endian": sys.byteorder == "little",
            "type_sizes": {"short": 2, "int": 4, "long": 4}}
    for head in (MAGIC_NUMBER, PROTOCOL_VERSION, info):
        pickle_module.dump(head, file, protocol=protocol)
    file.write(data)
    pickle_module.dump([str(key) for key in range(len(storages.found))], file, protocol=protocol)
    if hasattr(file, "flush"):
        file.flush()
    for storage, dtype in storages.found:
        file.write(struct.pack("<q", storage.nbytes() // dtype.itemsize))
        file.write(contents(storage)[:storage.nbytes() // dtype.itemsize * dtype.itemsize])


# ------------------------------------------------------------------------------------------------------- atomic files
@contextlib.contextmanager
def replacing(path: Any) -> Iterator[Any]:
    """A new file that takes the place of `path` when the block ends without an error, and not before."""
    target = os.path.realpath(path)  # through a link: what it points to is replaced, not the link
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {os.path.dirname(os.fsdecode(path)) or folder} does not exist.")
    mode = _existing_mode(target)
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot save to {path!r}: it is a directory")
    if mode is not None and not stat.S_ISREG(mode):  # /dev/null, a pipe: there is nothing to replace
        with open(target, "wb") as file:
            yield file
        return
    try:
        temporary, handle = _temporary_beside(target, mode)
    except PermissionError:
        if mode is None:
            raise
        warnings.warn(f"the folder of {path!r} cannot be written to, so the file is overwritten in place: a crash now "
                      "would leave it damaged", stacklevel=4)
        with open(target, "wb") as file:
            yield file
        return
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _existing_mode(path: Any) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _temporary_beside(target: Any, mode: int | None) -> tuple[Any, int]:
    folder, name = os.path.split(target)
    token = secrets.token_hex(6)
    own = f".{os.fsdecode(name)[:200]}.{token}.tmp"
    temporary = os.path.join(folder, os.fsencode(own) if isinstance(folder, bytes) else own)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(temporary, flags, 0o666)
    if mode is not None:
        with contextlib.suppress(OSError, AttributeError):
            os.fchmod(handle, stat.S_IMODE(mode))
    return temporary, handle


def _sync_folder(folder: Any) -> None:
    """Makes the new name itself survive a power cut, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
