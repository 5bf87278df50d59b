"""Events as text: PyTorch's table, its column names, widths and units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

_WIDTH, _GAP = 12, "  "
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}
Column = tuple[str, int, str, Callable[[Any], Any]]  # title, width, alignment, cell


def time_text(us: float, unit: str | None = None) -> str:
    """Microseconds in the unit given, or in the largest of which it is at least one."""
    if unit not in _UNITS:
        unit = next((u for u, size in _UNITS.items() if us >= size), "us")
    return f"{us / _UNITS[unit]:.3f}{unit}"


def memory_text(nbytes: int) -> str:
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if abs(nbytes) >= 1024**power:
            return f"{nbytes / 1024**power:.2f} {unit}"
    return f"{nbytes} B"


def _share(us: float, total: float) -> str:
    return f"{100 * us / total:.2f}%" if total else "NaN"


def _shortened(name: str, most: int | None) -> str:
    return name if most is None or len(name) < most - 3 else name[:most - 3] + "..."


def _fitting(longest: int, most: int | None) -> int:
    return longest + 4 if most is None else min(longest + 4, most)


def _source(line: str, width: int) -> str:
    """The end of a line of a stack: the file's name is there."""
    return line if len(line) <= width else "..." + line[len(line) - width + 3:]


def _flops_column(events: list[Any]) -> list[Column]:
    counted = [e.flops for e in events if e.flops and e.flops > 0]
    if not counted:
        return []
    power = max(0, min(int(math.log10(min(counted)) / 3), 5))
    cell = lambda e: f"{e.flops / 1000**power:8.3f}" if e.flops and e.flops > 0 else "--"
    return [(f"Total {' KMGTP'[power].strip()}FLOPs", _WIDTH, ">", cell)]


def _columns(events: list[Any], widths: tuple[int | None, ...], unit: str | None, memory: bool, flops: bool) -> list[Column]:
    total = sum([e.self_cpu_time_total for e in events])
    name_most, shapes_most, source_most = widths
    name_width = _fitting(max([len(e.key) for e in events]), name_most)
    columns: list[Column] = [("Name", name_width, ">", lambda e: _shortened(e.key, name_most))]
    if any([e.overload_name for e in events]):
        columns.append(("Overload Name", name_width, ">", lambda e: _shortened(e.overload_name, name_most)))

    def plain(title: str, cell: Callable[[Any], Any]) -> None:
        columns.append((title, _WIDTH, ">", cell))

    plain("Self CPU %", lambda e: e.self_cpu_percent)
    plain("Self CPU", lambda e: time_text(e.self_cpu_time_total, unit))
    plain("CPU total %", lambda e: e.total_cpu_percent)
    plain("CPU total", lambda e: time_text(e.cpu_time_total, unit))
    plain("CPU time avg", lambda e: time_text(e.cpu_time, unit))
    if memory:
        plain("CPU Mem", lambda e: memory_text(e.cpu_memory_usage))
        plain("Self CPU Mem", lambda e: memory_text(e.self_cpu_memory_usage))
    plain("# of Calls", lambda e: e.count)
    if any([e.node_id != -1 for e in events]):
        plain("Node ID", lambda e: e.node_id)
    if any([e.input_shapes for e in events]):
        width = _fitting(max([len(str(e.input_shapes)) for e in events]), shapes_most)
        columns.append(("Input Shapes", width, ">", lambda e: str(e.input_shapes)[:width]))
    stacks = [line for e in events for line in e.stack or ()]
    if stacks:
        width_ = _fitting(max(map(len, stacks)), source_most)
        columns.append(("Source Location", width_, "<", lambda e: _source(e.stack[0], width_) if e.stack else ""))
    for e in events:
        e.self_cpu_percent, e.total_cpu_percent = _share(e.self_cpu_time_total, total), _share(e.cpu_time_total, total)
    return columns + (_flops_column(events) if flops else [])


def _line(cells: list[Any], columns: list[Column]) -> str:
    return "".join([f"{cell!s:{where}{width}}{_GAP}" for cell, (_, width, where, _) in zip(cells, columns)])


def table(events: list[Any], sort_by: str | None, row_limit: int, widths: tuple[int | None, ...], header: str | None,
          top_level_only: bool, unit: str | None, *, memory: bool, flops: bool) -> str:
    """The table of some events or averages; widths: the most of names, shapes and source lines."""
    if not events:
        return ""
    if sort_by is not None:
        number = sort_by.replace("cuda", "device").replace("xpu", "device")
        events = sorted(events, key=lambda e: getattr(e, number), reverse=True)
    columns = _columns(events, widths, unit, memory, flops)
    rule = "".join(["-" * width + _GAP for _, width, _, _ in columns])
    double = "=" * (len(rule) - len(_GAP))
    lines = [double, header] if header is not None else []
    lines += [double, "This report only display top-level ops statistics"] if top_level_only else []
    lines += [rule, _line([title for title, _, _, _ in columns], columns), rule]
    shown = [e for e in events if not top_level_only or e.cpu_parent is None]
    at = next((i for i, c in enumerate(columns) if c[0] == "Source Location"), None)
    for e in shown if row_limit < 0 else shown[:row_limit]:
        lines.append(_line([cell(e) for _, _, _, cell in columns], columns))
        for source in [*(e.stack or ())[1:], ""] if at is not None else ():  # the rest of the stack, and an empty line
            lines.append(_line(["" if i != at else _source(source, columns[at][1]) for i in range(len(columns))], columns))
    total = sum([e.self_cpu_time_total for e in events])
    return "\n".join([*lines, rule, f"Self CPU time total: {time_text(total, unit)}", ""])
