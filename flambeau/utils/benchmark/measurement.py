"""What a measurement is: times of a piece of code, and what can be said of them."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable
from typing import Any

__all__ = ["Measurement", "TaskSpec", "select_unit", "trim_sigfig", "unit_to_english"]

_UNITS = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}
_SMALL_SPREAD, _LARGE_SPREAD = 0.025, 0.1  # of the middle half, as parts of the median
_FEWEST_SECONDS = 1e-6


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was measured."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the code."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        if not self.setup or self.setup == "pass":
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(p for p in parts if p)


def _quantile(ordered: list[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """`raw_times` in seconds, each of `number_per_run` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if (not name.startswith("_") and hasattr(TaskSpec, name)) or name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(name)

    @property
    def times(self) -> list[float]:
        """Seconds per run."""
        return [t / self.number_per_run for t in self.raw_times]

    def _ordered(self) -> list[float]:
        if not self.raw_times:
            raise ValueError("this measurement has no times")
        return sorted(self.times)

    @property
    def median(self) -> float:
        return _quantile(self._ordered(), 0.5)

    @property
    def mean(self) -> float:
        return sum(self._ordered()) / len(self.raw_times)

    @property
    def iqr(self) -> float:
        """The width of the middle half of the times."""
        times = self._ordered()
        return _quantile(times, 0.75) - _quantile(times, 0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something, from the spread of the times."""
        lower, upper = _quantile(self._ordered(), 0.25), _quantile(self._ordered(), 0.75)
        sigma = max((upper - lower) / 1.349, self.median * _SMALL_SPREAD)
        relative = math.log10(self.median / sigma) if self.median and sigma else 1
        return max(math.floor(relative) + 1, 1)

    @property
    def meets_confidence(self) -> bool:
        return self._spread() < _LARGE_SPREAD

    @property
    def has_warnings(self) -> bool:
        return bool(self._warnings())

    def _spread(self) -> float:
        return self.iqr / self.median if self.median else 0.0

    def _warnings(self) -> str:
        text = ""
        if len(self.raw_times) > 1 and self._spread() >= _LARGE_SPREAD:
            text += f"  WARNING: the times vary by {self._spread() * 100:.1f}% around the median: take the figures with care.\n"
        if self.median and self.median < _FEWEST_SECONDS / 100:
            text += "  WARNING: too short to be measured well.\n"
        return text

    @property
    def as_row_name(self) -> str:
        return self.sub_label or self.stmt or "[Unknown]"

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Measurements of the same task as one."""
        found: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            found.setdefault(m.task_spec, []).append(m)
        merged = []
        for spec, group in found.items():
            times = [t for m in group for t in m.times]
            merged.append(Measurement(1, times, spec, None))
        return merged

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count = len(self.raw_times)
        lines = [f"<torch.utils.benchmark.utils.common.Measurement object at {hex(id(self))}>", self.task_spec.summarize()]
        if count > 1:
            lines += [f"  Median: {self.median / scale:.2f} {unit}", f"  IQR:    {self.iqr / scale:.2f} {unit}"]
        else:
            lines.append(f"  {self.median / scale:.2f} {unit}")
        threads = self.task_spec.num_threads
        lines.append(f"  {count} measurement{'s' if count > 1 else ''}, {self.number_per_run} runs "
                     f"{'per measurement' if count > 1 else ''}, {threads} thread{'s' if threads > 1 else ''}")
        return "\n".join(lines) + ("\n" + self._warnings().rstrip("\n") if self.has_warnings else "")


def select_unit(t: float) -> tuple[str, float]:
    """The unit to show a time in, and how many seconds it has."""
    if t <= 0:
        return "ns", 1e-9
    power = max(0, min(3, math.ceil(-math.log10(t) / 3 - 1e-12)))
    return ("s", "ms", "us", "ns")[power], (1.0, 1e-3, 1e-6, 1e-9)[power]


def unit_to_english(u: str) -> str:
    return _UNITS[u]


def trim_sigfig(x: float, n: int) -> float:
    """x rounded to n significant digits."""
    if x == 0:
        return 0.0
    power = math.floor(math.log10(abs(x)))
    return round(x / 10**power, n - 1) * 10.0**power
