"""Pointwise work on large arrays: into pooled memory, shared among the cores.

NumPy releases the interpreter lock inside its loops, so plain threads run in parallel. A second thread costs some tens of
microseconds to wake: below `SPLIT` elements one core is faster.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy import ndarray

from . import memory

SPLIT = 1 << 18
_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_pool = None
_pool_pid = 0


def set_num_threads(n: int) -> None:
    global _threads
    _threads = n


def get_num_threads() -> int:
    return _threads


def _executor():
    """The worker threads; made on first use, and anew in a forked child."""
    global _pool, _pool_pid
    if _pool is None or _pool_pid != os.getpid():
        from concurrent.futures import ThreadPoolExecutor

        from .errors import silence
        _pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1), "flambeau", initializer=silence)
        _pool_pid = os.getpid()
    return _pool


def split(count: int, work) -> None:
    """work(start, stop) over pieces of range(count), one per core."""
    pieces = min(_threads, max(1, count))
    if pieces < 2:
        work(0, count)
        return
    bounds = [count * i // pieces for i in range(pieces + 1)]
    others = [_executor().submit(work, bounds[i], bounds[i + 1]) for i in range(1, pieces)]
    work(0, bounds[1])
    for other in others:
        other.result()


def large(kernel: Any, *args: Any, out: ndarray | None = None) -> Any:
    """kernel(*args) for large arrays; the same result as a plain call."""
    if not isinstance(kernel, np.ufunc) or kernel.nout != 1:
        return kernel(*args) if out is None else np.copyto(out, kernel(*args))
    first = args[0]
    others = [a for a in args if type(a) is ndarray]
    shape = first.shape
    same = all(a.shape == shape and a.flags.c_contiguous and a.dtype is first.dtype for a in others)
    if not same:
        return _uneven(kernel, args, out)
    if out is None:
        out = memory.empty(shape, _result_dtype(kernel, args))
    if first.size < SPLIT or _threads < 2 or first.ndim == 0:
        return kernel(*args, out=out)
    flat = [a.reshape(-1) if type(a) is ndarray else a for a in args]
    flat_out = out.reshape(-1)

    def work(start: int, stop: int) -> None:
        kernel(*[a[start:stop] if type(a) is ndarray else a for a in flat], out=flat_out[start:stop])

    split(first.size, work)
    return out


_dtypes: dict[Any, np.dtype] = {}


def _result_dtype(kernel: np.ufunc, args: tuple[Any, ...]) -> np.dtype:
    """The dtype NumPy gives kernel(*args), found once on one element."""
    key = (kernel, *(a.dtype if type(a) is ndarray else type(a) for a in args))
    found = _dtypes.get(key)
    if found is None:
        probe = kernel(*[np.ones(1, a.dtype) if type(a) is ndarray else type(a)(1) for a in args])
        found = _dtypes[key] = probe.dtype
    return found


def _uneven(kernel: np.ufunc, args: tuple[Any, ...], out: ndarray | None) -> Any:
    """Broadcast or strided arguments: NumPy walks them; only the memory is ours."""
    if out is not None:
        return kernel(*args, out=out)
    arrays = [a for a in args if type(a) is ndarray]
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    dtype = _result_dtype(kernel, args)
    main = next((a for a in arrays if a.shape == shape), None)
    if main is not None and not main.flags.c_contiguous:
        template = memory.like(main)
        out = template if template.dtype == dtype else None
    if out is None:
        out = memory.empty(shape, dtype)
    return kernel(*args, out=out)
