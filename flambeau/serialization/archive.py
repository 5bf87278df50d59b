"""The zip archive that a checkpoint is: records stored uncompressed, each starting at a multiple of 64 bytes.

The reader trusts nothing that the file says about itself. Every offset and length is checked against the file before it
is used, so that a crafted file is refused with an error and costs no more memory than its own length.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from typing import Any

ALIGNMENT = 64
_LOCAL, _CENTRAL, _END, _END64, _LOCATOR64, _DESCRIPTOR = (
    b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_CHUNK = 1 << 22
_UTF8, _HAS_DESCRIPTOR, _ENCRYPTED = 0x0800, 0x0008, 0x2041


def corrupt(reason: str) -> RuntimeError:
    return RuntimeError(f"failed reading zip archive: {reason}. The checkpoint file is probably corrupt, truncated or "
                        "not made by torch.save.")


# ------------------------------------------------------------------------------------------------------------- writing
class ArchiveWriter:
    """Writes records one after the other; the output needs only `write`."""

    def __init__(self, file: Any, name: str, compute_crc32: bool = True):
        self.file, self.name, self.compute_crc32 = file, name, compute_crc32
        self.position = 0
        self.entries: list[tuple[bytes, int, int, int]] = []  # name, crc, size, where its header starts

    def _put(self, data: Any) -> None:
        self.file.write(data)
        self.position += len(data)

    def record(self, name: str, data: Any) -> None:
        """One record; `data` is bytes or a flat uint8 buffer."""
        view = memoryview(data)
        path, size, start = f"{self.name}/{name}".encode(), view.nbytes, self.position
        wide = size >= _MAX32 or start >= _MAX32
        extra = struct.pack("<HHQQ", 1, 16, size, size) if wide else b""
        data_at = start + 30 + len(path) + len(extra) + 4
        padding = -data_at % ALIGNMENT
        extra += b"FB" + struct.pack("<H", padding) + b"Z" * padding
        flags = _UTF8 | (_HAS_DESCRIPTOR if size else 0)
        sizes = _MAX32 if wide else 0
        self._put(_LOCAL + struct.pack("<HHHHHIIIHH", 0, flags, 0, 0, 0, 0, sizes, sizes, len(path), len(extra))
                  + path + extra)
        crc = 0
        for at in range(0, size, _CHUNK):
            piece = view[at:at + _CHUNK]
            if self.compute_crc32:
                crc = zlib.crc32(piece, crc)
            self._put(piece)
        if size:
            self._put(_DESCRIPTOR + struct.pack("<IQQ" if wide else "<III", crc, size, size))
        self.entries.append((path, crc, size, start))

    def finish(self) -> None:
        """The directory of all records, and where to find it."""
        self.record("version", b"3\n")
        self.record(".data/serialization_id", self._identity())
        start = self.position
        for path, crc, size, header in self.entries:
            wide = [n for n in (size, size, header) if n >= _MAX32]
            extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
            shown, flags = min(size, _MAX32), _UTF8 | (_HAS_DESCRIPTOR if size else 0)
            self._put(_CENTRAL + struct.pack("<HHHHHHIIIHHHHHII", 0, 0, flags, 0, 0, 0, crc, shown, shown, len(path),
                                             len(extra), 0, 0, 0, 0, min(header, _MAX32)) + path + extra)
        end, count = self.position, len(self.entries)
        self._put(_END64 + struct.pack("<QHHIIQQQQ", 44, 0x031E, 45, 0, 0, count, count, end - start, start))
        self._put(_LOCATOR64 + struct.pack("<IQI", 0, end, 1))
        short = min(count, _MAX16)
        self._put(_END + struct.pack("<HHHHIIH", 0, 0, short, short, min(end - start, _MAX32), min(start, _MAX32), 0))

    def _identity(self) -> bytes:
        """Forty digits made from the records' names and contents: the same content has the same number."""
        names, contents = hashlib.sha256(), hashlib.sha256()
        for path, crc, size, _ in self.entries:
            names.update(path.partition(b"/")[2] + b"\0")
            contents.update(struct.pack("<IQ", crc, size))
        return "".join(f"{int.from_bytes(h.digest()[:8], 'little'):020d}" for h in (names, contents)).encode()


