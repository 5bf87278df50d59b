"""Python's multiprocessing, with tensors that travel between processes through shared memory.

A tensor sent through a Queue or Pipe, or given to a spawned process, is moved into shared memory: sender and receiver
then see each other's changes, as in PyTorch.
"""

from __future__ import annotations

import multiprocessing as _multiprocessing
import sys
from multiprocessing import *  # noqa: F403
from multiprocessing import connection, context, pool, process, queues, reduction, synchronize  # noqa: F401

from . import reductions
from .reductions import init_reductions
from .spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [*_multiprocessing.__all__, "ProcessContext", "ProcessException", "ProcessExitedException",
           "ProcessRaisedException", "SpawnContext", "get_all_sharing_strategies", "get_sharing_strategy",
           "init_reductions", "reductions", "set_sharing_strategy", "spawn", "start_processes"]

_STRATEGIES = {"file_descriptor", "file_system"}
_strategy = "file_descriptor"

init_reductions()
sys.modules[f"{__name__}.pool"], sys.modules[f"{__name__}.queue"] = pool, queues  # PyTorch's files


def get_all_sharing_strategies() -> set[str]:
    """The names that set_sharing_strategy accepts."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Remembered only: shared memory always travels by descriptor, and needs no file name."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}, expected one of {sorted(_STRATEGIES)}")
    _strategy = new_strategy


def _set_thread_name(name: str) -> None:
    """Does nothing: threads have no names that tools would show."""


def _get_thread_name() -> str:
    import threading
    return threading.current_thread().name
