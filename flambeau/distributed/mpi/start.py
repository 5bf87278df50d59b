"""Starting MPI in this process, once, and ending it with the process."""

from __future__ import annotations

import ctypes
import datetime
import os
import socket
import sys
import threading
import uuid
from typing import Any

from ..ending import at_end
from ..errors import DistBackendError, DistStoreError
from ..stores import PrefixStore, Store
from .pmi import Manager

__all__ = ["assembled", "launched_by_mpi", "module", "start", "world_of_mpiexec"]

_NEEDED = ("a process group of several processes needs mpi4py and an MPI library: pip install flambeau[mpi] "
           "(or: pip install mpi4py mpich)")
_LAUNCHERS = (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMIX_RANK", "PRTE_SIZE"))
_peace = False
_LEAVING = 3.0  # seconds that a process which ends waits for the others


def launched_by_mpi() -> tuple[int, int] | None:
    """(rank, size) as the launcher of an MPI library put them into the environment."""
    for rank, size in _LAUNCHERS:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


def module() -> Any:
    """mpi4py's MPI, not yet started."""
    try:
        import mpi4py
        if "mpi4py.MPI" not in sys.modules:
            mpi4py.rc.initialize = mpi4py.rc.finalize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py found no MPI library
        raise DistBackendError(f"{_NEEDED}. ({error})") from error
    return MPI


def start(store: Store, rank: int, size: int, timeout: datetime.timedelta) -> Any:
    """A communicator of all `size` processes, in the order of their ranks. All must call it."""
    MPI = module()
    hosts = assembled(store, rank, size, timeout)
    if not MPI.Is_initialized():
        if (launched_by_mpi() or (0, -1))[1] == size:
            _initialize(MPI)
        else:
            _without_launcher(MPI, store, rank, size, hosts)
    if MPI.Is_finalized():
        raise DistBackendError("MPI was finalized in this process, and cannot be started again")
    world = MPI.COMM_WORLD
    if world.size != size:
        raise DistBackendError(f"this process is one of a world of {world.size} processes of MPI's, and cannot become one of "
                               f"{size}: MPI can be started only once in a process")
    return world.Split(0, rank)


def world_of_mpiexec() -> Any:
    """MPI's world, where its own launcher started this process."""
    MPI = module()
    if not MPI.Is_initialized():
        _initialize(MPI)
    return MPI.COMM_WORLD


def assembled(store: Store, rank: int, size: int, timeout: datetime.timedelta) -> list[str]:
    """Waits until every process has come; the machines that they are on, by rank."""
    store.set(f"here/{rank}", socket.gethostname())
    keys = [f"here/{r}" for r in range(size)]
    try:
        store.wait(keys, timeout)
    except DistStoreError:
        absent = [r for r, key in enumerate(keys) if not store.check([key])]
        raise DistStoreError(f"init_process_group: rank {rank} waited {timeout.total_seconds():.0f} s for {size} processes; "
                             f"missing: rank {', '.join(map(str, absent))}") from None
    return [store.get(key).decode() for key in keys]


def _without_launcher(MPI: Any, store: Store, rank: int, size: int, hosts: list[str]) -> None:
    """The processes find one another through the store (pmi.py)."""
    vendor = MPI.get_vendor()[0]
    if vendor != "MPICH":
        raise DistBackendError(f"{vendor} joins only processes that its own mpiexec has started: run `mpiexec -n {size} python "
                               "...`, or install MPICH (pip install mpich), with which `python -m flambeau.distributed.run`, "
                               "multiprocessing.spawn and RANK/WORLD_SIZE work as well")
    if rank == 0:  # MPICH names its shared memory after this, and two jobs must not meet in it
        store.set("name", f"flambeau-{uuid.uuid4().hex}")
    name = store.get("name").decode()
    with Manager(PrefixStore(name, store), rank, size, hosts, name) as manager:
        at_end(lambda failed: manager.close())  # the last step: MPI asks until it has ended
        _initialize(MPI, rank)


def _unlink_shared_memory() -> None:
    """Takes the name of MPICH's shared memory away: all processes have it mapped, and one that is killed leaves nothing."""
    try:
        with open("/proc/self/maps") as maps:
            names = {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line and "deleted" not in line}
    except OSError:  # no Linux
        return
    for name in names:
        try:
            os.unlink(name)
        except OSError:  # another process of the node was quicker
            pass


def _initialize(MPI: Any, rank: int | None = None) -> None:
    """MPI_Init, without Python's lock: the thread that answers MPI's questions needs it (mpi4py's own call keeps it)."""
    provided = ctypes.c_int()
    error = ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, ctypes.c_int(MPI.THREAD_MULTIPLE), ctypes.byref(provided))
    if error:
        raise DistBackendError(f"MPI could not be started: {MPI.Get_error_string(error)}")
    if provided.value < MPI.THREAD_MULTIPLE:
        raise DistBackendError("this MPI library does not allow several threads to use it (MPI_THREAD_MULTIPLE)")
    for communicator in (MPI.COMM_WORLD, MPI.COMM_SELF):
        communicator.Set_errhandler(MPI.ERRORS_RETURN)
    MPI.COMM_WORLD.Barrier()
    _unlink_shared_memory()
    at_end(lambda failed: _leave(MPI, rank is not None, failed))


def leaves_in_peace() -> None:
    """The process has given its groups up."""
    global _peace
    _peace = True


def _leave(MPI: Any, own: bool, failed: bool) -> None:
    """MPI_Finalize waits for everybody. A process that failed must not: those who started it should hear of it at once. Nor one
    that just ends: Python does not say here whether by sys.exit(1)."""
    if MPI.Is_finalized() or (own and not _peace):
        return
    if failed:
        if not own:
            sys.stderr.flush()
            MPI.COMM_WORLD.Abort(1)  # mpiexec ends the others
        return
    thread = threading.Thread(target=ctypes.CDLL(MPI.__file__).MPI_Finalize, daemon=True)
    thread.start()
    thread.join(_LEAVING if own else None)
