"""Launches of kernels that work on the columns of arrays (outer, columns, inner): how threads share them (columns.cuh)."""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple

from .driver import machine
from .launch import Plan, kernel

_THREADS, _LAST = 256, 512  # of a block that reads columns, and of one that joins the chunks of eight
_AT_LEAST = 4                # runs of a thread in a chunk
_MOST = 1 << 14              # blocks; each goes on to further columns
_FEW = 1 << 16               # elements that are not worth a second launch


class Cut(NamedTuple):
    """The constants of columns.cuh, into how many chunks columns are cut, and how many blocks there are."""

    side: int
    run: int
    chunks: int
    blocks: int


def _side(columns: int, run: int) -> int:
    """Threads side by side: rows are read in pieces of 128 bytes, so that a block has few columns and many rows of them."""
    return min(1 << (-(-columns // run) - 1).bit_length(), 8 if run > 1 else 32)


def cut(outer: int, columns: int, inner: int, run: int, most: int) -> Cut:
    """run: elements of 16 bytes; most: blocks that columns are cut for."""
    if outer * columns * inner < _FEW:
        most = 1
    if inner > 1:
        run = run if inner % run == 0 else 1
        chunks = max(min(outer * inner // (run * _THREADS * _AT_LEAST), most // columns), 1)
        return Cut(0, run, chunks, min(columns * chunks, _MOST))
    run = run if columns % run == 0 else 1
    side = _side(columns, run)
    tiles = -(-columns // (side * run))
    chunks = max(min(outer // (_THREADS // side * _AT_LEAST), most // tiles), 1)
    return Cut(side, run, chunks, min(tiles * chunks, _MOST))


@functools.lru_cache(1024)
def column_text(body: str, types: Any, flags: Any) -> str:
    constants = ", ".join([f"{name} = {int(value)}" for name, value in (*flags, ("THREADS", _THREADS))])
    named = "".join([f"typedef {c} {letter};\n" for letter, c in types])
    return f'#include "elements.cuh"\nenum {{ {constants} }};\n{named}#include "columns.cuh"\n{body}'


@functools.lru_cache(4096)
def column_plan(body: str, name: str, types: Any, flags: Any, kinds: str, sizes: tuple[int, int, int], run: int, numbers: bytes,
                device: int, each: int = 4) -> tuple[Plan, int]:
    """The launch of a kernel that reads columns, and into how many chunks they are cut. numbers: what follows the struct
    Columns in its first parameter; each: blocks of a multiprocessor."""
    share = cut(*sizes, run, each * machine().attribute("multiprocessors", device))
    fixed = struct.pack("4q", *sizes, share.chunks) + numbers

    def made(run: int, otherwise: Plan | None) -> Plan:
        source = column_text(body, types, (*flags, ("SIDE", share.side and _side(sizes[1], run)), ("RUN", run)))
        return Plan(kernel(source, name, device), device, share.blocks, _THREADS, kinds, fixed, otherwise=otherwise)
    return made(share.run, None if share.run == 1 else made(1, None)), share.chunks


@functools.lru_cache(4096)
def joining_plan(body: str, name: str, types: Any, flags: Any, kinds: str, columns: int, chunks: int, numbers: bytes,
                 device: int) -> Plan:
    """The launch of a kernel that joins the parts of columns."""
    source = column_text(body, types, (*flags, ("SIDE", 1), ("RUN", 1)))
    return Plan(kernel(source, name, device), device, -(-columns // 8), _LAST, kinds,
                struct.pack("4q", 0, columns, 1, chunks) + numbers)
