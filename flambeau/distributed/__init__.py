"""`torch.distributed`: several processes are not implemented; the questions programs ask first say so."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ..missing import refusal

_REASON = "training with several processes is not implemented"
# Importing these is fine (programs do, and then run on one process); calling them is refused.
for _name in """init_process_group destroy_process_group get_rank get_world_size get_backend new_group barrier
        all_reduce all_gather all_gather_object all_gather_into_tensor reduce reduce_scatter broadcast
        broadcast_object_list gather scatter send recv isend irecv all_to_all monitored_barrier init_device_mesh
        DistributedDataParallel TCPStore FileStore""".split():
    globals()[_name] = refusal(f"distributed.{_name}", _REASON)


class ReduceOp(Enum):
    """How values of several processes are combined."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


def is_available() -> bool:
    """Whether processes can work together: not yet."""
    return False


def is_initialized() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return False


def is_nccl_available() -> bool:
    return False


def is_gloo_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from .. import MissingName
    raise MissingName(f"flambeau.distributed.{name}: training with several processes is not implemented in flambeau")
