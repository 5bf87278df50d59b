"""What programs ask about CUDA before they use it. Until the CUDA backend lands the answer is: none here."""

from __future__ import annotations

import sys
from typing import Any

from .amp.by_device import module_for as _amp_for
from .backends.registry import MissingDevice
from .creation.legacy import LEGACY, legacy_class
from .missing import refusal, refused_modules
from .settings import OutOfMemoryError  # noqa: F401
from .tensors import dtypes as _dtypes

__path__: list[str] = []  # private modules below it are found by name (internals.py)

for _name in LEGACY:
    globals()[_name + "Tensor"] = legacy_class(_name, "torch.cuda")


def is_available() -> bool:
    """Whether tensors can be made on a CUDA device: not in this build."""
    return False


_initialized = False  # private in PyTorch, but what reversible networks look at before they keep the device's random state


def is_initialized() -> bool:
    return _initialized


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Does nothing: the moment when the device is first used does not come."""


def _lazy_init() -> None:
    """Would make the device ready."""
    _refuse("init")()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def device_count() -> int:
    return 0


def _refuse(name: str) -> Any:
    """Stands for what needs a device: a function that refuses, or a class of which nothing can be made."""
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise MissingDevice(f"Torch not compiled with CUDA enabled: flambeau.cuda.{name} needs the CUDA backend, which "
                            "is not part of this build")

    if name[0].isupper() or name == "graph":  # programs ask isinstance and write X | None
        return type(name, (), {"__new__": refuse, "__module__": __name__, "__doc__": "Not available: it needs a CUDA device."})
    refuse.__name__, refuse.__doc__ = name, "Not available: it needs a CUDA device."
    return refuse


def _nothing(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> None:
        return None

    function.__name__, function.__doc__ = name, "Does nothing: there is no CUDA device. (PyTorch allows it without one, too.)"
    return function


for _name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "empty_cache", "ipc_collect",
              "reset_peak_memory_stats", "reset_max_memory_allocated"):
    globals()[_name] = _nothing(_name)
for _name in ("current_device", "synchronize", "set_device", "get_device_name", "get_device_properties",
              "get_device_capability", "current_stream", "default_stream", "stream", "Stream", "Event", "mem_get_info",
              "get_rng_state", "set_rng_state", "init"):
    globals()[_name] = _refuse(_name)


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


class device:
    """Chooses a CUDA device for a block; -1 and None choose nothing."""

    def __init__(self, device: Any):
        self.index = device

    def __enter__(self):
        if self.index not in (None, -1):
            _refuse("device")()

    def __exit__(self, *exc):
        return False


device_of = device

amp = _amp_for("cuda", f"{__name__}.amp")

# The storages' old names, and everything else that needs the device.
_NEED_A_DEVICE = """CUDAGraph CUDAPluggableAllocator ExternalStream GreenContext MemPool StreamContext caching_allocator_alloc
    caching_allocator_delete caching_allocator_enable can_device_access_peer change_current_allocator check_error clock_rate
    cudart current_blas_handle current_solver_handle device_memory_used get_allocator_backend get_per_process_memory_fraction
    get_stream_from_external get_sync_debug_mode graph graph_pool_handle initial_seed list_gpu_processes
    make_graphed_callables max_memory_cached memory_cached memory_snapshot memory_usage power_draw
    reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_cached reset_peak_host_memory_stats
    set_per_process_memory_fraction set_stream set_sync_debug_mode temperature use_mem_pool utilization"""
for _name in (*(f"{d.word}Storage" for d in _dtypes.ALL if d.word != d.name), *_NEED_A_DEVICE.split()):
    globals()[_name] = _refuse(_name)
has_half = has_magma = False
default_generators: tuple = ()


def get_arch_list() -> list[str]:
    """The architectures that kernels were built for: none."""
    return []


def get_gencode_flags() -> str:
    return ""


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Nothing was allocated."""
    return {}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    return "no CUDA device"


def get_rng_state_all() -> list[Any]:
    """One state per device: none."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Does nothing: there is no device whose state to set."""


def is_current_stream_capturing() -> bool:
    return False


def is_tf32_supported() -> bool:
    return False


class CudaError(RuntimeError):
    """An error of the CUDA runtime."""


def _no_nvtx(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")


_NEEDED = "the CUDA backend is not part of this build, and this is not implemented without it"
_inner = refused_modules(__name__, _NEEDED, {
    "nvtx": "", "comm": "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
    "nccl": "all_gather all_reduce broadcast init_rank reduce reduce_scatter unique_id version",
    "profiler": "init profile start stop",
    "jiterator": "_create_jit_fn _create_multi_output_jit_fn"})
for _name in ("mark", "range", "range_pop", "range_push", "range_start", "range_end"):
    setattr(_inner["nvtx"], _name, _no_nvtx)
_inner["nccl"].is_available = lambda tensors=(): False
for _name in ("_create_jit_fn", "_create_multi_output_jit_fn"):  # can be made anywhere; what they make cannot be called
    setattr(_inner["jiterator"], _name, lambda *args, **kwargs: refusal("cuda.jiterator", _NEEDED))
for _name in ("memory", "random", "graphs", "streams"):  # PyTorch's files: the names are all here
    sys.modules[f"{__name__}.{_name}"] = globals()[_name] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from . import MissingName
    raise MissingName(f"flambeau.cuda.{name}: the CUDA backend is not part of this build")
