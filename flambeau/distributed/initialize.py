"""Making process groups: the default one, and others of some of its processes."""

from __future__ import annotations

import datetime
import os
import socket
import zlib
from typing import Any

from . import groups
from .groups import Backend, BackendConfig, GroupMember, ProcessGroup, default_pg_timeout, world
from .monitor import Monitor
from .rendezvous import rendezvous, slurm
from .stores import PrefixStore, Store
from .tcp_store import TCPStore

__all__ = ["init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration", "split_group"]


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: datetime.timedelta | None = None,
                       world_size: int = -1, rank: int = -1, store: Store | None = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None, _ranks: Any = None) -> None:
    """Makes the default group of all processes. Each of them calls it, and it returns when all have come.

    backend: "mpi"; "gloo", which is answered by MPI as well; "nccl" for tensors on CUDA devices; "cpu:mpi,cuda:nccl" for both.
    How they find one another: through `store`, or an address `init_method`: env:// (the default: $RANK, $WORLD_SIZE,
    $MASTER_ADDR and $MASTER_PORT, as `python -m flambeau.distributed.run` sets them; what mpiexec or Slurm's srun say where
    these are not there), tcp://host:port, or file:///path. One process alone needs no MPI.
    timeout: how long an operation may take before it raises, 30 minutes if nothing is said.
    """
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if pg_options is not None:
        raise NotImplementedError("init_process_group: pg_options are not implemented in flambeau")
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    config = _backend(backend, device_id)
    limit = timeout or default_pg_timeout
    communicator = None
    if store is not None:
        if world_size <= 0 or rank < 0:
            raise ValueError("world_size and rank must be given, and not negative, with a store")
    elif _from_mpiexec(init_method, rank, world_size):
        store, rank, world_size, communicator = _found_by_mpi(limit)
    else:
        store, rank, world_size = next(iter(rendezvous(init_method or "env://", rank, world_size, timeout=limit)))
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in a world of {world_size} process{'es' if world_size > 1 else ''}")
    _make_world(config, store, rank, world_size, limit, communicator, device_id)


def _backend(backend: str | None, device_id: Any) -> str:
    if backend is not None and not isinstance(backend, str):
        raise ValueError(f"backend: expected a string, got {type(backend).__name__}")
    if backend is None or backend == Backend.UNDEFINED:
        from .nccl import available
        backend = "cpu:gloo,cuda:nccl" if available() else "gloo"
    BackendConfig(backend.lower())
    if device_id is not None and getattr(device_id, "type", None) != "cuda":
        raise ValueError(f"init_process_group device_id parameter must be a CUDA device with an index, got {device_id}")
    return backend.lower()


def _from_mpiexec(init_method: str | None, rank: int, world_size: int) -> bool:
    """Whether only MPI's own launcher can say who this process is."""
    if (init_method or "env://").partition(":")[0] != "env" or rank >= 0 or world_size >= 0 or "RANK" in os.environ:
        return False
    from .mpi.start import launched_by_mpi
    return launched_by_mpi() is not None and not (slurm() and "MASTER_ADDR" in os.environ)


def _found_by_mpi(timeout: datetime.timedelta) -> tuple[Store, int, int, Any]:
    """The world that mpiexec made; its first process serves a store, and tells the others where."""
    from .mpi.start import world_of_mpiexec
    communicator = world_of_mpiexec()
    rank, size = communicator.rank, communicator.size
    served = TCPStore("localhost", 0, None, True, timeout, wait_for_workers=False) if rank == 0 else None
    hosts = communicator.allgather(socket.gethostname())
    host = "localhost" if len(set(hosts)) == 1 else hosts[0]  # a machine need not know its own name
    port = communicator.bcast(None if served is None else served.port)
    return served or TCPStore(host, port, None, False, timeout, wait_for_workers=False), rank, size, communicator


