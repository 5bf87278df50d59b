"""Which device and which stream a thread's next work goes to."""

from __future__ import annotations

import threading
from typing import Any


class Current(threading.local):
    """What this thread has chosen. The default stream is 0, as the driver has it."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, int] = {}
        self.capture: Any = None  # what is writing this thread's work down (graphs.py)

    @property
    def stream(self) -> int:
        return self.streams.get(self.device, 0)


current = Current()
