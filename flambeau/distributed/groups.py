"""Process groups of one process: what programs written for many do when there is only this one."""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any
from urllib.parse import parse_qs, urlparse

__all__ = ["Backend", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "GroupMember",
           "HashStore", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore", "Work", "default_pg_timeout",
           "destroy_process_group", "get_backend", "get_global_rank", "get_group_rank", "get_node_local_rank",
           "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "is_available",
           "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
           "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "new_group", "supports_complex"]

default_pg_timeout = datetime.timedelta(minutes=30)


class ReduceOp(Enum):
    """How values of several processes are combined."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


ReduceOp.RedOpType = ReduceOp  # PyTorch's type of the members


class DistError(RuntimeError):
    """Something between processes went wrong."""


class DistBackendError(DistError):
    """In the backend."""


class DistNetworkError(DistError):
    """In the network."""


class DistStoreError(DistError):
    """In the store."""


class Backend(str):
    """The name of a backend, in lower case. Within one process all of them do the same."""

    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl"
    backend_list = [UNDEFINED, GLOO, NCCL, UCC, XCCL, MPI]
    default_device_backend_map = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())


class ProcessGroup:
    """The processes that take part in a collective operation: this one."""

    def __init__(self, backend: str = Backend.GLOO, description: str = "default_pg"):
        self.backend, self.group_desc, self.group_name = Backend(backend), description, "0"

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 1

    def name(self) -> str:
        return str(self.backend)

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.backend}: rank 0 of 1>"


class GroupMember:
    """`WORLD` is the default group; `NON_GROUP_MEMBER` stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100
    WORLD: ProcessGroup | None = None


group = GroupMember


class Work:
    """An operation that may still be going on: here it is always done."""

    def __init__(self, result: Any = None):
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    is_success = is_completed

    def result(self) -> Any:
        return [] if self._result is None else [self._result]

    def get_future(self) -> Any:
        from ..futures import Future
        made: Future = Future()
        made.set_result(self.result())
        return made


# ------------------------------------------------------------------------------------------------------------- stores
class Store:
    """Keys and values (bytes) that processes share."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self.timeout = datetime.timedelta(minutes=5)

    def set(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._values[key] = value.encode() if isinstance(value, str) else bytes(value)
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter."""
        with self._changed:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        with self._changed:
            if self._values.get(key, expected.encode()) == expected.encode():
                self._values[key] = desired.encode()
                self._changed.notify_all()
            return self._values[key]

    def check(self, keys: list[str]) -> bool:
        return all(k in self._values for k in keys)

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        """Returns when all keys are set (by another thread, perhaps)."""
        limit = (self.timeout if timeout is None else timeout).total_seconds()
        with self._changed:
            if not self._changed.wait_for(lambda: self.check(keys), limit):
                raise DistStoreError(f"wait timeout after {limit * 1000:.0f}ms, keys: {', '.join(keys)}")

    def delete_key(self, key: str) -> bool:
        with self._changed:
            return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.timeout = timeout


class HashStore(Store):
    """A store within the process."""


class PrefixStore(Store):
    """Another store, all keys with a prefix."""

    def __init__(self, prefix: str, store: Store):
        super().__init__()
        self.prefix, self.underlying_store = prefix, store
        for name in ("set", "get", "add", "compare_set", "delete_key"):
            setattr(self, name, self._prefixed(getattr(store, name)))

    def _prefixed(self, function: Callable) -> Callable:
        return lambda key, *rest: function(f"{self.prefix}/{key}", *rest)

    def check(self, keys: list[str]) -> bool:
        return self.underlying_store.check([f"{self.prefix}/{k}" for k in keys])

    def wait(self, keys: list[str], timeout: datetime.timedelta | None = None) -> None:
        self.underlying_store.wait([f"{self.prefix}/{k}" for k in keys], timeout)


class TCPStore(Store):
    """A store on a port: for one process, without the port."""

    def __init__(self, host_name: str = "localhost", port: int = 0, world_size: int | None = None, is_master: bool = False,
                 timeout: Any = None, **options: Any):
        super().__init__()
        _one_process(world_size)
        self.host, self.port = host_name, port


class FileStore(Store):
    """A store in a file: for one process, without the file."""

    def __init__(self, file_name: str, world_size: int | None = -1):
        super().__init__()
        _one_process(world_size)
        self.path = file_name


# --------------------------------------------------------------------------------------------------------- the group
def _one_process(world_size: int | None) -> None:
    if world_size is not None and world_size > 1:
        raise NotImplementedError(f"distributed: training with {world_size} processes is not implemented in flambeau; a world "
                                  "of one process is")


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: Any = None,
                       world_size: int = -1, rank: int = -1, store: Store | None = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None, _ranks: Any = None) -> None:
    """Makes the default group. Its size is given, or $WORLD_SIZE, or in the address (`...?world_size=1`): it must be one."""
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is None and (init_method is None or init_method.startswith("env://")):
        for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
            if value < 0 and name not in os.environ:
                raise ValueError(f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} "
                                 "expected, but not set")
        world_size = int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size
        rank = int(os.environ["RANK"]) if rank < 0 else rank
    elif init_method is not None:  # the address may say both
        query = parse_qs(urlparse(init_method).query)
        world_size = int(query.get("world_size", [world_size])[0]) if world_size < 0 else world_size
        rank = int(query.get("rank", [rank])[0]) if rank < 0 else rank
    _one_process(world_size)
    if rank > 0:
        raise ValueError(f"rank {rank} is not in a world of one process")
    GroupMember.WORLD = ProcessGroup(backend or Backend.GLOO)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Forgets the default group."""
    world(group)
    if group is None or group is GroupMember.WORLD:
        GroupMember.WORLD = None


def world(group: Any = None) -> ProcessGroup:
    """The given group, or the default one."""
    if group is not None and group is not GroupMember.NON_GROUP_MEMBER:
        return group
    if GroupMember.WORLD is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return GroupMember.WORLD


def _get_default_group() -> ProcessGroup:
    return world()


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process takes no part in the group."""
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def new_group(ranks: Any = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None,
              use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None,
              sort_ranks: bool = True) -> Any:
    """A group of some of the processes."""
    default = world()
    if ranks is not None and list(ranks) != [0]:
        if any(r != 0 for r in ranks):
            raise ValueError("the new group's rank should be within the world_size set by init_process_group")
        return GroupMember.NON_GROUP_MEMBER
    return ProcessGroup(backend or default.backend, group_desc or "group")


def is_available() -> bool:
    """Whether the package can be used: for one process it can."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return GroupMember.WORLD is not None


def is_torchelastic_launched() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_gloo_available() -> bool:
    """The name is accepted; within one process nothing has to be sent."""
    return True


def is_nccl_available() -> bool:
    return False


is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def is_backend_available(backend: str) -> bool:
    return backend.lower() == Backend.GLOO


def get_rank(group: Any = None) -> int:
    return world(group).rank()


def get_world_size(group: Any = None) -> int:
    return world(group).size()


def get_backend(group: Any = None) -> Backend:
    return world(group).backend


def get_process_group_ranks(group: Any = None) -> list[int]:
    return list(range(world(group).size()))


def get_global_rank(group: Any, group_rank: int) -> int:
    return group_rank


def get_group_rank(group: Any, global_rank: int) -> int:
    return global_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """$LOCAL_RANK."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow "
                           "`get_node_local_rank` to work, assuming you are not running in a multi-device context and want "
                           "the code to run locally instead.")
    return int(fallback_rank)


def supports_complex(reduceOp: ReduceOp) -> bool:
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)
