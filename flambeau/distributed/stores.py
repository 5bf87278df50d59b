"""Stores: keys and values (bytes) that processes share, in memory, in a file, or behind a port of one of them."""

from __future__ import annotations

import contextlib
import datetime
import os
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from .errors import DistStoreError, QueueEmptyError

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store"]


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"a store's values are str or bytes, got {type(value).__name__}")
    return value.encode() if isinstance(value, str) else bytes(value)


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a store's keys are str, got {type(value).__name__}")
    return value


def _keys(values: Any) -> list[str]:
    if isinstance(values, str):
        raise TypeError("expected a list of keys, got a str")
    return [_key(value) for value in values]


class Table:
    """What a store does with its keys; whoever holds it says when others may look (a lock, a file, a server)."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, list[bytes]] = {}

    def set(self, key: str, value: bytes) -> bytes:
        self.values[key] = value
        return b""

    def add(self, key: str, amount: bytes) -> bytes:
        self.values[key] = str(int(self.values.get(key, b"0")) + int(amount)).encode()
        return self.values[key]

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """A key that is not there is set where nothing was expected."""
        if key not in self.values and expected:
            return expected
        if self.values.get(key, b"") == expected:
            self.values[key] = desired
        return self.values[key]

    def append(self, key: str, value: bytes) -> bytes:
        self.values[key] = self.values.get(key, b"") + value
        return b""

    def delete_key(self, key: str) -> bytes:
        return b"1" if self.values.pop(key, None) is not None else b""

    def num_keys(self) -> bytes:
        return str(len(self.values)).encode()

    def check(self, *keys: str) -> bytes:
        return b"1" if all(k in self.values for k in keys) else b""

    def get(self, key: str) -> bytes:
        return self.values[key]

    def keys(self) -> bytes:
        return "\n".join(self.values).encode()

    def queue_push(self, key: str, value: bytes) -> bytes:
        self.queues.setdefault(key, []).append(value)
        return b""

    def queue_pop(self, key: str) -> bytes:
        """The oldest value, after a byte that says that there is one."""
        queue = self.queues.get(key)
        return b"1" + queue.pop(0) if queue else b""

    def queue_len(self, key: str) -> bytes:
        return str(len(self.queues.get(key, ()))).encode()


class Store:
    """What all stores answer. A kind of store provides `_do`, an operation of `Table`, and `_wait`."""

    def __init__(self) -> None:
        self._timeout = datetime.timedelta(minutes=5)

    def _do(self, what: str, *args: Any) -> bytes:
        raise NotImplementedError(f"{type(self).__name__} does not say how it does '{what}'")

    def _wait(self, keys: list[str], seconds: float) -> bool:
        """Whether all keys were there in time."""
        deadline, pause = time.monotonic() + seconds, 1e-3
        while not self.check(keys):
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        return True

    def _wait_any(self, keys: list[str], seconds: float) -> bool:
        """Whether one of the keys was there in time."""
        deadline = time.monotonic() + seconds
        while not any(self.check([key]) for key in keys):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.25)
        return True

    def leave_behind(self, key: str, value: str) -> None:
        """Sets a key when the process ends without farewell, where the store can notice that (TCPStore); "" takes it back."""

    @property
    def timeout(self) -> datetime.timedelta:
        """How long get and wait have patience."""
        return self._timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        self._do("set", _key(key), _bytes(value))

    def get(self, key: str) -> bytes:
        """The value, once it is there."""
        self.wait([key])
        return self._do("get", key)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, and says what it then is."""
        return int(self._do("add", _key(key), str(int(amount)).encode()))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Sets the key where it is as expected; says what it is afterwards."""
        return self._do("compare_set", _key(key), _bytes(expected), _bytes(desired))

    def append(self, key: str, value: str | bytes) -> None:
        self._do("append", _key(key), _bytes(value))

    def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def check(self, keys: list[str]) -> bool:
        """Whether all keys are there now."""
        return bool(self._do("check", *_keys(keys)))

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        """Returns when all keys are there."""
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        if not self._wait(_keys(keys), seconds):
            absent = [k for k in keys if not self.check([k])]
            raise DistStoreError(f"wait timeout after {seconds * 1000:.0f}ms, keys: {', '.join(absent or keys)}")

    def delete_key(self, key: str) -> bool:
        return bool(self._do("delete_key", _key(key)))

    def num_keys(self) -> int:
        return int(self._do("num_keys"))

    def list_keys(self) -> list[str]:
        return self._do("keys").decode().splitlines()

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Puts a value at the end of a queue."""
        self._do("queue_push", _key(key), _bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Takes the oldest value from a queue, once there is one; without `block` an empty queue raises QueueEmptyError."""
        deadline = time.monotonic() + self.timeout.total_seconds()
        while not (found := self._do("queue_pop", _key(key))):
            if not block:
                raise QueueEmptyError(f"queue {key} is empty")
            if time.monotonic() > deadline:
                raise DistStoreError(f"queue_pop timeout after {self.timeout.total_seconds() * 1000:.0f}ms, queue: {key}")
            time.sleep(0.01)
        return found[1:]

    def queue_len(self, key: str) -> int:
        """How many values a queue holds."""
        return int(self._do("queue_len", _key(key)))

    def has_extended_api(self) -> bool:
        """append, multi_get and multi_set are there."""
        return True

    def clone(self) -> Store:
        """A store of the same keys that another thread may use: every store here may be."""
        return self


class HashStore(Store):
    """A store within the process, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._changed = Table(), threading.Condition()

    def _do(self, what: str, *args: Any) -> bytes:
        with self._changed:
            made = getattr(self._table, what)(*args)
            self._changed.notify_all()
            return made

    def _wait(self, keys: list[str], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._table.check(*keys), seconds)


class PrefixStore(Store):
    """Another store, all keys with a prefix."""

    def __init__(self, prefix: str, store: Store):
        self.prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        return self._store

    @property
    def timeout(self) -> datetime.timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._store.set_timeout(timeout)

    def _do(self, what: str, *args: Any) -> bytes:
        if what == "check":
            return self._store._do(what, *[f"{self.prefix}/{k}" for k in args])
        if what == "num_keys":
            return self._store._do(what)
        if what == "keys":
            own = f"{self.prefix}/"
            return "\n".join(k.removeprefix(own) for k in self._store.list_keys() if k.startswith(own)).encode()
        return self._store._do(what, f"{self.prefix}/{args[0]}", *args[1:])

    def _wait(self, keys: list[str], seconds: float) -> bool:
        return self._store._wait([f"{self.prefix}/{k}" for k in keys], seconds)

    def _wait_any(self, keys: list[str], seconds: float) -> bool:
        return self._store._wait_any([f"{self.prefix}/{k}" for k in keys], seconds)

    def leave_behind(self, key: str, value: str) -> None:
        self._store.leave_behind(f"{self.prefix}/{key}" if key else "", value)


class FileStore(Store):
    """A store in a file that all processes can reach. Changes are appended; a lock on the file makes each of them whole.

    The last of `world_size` processes to let go of the store removes the file, so that its name can be used again.
    """

    _RECORD = struct.Struct("<ii")  # lengths of key and value; a length of -1: the key is gone

    def __init__(self, file_name: str, world_size: int = -1):
        super().__init__()
        self.path, self._size = str(file_name), world_size
        self._table, self._read, self._guard = Table(), 0, threading.Lock()
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644))
        self._process = os.getpid()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        import fcntl  # POSIX only
        with self._guard, open(self.path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._read)
            data = file.read()
            self._apply(data)
            self._read += len(data)
            yield file

    def _apply(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            key_length, length = self._RECORD.unpack_from(data, at)
            at += self._RECORD.size
            key, at = data[at:at + key_length].decode(), at + key_length
            if length < 0:
                self._table.values.pop(key, None)
            else:
                self._table.values[key], at = data[at:at + length], at + length

    def _do(self, what: str, *args: Any) -> bytes:
        if what.startswith("queue"):
            raise NotImplementedError("a FileStore has no queues: TCPStore and HashStore do")
        with self._locked() as file:
            key = args[0] if args else ""
            before = self._table.values.get(key)
            made = getattr(self._table, what)(*args)
            after = self._table.values.get(key)
            if after is not before and what != "check":
                name = key.encode()
                record = self._RECORD.pack(len(name), -1 if after is None else len(after)) + name + (after or b"")
                file.write(record)
                file.flush()
                self._read += len(record)
            return made

    def __del__(self) -> None:
        if getattr(self, "_process", None) != os.getpid() or self._size <= 0:
            return
        with contextlib.suppress(OSError, RuntimeError, ValueError, ImportError, TypeError):
            if self.add("cleanup/", 1) >= self._size:
                os.unlink(self.path)

