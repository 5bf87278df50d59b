"""Keeps the native kernels' number of threads equal to `set_num_threads`."""

from __future__ import annotations

from typing import Any

_runtime: Any = None


_count = 1


def attach(runtime: Any) -> None:
    global _runtime
    _runtime = runtime
    runtime.fl_set_threads(_count)


def changed(count: int) -> None:
    """How many threads there are to be from now on."""
    global _count
    _count = count
    if _runtime is not None:
        _runtime.fl_set_threads(count)
