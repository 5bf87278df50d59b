"""Event files: TensorBoard's format, written here byte by byte (records with checksums around protocol buffers)."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO

# ------------------------------------------------------------------------------------------------- protocol buffers
Field = tuple[int, Any]


def _varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    made = bytearray()
    while n > 0x7F:
        made.append(n & 0x7F | 0x80)
        n >>= 7
    made.append(n)
    return bytes(made)


class Double(float):
    """A number that the message holds in 64 bits (floats are written in 32)."""


def message(*fields: Field) -> bytes:
    """A message of (number, value) fields; None is left out, a list of Doubles is packed."""
    made = bytearray()
    for number, value in fields:
        if value is None:
            continue
        if isinstance(value, list):
            value = struct.pack(f"<{len(value)}d", *value)
        if isinstance(value, Double):
            made += _varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, float):
            made += _varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            made += _varint(number << 3) + _varint(value)
        else:
            data = value.encode() if isinstance(value, str) else bytes(value)
            made += _varint(number << 3 | 2) + _varint(len(data)) + data
    return bytes(made)


# -------------------------------------------------------------------------------------------------------- summaries
def scalar(tag: str, value: float) -> bytes:
    return message((1, message((1, tag), (2, float(value)))))


def histogram(tag: str, low: float, high: float, count: float, total: float, squares: float, limits: Iterable[float],
              buckets: Iterable[float]) -> bytes:
    inner = message(*[(i, Double(v)) for i, v in enumerate((low, high, count, total, squares), 1)],
                    (6, list(limits)), (7, list(buckets)))
    return message((1, message((1, tag), (5, inner))))


def image(tag: str, height: int, width: int, channels: int, rows: bytes) -> bytes:
    """`rows`: bytes of (height, width, channels)."""
    inner = message((1, height), (2, width), (3, channels), (4, png(height, width, channels, rows)))
    return message((1, message((1, tag), (4, inner))))


def text(tag: str, content: str) -> bytes:
    tensor = message((1, 7), (2, message((2, message((1, 1))))), (8, content))
    metadata = message((1, message((1, "text"))))
    return message((1, message((1, f"{tag}/text_summary"), (8, tensor), (9, metadata))))


def png(height: int, width: int, channels: int, rows: bytes) -> bytes:
    """A picture of 8-bit grey (1), colour (3) or colour with transparency (4 channels) as a PNG file."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    line = width * channels
    filtered = b"".join(b"\0" + rows[i * line:(i + 1) * line] for i in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(filtered)) + chunk(b"IEND", b"")


# ----------------------------------------------------------------------------------------------------------- records
def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """Castagnoli's checksum, turned and shifted as records hold it."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class EventFile:
    """Appends events to a file; threads may share it."""

    def __init__(self, path: str, wall_time: float):
        self.path = path
        self._file: BinaryIO = open(path, "wb")
        self._lock = threading.Lock()
        self.write(message((1, Double(wall_time)), (3, "brain.Event:2")))
        self.flush()

    def add(self, summary: bytes, wall_time: float, step: int | None) -> None:
        self.write(message((1, Double(wall_time)), (2, int(step or 0)), (5, summary)))

    def write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        with self._lock:
            self._file.write(length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event)))

    def flush(self) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()
