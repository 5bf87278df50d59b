"""A two-way line between the main process and one worker.

Messages are bytes with a kind; new pieces of shared memory travel as file descriptors. Both ends notice at once when
the other is gone: reading gives EOFError, writing BrokenPipeError.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import weakref
from collections import deque
from collections.abc import Iterator

TASK, RESULT, SEGMENT, RESUME = range(4)
_HEAD = struct.Struct("<BQ")  # kind, bytes that follow
_PLACE = struct.Struct("<QQ")  # a segment's number and size
_CHUNK = 1 << 16

# The main process's ends. A forked worker inherits copies and must close them: as long as one is open anywhere, the
# other workers would not notice that the main process has died.
_main_ends: weakref.WeakSet[Channel] = weakref.WeakSet()


class Channel:
    """One end of the line."""

    def __init__(self, sock: socket.socket):
        self.socket = sock
        self._buffer = bytearray()
        self._descriptors: deque[int] = deque()

    def __reduce__(self):
        return Channel, (self.socket,)  # for workers that are spawned: the socket knows how to travel

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, kind: int, data: bytes) -> None:
        self.socket.sendall(_HEAD.pack(kind, len(data)) + data)

    def send_segment(self, number: int, size: int, fd: int) -> None:
        message = _HEAD.pack(SEGMENT, _PLACE.size) + _PLACE.pack(number, size)
        socket.send_fds(self.socket, [message], [fd])  # small enough never to be cut

    def arrived(self) -> Iterator[tuple[int, memoryview]]:
        """Waits for bytes, then gives the messages that are complete (perhaps none)."""
        data, descriptors, _, _ = socket.recv_fds(self.socket, _CHUNK, 64)
        self._descriptors.extend(descriptors)
        if not data:
            raise EOFError
        if self._buffer:
            self._buffer += data
            data = bytes(self._buffer) if self._complete() else b""
        rest = 0
        view = memoryview(data)
        while len(data) - rest >= _HEAD.size:
            kind, length = _HEAD.unpack_from(data, rest)
            start = rest + _HEAD.size
            if len(data) - start < length:
                break
            rest = start + length
            yield kind, view[start:rest]
        if data:
            self._buffer = bytearray(view[rest:])

    def _complete(self) -> bool:
        """Whether the buffer holds a whole message: large ones are only looked at when all of them is there."""
        return len(self._buffer) >= _HEAD.size and \
            len(self._buffer) >= _HEAD.size + _HEAD.unpack_from(self._buffer)[1]

    def segment(self, message: memoryview) -> tuple[int, int, int]:
        """The number, size and descriptor that a SEGMENT message brought."""
        return (*_PLACE.unpack(message), self._descriptors.popleft())

    def wait(self, seconds: float) -> bool:
        """Whether something arrived in time."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def hang_up(self) -> None:
        """Ends the conversation for both sides, also where a copy of this end is open elsewhere."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        self.socket.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())


def line() -> tuple[Channel, Channel]:
    """The main process's end and the worker's end."""
    ours, theirs = (Channel(s) for s in socket.socketpair())
    _main_ends.add(ours)
    return ours, theirs


def close_inherited() -> None:
    """In a worker: closes the copies of the main process's ends."""
    for end in list(_main_ends):
        end.close()
