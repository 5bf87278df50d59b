"""Waiting for requests of MPI's: native/messages.c does it without Python's lock, and moves data while Python computes."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from ... import native
from .start import module

__all__ = ["Pending"]
_HEAD = 4  # numbers before the requests' addresses in C's structure
_watched: dict[int, Pending] = {}  # what C's thread is looking after: kept here, with its buffers, until it is finished


class Pending:
    """Some requests that are under way together. `keep` is what must live as long: the buffers."""

    __slots__ = ("_address", "_memory", "keep", "requests", "status")

    def __init__(self, requests: list[Any], keep: Any = None, status: Any = None):
        """status: where MPI writes what a receive got; of one request only."""
        self.requests, self.keep, self.status = requests, keep, status
        library = _library()
        if library is None:
            return
        MPI = module()
        self._memory = memory = (ctypes.c_int64 * (_HEAD + 2 * len(requests)))(len(requests), 0, 0, 0)
        for i, request in enumerate(requests):
            memory[_HEAD + 2 * i] = MPI._addressof(request)
            memory[_HEAD + 2 * i + 1] = _no_status[0] if status is None else MPI._addressof(status)
        self._address = ctypes.addressof(memory)

    def watch(self) -> None:
        """Has C's thread move the data while Python computes."""
        library = _library()
        if library is None:
            _watched[id(self)] = self  # nobody does, but its buffers must live until it is finished
        elif self._memory[0]:
            _sweep()
            _watched[self._address] = self
            library.fl_messages_watch(self._address)

    def wait(self, seconds: float) -> bool:
        """Whether they are finished, after at most so many seconds."""
        library = _library()
        if library is None:
            return self._wait_in_python(seconds)
        finished = bool(library.fl_messages_wait(self._address, seconds))
        return self._check() if finished else False

    def done(self) -> bool:
        """Whether they are finished now."""
        library = _library()
        if library is None:
            return self._wait_in_python(-1.0)
        return self._check() if library.fl_messages_look(self._address) else False

    def drop(self) -> None:
        """Nobody waits for them any more: the buffers stay, since MPI may still write to them."""
        library = _library()
        if library is not None:
            library.fl_messages_drop(self._address)
        _abandoned.append(self)

    def _check(self) -> bool:
        _watched.pop(self._address, None)
        if self._memory[1]:
            raise module().Exception(self._memory[1])
        return True

    def _wait_in_python(self, seconds: float) -> bool:
        """Where there is no compiler: the same with Python's lock taken in between."""
        deadline = time.monotonic() + seconds
        while True:
            self.requests = [r for r in self.requests if not r.Test(self.status)]
            if not self.requests:
                _watched.pop(id(self), None)
                return True
            if time.monotonic() > deadline:
                return False
            os.sched_yield() if hasattr(os, "sched_yield") else time.sleep(1e-5)


_abandoned: list[Pending] = []
_attached: list[Any] = []
_no_status: list[int] = []  # MPI_STATUS_IGNORE, which is a number of the library's


def _library() -> Any:
    if not _attached:
        library = native.library("messages")
        if library is not None:
            MPI = module()
            test = ctypes.cast(ctypes.CDLL(MPI.__file__).MPI_Test, ctypes.c_void_p).value
            library.fl_messages_attach(test)
            _no_status.append(1 if MPI.get_vendor()[0] == "MPICH" else 0)
        _attached.append(library)
    return _attached[0]


def _sweep() -> None:
    """Lets go of what is finished and was never waited for."""
    for address in [a for a, p in _watched.items() if p._memory[2] == 0 and p._memory[0] == 0]:
        _watched.pop(address, None)
