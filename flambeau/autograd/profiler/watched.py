"""What a profiler notes of things that are no operations: calls of modules, and the batches of a DataLoader."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

from ...nn.hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..state import PROFILE, state

_lock = threading.Lock()
_watching = [0]  # profilers that run, of all threads


def modules_watched(recorder: Any) -> list[Any]:
    """Every call of a module becomes a block: `nn.Module: Linear_0`. Returns handles that end it."""
    calls = recorder.calls

    def before(module: Any, args: Any) -> None:
        if state.profiler is recorder and state.mode & PROFILE:
            calls.append((module, recorder.begin(f"nn.Module: {type(module).__name__}_{recorder.number_of(module)}")))

    def after(module: Any, args: Any, output: Any) -> None:
        if state.profiler is recorder:
            while calls:
                known, span = calls.pop()
                recorder.end(span)
                if known is module:
                    break

    return [register_module_forward_pre_hook(before), register_module_forward_hook(after, always_call=True)]


@contextlib.contextmanager
def loaders_watched() -> Iterator[None]:
    """Inside, the iterators of DataLoaders tell the thread's profiler of each batch. Outside they know nothing of profilers."""
    from ...utils.data.iterators import _BaseDataLoaderIter as Iter
    with _lock:
        _watching[0] += 1
        if _watching[0] == 1:
            loaders_watched.plain = Iter.__next__
            Iter.__next__ = Iter.next = _told(Iter.__next__)
    try:
        yield
    finally:
        with _lock:
            _watching[0] -= 1
            if not _watching[0]:
                Iter.__next__ = Iter.next = loaders_watched.plain


def _told(plain: Any) -> Any:
    @functools.wraps(plain)
    def __next__(self: Any) -> Any:
        if state.profiler is None or not state.mode & PROFILE:
            return plain(self)
        with state.profiler.span(f"enumerate(DataLoader)#{type(self).__name__}.__next__"):
            return plain(self)

    return __next__
