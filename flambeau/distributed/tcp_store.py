"""`TCPStore`: a store behind a port. One process serves it from a thread; each thread that asks has a connection of its own.

A message is a number of fields, each with its length in front. Nothing in it is ever run: keys and values are bytes.
"""

from __future__ import annotations

import datetime
import os
import selectors
import socket
import struct
import threading
import time
from typing import Any

from .errors import DistNetworkError, DistStoreError
from .stores import Store, Table

__all__ = ["TCPStore"]
_NUMBER = struct.Struct("<I")
_MOST = 1 << 28  # bytes of a message; more is no message of ours
_GREETING = b"flambeau"
_COMMANDS = {name for name in vars(Table) if not name.startswith("_")}


def _packed(fields: tuple[bytes, ...]) -> bytes:
    body = b"".join(_NUMBER.pack(len(f)) + f for f in fields)
    return _NUMBER.pack(len(body)) + body


def _unpacked(body: bytes) -> list[bytes]:
    fields, at = [], 0
    while at < len(body):
        n = _NUMBER.unpack_from(body, at)[0]
        fields.append(body[at + 4:at + 4 + n])
        at += 4 + n
    return fields


class _Peer:
    """A connection, as the server sees it: what came of the next message, and which keys it waits for until when."""

    def __init__(self, connection: socket.socket):
        self.connection, self.received = connection, b""
        self.keys: list[str] = []
        self.deadline = 0.0
        self.enough: Any = all  # or any: which of the keys must be there
        self.left_behind: list[bytes] = []  # a key and a value to set when the connection ends without a farewell

    def answer(self, *fields: bytes) -> None:
        try:
            self.connection.sendall(_packed(fields))
        except OSError:  # it is gone; reading will tell
            pass


