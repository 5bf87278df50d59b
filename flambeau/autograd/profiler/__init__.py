"""`torch.autograd.profiler`: how long operations, backward passes and named blocks take.

recorder.py notes what happens, events.py is what came of it, table.py and traces.py show it; `flambeau.profiler` adds steps.
"""

from __future__ import annotations

import functools
import uuid
import warnings
from collections.abc import Callable
from typing import Any

from ...missing import refused
from ..state import PROFILE, state
from .events import (
    MEMORY_EVENT_NAME,
    OUT_OF_MEMORY_EVENT_NAME,
    DeviceType,
    EnforceUnique,
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
    MemRecordsAcc,
    StringTable,
)
from .recorder import Recorder, Span

__all__ = ["profile", "record_function", "emit_itt", "emit_nvtx", "load_nvprof", "EnforceUnique", "parse_nvprof_trace",
           "KinetoStepTracker", "EventList", "FunctionEvent", "FunctionEventAvg", "MemRecordsAcc", "Interval", "Kernel",
           "StringTable", "DeviceType", "MEMORY_EVENT_NAME", "OUT_OF_MEMORY_EVENT_NAME"]


class profile:
    """Measures the operations of this thread in a `with` block.

    record_shapes: the shapes and numbers that operations were given; profile_memory: bytes that they took and gave back;
    with_stack: the Python lines that called them; with_flops: the operations of products, convolutions, sums; with_modules:
    calls of modules are events of their own. acc_events: entering it again adds to what there is.
    """

    def __init__(self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None,
                 record_shapes: bool = False, with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False,
                 with_modules: bool = False, use_kineto: bool = False, use_cpu: bool = True, experimental_config: Any = None,
                 acc_events: bool = False, custom_trace_id_callback: Callable[[], str] | None = None,
                 post_processing_timeout_s: float | None = None, activity_filters: Any = None):
        _refuse("autograd.profiler.profile", use_kineto=use_kineto, experimental_config=experimental_config,
                post_processing_timeout_s=post_processing_timeout_s, activity_filters=activity_filters)
        if not use_cpu:
            raise NotImplementedError("autograd.profiler.profile: use_cpu=False leaves nothing to measure in flambeau")
        device = use_device or ("cuda" if use_cuda else None)
        if device is not None:
            warnings.warn(f"{device.upper()} is not available, disabling {device.upper()} profiling", stacklevel=2)
        self.enabled, self.entered, self.acc_events = enabled, False, acc_events
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes or with_flops, with_flops, profile_memory
        self.with_stack, self.with_modules = with_stack, with_modules
        self.custom_trace_id_callback, self.trace_id = custom_trace_id_callback, ""
        self._recorder: Recorder | None = None
        self._events: EventList | None = None

    def __enter__(self) -> profile:
        if not self.enabled:
            return self
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._earlier = self._events if self.acc_events and self._events is not None else None
        self._events = None
        self.trace_id = self.create_trace_id()
        self._recorder = Recorder(self.record_shapes, self.profile_memory, self.with_stack, self.with_flops, self.with_modules)
        self._recorder.start()
        return self

    def __exit__(self, *exc: Any) -> bool:
        if self.enabled:
            self._recorder.stop()
            self.entered = False
            self._events = self._recorder.events()
            if self._earlier is not None:
                self._events[:0] = self._earlier
        return False

    def create_trace_id(self) -> str:
        return self.custom_trace_id_callback() if self.custom_trace_id_callback else self.default_trace_id()

    def default_trace_id(self) -> str:
        return uuid.uuid4().hex.upper()

    def toggle_collection_dynamic(self, enabled: bool, activities: Any = None) -> None:
        """Stops and goes on with measuring inside of the block."""
        if not self.entered:
            raise RuntimeError("toggle_collection_dynamic: the profiler is not running")
        self._recorder.resume() if enabled else self._recorder.pause()

    # ------------------------------------------------------------------------------------------------------- results
    @property
    def function_events(self) -> EventList:
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._events

    @property
    def self_cpu_time_total(self) -> float:
        return self.function_events.self_cpu_time_total

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """One entry per name (and if asked per shapes, or per first n lines of the stack)."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        return self.function_events.total_average()

    @functools.wraps(EventList.table)
    def table(self, *args: Any, **options: Any) -> str:
        return self.function_events.table(*args, **options)

    def __str__(self) -> str:
        return "<unfinished profile>" if self._events is None else str(self._events)

    __repr__ = __str__

    def export_chrome_trace(self, path: str, **about: Any) -> None:
        """Writes a file that chrome://tracing and ui.perfetto.dev show; compressed if its name ends with .gz."""
        from .traces import write_trace
        options = {name: int(getattr(self, name)) for name in (
            "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")}
        write_trace(path, self.function_events, **options, trace_id=self.trace_id,
                    baseTimeNanoseconds=self._recorder.base + self._recorder.zero, **about)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes stacks for flame graphs; needs with_stack=True."""
        if not self.with_stack:
            raise RuntimeError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)


def _refuse(who: str, **options: Any) -> None:
    """Options of PyTorch's that would have no effect here."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{who}: {name}={value!r} is missing in flambeau")


class record_function:
    """Names a block, as `with record_function("forward"):` or over a function: an event of its own while a profiler runs.

    >>> with torch.profiler.profile() as measured:
    ...     with torch.profiler.record_function("my block"):
    ...         y = torch.ones(3).exp()
    >>> "my block" in [event.name for event in measured.events()]
    True
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._running: list[tuple[Recorder, Span]] = []

    def __enter__(self) -> record_function:
        if state.mode & PROFILE:
            recorder = state.profiler
            span = recorder.begin(self.name, 7)
            if self.args is not None and recorder.shapes:
                span.shapes, span.inputs = ((),), (self.args,)
            self._running.append((recorder, span))
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._running:
            recorder, span = self._running.pop()
            recorder.end(span)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return inside

    def _call_end_callbacks_on_future(self, fut: Any) -> Any:
        """The block ends when the future is done."""
        running, self._running = self._running, []
        return fut.then(lambda done: ([r.end(s) for r, s in running], done.value())[1])


def _profiler_enabled() -> bool:
    """Whether a profile is being taken on this thread."""
    return state.profiler is not None


def kineto_available() -> bool:
    """False: Kineto is a library of PyTorch's build.

    >>> torch.autograd.kineto_available()
    False
    """
    return False


def __getattr__(name: str) -> Any:
    if name in ("emit_nvtx", "emit_itt", "load_nvprof", "parse_nvprof_trace", "KinetoStepTracker"):
        return refused("autograd.profiler", "there is no connection to NVTX, ITT or Kineto", name)[name]
    raise AttributeError(f"module 'flambeau.autograd.profiler' has no attribute '{name}'")
