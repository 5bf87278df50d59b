"""A small profiler: how often each operation ran in a block, and how long it took (`torch.autograd.profiler`).

It listens as a function mode, so it sees the operations that a program calls, and `backward` as one of them; the calls
that an operation makes inside itself are part of its time. The self time of a `record_function` block excludes them.
"""

from __future__ import annotations

import time
from typing import Any

from ..missing import refused
from ..ops.core.overrides import TorchFunctionMode
from .state import state


class FunctionEvent:
    """One call: name, start and end in microseconds since the profile began, and the time spent in inner calls."""

    __slots__ = ("end", "inner", "name", "start")

    def __init__(self, name: str, start: float):
        self.name, self.start, self.end, self.inner = name, start, start, 0.0

    @property
    def cpu_time_total(self) -> float:
        return self.end - self.start

    @property
    def self_cpu_time_total(self) -> float:
        return self.end - self.start - self.inner


class FunctionEventAvg:
    """All calls of one name."""

    def __init__(self, key: str):
        self.key, self.count, self.cpu_time_total, self.self_cpu_time_total = key, 0, 0.0, 0.0

    def add(self, event: FunctionEvent) -> None:
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count if self.count else 0.0

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total:.3f}us "
                f"cpu_time={self.cpu_time:.3f}us>")


class EventList(list):
    """Averages that print as a table."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **_: Any) -> str:
        rows = sorted(self, key=lambda e: -getattr(e, sort_by)) if sort_by else list(self)
        width = max([len(e.key) for e in rows[:row_limit]] + [4])
        total = sum(e.self_cpu_time_total for e in self)
        line = "-" * (width + 60)
        text = [line, f"{'Name':<{width}}  {'Self CPU %':>10}  {'Self CPU':>12}  {'CPU total':>12}  "
                      f"{'# of Calls':>10}", line]
        for e in rows[:row_limit]:
            share = 100 * e.self_cpu_time_total / total if total else 0.0
            text.append(f"{e.key:<{width}}  {share:>9.2f}%  {e.self_cpu_time_total:>10.1f}us  "
                        f"{e.cpu_time_total:>10.1f}us  {e.count:>10}")
        return "\n".join([*text, line, f"Self CPU time total: {total / 1000:.3f}ms"])

    @property
    def self_cpu_time_total(self) -> float:
        return sum(e.self_cpu_time_total for e in self)

    def __str__(self) -> str:
        return self.table()


class profile(TorchFunctionMode):
    """Measures the operations of a `with` block."""

    def __init__(self, enabled: bool = True, *, use_cpu: bool = True, **options: Any):
        for name, value in options.items():
            if name in ("use_cuda", "use_device", "with_flops", "profile_memory", "with_stack") and value:
                raise NotImplementedError(f"profile: {name} is not measured by flambeau's profiler")
        self.enabled = enabled
        self.function_events: list[FunctionEvent] = []
        self._open: list[FunctionEvent] = []

    def __enter__(self) -> profile:
        self._zero = time.perf_counter()
        if self.enabled:
            super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            super().__exit__(*exc)

    def _start(self, name: str) -> FunctionEvent:
        event = FunctionEvent(name, (time.perf_counter() - self._zero) * 1e6)
        self._open.append(event)
        return event

    def _stop(self, event: FunctionEvent) -> None:
        event.end = (time.perf_counter() - self._zero) * 1e6
        self._open.remove(event)
        if self._open:
            self._open[-1].inner += event.cpu_time_total
        self.function_events.append(event)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        event = self._start(f"aten::{getattr(func, '__name__', func)}")
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._stop(event)

    def key_averages(self, **_: Any) -> EventList:
        found: dict[str, FunctionEventAvg] = {}
        for event in self.function_events:
            found.setdefault(event.name, FunctionEventAvg(event.name)).add(event)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        total = FunctionEventAvg("Total")
        for event in self.function_events:
            total.add(event)
        return total

    @property
    def self_cpu_time_total(self) -> float:
        return sum(e.self_cpu_time_total for e in self.function_events)

    def table(self, **options: Any) -> str:
        return self.key_averages().table(**options)

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events in the format of chrome://tracing."""
        import json
        with open(path, "w") as file:
            json.dump([{"name": e.name, "ph": "X", "ts": e.start, "dur": e.cpu_time_total, "tid": 0,
                        "pid": "CPU functions",
                        "args": {}} for e in self.function_events], file)


class record_function:
    """Names a block: it shows up as one entry in the profile that is running, if any."""

    def __init__(self, name: str, args: str | None = None):
        self.name = name
        self.event: tuple[profile, FunctionEvent] | None = None

    def __enter__(self) -> record_function:
        running = next((m for m in reversed(state.function_modes) if isinstance(m, profile)), None)
        if running is not None:
            self.event = running, running._start(self.name)
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.event is not None:
            running, event = self.event
            running._stop(event)
            self.event = None

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return inside


def _profiler_enabled() -> bool:
    """Whether a profile is being taken on this thread."""
    return any(isinstance(mode, profile) for mode in state.function_modes)


def kineto_available() -> bool:
    """False: Kineto is a library of PyTorch's build."""
    return False


def __getattr__(name: str) -> Any:
    if name in ("emit_nvtx", "emit_itt", "load_nvprof", "parse_nvprof_trace", "KinetoStepTracker"):
        return refused("autograd.profiler", "there is no connection to NVTX, ITT or Kineto", name)[name]
    raise AttributeError(f"module 'flambeau.autograd.profiler' has no attribute '{name}'")


__all__ = ["profile", "record_function", "FunctionEvent", "FunctionEventAvg", "EventList"]
