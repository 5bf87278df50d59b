"""Memory that several processes see.

A `Segment` is a file without a name (so nothing is left behind, however a process ends) that each process maps; its
descriptor is what travels. A worker of a DataLoader keeps a `Pool` of segments for the batches that it sends; the main
process keeps a `Mapped` set of the same segments and hands out a `Lease` for each use, which tells when the memory may
be written again. Reusing segments matters: making, mapping and faulting in fresh memory costs more than filling it.
"""

from __future__ import annotations

import mmap as _mmap
import os
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from .. import arrays, memory

SMALL = 4096  # below this many bytes a copy inside a message is cheaper than a segment of its own
_BYTE = np.dtype(np.uint8)


def nameless_file(nbytes: int) -> int:
    """The descriptor of a new file in memory that has no name any more."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("flambeau", os.MFD_CLOEXEC)
    else:
        import _posixshmem
        import secrets
        name = f"/flambeau_{os.getpid()}_{secrets.token_hex(6)}"
        fd = _posixshmem.shm_open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600)
        _posixshmem.shm_unlink(name)
    try:
        os.ftruncate(fd, max(nbytes, 1))
    except OSError:
        os.close(fd)
        raise
    return fd


_libc: Any = None


def _c_library() -> Any:
    """mmap and munmap themselves: Python's own mmap objects keep a descriptor each, and a process has only so many."""
    global _libc
    if _libc is None:
        import ctypes
        _libc = ctypes.CDLL(None, use_errno=True)
        _libc.mmap.restype = ctypes.c_void_p
        place, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        _libc.mmap.argtypes = [place, size, number, number, number, ctypes.c_long]
        _libc.munmap.argtypes = [place, size]
    return _libc


class Segment:
    """Shared bytes, mapped into this process until the last array over them dies."""

    def __init__(self, nbytes: int, fd: int | None = None, keep: bool = False):
        """New memory, or the memory of a descriptor (which this object then owns); `keep` leaves the descriptor open,
        so that the segment can be sent on."""
        self.nbytes = nbytes
        self.address = self.fd = None
        self.fd = nameless_file(nbytes) if fd is None else fd
        length = max(nbytes, 1)
        try:
            if os.fstat(self.fd).st_size < length:
                raise RuntimeError(f"shared memory of {os.fstat(self.fd).st_size} bytes, expected at least {length}")
            import ctypes
            found = _c_library().mmap(None, length, _mmap.PROT_READ | _mmap.PROT_WRITE, _mmap.MAP_SHARED, self.fd, 0)
            if found is None or found == ctypes.c_void_p(-1).value:
                code = ctypes.get_errno()
                raise RuntimeError(f"unable to map {length} bytes of shared memory: {os.strerror(code)}")
        except BaseException:
            self.close()
            raise
        self.address = found
        if not keep:
            self.close()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "version": 3, "data": (self.address, False)}

    def close(self) -> None:
        """Closes the descriptor; the mapping stays."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def __del__(self):
        if sys.is_finalizing():  # the operating system cleans up; arrays may still be in use
            return
        if self.address is not None:
            _libc.munmap(self.address, max(self.nbytes, 1))
        self.close()


# -------------------------------------------------------------------------------------------------- tensors that share
def to_shared(x: ndarray) -> ndarray:
    """A copy of x, with its geometry, in shared memory."""
    storage, offset, steps = arrays.Storage(x), arrays.storage_offset(x), arrays.strides(x)
    segment = Segment(storage.nbytes, keep=True)
    _known[_identity(segment.fd)] = segment
    raw = np.asarray(segment)
    raw[...] = arrays.storage_bytes(x)
    return arrays.over_bytes(raw, x.shape, steps, offset, x.dtype)


def is_shared(x: ndarray) -> bool:
    owner = memory.owner(x)
    return isinstance(owner, (Lease, Outgoing)) or isinstance(owner.base, Segment)


def segment_of(x: ndarray) -> Segment | None:
    """The segment behind x, where it can be sent to another process."""
    found = memory.owner(x).base
    return found if isinstance(found, Segment) and found.fd is not None else None


def place_in_segment(x: ndarray) -> tuple[int, tuple[int, ...], int]:
    """Bytes of the segment, strides and offset (both in elements): x's geometry in it."""
    return memory.owner(x).nbytes, arrays.strides(x), arrays.storage_offset(x)