def _make_world(backend: str, store: Store, rank: int, size: int, timeout: datetime.timedelta, communicator: Any,
                device: Any) -> None:
    # A store may serve several worlds, one after another: each rank counts its own.
    store = PrefixStore(f"world {store.add(f'worlds of rank {rank}', 1)}", store)
    if size > 1 and communicator is None and _needs_mpi(backend):
        from .mpi.start import start
        communicator = start(store, rank, size, timeout)
    elif size > 1:
        from .mpi.start import assembled
        assembled(store, rank, size, timeout)
    monitor = Monitor(store, rank, size) if size > 1 else None
    made = ProcessGroup(backend, list(range(size)), rank, timeout, "0", PrefixStore("group 0", store), "default_pg", monitor)
    made.bound_device_id = device
    _enter(made, communicator)
    GroupMember.WORLD = made
    _made.clear()


def _enter(group: ProcessGroup, communicator: Any) -> None:
    """Makes the group known. What is collective about its engine happens now, while all of its ranks are here."""
    group.communicator = communicator
    groups._groups[group.group_name] = group
    if group.monitor is not None:
        group.monitor.groups[group.group_name] = group
    if communicator is not None and group.size() > 1 and "cpu" in group.config.device_backend_map:
        group.engine("cpu")


# ------------------------------------------------------------------------------------------------------- further groups
def new_group(ranks: Any = None, timeout: datetime.timedelta | None = None, backend: str | None = None, pg_options: Any = None,
              use_local_synchronization: bool = False, group_desc: str | None = None, device_id: Any = None,
              sort_ranks: bool = True) -> Any:
    """A group of some of the processes. All processes of the world must call it, in the same order, those too that are not in
    it (they get GroupMember.NON_GROUP_MEMBER); with use_local_synchronization only its own."""
    default = world()
    if pg_options is not None:
        raise NotImplementedError("new_group: pg_options are not implemented in flambeau")
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    chosen = _chosen(default, ranks, sort_ranks)
    own = default.ranks[default.rank()]
    name = _name(chosen, use_local_synchronization)
    if use_local_synchronization and own not in chosen:
        return None
    if not use_local_synchronization and default.size() > 1:
        default.engine(default.home).agree(f"new_group({chosen})").wait()
    spec = (backend or repr(default.config)).lower()
    if default.communicator is None and default.size() > 1 and _needs_mpi(spec):
        _start_mpi(default, use_local_synchronization)
    if own not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    made = ProcessGroup(spec, chosen, own, timeout or default.timeout, name,
                        None if default.store is None else PrefixStore(f"group {name}", default.store),
                        group_desc or "undefined", default.monitor)
    made.bound_device_id = device_id or default.bound_device_id
    communicator = None
    if default.communicator is not None:
        everybody = default.communicator.Get_group()
        communicator = default.communicator.Create_group(everybody.Incl(chosen), zlib.crc32(name.encode()) & 0x7fff)
    _enter(made, communicator)
    return made


def _needs_mpi(spec: str) -> bool:
    return set(BackendConfig(spec).device_backend_map.values()) != {Backend.NCCL}


def _start_mpi(default: ProcessGroup, local: bool) -> None:
    """Starts MPI in a world that has done without it: a group for tensors of CPUs in one of NCCL's."""
    if local:
        raise RuntimeError("new_group(use_local_synchronization=True): this group needs MPI, which is started by all "
                           "processes of the world together: say init_process_group('cpu:gloo,cuda:nccl')")
    from .mpi.start import start
    default.communicator = start(PrefixStore("mpi", default.store), default.rank(), default.size(), default.timeout)


