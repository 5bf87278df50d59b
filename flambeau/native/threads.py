"""Keeps the native kernels' number of threads equal to `set_num_threads`."""

from __future__ import annotations

from typing import Any

_runtime: Any = None


def attach(runtime: Any) -> None:
    global _runtime
    from ..backends.cpu import parallel
    _runtime = runtime
    runtime.fl_set_threads(parallel.get_num_threads())


def changed(count: int) -> None:
    """`set_num_threads` was called."""
    if _runtime is not None:
        _runtime.fl_set_threads(count)