_known: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def received(fd: int, nbytes: int) -> ndarray:
    """The bytes behind a descriptor from another process; one that came before is the same memory."""
    key = _identity(fd)
    segment = _known.get(key)
    if segment is None:
        segment = _known[key] = Segment(nbytes, fd, keep=True)
    else:
        os.close(fd)
    return np.asarray(segment)


# ------------------------------------------------------------------------------------------------ batches from workers
class _Pages(ndarray):
    """All bytes of a segment. A type of its own, so that NumPy keeps the object before it in the chain of bases."""


class Outgoing(memory.Block):
    """A worker's hold on a segment that it fills or has sent."""

    def __del__(self):
        pool = getattr(self, "pool", None)
        if pool is not None:
            pool.give(self.number)


class Pool:
    """The segments of one worker. A segment has as many users as the arrays here and the messages not yet given back;
    without users it is free for the next batch."""

    def __init__(self, announce: Callable[[int, int, int], None]):
        self._announce = announce  # tells the other side of a new segment: its number, size and descriptor
        self._pages: list[ndarray] = []
        self._users: list[int] = []
        self._free: dict[int, list[int]] = {}
        self.in_message: list[int] = []  # segments that the message in the making names

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> ndarray:
        number = self._spare(memory._round(nbytes))
        self._users[number] = 1
        hold = self._pages[number].view(Outgoing)
        hold.pool, hold.number, hold.used = self, number, nbytes
        return ndarray(shape, dtype, hold)

    def _spare(self, size: int) -> int:
        """A free segment of this size or up to twice as much, else a new one."""
        free = self._free.get(size)
        if free:
            return free.pop()
        for other, free in self._free.items():  # batches of varying length: few sizes, each used for many
            if free and size < other <= 2 * size:
                return free.pop()
        return self._new(size)

    def _new(self, size: int) -> int:
        number = len(self._pages)
        segment = Segment(size, keep=True)
        self._announce(number, size, segment.fd)
        segment.close()
        self._pages.append(np.asarray(segment).view(_Pages))
        self._users.append(0)
        return number

    def place(self, x: ndarray) -> tuple[int, int, ndarray]:
        """The segment that x lies in, the byte at which it starts, and x itself; or the same of a copy of x."""
        hold = memory.owner(x)
        if type(hold) is not Outgoing or hold.pool is not self:
            copy = self.empty((x.size,), x.dtype, x.nbytes)
            hold = memory.owner(copy)
            order = memory.dense_order(x)
            steps = None if order is None or x.flags.c_contiguous else x.strides
            target = ndarray(x.shape, x.dtype, hold, 0, steps)
            target[...] = x
            x = target
        self._users[hold.number] += 1  # the message
        self.in_message.append(hold.number)
        return hold.number, arrays.address(x) - hold.__array_interface__["data"][0], x

    def give(self, number: int) -> None:
        """One user less."""
        users = self._users[number] = self._users[number] - 1
        if not users:
            self._free.setdefault(self._pages[number].nbytes, []).append(number)


class Lease(memory.Block):
    """The main process's use of a segment for one message; goes back to the worker when the last array over it dies."""

    def __del__(self):
        home = getattr(self, "home", None)
        if home is not None:
            home.append(self.number)


class Mapped:
    """A worker's segments as the main process sees them, and the numbers of those that it has done with."""

    def __init__(self):
        self._pages: dict[int, ndarray] = {}
        self.returned: deque[int] = deque()

    def add(self, number: int, size: int, fd: int) -> None:
        self._pages[number] = np.asarray(Segment(size, fd)).view(_Pages)

    def lease(self, number: int, nbytes: int) -> Lease:
        lease = self._pages[number].view(Lease)
        lease.home, lease.number, lease.used = self.returned, number, nbytes
        return lease

    def take_returned(self) -> list[int]:
        done = []
        while self.returned:
            done.append(self.returned.popleft())
        return done