class Server:
    """Serves a table on a port, from a thread."""

    def __init__(self, host: str, port: int, listen_fd: int | None = None):
        self.table = Table()
        self.chosen = selectors.DefaultSelector()
        if listen_fd is not None:
            self.listener = socket.socket(fileno=listen_fd)
        else:
            self.listener = _listen(port)
        self.port = self.listener.getsockname()[1]
        self.listener.setblocking(False)
        self.chosen.register(self.listener, selectors.EVENT_READ)
        self.waiting: list[_Peer] = []
        self.stop_read, self.stop_write = socket.socketpair()
        self.chosen.register(self.stop_read, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self._serve, name="flambeau store", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stop_write.send(b".")
        self.thread.join(2)

    def _serve(self) -> None:
        while True:
            soonest = min((p.deadline for p in self.waiting), default=None)
            for key, _ in self.chosen.select(None if soonest is None else max(0.0, soonest - time.monotonic())):
                if key.fileobj is self.stop_read:
                    self._close()
                    return
                if key.fileobj is self.listener:
                    connection, _ = self.listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.chosen.register(connection, selectors.EVENT_READ, _Peer(connection))
                else:
                    self._read(key.data)
            self._wake()

    def _close(self) -> None:
        for key in list(self.chosen.get_map().values()):
            key.fileobj.close()
        self.chosen.close()
        self.stop_write.close()

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._lost(peer)
            return
        peer.received += data
        while len(peer.received) >= 4:
            n = _NUMBER.unpack_from(peer.received)[0]
            if n > _MOST:
                self._lost(peer)
                return
            if len(peer.received) < 4 + n:
                return
            body, peer.received = peer.received[4:4 + n], peer.received[4 + n:]
            try:
                self._obey(peer, *_unpacked(body))
            except Exception as error:
                peer.answer(b"error", f"{type(error).__name__}: {error}".encode())

    def _lost(self, peer: _Peer) -> None:
        self.chosen.unregister(peer.connection)
        peer.connection.close()
        self.waiting = [p for p in self.waiting if p is not peer]
        if peer.left_behind:
            self.table.set(peer.left_behind[0].decode(), peer.left_behind[1])

    def _obey(self, peer: _Peer, what: bytes, *args: bytes) -> None:
        if what in (b"wait", b"wait any"):
            peer.enough = any if what == b"wait any" else all
            peer.deadline = time.monotonic() + float(args[0])
            peer.keys = [a.decode() for a in args[1:]]
            self.waiting.append(peer)
        elif what == b"leave":
            peer.left_behind = list(args)
            peer.answer(b"ok", b"")
        elif what == b"greet":
            peer.answer(b"ok", _GREETING)
        elif what.decode() not in _COMMANDS:
            raise ValueError(f"a store knows no command {what!r}")
        else:
            names = (*[a.decode() for a in args],) if what == b"check" else (*[a.decode() for a in args[:1]], *args[1:])
            peer.answer(b"ok", getattr(self.table, what.decode())(*names))

    def _wake(self) -> None:
        now, still = time.monotonic(), []
        for peer in self.waiting:
            if peer.enough(k in self.table.values for k in peer.keys):
                peer.answer(b"ok", b"1")
            elif now >= peer.deadline:
                peer.answer(b"ok", b"")
            else:
                still.append(peer)
        self.waiting = still


def _listen(port: int) -> socket.socket:
    """A socket for both families of addresses where the machine has both."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
        return socket.create_server(("", port), backlog=1024)
    except OSError as error:
        raise DistNetworkError(f"The server socket has failed to listen on port {port}: {error}") from error


class TCPStore(Store):
    """A store on a port of `host_name`. The process with is_master=True serves it (port 0: any free one, see `.port`), the
    others connect. With world_size and wait_for_workers the constructor returns when so many have come."""

    def __init__(self, host_name: str, port: int, world_size: int | None = None, is_master: bool = False,
                 timeout: datetime.timedelta = datetime.timedelta(seconds=300), wait_for_workers: bool = True,
                 multi_tenant: bool = False, master_listen_fd: int | None = None, use_libuv: bool = True):
        super().__init__()
        self.host, self._timeout, self._server = host_name, timeout, None
        self._local = threading.local()
        self._process = os.getpid()
        if is_master:
            shared = _servers.get(port) if multi_tenant and port else None
            self._server = shared or Server(host_name, port, master_listen_fd)
            port = self._server.port
            if multi_tenant:
                _servers[port] = self._server
        self.port = port
        self._ask(b"greet")
        if wait_for_workers and world_size:
            self._all_here(world_size)

    def _all_here(self, world_size: int) -> None:
        if self.add("flambeau/workers", 1) % world_size == 0:
            self.set("flambeau/all workers", "1")
        if self._server is not None:
            seconds = self.timeout.total_seconds()
            if not self._wait(["flambeau/all workers"], seconds):
                raise DistStoreError(f"TCPStore: timed out after {seconds:.0f} s waiting for clients: "
                                     f"{self.add('flambeau/workers', 0)}/{world_size} have joined")

    def _connection(self) -> socket.socket:
        if getattr(self._local, "process", None) != os.getpid():  # a fork must not share its parent's connection
            self._local.socket, self._local.process = self._connect(), os.getpid()
        return self._local.socket

    def _connect(self) -> socket.socket:
        host = "localhost" if self._server is not None and self._process == os.getpid() else self.host
        deadline, pause = time.monotonic() + self._timeout.total_seconds(), 0.01
        while True:
            try:
                made = socket.create_connection((host, self.port), timeout=max(1.0, deadline - time.monotonic()))
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.settimeout(None)
                return made
            except OSError as error:
                if time.monotonic() > deadline:
                    limit = self._timeout.total_seconds() * 1000
                    raise DistNetworkError(f"The client socket has timed out after {limit:.0f}ms "
                                           f"while trying to connect to ({self.host}, {self.port}): {error}") from error
                time.sleep(pause)
                pause = min(pause * 1.5, 0.5)

    def _ask(self, *fields: bytes) -> bytes:
        connection = self._connection()
        try:
            connection.sendall(_packed(fields))
            body = _exactly(connection, _NUMBER.unpack(_exactly(connection, 4))[0])
        except OSError as error:
            self._local.process = None
            raise DistNetworkError(f"the store at ({self.host}, {self.port}) does not answer: {error}. The process that "
                                   "serves it has probably ended.") from error
        status, value = _unpacked(body)
        if status != b"ok":
            raise DistStoreError(value.decode())
        return value

    def _do(self, what: str, *args: Any) -> bytes:
        return self._ask(what.encode(), *[a.encode() if isinstance(a, str) else a for a in args])

    def _wait(self, keys: list[str], seconds: float) -> bool:
        return bool(self._ask(b"wait", str(seconds).encode(), *[k.encode() for k in keys]))

    def _wait_any(self, keys: list[str], seconds: float) -> bool:
        return bool(self._ask(b"wait any", str(seconds).encode(), *[k.encode() for k in keys]))

    def leave_behind(self, key: str, value: str) -> None:
        """Has the server set a key when this thread's connection ends: how others learn that a process is gone."""
        self._ask(b"leave", *([key.encode(), value.encode()] if key else []))

    @property
    def libuvBackend(self) -> bool:
        """The server is a thread of Python's."""
        return False

    def __repr__(self) -> str:
        return f"TCPStore({self.host}, {self.port})"

    def __del__(self) -> None:
        server = getattr(self, "_server", None)
        if server is not None and self._process == os.getpid() and server not in _servers.values():
            server.stop()


_servers: dict[int, Server] = {}  # by port: those that several stores of this process share


def _exactly(connection: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        more = connection.recv(min(n - len(data), 1 << 20))
        if not more:
            raise ConnectionError("the connection was closed")
        data += more
    return data
