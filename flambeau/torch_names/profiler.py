"""`torch.profiler`: counts and times operations over steps. Built on autograd.profiler, which does the measuring."""

from __future__ import annotations

import enum
import os
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from .autograd.profiler import EventList, FunctionEvent, kineto_available, record_function
from .autograd.profiler import profile as _profile

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["DeviceType", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule",
           "supported_activities", "tensorboard_trace_handler"]


class ProfilerActivity(enum.Enum):
    """What is measured. Only CPU has anything to measure here."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3


DeviceType = enum.Enum("DeviceType", "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS Meta",
                       start=0)


class ProfilerAction(enum.Enum):
    """What the profiler does during one step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that this build can measure."""
    return {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Which steps to record: after `skip_first`, cycles of `wait`, `warmup` and `active` steps, `repeat` times."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise ValueError("schedule: wait, warmup, repeat and skip_first must not be negative, active must be positive; got "
                         f"wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, skip_first={skip_first}")

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait  # the first cycle does not wait
        cycle, within = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or within < wait:
            return ProfilerAction.NONE
        if within < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if within == wait + warmup + active - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[..., None]:
    """An on_trace_ready that writes each trace to a file of its own in the folder."""

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json"))

    return handler


class profile:
    """Measures operations in a `with` block, or between `start()` and `stop()`; `step()` marks the end of a step."""

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False, acc_events: bool = False, **options: Any):
        self.activities = set(activities) if activities is not None else supported_activities()
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self._recording: _profile | None = None
        self._last = _profile()
        self._step: Any = None
        self._stepped = schedule is not None

    def start(self) -> None:
        self._follow()

    def stop(self) -> None:
        if self._recording is not None:
            self._save()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def step(self) -> None:
        """Ends a step: what the schedule says of the next one happens."""
        done = self.schedule(self.step_num)
        self._end_step()
        if done is ProfilerAction.RECORD_AND_SAVE and self._recording is not None:
            self._save()
        self.step_num += 1
        self._follow()

    def _follow(self) -> None:
        if self.schedule(self.step_num) in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            if self._recording is None:
                self._recording = self._last = _profile()
                self._recording.__enter__()
            if self._stepped:
                self._step = record_function(f"ProfilerStep#{self.step_num}")
                self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _save(self) -> None:
        self._end_step()
        recording, self._recording = self._recording, None
        recording.__exit__(None, None, None)
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **_: Any) -> EventList:
        """One entry per name: calls and times; `.table(sort_by=...)` prints them."""
        return self._last.key_averages()

    def events(self) -> list[FunctionEvent]:
        return self._last.function_events

    def export_chrome_trace(self, path: str) -> None:
        """Writes the events in the format of chrome://tracing."""
        self._last.export_chrome_trace(path)

    def add_metadata(self, key: str, value: str) -> None:
        """Accepted; not written."""

    add_metadata_json = add_metadata