def _chosen(default: ProcessGroup, ranks: Any, sort: bool) -> list[int]:
    if ranks is None:
        return list(default.ranks)
    chosen = sorted(int(r) for r in ranks) if sort else [int(r) for r in ranks]
    if len(chosen) > default.size():
        raise ValueError("the new group's world size should be less or equal to the world size set by init_process_group")
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"ranks list must not contain duplicate entries, got {list(ranks)}")
    for rank in chosen:
        if not 0 <= rank < default.size():
            raise ValueError(f"Rank {rank} is out of range. Valid ranks are 0 to {default.size() - 1} "
                             f"(world_size={default.size()})")
    return chosen


_made: dict[str, int] = {}  # how many groups of each kind of name there were


def _name(ranks: list[int], local: bool) -> str:
    """The same on all processes that make the group. Others may not have made as many groups: then it is the ranks'."""
    kind = f"ranks {ranks}" if local else "world"
    _made[kind] = _made.get(kind, 0) + 1
    return f"{kind} {_made[kind]}" if local else str(_made[kind])


def new_subgroups(group_size: int | None = None, group: Any = None, timeout: datetime.timedelta | None = None,
                  backend: str | None = None, pg_options: Any = None, group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """Divides the world into groups of `group_size` neighbours; (the one of this process, all of them)."""
    if group_size is None:
        group_size = int(os.environ.get("LOCAL_WORLD_SIZE", 0)) or _devices()
    size = world(group).size()
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})")
    if size % group_size != 0:
        raise ValueError(f"The world size ({size}) must be divisible by 'group_size={group_size}'")
    parent = world(group)
    parts = [parent.ranks[i:i + group_size] for i in range(0, size, group_size)]
    if parent is world():
        return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)
    parent.engine(parent.home).agree(f"new_subgroups({group_size})").wait()  # its processes alone come here
    made = [new_group(part, timeout, backend, pg_options, True, group_desc) or GroupMember.NON_GROUP_MEMBER for part in parts]
    return made[parent.rank() // group_size], made


def _devices() -> int:
    from ..cuda import device_count
    found = device_count()
    if not found:
        raise ValueError("Default group size only takes effect when there are GPUs. Please specify `group_size`.")
    return found


def new_subgroups_by_enumeration(ranks_per_subgroup_list: list[list[int]], timeout: datetime.timedelta | None = None,
                                 backend: str | None = None, pg_options: Any = None,
                                 group_desc: str | None = None) -> tuple[Any, list[Any]]:
    """Makes a group of each list of ranks; (the one of this process, all of them). No rank may be in two."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    seen: dict[int, int] = {}
    for number, ranks in enumerate(ranks_per_subgroup_list):
        for rank in ranks:
            if rank in seen:
                raise ValueError(f"Rank {rank} has appeared in both subgroup {ranks_per_subgroup_list[seen[rank]]} and {ranks}")
            seen[rank] = number
    made = [new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list]
    own = next((g for g in made if g != GroupMember.NON_GROUP_MEMBER), GroupMember.NON_GROUP_MEMBER)
    return own, made


def split_group(parent_pg: Any = None, split_ranks: list[list[int]] | None = None, timeout: datetime.timedelta | None = None,
                pg_options: Any = None, group_desc: str | None = None) -> Any:
    """Divides a group: the part that this process is in, or None. split_ranks are ranks of the parent."""
    parent = world(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    if pg_options is not None:
        raise NotImplementedError("split_group: pg_options are not implemented in flambeau")
    mine: Any = None
    for ranks in split_ranks:
        if len(set(ranks)) != len(ranks):
            raise ValueError(f"the split group cannot have duplicate ranks, got {ranks}")
        if any(not 0 <= r < parent.size() for r in ranks):
            raise ValueError("the split group's size should be less or equal to the world_size set by init_process_group")
        if parent.rank() in ranks:
            if mine is not None:
                raise ValueError(f"rank {parent.rank()} is in two of the parts {split_ranks}")
            mine = ranks
    if mine is None:
        return None
    return new_group([parent.ranks[r] for r in mine], timeout or parent.timeout, repr(parent.config),
                     use_local_synchronization=True, group_desc=group_desc, sort_ranks=False)


