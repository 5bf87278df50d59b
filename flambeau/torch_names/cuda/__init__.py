"""torch.cuda: devices, streams, memory and random numbers of NVIDIA GPUs.

What is not there raises and says so; without a GPU, what PyTorch allows then is allowed here too.
"""

from __future__ import annotations

import sys
from typing import Any

from ..amp.by_device import module_for as _amp_for
from ..creation.legacy import LEGACY, legacy_class
from ..missing import refusal, refused_modules
from ..settings import OutOfMemoryError  # noqa: F401
from ..tensors import dtypes as _dtypes
from . import devices as _devices
from . import nvtx  # noqa: F401
from .devices import *  # noqa: F403
from .devices import device, device_of, is_available, is_initialized  # noqa: F401
from .generators import *  # noqa: F403
from .graphs import *  # noqa: F403
from .memory import *  # noqa: F403
from .streams import *  # noqa: F403

for _name in LEGACY:
    globals()[_name + "Tensor"] = legacy_class(_name, "torch.cuda")
AcceleratorError = RuntimeError


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Calls at once where there is a device, and never where there is none."""
    if is_available():
        callable()


def _lazy_init() -> None:
    _devices.init()


def _refuse(name: str) -> Any:
    """Stands for what is not there: a function that refuses, or a class of which nothing can be made."""
    def refuse(*args: Any, **kwargs: Any) -> Any:
        _devices.machine(name)
        raise NotImplementedError(f"flambeau.cuda.{name} is not implemented")

    if name[0].isupper():  # programs ask isinstance and write X | None
        return type(name, (), {"__new__": refuse, "__module__": __name__, "__doc__": "Not available."})
    refuse.__name__, refuse.__doc__ = name, "Not available."
    return refuse


amp = _amp_for("cuda", f"{__name__}.amp")

# The storages' old names, and everything else that needs the device.
_NEED_A_DEVICE = """CUDAPluggableAllocator GreenContext MemPool caching_allocator_alloc
    caching_allocator_delete caching_allocator_enable change_current_allocator check_error clock_rate
    cudart current_blas_handle current_solver_handle device_memory_used get_allocator_backend
    get_sync_debug_mode list_gpu_processes memory_snapshot memory_usage power_draw
    reset_accumulated_host_memory_stats reset_peak_host_memory_stats
    set_sync_debug_mode temperature use_mem_pool utilization"""
for _name in (*(f"{d.word}Storage" for d in _dtypes.ALL if d.word != d.name), *_NEED_A_DEVICE.split()):
    globals()[_name] = _refuse(_name)
has_half = has_magma = False


class CudaError(RuntimeError):
    """An error of the CUDA runtime."""


_NEEDED = "it is not implemented"
_inner = refused_modules(__name__, _NEEDED, {
    "comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "nccl": "all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id version",
    "profiler": "init profile start stop",
    "jiterator": "_create_jit_fn _create_multi_output_jit_fn"})
_inner["nccl"].is_available = lambda tensors=(): False
for _name in ("_create_jit_fn", "_create_multi_output_jit_fn"):  # can be made anywhere; what they make cannot be called
    setattr(_inner["jiterator"], _name, lambda *args, **kwargs: refusal("cuda.jiterator", _NEEDED))
for _name in ("random",):  # PyTorch's files: the names are all here
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "_initialized":  # private in PyTorch, but what reversible networks look at before they keep the random state
        return is_initialized()
    from .. import MissingName
    raise MissingName(f"flambeau.cuda.{name}: it is not implemented")
