"""How much of a device's memory is used. Without a device nothing is."""

from __future__ import annotations

from typing import Any

from .devices import index_of, is_available, is_initialized, machine


def _pool(device: Any, what: str) -> Any:
    """The memory of a device; None where nothing has been made on one."""
    if not is_initialized() or not is_available():
        return None
    from ..backends.cuda import memory
    return memory.of(index_of(device, what))


def _read(name: str, field: str, text: str) -> Any:
    def read(device: Any = None) -> int:
        pool = _pool(device, name)
        return 0 if pool is None else getattr(pool, field)

    read.__name__, read.__qualname__, read.__doc__ = name, name, text
    return read


memory_allocated = _read("memory_allocated", "allocated", "Bytes that tensors use.")
max_memory_allocated = _read("max_memory_allocated", "most_allocated", "The most bytes that tensors have used.")
memory_reserved = memory_cached = _read("memory_reserved", "reserved", "Bytes that were taken from the driver.")
max_memory_reserved = max_memory_cached = _read("max_memory_reserved", "most_reserved",
                                                "The most bytes that were taken from the driver.")


def reset_peak_memory_stats(device: Any = None) -> None:
    """The largest numbers start again from what is used now."""
    pool = _pool(device, "reset_peak_memory_stats")
    if pool is not None:
        pool.reset_peaks()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """The numbers of retries and failures start again from 0."""
    pool = _pool(device, "reset_accumulated_memory_stats")
    if pool is not None:
        pool.retries = pool.failures = 0


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """More than this part of a device's memory is not taken from the driver: what would need more raises OutOfMemoryError."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    from ..backends.cuda import memory
    memory.of(index_of(device, "set_per_process_memory_fraction")).fraction = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of a device's memory that may be taken."""
    from ..backends.cuda import memory
    return memory.of(index_of(device, "get_per_process_memory_fraction")).fraction


def _record_memory_history(enabled: str | None = "all", *args: Any, **kwargs: Any) -> None:
    """Notes for each piece of memory which line of the program asked for it, so that an out-of-memory error can say which lines
    hold the most; None stops. Costs a few microseconds per tensor."""
    from ..backends.cuda import memory
    memory.history.switch(enabled is not None)


def empty_cache() -> None:
    """Gives memory that no tensor uses back to the driver."""
    if is_initialized() and is_available():
        from ..backends.cuda import memory
        for index in range(machine("empty_cache").count):
            memory.of(index).release()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(bytes free, bytes in all) of a device."""
    index = index_of(device, "mem_get_info")
    found = machine("mem_get_info")
    found.activate(index)
    return found.room()


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The numbers above under PyTorch's names; those that are not counted are not there."""
    pool = _pool(device, "memory_stats")
    if pool is None:
        return {}
    return {"allocated_bytes.all.current": pool.allocated, "allocated_bytes.all.peak": pool.most_allocated,
            "reserved_bytes.all.current": pool.reserved, "reserved_bytes.all.peak": pool.most_reserved,
            "segment.all.current": len(pool.segments), "num_alloc_retries": pool.retries, "num_ooms": pool.failures}


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """`memory_stats` as a table."""
    stats = memory_stats(device)
    return "\n".join([f"{name:<32}{value:>20,}" for name, value in stats.items()]) or "no CUDA memory is in use"


def ipc_collect() -> None:
    """Does nothing: memory is not shared with other processes."""
