"""`torch.profiler`: measures a program, or some steps of it. Built on autograd.profiler, which does the measuring."""

from __future__ import annotations

import enum
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from .autograd.profiler import DeviceType, EventList, _refuse, kineto_available, record_function
from .autograd.profiler import profile as _profile
from .missing import refused, refused_modules

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "itt", "kineto_available", "profile",
           "record_function", "schedule", "supported_activities", "tensorboard_trace_handler"]


class ProfilerActivity(enum.Enum):
    """What is measured. Only CPU has anything to measure here.

    >>> torch.profiler.ProfilerActivity.CPU
    <ProfilerActivity.CPU: 0>
    """

    CPU = 0
    XPU = 1
    CUDA = 2
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What the profiler does during one step.

    >>> [action.name for action in torch.profiler.ProfilerAction]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """The activities that this build can measure.

    >>> torch.profiler.ProfilerActivity.CPU in torch.profiler.supported_activities()
    True
    """
    return {ProfilerActivity.CPU}


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """Which steps to record: after `skip_first`, cycles of `wait`, `warmup` and `active` steps, `repeat` times (0: for ever).

    skip_first_wait: 1 lets the first cycle begin without waiting.

    >>> when = torch.profiler.schedule(wait=1, warmup=1, active=2)
    >>> [when(step).name for step in range(4)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE']
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError("Invalid profiler schedule arguments: wait, warmup, repeat and skip_first must not be negative, "
                             f"active must be positive; got wait={wait}, warmup={warmup}, active={active}, repeat={repeat}, "
                             f"skip_first={skip_first}")
    if not warmup:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle, within = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or within < wait:
            return ProfilerAction.NONE
        if within < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if within == wait + warmup + active - 1 else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False,
                              use_python_export: bool = False) -> Callable[..., None]:
    """An on_trace_ready that writes each trace to a file of its own in the folder.

    >>> with torch.profiler.profile(on_trace_ready=torch.profiler.tensorboard_trace_handler("traces")):
    ...     y = torch.ones(3).exp()
    """
    _refuse("tensorboard_trace_handler", use_python_export=use_python_export)

    def handler(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{worker}.{time.time_ns()}.pt.trace.json" + ".gz" * use_gzip))

    return handler


class _KinetoProfile:
    """A profile between `start_trace` and `stop_trace`, and what is asked of its events."""

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None, acc_events: bool = False,
                 custom_trace_id_callback: Callable[[], str] | None = None, post_processing_timeout_s: float | None = None):
        _refuse("profiler.profile", experimental_config=experimental_config, execution_trace_observer=execution_trace_observer,
                post_processing_timeout_s=post_processing_timeout_s)
        self.activities = _checked(activities)
        self.record_shapes, self.profile_memory, self.with_stack = record_shapes, profile_memory, with_stack
        self.with_flops, self.with_modules, self.acc_events = with_flops, with_modules, acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self.profiler: _profile | None = None
        self.preset_metadata: dict[str, Any] = {}

    def start(self) -> None:
        self.start_trace()

    def stop(self) -> None:
        self.stop_trace()

    def prepare_trace(self) -> None:
        """Makes what start_trace begins."""
        if self.profiler is None or not self.acc_events:
            self.profiler = _profile(record_shapes=self.record_shapes, profile_memory=self.profile_memory,
                                     with_stack=self.with_stack, with_flops=self.with_flops, with_modules=self.with_modules,
                                     acc_events=self.acc_events, custom_trace_id_callback=self.custom_trace_id_callback)

    def start_trace(self) -> None:
        if self.profiler is None or self.profiler._events is not None:
            self.prepare_trace()
        self.profiler.__enter__()

    def stop_trace(self) -> None:
        self._running().__exit__(None, None, None)

    def _running(self) -> _profile:
        if self.profiler is None:
            raise AssertionError("Profiler must be initialized: nothing has been recorded yet")
        return self.profiler

    # ------------------------------------------------------------------------------------------------------- results
    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """One entry per name (and if asked per shapes of inputs, or per first n lines of the stack); `.table()` prints them."""
        return self._running().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def events(self) -> EventList:
        """Every event by itself, in the order in which they began."""
        return self._running().function_events

    def export_chrome_trace(self, path: str) -> None:
        """Writes a file that chrome://tracing and ui.perfetto.dev show; compressed if its name ends with .gz."""
        self._running().export_chrome_trace(path, **self.preset_metadata)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Writes stacks for flame graphs (flamegraph.pl, speedscope); needs with_stack=True."""
        self._running().export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Not available: which memory is parameters, gradients or activations is not told apart."""
        raise NotImplementedError("profiler.profile.export_memory_timeline is missing in flambeau: use profile_memory=True and "
                                  "key_averages().table(sort_by='self_cpu_memory_usage') or export_chrome_trace")

    # ------------------------------------------------------------------------------------------------- what is added
    def add_metadata(self, key: str, value: str) -> None:
        """A text that goes into the trace's file under this key."""
        self.preset_metadata[key] = str(value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """A value, given as JSON, that goes into the trace's file under this key."""
        self.preset_metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json

    def set_custom_trace_id_callback(self, callback: Callable[[], str]) -> None:
        self.custom_trace_id_callback = callback

    def get_trace_id(self) -> str | None:
        return self.profiler.trace_id if self.profiler is not None else None

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[ProfilerActivity] = ()) -> None:
        """Stops and goes on with measuring inside of a trace."""
        self._running().toggle_collection_dynamic(enable, activities)


