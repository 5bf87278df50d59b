"""A table of measurements: tasks in rows, descriptions in columns."""

from __future__ import annotations

from typing import Any

from .measurement import Measurement, select_unit, trim_sigfig, unit_to_english

__all__ = ["Compare"]


class Compare:
    """Measurements of the same label share a table."""

    def __init__(self, results: list[Measurement]):
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._highlight = False

    def extend_results(self, results: list[Measurement]) -> None:
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Compare: expected Measurements, got {type(r).__name__}")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Shows no more digits than the measurements justify."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Does nothing: the table is plain text."""

    def highlight_warnings(self) -> None:
        """Marks the figures that vary much."""
        self._highlight = True

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = list(dict.fromkeys(m.task_spec.label for m in merged))
        return "\n\n".join(self._table(label, [m for m in merged if m.task_spec.label == label]) for label in labels)

    def print(self) -> None:
        print(self)

    def _cell(self, m: Measurement | None, scale: float) -> str:
        if m is None:
            return ""
        value = m.median / scale
        digits = 1
        if self._trim:
            value = trim_sigfig(value, m.significant_figures)
            digits = 0 if value >= 10 ** m.significant_figures else 1
        mark = "!" * (1 + int(m._spread() * 100 // 25)) if self._highlight and m.has_warnings else ""
        return f"{value:.{digits}f}" + (f" ({mark} {m._spread() * 100:.0f}%)" if mark else "")

    def _table(self, label: Any, group: list[Measurement]) -> str:
        unit, scale = select_unit(min(m.median for m in group))
        columns = list(dict.fromkeys(m.task_spec.description for m in group))
        rows = list(dict.fromkeys((m.task_spec.num_threads, m.task_spec.env, m.as_row_name) for m in group))
        cells = {(m.task_spec.num_threads, m.task_spec.env, m.as_row_name, m.task_spec.description): m for m in group}
        shown = {(r, c): self._cell(cells.get((*r, c)), scale) for r in rows for c in columns}
        first = max(len(str(r[2])) for r in rows) + 6
        widths = [max(len(str(c or "")), *(len(shown[r, c]) for r in rows)) for c in columns]
        total = first + sum(w + 5 for w in widths)
        title = f" {label or ''} "
        lines = [f"[{title.center(total - 2, '-')}]",
                 " " * first + "".join(f"  |  {str(c or '').center(w)}" for c, w in zip(columns, widths))]
        threads = None
        for r in sorted(rows, key=lambda r: r[0]):
            if r[0] != threads:
                threads = r[0]
                head = f"{threads} threads: "
                lines.append(head + "-" * (total - len(head)))
            name = f"      {r[2]}" + (f" ({r[1]})" if r[1] else "")
            lines.append(name.ljust(first) + "".join(f"  |  {shown[r, c].rjust(w)}" for c, w in zip(columns, widths)))
        return "\n".join([*lines, "", f"Times are in {unit_to_english(unit)}s ({unit})."])
