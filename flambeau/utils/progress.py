"""Progress of long work, on a terminal: `for batch in progress(batches): ...`, or `bar.update(n)` by hand.

    >>> from flambeau.utils.progress import progress
    >>> for step in progress(range(3), "training"):
    ...     pass

The bar is tqdm's where that is installed, else a plain one of our own. Nothing is shown where stderr is no terminal (a log
file, a pipe), so a program need not ask. The rate is that of the last seconds, not of the whole run, and time left is what
remains divided by it; where the total is not known neither a share nor a time left is claimed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Bar", "progress"]

EVERY = 0.1   # seconds between two drawings
RECENT = 5.0  # seconds that the rate is taken over
_SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


class Bar:
    """A line on stderr: how much is done, how quickly, how long it will take. Called like tqdm's bar; options of tqdm's that
    are not named here would change how that one looks, and have no effect."""

    def __init__(self, iterable: Iterable[Any] | None = None, desc: str = "", total: float | None = None, unit: str = "it",
                 disable: bool = False, after: float = 0.0, **options: Any):
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)  # type: ignore[arg-type]
        self.iterable, self.desc, self.total, self.unit, self.disable = iterable, desc, total, unit, disable
        self.n, self.note = 0.0, ""
        self.start = time.monotonic()
        self.shown = self.start + after - EVERY  # when it was last drawn
        self.drawn = False
        self.recent = [(self.start, 0.0)]        # (when, how much was done), for the rate

    def __iter__(self) -> Iterator[Any]:
        try:
            for item in self.iterable or ():
                yield item
                self.update(1)
        finally:
            self.close()

    def update(self, n: float = 1) -> None:
        """So much more is done."""
        self.n += n
        now = time.monotonic()
        if not self.disable and now - self.shown >= EVERY:
            self._draw(now)

    def set_description(self, desc: str | None = None, refresh: bool = True) -> None:
        """The words before the bar."""
        self.desc = desc or ""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """The words behind the bar."""
        self.note = s

    def refresh(self) -> None:
        """Draws it now, even if it was drawn a moment ago."""
        if not self.disable:
            self._draw(time.monotonic())

    def close(self) -> None:
        """Leaves the last state on the screen."""
        if not self.disable and self.drawn:
            self._draw(time.monotonic())
            sys.stderr.write("\n")
            sys.stderr.flush()
        self.disable = True

    def clear(self) -> None:
        """Takes the line away, and draws no more."""
        if not self.disable and self.drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self.disable = True

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def rate(self, now: float) -> float:
        """How much is done in a second, of late."""
        first, done = self.recent[0]
        return (self.n - done) / (now - first) if now > first else 0.0

    def _draw(self, now: float) -> None:
        self.shown, self.drawn = now, True
        self.recent.append((now, self.n))
        while len(self.recent) > 2 and now - self.recent[1][0] > RECENT:
            self.recent.pop(0)
        sys.stderr.write("\r" + self.line(now) + "\x1b[K")
        sys.stderr.flush()

    def line(self, now: float) -> str:
        """What is shown at a time."""
        rate, parts = self.rate(now), [self.desc] if self.desc else []
        if self.total:
            share = min(1.0, self.n / self.total)
            filled = int(24 * share)
            parts.append(f"{'█' * filled}{'·' * (24 - filled)} {share:4.0%} {_number(self.n)}/{_number(self.total)}")
        else:
            parts.append(f"{_number(self.n)} {self.unit}")
        parts.append(f"{_number(rate)} {self.unit}/s")
        if self.total and rate > 0 and self.n < self.total:
            parts.append(f"{_clock((self.total - self.n) / rate)} left")
        else:
            parts.append(_clock(now - self.start))
        return "  ".join([*parts, self.note] if self.note else parts)


def _number(value: float) -> str:
    for scale, letter in _SCALES:
        if value >= 10 * scale:
            return f"{value / scale:.4g}{letter}"
    return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.3g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def on_terminal() -> bool:
    """Whether somebody looks at stderr."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it was closed
        return False


def kind() -> Any:
    """The class of bars: tqdm's, or ours where it is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Bar
    return tqdm


def progress(iterable: Iterable[Any] | None = None, desc: str = "", total: float | None = None, unit: str = "it",
             quiet: bool = False) -> Any:
    """A bar over an iterable, or one that is moved by `update(n)`; quiet where stderr is no terminal, or if asked to be.

    desc: words before it. total: how much there is, where the iterable does not say. unit: what is counted ("B" for bytes).
    """
    made = kind()
    options = {} if made is Bar else {"unit_scale": unit == "B" or (total or 0) >= 100_000, "dynamic_ncols": True}
    return made(iterable, desc, total=total, unit=unit, disable=quiet or not on_terminal(), **options)