# ------------------------------------------------------------------------------------------------------------- reading
class Entry:
    """One record as the directory describes it."""

    __slots__ = ("crc", "header", "method", "name", "packed", "size", "start")

    def __init__(self, name: str, crc: int, packed: int, size: int, header: int, method: int):
        self.name, self.crc, self.packed, self.size, self.header, self.method = name, crc, packed, size, header, method
        self.start = 0  # of the data, known once the record's own header has been read


class ArchiveReader:
    """Finds and reads the records of an archive that runs from the file's current position to its end."""

    def __init__(self, file: Any):
        self.file = file
        self.base = file.tell()
        file.seek(0, 2)
        self.length = file.tell() - self.base
        self.entries: dict[str, Entry] = {}
        found = self._directory(*self._find_directory())
        self._check_layout(found)
        self.checked = any(e.crc for e in found if e.size)  # files can be saved without checksums: then all are 0

    def read_at(self, start: int, length: int) -> bytes:
        if start < 0 or length < 0 or start + length > self.length:
            raise corrupt(f"it points to bytes {start} to {start + length}, but has only {self.length}")
        self.file.seek(self.base + start)
        data = self.file.read(length)
        if len(data) != length:
            raise corrupt(f"{length} bytes expected at {start}, only {len(data)} could be read")
        return data

    # ------------------------------------------------------------------------------------------------- directory
    def _find_directory(self) -> tuple[int, int, int]:
        """Number of records, and start and length of the directory."""
        tail_start = max(self.length - 22 - _MAX16, 0)
        tail = self.read_at(tail_start, self.length - tail_start)
        at = tail.rfind(_END)
        while at >= 0 and (at + 22 > len(tail) or at + 22 + struct.unpack_from("<H", tail, at + 20)[0] != len(tail)):
            at = tail.rfind(_END, 0, at)
        if at < 0:
            raise corrupt("failed finding central directory")
        disk, start_disk, here, count, size, start, _ = struct.unpack_from("<HHHHIIH", tail, at + 4)
        if disk or start_disk or here != count:
            raise corrupt("archives in several parts are not supported")
        end = tail_start + at
        if at >= 20 and tail[at - 20:at - 16] == _LOCATOR64:
            where = struct.unpack_from("<Q", tail, at - 12)[0]
            wide = self.read_at(where, 56)
            if wide[:4] != _END64:
                raise corrupt("the 64-bit end record is not where the file says")
            count, size, start = struct.unpack_from("<QQQ", wide, 32)
            end = where
        if start + size > end or count * 46 > size:
            raise corrupt(f"a central directory of {count} records, {size} bytes at {start} does not fit into {end} bytes")
        self.directory_start = start
        return count, start, size

    def _directory(self, count: int, start: int, size: int) -> list[Entry]:
        raw, at, found = self.read_at(start, size), 0, []
        for _ in range(count):
            if raw[at:at + 4] != _CENTRAL or at + 46 > size:
                raise corrupt("a record is missing from the central directory")
            (_, _, flags, method, _, _, crc, packed, full, name_len, extra_len, comment_len, _, _, _,
             header) = struct.unpack_from("<HHHHHHIIIHHHHHII", raw, at + 4)
            name_end = at + 46 + name_len
            if name_end + extra_len + comment_len > size:
                raise corrupt("a record's name runs past the central directory")
            name = self._name(raw[at + 46:name_end])
            packed, full, header = _widened(raw[name_end:name_end + extra_len], packed, full, header)
            if flags & _ENCRYPTED:
                raise corrupt(f"record '{name}' is encrypted")
            if method == 0 and packed != full:
                raise corrupt(f"record '{name}' has two lengths, {packed} and {full}")
            found.append(Entry(name, crc, packed, full, header, method))
            at = name_end + extra_len + comment_len
        return found

    @staticmethod
    def _name(raw: bytes) -> str:
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise corrupt(f"the record name {raw[:60]!r} is not text") from None
        parts = name.split("/")
        if name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or parts[0][1:] == ":":
            raise corrupt(f"the record name {name[:80]!r} leads out of the archive")
        return name

    def _check_layout(self, found: list[Entry]) -> None:
        """Each record lies inside the file, before the directory, and overlaps no other; names are unique."""
        previous, previous_end = "", 0
        for entry in sorted(found, key=lambda e: e.header):
            if entry.name.endswith("/") and not entry.size:
                continue
            short = entry.name.partition("/")[2]
            if not short:
                raise corrupt(f"record '{entry.name}' is not in a folder")
            if short in self.entries:
                raise corrupt(f"two records are named '{short}'")
            if entry.header < previous_end:
                raise corrupt(f"records '{previous}' and '{entry.name}' overlap")
            name = entry.name.encode()
            header = self.read_at(entry.header, 30 + len(name))
            name_len, extra_len = struct.unpack_from("<HH", header, 26)
            if header[:4] != _LOCAL or name_len != len(name) or header[30:] != name:
                raise corrupt(f"record '{entry.name}' is not where the central directory says")
            entry.start = entry.header + 30 + name_len + extra_len
            end = entry.start + entry.packed
            if end > self.directory_start:
                raise corrupt(f"record '{entry.name}' of {entry.packed} bytes at {entry.start} runs past the end of "
                              "the records")
            self.entries[short] = entry
            previous, previous_end = entry.name, end

    # --------------------------------------------------------------------------------------------------- records
    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def entry(self, name: str) -> Entry:
        found = self.entries.get(name)
        if found is None:
            raise RuntimeError(f"the checkpoint has no record '{name}': corrupt file?")
        if found.method:
            raise RuntimeError(f"record '{name}' of the checkpoint is compressed (zip method {found.method}), which is "
                               "not supported, as its real size is not known in advance. torch.save stores records as "
                               "they are: save it again, or repack it with `zip -0`")
        return found

    def read(self, name: str) -> bytes:
        entry = self.entry(name)
        data = self.read_at(entry.start, entry.size)
        self.check(entry, data)
        return data

    def read_into(self, entry: Entry, buffer: Any) -> None:
        """A record's first len(buffer) bytes into a buffer; a whole record is checked against its checksum."""
        view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        self.file.seek(self.base + entry.start)
        fill(self.file, view)
        if len(view) == entry.size:
            self.check(entry, view)

    def check(self, entry: Entry, data: Any) -> None:
        if self.checked and zlib.crc32(data) != entry.crc:
            raise corrupt(f"the checksum (CRC-32) of record '{entry.name}' is wrong")


def fill(file: Any, view: memoryview) -> None:
    """Reads until the view is full; EOFError at a premature end."""
    done, into = 0, getattr(file, "readinto", None)
    while done < len(view):
        count = _read_some(file, into, view[done:done + _CHUNK])
        if not count:
            raise EOFError(f"the file ended early: {len(view)} bytes were expected, {done} came")
        done += count


def _read_some(file: Any, into: Any, piece: memoryview) -> int:
    if into is not None:
        try:
            return into(piece)
        except NotImplementedError:
            pass
    data = file.read(len(piece))
    piece[:len(data)] = data
    return len(data)


def _widened(extra: bytes, packed: int, full: int, header: int) -> tuple[int, int, int]:
    """Lengths and place from the 64-bit extra field, where the 32-bit ones say to look there."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1 and at + 4 + length <= len(extra):
            values = [v for (v,) in struct.iter_unpack("<Q", extra[at + 4:at + 4 + length // 8 * 8])]
            try:
                full = values.pop(0) if full == _MAX32 else full
                packed = values.pop(0) if packed == _MAX32 else packed
                header = values.pop(0) if header == _MAX32 else header
            except IndexError:
                raise corrupt("a record's 64-bit length is missing") from None
            break
        at += 4 + length
    return packed, full, header
