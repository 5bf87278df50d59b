"""Memory of the devices: freed blocks are kept and handed out again, by device and stream.

Small blocks are cut from slabs; a large one is a piece of memory of its own. A block dies with the last array over it, and what
it held is then free for the next one on the same stream: the device works through a stream in order, so nobody has to wait.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import gc
import os
import sys
import threading
from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu import memory as _host
from ..registry import OutOfMemoryError
from .driver import machine

_SLAB = 2 << 20       # bytes from which small blocks are cut
_SMALL = 1 << 20
_NOTED = 8 << 20      # bytes from which the line is noted that a block was asked for in
LINE = 512            # sizes are multiples of this, so blocks are aligned for the widest loads


class Pages(ndarray):
    """A piece of a device's memory. A type of its own keeps NumPy from skipping a `Block` when it shortens chains of bases."""


class Block(_host.Block):
    """What arrays over a piece of memory keep alive. used: its bytes that were asked for; home: the lists it goes back to."""

    __slots__ = ("home", "used")

    def __del__(self):  # native code does the same (repeated.py)
        freed(self)


def freed(block: Block) -> None:
    """Gives the memory of a block that nobody needs any more back to where it came from."""
    pages, home = block.base, getattr(block, "home", None)
    if type(pages) is Pages and home is not None:
        lists = home.after_others() if home.__class__ is Awaited else home
        lists = lists.heir or lists
        lists.device.allocated -= pages.nbytes
        lists[pages.nbytes].append(pages)


class _Free(dict):
    """Free pieces of a stream by their size, or those of a graph. heir: where pieces go once the graph is gone."""

    def __init__(self, device: Memory, stream: int):
        super().__init__()
        self.device, self.stream, self.heir = device, stream, None

    def wait_for(self, stream: int) -> None:
        """What comes next on this stream comes after what is in another one now."""
        machine().activate(self.device.device)
        event = machine().new_event(False)
        machine().record(event, stream)
        machine().wait(self.stream, event)
        machine().end_event(event)

    def __missing__(self, size: int) -> list[Pages]:
        made = self[size] = []
        return made


class Awaited:
    """The home of a block that other streams use, too: the memory is free after what they are at when the block dies."""

    def __init__(self, home: _Free, streams: set[int]):
        self.home, self.streams, self.device, self.stream = home, streams, home.device, home.stream

    def after_others(self) -> _Free:
        for stream in self.streams:
            self.home.wait_for(stream)
        return self.home


