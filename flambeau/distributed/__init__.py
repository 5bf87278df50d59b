"""`torch.distributed`: several processes that compute together, on one machine or many.

groups.py says who they are, initialize.py and rendezvous.py how they find one another, collectives.py, messages.py and
objects.py what they do together; engine.py and mpi/ (or nccl.py) carry it, work.py waits for it, monitor.py notices who is
gone.
MPI and NCCL are loaded when a group of several processes is made. One process alone needs neither.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import traceback
from datetime import timedelta  # noqa: F401  (found here, as in PyTorch)
from typing import Any

from ..missing import refused, refused_modules
from . import (
    collectives,
    device_mesh,
    errors,
    groups,
    initialize,
    messages,
    objects,
    options,
    reductions,
    stores,
    tcp_store,
    work,
)
from .collectives import *  # noqa: F403
from .collectives import _coalescing_manager, _CoalescingManager  # noqa: F401
from .debugging import breakpoint
from .device_mesh import *  # noqa: F403
from .ending import write_error
from .errors import *  # noqa: F403
from .groups import *  # noqa: F403
from .groups import (  # noqa: F401
    _get_default_group,
    _get_default_store,
    _get_process_group_name,
    _rank_not_in_group,
    _resolve_process_group,
    world,
)
from .initialize import *  # noqa: F403
from .messages import *  # noqa: F403
from .objects import *  # noqa: F403
from .options import *  # noqa: F403
from .reductions import *  # noqa: F403
from .reductions import _make_nccl_premul_sum  # noqa: F401
from .rendezvous import register_rendezvous_handler, rendezvous
from .stores import *  # noqa: F403
from .tcp_store import *  # noqa: F403
from .work import *  # noqa: F403

__all__ = [*groups.__all__, *collectives.__all__, *device_mesh.__all__, *errors.__all__, *initialize.__all__, *messages.__all__,
           *objects.__all__, *options.__all__, *reductions.__all__, *stores.__all__, *tcp_store.__all__, *work.__all__,
           "breakpoint", "register_rendezvous_handler", "rendezvous"]
log = logging.getLogger("flambeau.distributed")
RankType = int

_all_gather_base = collectives.all_gather_into_tensor  # its old name
_reduce_scatter_base = collectives.reduce_scatter_tensor
sys.modules[f"{__name__}.distributed_c10d"] = distributed_c10d = sys.modules[__name__]  # PyTorch's file
_REASON = "this part of torch.distributed is not implemented"
globals().update(refused("distributed", "groups are made by init_process_group and new_group", "ProcessGroupGloo"))
globals().update(refused("distributed", "it is an internal class of PyTorch's", "Logger Reducer"))
globals().update(refused("distributed", _REASON, "shrink_group record_comm"))
refused_modules(__name__, _REASON, {
    "rpc": "PyRRef init_rpc rpc_sync rpc_async remote shutdown RRef TensorPipeRpcBackendOptions get_worker_info BackendType",
    "autograd": "context backward get_gradients",
    "_shard": "ShardedTensor",
    "elastic": "",
    "elastic.agent": "",
    "elastic.rendezvous": "RendezvousParameters RendezvousHandler",
    "elastic.multiprocessing": "start_processes Std",
    "launcher": "launch_agent elastic_launch LaunchConfig",
    "launcher.api": "launch_agent elastic_launch LaunchConfig",
    "remote_device": "_remote_device",
    "utils": "",
    "constants": "",
    "c10d_logger": "",
    "argparse_util": "env check_env",
    "logging_handlers": "",
    "collective_utils": "broadcast all_gather",
})
constants = sys.modules[f"{__name__}.constants"]
constants.default_pg_timeout = groups.default_pg_timeout


def _record(fn: Any = None, error_handler: Any = None) -> Any:
    """A decorator for main functions: an error is written to a file for the launcher, which shows the first of all ranks."""
    if fn is None:
        return lambda function: _record(function, error_handler)
    if error_handler is not None:
        raise NotImplementedError("record: error_handler is not implemented in flambeau")

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except Exception:
            write_error(traceback.format_exc())
            raise

    return recorded


_errors = {"elastic.multiprocessing.errors": "ChildFailedError ErrorHandler"}
refused_modules(__name__, _REASON, _errors)["elastic.multiprocessing.errors"].record = _record


# loaded when first touched
_PACKAGES = frozenset(("algorithms", "nn", "optim", "tensor", "_tensor", "_composable", "fsdp", "pipelining", "checkpoint"))
_ELSEWHERE = {"DistributedDataParallel": "..nn.parallel", "GradBucket": "..nn.parallel.buckets",
              "BuiltinCommHookType": ".algorithms.ddp_comm_hooks.default_hooks"}


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name], __name__), name)
    if name in _PACKAGES:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("__"):
        raise AttributeError(name)
    from .. import MissingName
    raise MissingName(f"flambeau.distributed.{name} is not implemented in flambeau")

