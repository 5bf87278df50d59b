"""What a profiler found: single events, averages of those with one key, and lists of either that print as a table."""

from __future__ import annotations

import enum
from collections import namedtuple
from collections.abc import Iterable
from typing import Any

from .table import table, time_text

MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME = "[memory]", "[OutOfMemory]"
DeviceType = enum.Enum("DeviceType", "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS Meta HPU VE "
                       "Lazy IPU MTIA PrivateUse1", start=0)
DeviceType.__doc__ = """Where a measured event ran.

>>> torch.profiler.DeviceType.CPU
<DeviceType.CPU: 0>"""
Kernel = namedtuple("Kernel", ["name", "device", "duration"])


class Interval:
    """From `start` to `end`, in microseconds since the profile began."""

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval({self.start:.3f}, {self.end:.3f})"


class _Times:
    """What events and averages have in common: times as text, and those of devices, of which there are none."""

    use_device = None
    device_type = DeviceType.CPU
    device_time = device_time_total = self_device_time_total = cuda_time = cuda_time_total = 0.0
    device_memory_usage = self_device_memory_usage = 0
    is_legacy = is_async = is_remote = False
    self_cpu_percent: Any = ""  # what the last table said
    total_cpu_percent: Any = ""

    @property
    def cpu_time(self) -> float:
        """The mean time of a call, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0

    cpu_time_str = property(lambda self: time_text(self.cpu_time))
    cpu_time_total_str = property(lambda self: time_text(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: time_text(self.self_cpu_time_total))
    device_time_str = property(lambda self: time_text(self.device_time))
    device_time_total_str = property(lambda self: time_text(self.device_time_total))
    self_device_time_total_str = property(lambda self: time_text(self.self_device_time_total))


class FunctionEvent(_Times):
    """One call of an operation, one node of a backward pass, or one block that was named.

    Times are in microseconds; `scope` is 0 for operations, 1 for nodes, 7 for the user's blocks. `sequence_nr` is the number of
    the node that a forward operation made, and of that node's event in the backward pass; -1 where there is none.
    """

    count = 1
    node_id = -1
    overload_name = ""
    device_index = device_resource_id = 0
    is_python_function = False
    metadata_json = event_metadata = None

    def __init__(self, id: int, name: str, thread: int, start_us: float, end_us: float, *, fwd_thread: int | None = None,
                 input_shapes: Any = None, concrete_inputs: Any = None, kwinputs: Any = None, stack: Any = None, scope: int = 0,
                 cpu_memory_usage: int = 0, sequence_nr: int = -1, flops: int = 0, is_user_annotation: bool = False):
        self.id, self.trace_name = id, name
        self.name = "ProfilerStep*" if name.startswith("ProfilerStep#") else name  # all steps are one row
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread = thread, fwd_thread
        self.input_shapes, self.concrete_inputs = input_shapes or [], concrete_inputs or []
        self.kwinputs, self.stack, self.scope = kwinputs or {}, stack or [], scope
        self.cpu_memory_usage, self.sequence_nr, self.flops = cpu_memory_usage, sequence_nr, flops
        self.is_user_annotation = is_user_annotation
        self.kernels: list[Kernel] = []
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None

    key = property(lambda self: self.name)
    external_id = property(lambda self: self.id)

    @property
    def cpu_time_total(self) -> float:
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        return self.cpu_time_total - sum([c.cpu_time_total for c in self.cpu_children])

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum([c.cpu_memory_usage for c in self.cpu_children])

    def append_cpu_child(self, child: FunctionEvent) -> None:
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent | None) -> None:
        self.cpu_parent = parent

    def __repr__(self) -> str:
        return (f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
                f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} "
                f"cpu_children={[c.id for c in self.cpu_children]} thread={self.thread} input_shapes={self.input_shapes} "
                f"cpu_memory_usage={self.cpu_memory_usage} seq_nr={self.sequence_nr}>")


_SUMS = ("count", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "flops")


class FunctionEventAvg(_Times):
    """All events with one key: sums of times, memory and operations, and how many they were."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count, self.flops, self.node_id = 0, 0, -1
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_children: Any = None
        self.cpu_parent: Any = None
        self.is_user_annotation = False

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        if self.key is None:  # the first speaks for all
            for name in ("key", "node_id", "input_shapes", "overload_name", "stack", "scope", "cpu_children", "cpu_parent",
                         "is_user_annotation"):
                setattr(self, name, getattr(other, name))
        elif other.key != self.key:
            raise ValueError(f"FunctionEventAvg of {self.key} cannot add an event of {other.key}")
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + (getattr(other, name) or 0))
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} count={self.count} self_cpu_time={self.self_cpu_time_total_str} "
                f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>")


class EventList(list):
    """Events, or averages of them."""

    def __init__(self, events: Iterable[Any] = (), *, use_device: str | None = None, profile_memory: bool = False,
                 with_flops: bool = False):
        super().__init__(events)
        self._use_device, self._profile_memory, self._with_flops = use_device, profile_memory, with_flops

    @property
    def self_cpu_time_total(self) -> float:
        return sum([e.self_cpu_time_total for e in self])

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """One entry per name, and if asked per shapes of the inputs and per first n lines of the stack."""
        found: dict[Any, FunctionEventAvg] = {}
        for e in self:
            key = (e.key, e.node_id, e.is_user_annotation, e.overload_name if group_by_overload_name else "",
                   str(e.input_shapes) if group_by_input_shapes else "", tuple(e.stack[:max(0, group_by_stack_n)]))
            found.setdefault(key, FunctionEventAvg()).add(e)
        for average in found.values():
            average.stack = average.stack[:max(0, group_by_stack_n)]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return EventList(found.values(), use_device=self._use_device, profile_memory=self._profile_memory,
                         with_flops=self._with_flops)

    def total_average(self) -> FunctionEventAvg:
        """The sum of all."""
        total = FunctionEventAvg()
        for e in self:
            total.key = None
            total.add(e)
        total.key = "Total"
        return total

    def table(self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int | None = 75,
              max_name_column_width: int | None = 55, max_shapes_column_width: int | None = 80, header: str | None = None,
              top_level_events_only: bool = False, time_unit: str | None = None) -> str:
        """The events as text, the largest by `sort_by` (any of their numbers: "self_cpu_time_total", "count"...) first."""
        return table(self, sort_by, row_limit, (max_name_column_width, max_shapes_column_width, max_src_column_width), header,
                     top_level_events_only, time_unit, memory=self._profile_memory, flops=self._with_flops)

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str) -> None:
        """Writes a file that chrome://tracing and ui.perfetto.dev show; compressed if its name ends with .gz."""
        from .traces import write_trace
        write_trace(path, self)

    def supported_export_stacks_metrics(self) -> list[str]:
        return ["self_cpu_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Writes one line per event for flame graphs: its stack, outermost first, and the metric."""
        from .traces import write_stacks
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}, got {metric!r}")
        write_stacks(path, self, metric)


class StringTable(dict):
    """Names that are shown in another way: each in its own."""

    def __missing__(self, key: str) -> str:
        return self.setdefault(key, key)


class EnforceUnique:
    """Raises when a key is seen a second time."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


class MemRecordsAcc:
    """Records of memory, found by the time at which they were made."""

    def __init__(self, mem_records: list[Any]):
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())

    def in_interval(self, start_us: float, end_us: float) -> Iterable[Any]:
        return (r for r in self._records if start_us * 1000 <= r[0].start_ns() <= end_us * 1000)
