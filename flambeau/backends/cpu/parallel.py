"""Pointwise work on large arrays: into pooled memory, shared among the cores.

NumPy releases the interpreter lock inside its loops, so plain threads run in parallel. A second thread costs some tens of
microseconds to wake: below `SPLIT` elements one core is faster.
"""

from __future__ import annotations

import _thread
import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ...native import threads
from . import memory
from .errors import silence
from .pointwise.loops import enter, run
from .table import KERNELS, kernel

SPLIT = 1 << 19
LARGE = 1 << 16  # elements from which a result comes from the pool and the work may be shared among cores
HALF = 1 << 9    # elements of half precision from which native loops pay: NumPy's take 1 to 5 ns for each
NATIVE = 1 << 12  # elements from which a call into C, with its checks, costs less than the passes it saves
NATIVE_COPY = 1 << 16  # the same for a copy, which NumPy does in one pass too
_threads_wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # as PyTorch, although no OpenMP is used
_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_threads = int(_threads_wanted) if _threads_wanted.isdigit() and int(_threads_wanted) > 0 else _cores
threads.changed(_threads)
_team: list[_Worker] = []
_team_pid = 0
_busy = _thread.allocate_lock()


class _Worker:
    """A thread that waits for one piece of work at a time. Bare locks: an executor's queue takes three times as long."""

    def __init__(self):
        self.start, self.done = _thread.allocate_lock(), _thread.allocate_lock()
        self.start.acquire()
        self.done.acquire()
        self.work: Any = None
        self.error: BaseException | None = None
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        silence()
        while True:
            self.start.acquire()
            work, self.work = self.work, None
            try:
                work[0](work[1], work[2])
            except BaseException as error:  # handed to the caller
                self.error = error
            del work
            self.done.release()

    def give(self, work: Any) -> None:
        self.work = work
        self.start.release()

    def wait(self) -> None:
        self.done.acquire()
        if self.error is not None:
            error, self.error = self.error, None
            raise error


def _workers(count: int) -> list[_Worker]:
    """The helpers; made on first use, and anew in a forked child (threads do not survive a fork)."""
    global _team_pid, _busy
    if _team_pid != os.getpid():
        _team.clear()
        _team_pid = os.getpid()
        _busy = _thread.allocate_lock()
    while len(_team) < count:
        _team.append(_Worker())
    return _team


def set_num_threads(n: int) -> None:
    global _threads
    _threads = n
    threads.changed(n)


def get_num_threads() -> int:
    return _threads


def split(count: int, work) -> None:
    """work(start, stop) over pieces of range(count), one per core; the caller's piece is larger by a helper's waking."""
    shares = min(_threads, max(1, count))
    if shares < 2:
        work(0, count)
        return
    team = _workers(shares - 1)
    if not _busy.acquire(False):  # another thread, or an outer split, has the helpers
        work(0, count)
        return
    try:
        first = min(count, count // shares + count // (16 * shares))
        rest = count - first
        bounds = [first + rest * i // (shares - 1) for i in range(shares)]
        for i in range(shares - 1):
            team[i].give((work, bounds[i], bounds[i + 1]))
        failed = None
        try:
            work(0, first)
        finally:
            for i in range(shares - 1):
                try:
                    team[i].wait()
                except BaseException as error:
                    failed = error
        if failed is not None:
            raise failed
    finally:
        _busy.release()


def large(kernel: Any, *args: Any, out: ndarray | None = None) -> Any:
    """kernel(*args) for large arrays; the same result as a plain call."""
    made = run(_names.get(kernel) or name_of(kernel), *args, out=out)
    if made is not None:
        return made
    if not isinstance(kernel, np.ufunc) or kernel.nout != 1:
        return kernel(*args) if out is None else np.copyto(out, kernel(*args))
    first = args[0]
    if type(first) is not ndarray:  # an array without memory knows what to do
        return kernel(*args)
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


def name_of(kernel: Any) -> str:
    """The name under which the table has a kernel."""
    name = _names.get(kernel)
    if name is None:
        _names.update({function: n for n, function in KERNELS.items()})
        name = _names.setdefault(kernel, "")
    return name


_names: dict[Any, str] = {}


def native(function: Callable[..., Any], least: int = NATIVE) -> Callable[..., Any]:
    """For kernels with a C expression (pointwise/loops.py) whose first argument is an array: from `least` elements on they
    run it."""
    name = function.__name__.rstrip("_")

    @functools.wraps(function)
    def chosen(x, *rest):
        if x.size >= least:
            made = run(name, x, *rest)
            if made is not None:
                return made
        return function(x, *rest)

    return chosen


native_from_two = functools.partial(native, least=2)  # for what takes NumPy several passes: a call into C takes less than two


@kernel(safe=True, batch="trailing")
def copied(x: ndarray) -> ndarray:
    return x.copy()


enter("copied", 1, "a", "fib")


def copy_into(out: ndarray, x: ndarray) -> None:
    """out[...] = x for memory that x does not share: large arrays on all cores."""
    if x.dtype is out.dtype and x.dtype.char in "eE":
        x, out = x.view(np.int16), out.view(np.int16)  # nothing to compute
    if out.size < NATIVE_COPY or x.dtype is not out.dtype or run("copied", x, out=out) is None:
        np.copyto(out, x, casting="unsafe")


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
