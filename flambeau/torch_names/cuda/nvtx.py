"""torch.cuda.nvtx: ranges and marks that NVIDIA's profilers show, through libnvToolsExt where it is installed.

Without that library nobody can see them, and only the nesting is counted, so that programs run the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from .devices import is_available


@functools.cache
def _library() -> Any:
    if not is_available():
        raise RuntimeError("NVTX functions not installed. Are you sure you have a CUDA build?")
    try:
        return ctypes.CDLL("libnvToolsExt.so.1")
    except OSError:
        return None


_depth = 0


def range_push(msg: str) -> int:
    """Opens a range; its depth, from 0."""
    global _depth
    library = _library()
    _depth += 1
    return _depth - 1 if library is None else library.nvtxRangePushA(str(msg).encode())


def range_pop() -> int:
    """Closes the innermost range; its depth."""
    global _depth
    library = _library()
    _depth -= 1
    return _depth if library is None else library.nvtxRangePop()


def range_start(msg: str) -> int:
    """Opens a range that any thread may close; its number."""
    library = _library()
    if library is None:
        return 0
    library.nvtxRangeStartA.restype = ctypes.c_uint64
    return library.nvtxRangeStartA(str(msg).encode())


def range_end(range_id: int) -> None:
    """Closes a range that `range_start` opened."""
    library = _library()
    if library is not None:
        library.nvtxRangeEnd(ctypes.c_uint64(range_id))


def mark(msg: str) -> None:
    """A point in time."""
    library = _library()
    if library is not None:
        library.nvtxMarkA(str(msg).encode())


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range around a block; the message is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