@functools.lru_cache(4096)
def _rounded(nbytes: int) -> int:
    """Size classes: an eighth apart, so that little is wasted and pieces fit again."""
    step = max(LINE if nbytes < _SMALL else _SLAB, 1 << max(nbytes.bit_length() - 4, 0))
    return max(-(-nbytes // step) * step, LINE)


class Memory:
    """One device's memory."""

    def __init__(self, device: int):
        self.device = device
        self.free: dict[int, _Free] = {}  # stream -> its lists
        self.segments: dict[int, int] = {}  # address -> bytes, of all that was taken from the driver
        self.counts = (ctypes.c_long * 2)()  # bytes in use, the most that ever were: native code counts, too
        self.reserved = self.most_reserved = self.retries = self.failures = 0
        self.fraction = 1.0  # of the device's memory: what may be taken
        self.lock = threading.Lock()
        self.empty = pages(0, 0).view(Block)

    allocated = property(lambda self: self.counts[0], lambda self, value: self.counts.__setitem__(0, value))
    most_allocated = property(lambda self: self.counts[1], lambda self, value: self.counts.__setitem__(1, value))

    def block(self, nbytes: int, stream: int) -> Block:
        if not nbytes:
            return self.empty
        return self.block_of(self._home(stream), nbytes)

    def _home(self, stream: int) -> _Free:
        home = self.free.get(stream)
        if home is None:
            home = self.free[stream] = _Free(self, stream)
        return home

    def pool(self, stream: int) -> _Free:
        """Pieces for a graph alone: what it does at each launch must find its memory untouched by others."""
        return _Free(self, stream)

    def end_pool(self, pool: _Free) -> None:
        """The graph is gone: its pieces are free for everything on its stream."""
        pool.heir = home = self._home(pool.stream)
        for size, pieces in pool.items():
            home[size] += pieces
        pool.clear()

    def block_of(self, home: _Free, nbytes: int, exactly: bool = False) -> Block:
        """exactly: without room for pieces of a similar size."""
        if not nbytes:
            return self.empty
        size = -(-nbytes // _SLAB) * _SLAB if exactly else _rounded(nbytes)
        try:
            pages = home[size].pop()
        except IndexError:
            pages = self._more(size, home)
        made = pages.view(Block)
        made.used, made.home = nbytes, home
        if size >= _NOTED or history.on:
            history.note(made)
        self.allocated += size
        if self.allocated > self.most_allocated:
            self.most_allocated = self.allocated
        return made

    def _more(self, size: int, home: _Free) -> Pages:
        """A new piece: of a slab, whose other pieces become free ones, or straight from the driver."""
        with self.lock:
            wanted = _SLAB if size < _SMALL else size
            machine().activate(self.device)
            try:
                address = self._taken(wanted)
            except OutOfMemoryError:
                self.retries += 1
                self._give_back()
                try:
                    address = self._taken(wanted)
                except OutOfMemoryError:
                    self.failures += 1
                    raise self._none_left(wanted) from None
            self.segments[address] = wanted
            self.reserved += wanted
            self.most_reserved = max(self.most_reserved, self.reserved)
        pieces = [pages(address + at, size) for at in range(0, wanted - size + 1, size)]
        home[size] += pieces[1:]
        return pieces[0]

    def _taken(self, wanted: int) -> int:
        if self.fraction < 1 and self.reserved + wanted > self.fraction * machine().room()[1]:
            raise OutOfMemoryError(f"{wanted} bytes: beyond what this process may take")
        return machine().allocate(wanted)

    def _none_left(self, wanted: int) -> OutOfMemoryError:
        free, total = machine().room()
        return OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {_words(wanted)}. GPU {self.device} has a total capacity of "
            f"{_words(total)} of which {_words(free)} is free. flambeau holds {_words(self.reserved)}, of which "
            f"{_words(self.allocated)} is in use by tensors."
            + (f" This process may take {self.fraction:.0%} of the device." if self.fraction < 1 else "") + holders(self))

    def release(self) -> None:
        """Gives what no array uses back to the driver, as far as whole segments are free."""
        with self.lock:
            machine().activate(self.device)
            self._give_back()

    def _give_back(self) -> None:
        machine().synchronize()  # kernels may still be at it
        starts, unused = sorted(self.segments), dict.fromkeys(self.segments, 0)
        segment_of = lambda piece: starts[bisect.bisect_right(starts, piece.ctypes.data) - 1]
        pieces = [(lists, size, piece, segment_of(piece)) for lists in self.free.values() for size in lists
                  for piece in lists[size]]
        for _, size, _, segment in pieces:
            unused[segment] += size
        whole = {a for a, size in self.segments.items() if unused[a] >= size - size % LINE}
        for lists in self.free.values():
            lists.clear()
        for lists, size, piece, segment in pieces:
            if segment not in whole:
                lists[size].append(piece)
        for address in whole:
            machine().release(address)
            self.reserved -= self.segments.pop(address)

    def reset_peaks(self) -> None:
        self.most_allocated, self.most_reserved = self.allocated, self.reserved


class _History:
    """Where in the program pieces of memory were asked for: large ones, and while somebody wants to know it all others."""

    def __init__(self) -> None:
        self.on = False

    def switch(self, on: bool) -> None:
        from .launch import library
        self.on = on
        library().fl_cuda_homeless()

    def note(self, block: Block) -> None:
        """The number of the line is looked up when a message wants it."""
        frame = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_HERE):
            frame = frame.f_back
        block.line = None if frame is None else (frame.f_code, frame.f_lasti)


history = _History()
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _line(block: Block) -> str | None:
    """The line that a block was asked for in, if it was noted."""
    found = block.__dict__.get("line")
    if found is None:
        return None
    code, at = found
    line = next((line for start, end, line in code.co_lines() if start <= at < end and line), code.co_firstlineno)
    return f"{code.co_filename}:{line}"


def holders(memory: Memory) -> str:
    """Sentences on who holds the most: lines of the program where they were noted, else the largest arrays."""
    blocks: dict[int, Block] = {}
    shapes: dict[int, str] = {}
    for found in gc.get_objects():
        array = getattr(found, "_array", None) if hasattr(type(found), "_array") else None  # a tensor
        block = array
        while block is not None and type(block) is not Block:
            block = getattr(block, "base", None)
        if block is not None and getattr(getattr(block, "home", None), "device", None) is memory:
            blocks[id(block)] = block
            shapes[id(block)] = f"{type(found).__name__} of {tuple(array.shape)}, {array.dtype}"
    totals: dict[str, list[int]] = {}
    for key, block in blocks.items():
        entry = totals.setdefault(_line(block) or shapes[key], [0, 0])
        entry[0] += 1
        entry[1] += block.nbytes
    if not totals:
        return ""
    most = sorted(totals.items(), key=lambda item: -item[1][1])[:5]
    text = "; ".join([f"{_words(size)} in {count} from {name}" for name, (count, size) in most])
    hint = "" if any([name not in shapes.values() for name, _ in most]) else (
        ". torch.cuda.memory._record_memory_history() at the program's start makes this say which lines made them")
    return f" The most is held by: {text}{hint}."


def pages(address: int, size: int) -> Any:
    if not size:
        return np.zeros(0, np.uint8).view(Pages)
    return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8).view(Pages)


def _words(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB" if nbytes >= 1 << 30 else f"{nbytes / 2**20:.2f} MiB"


@functools.cache
def of(device: int) -> Memory:
    return Memory(device)