def _checked(activities: Iterable[ProfilerActivity] | None) -> set[ProfilerActivity]:
    wanted = set(supported_activities() if activities is None else activities)
    if not all(isinstance(a, ProfilerActivity) for a in wanted):
        raise NotImplementedError(f"profiler.profile: activities must be ProfilerActivity, got {wanted}; filters are missing "
                                  "in flambeau")
    for a in wanted - supported_activities():
        warnings.warn(f"{a.name} is not available, disabling {a.name} profiling", stacklevel=4)
    if not wanted & supported_activities():
        raise AssertionError("No valid profiler activities found")
    return wanted & supported_activities()


class profile(_KinetoProfile):
    """Measures operations in a `with` block, or between `start()` and `stop()`; `step()` marks the end of a step.

    schedule: which steps are recorded (`flambeau.profiler.schedule`), all without one; on_trace_ready(profile) is called when a
    recording is complete. Other options: see `flambeau.autograd.profiler.profile`.

    >>> with torch.profiler.profile(record_shapes=True) as measured:
    ...     y = torch.ones(64, 64) @ torch.ones(64, 64)
    >>> "mm" in measured.key_averages().table()
    True
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Callable[[int], ProfilerAction] | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None, record_shapes: bool = False,
                 profile_memory: bool = False, with_stack: bool = False, with_flops: bool = False,
                 with_modules: bool = False, experimental_config: Any = None, execution_trace_observer: Any = None,
                 acc_events: bool = False, use_cuda: bool | None = None,
                 custom_trace_id_callback: Callable[[], str] | None = None, post_processing_timeout_s: float | None = None):
        if use_cuda is not None:
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
            activities = {*(activities or supported_activities()), *([ProfilerActivity.CUDA] if use_cuda else [])}
        super().__init__(activities=activities, record_shapes=record_shapes, profile_memory=profile_memory,
                         with_stack=with_stack, with_flops=with_flops, with_modules=with_modules,
                         experimental_config=experimental_config, execution_trace_observer=execution_trace_observer,
                         acc_events=acc_events, custom_trace_id_callback=custom_trace_id_callback,
                         post_processing_timeout_s=post_processing_timeout_s)
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.record_steps, self.on_trace_ready = schedule is not None, on_trace_ready
        self.step_num, self.current_action = 0, self.schedule(0)
        self.step_rec_fn: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.stop()

    def start(self) -> None:
        self._change(ProfilerAction.NONE, self.current_action)
        self._name_step()

    def stop(self) -> None:
        self._end_step()
        self._change(self.current_action, None)

    def step(self) -> None:
        """Ends a step: what the schedule says of the next one happens."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._change(before, self.current_action)
        self._name_step()

    def _name_step(self) -> None:
        if self.record_steps:
            self.step_rec_fn = record_function(f"ProfilerStep#{self.step_num}")
            self.step_rec_fn.__enter__()

    def _end_step(self) -> None:
        if self.step_rec_fn is not None:
            self.step_rec_fn.__exit__(None, None, None)
            self.step_rec_fn = None

    def _change(self, before: ProfilerAction, now: ProfilerAction | None) -> None:
        """From what was done in a step to what is to be done in the next; None: there is none."""
        records = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        complete = before is ProfilerAction.RECORD_AND_SAVE or (before is ProfilerAction.RECORD and now is None)
        if complete or (before in records and now not in records):
            if not complete:
                warnings.warn(f"Incorrect schedule: RECORD followed by {now.name}", stacklevel=3)
            self.stop_trace()
            if complete and self.on_trace_ready is not None:
                self.on_trace_ready(self)
        if before is ProfilerAction.WARMUP and now is ProfilerAction.NONE:
            warnings.warn("Incorrect schedule: WARMUP followed by NONE", stacklevel=3)
        if now in records and (complete or before not in records):
            self.start_trace()


_NO_ITT = "there is no connection to Intel's ITT"
ExecutionTraceObserver = refused("profiler", "execution traces are missing", "ExecutionTraceObserver")["ExecutionTraceObserver"]
_ExperimentalConfig = refused("profiler", "settings of Kineto's are missing", "_ExperimentalConfig")["_ExperimentalConfig"]
itt = refused_modules(__name__, _NO_ITT, {"itt": "is_available mark range range_pop range_push"})["itt"]
