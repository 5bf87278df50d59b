"""Comparing two ways of doing one thing on a noisy machine.

The contenders run in turns, many short rounds each; the minimum of each is what the machine can do when nobody disturbs
it, and the ratio of minima is what is reported.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

REST = 0.012  # seconds before a turn: the other side's worker threads spin for up to 9 ms after their last call


def interleave(contenders: dict[str, Callable[[], object]], rounds: int = 25, min_time: float = 0.004) -> dict[str, float]:
    """Seconds per call of each contender: the minimum over rounds, taken in turns."""
    repeats, best = {}, {}
    for name, call in contenders.items():
        call()
        start = time.perf_counter()
        call()
        once = max(time.perf_counter() - start, 1e-7)
        repeats[name] = max(1, int(min_time / once))
        best[name] = float("inf")
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in contenders.items():
                n = repeats[name]
                time.sleep(REST)
                call()
                start = time.perf_counter()
                for _ in range(n):
                    call()
                best[name] = min(best[name], (time.perf_counter() - start) / n)
    finally:
        if was_on:
            gc.enable()
    return best


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1 or unit == "us":
            return f"{seconds * scale:.3g} {unit}"
    return ""


class Report:
    """Rows of a table, printed as they are measured and kept for RESULTS.md."""

    def __init__(self, peer: str = "torch"):
        self.rows: list[tuple[str, float, float, float | None]] = []
        print(f"| what | flambeau | {peer} | ratio | at most |\n| --- | --- | --- | --- | --- |", flush=True)

    def row(self, what: str, ours: float, peer: float, limit: float | None = None) -> None:
        ratio = ours / peer
        verdict = "" if limit is None else f"{limit:g}{'' if ratio <= limit else ' **missed**'}"
        self.rows.append((what, ours, peer, limit))
        print(f"| {what} | {duration(ours)} | {duration(peer)} | {ratio:.2f} | {verdict} |", flush=True)
