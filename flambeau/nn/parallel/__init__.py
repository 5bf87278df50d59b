"""Modules on several processes (DistributedDataParallel) or devices (of which there is one)."""

from __future__ import annotations

import sys

from ...missing import refused_modules
from . import data_parallel as _data_parallel
from . import parallel_apply as _parallel_apply
from . import scatter_gather
from .data_parallel import DataParallel, data_parallel
from .distributed import DistributedDataParallel
from .parallel_apply import parallel_apply
from .scatter_gather import gather, replicate, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate", "scatter"]

# As in PyTorch the functions hide the modules of the same name, which can still be imported from.
sys.modules[f"{__name__}.data_parallel"], sys.modules[f"{__name__}.parallel_apply"] = _data_parallel, _parallel_apply
sys.modules[f"{__name__}.replicate"] = scatter_gather
refused_modules(__name__, "copying between devices is not implemented", {
    "comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "_functions": "Broadcast Gather ReduceAddCoalesced Scatter _get_stream"})
