"""Says on a terminal that kernels are being built, once that takes longer than a second; the line goes away afterwards."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

PATIENCE, EVERY = 1.0, 0.5  # seconds before the line appears, and between two drawings of it


class _Building:
    """A `with` block around each build. Builds that overlap, or follow each other at once, share the line."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running = self.begun = self.ended = 0
        self.since = 0.0
        self.ticker: threading.Thread | None = None
        self.shown = False

    def __enter__(self) -> None:
        from ..utils.progress import on_terminal
        with self.lock:
            if not self.running:
                self.begun = self.ended = 0
                self.since = time.monotonic()
            self.running += 1
            self.begun += 1
            if self.ticker is None and on_terminal():
                self.ticker = threading.Thread(target=self._tick, daemon=True)
                self.ticker.start()

    def __exit__(self, *exc: Any) -> None:
        with self.lock:
            self.running -= 1
            self.ended += 1
            if not self.running and self.shown:
                self._write("\r\x1b[K")
                self.shown = False

    def _tick(self) -> None:
        """Draws while there is something to say; ends with the last build."""
        while True:
            time.sleep(EVERY)
            with self.lock:
                if not self.running:
                    self.ticker = None
                    return
                waited = time.monotonic() - self.since
                if waited >= PATIENCE:
                    self.shown = True
                    self._write(f"\rbuilding kernels (once): {self.ended} done, {self.running} under way, {waited:.0f} s\x1b[K")

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal is gone
            self.shown = False


building = _Building()
