"""Measuring how long code takes."""

from __future__ import annotations

import contextlib
import enum
import textwrap
import timeit
from collections.abc import Callable, Iterator
from typing import Any

from ...missing import refusal
from ...settings import get_num_threads, set_num_threads
from .measurement import Measurement, TaskSpec

__all__ = ["Language", "Timer", "timer"]

timer = timeit.default_timer


class Language(enum.Enum):
    """What the measured code is written in."""

    PYTHON = 0
    CPP = 1


class Timer:
    """Measures `stmt` after `setup`, both code as text that sees the names in `globals`."""

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
                 globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None,
                 description: str | None = None, env: str | None = None, num_threads: int = 1,
                 language: Language | str = Language.PYTHON):
        if language in (Language.CPP, "cpp", "c++"):
            raise NotImplementedError("benchmark.Timer: code in C++ is not implemented in flambeau")
        import flambeau
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip() or "pass"
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)
        self._globals = {"torch": flambeau, **(globals or {})}
        self._timer = timeit.Timer(stmt=stmt, setup=setup, timer=timer, globals=self._globals)

    @contextlib.contextmanager
    def _threads(self) -> Iterator[None]:
        before = get_num_threads()
        set_num_threads(self._task_spec.num_threads)
        try:
            yield
        finally:
            set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """The time of `number` runs in one go, after a short warm-up."""
        with self._threads():
            self._timer.timeit(max(number // 100, 2))
            return Measurement(number, [self._timer.timeit(number)], self._task_spec)

    def _block(self, min_run_time: float) -> int:
        """How many runs make a block that is long enough to be measured well."""
        number = 1
        while True:
            taken = self._timer.timeit(number)
            if taken >= min(min_run_time / 1000, 1e-3) or taken > min_run_time:
                return number
            number *= 10

    def blocked_autorange(self, callback: Callable[[int, float], Any] | None = None,
                          min_run_time: float = 0.2) -> Measurement:
        """Blocks of runs until min_run_time seconds have gone by."""
        with self._threads():
            number = self._block(min_run_time)
            return Measurement(number, self._blocks(number, min_run_time, callback), self._task_spec)

    def _blocks(self, number: int, min_run_time: float, callback: Any = None) -> list[float]:
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._timer.timeit(number))
            if callback is not None:
                callback(number, times[-1])
        return times

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
                           callback: Callable[[int, float], Any] | None = None) -> Measurement:
        """Blocks of runs until they vary by less than `threshold` of the median."""
        with self._threads():
            number = self._block(min_run_time)
            times: list[float] = []
            while True:
                times += self._blocks(number, min_run_time, callback)
                made = Measurement(number, times, self._task_spec)
                if sum(times) >= max_run_time or (len(times) > 4 and made.iqr < threshold * made.median):
                    return made

    def autorange(self, callback: Callable[[int, float], Any] | None = None) -> Measurement:
        return self.blocked_autorange(callback)

    collect_callgrind = refusal("benchmark.Timer.collect_callgrind", "counting instructions is not implemented")
