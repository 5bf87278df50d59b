"""`torch.monitor`: counters and events of a running program."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from enum import Enum
from typing import Any

__all__ = ["Aggregation", "Event", "EventHandlerHandle", "Stat", "TensorboardEventHandler", "data_value_t", "log_event",
           "register_event_handler", "unregister_event_handler"]

data_value_t = (str, float, int, bool)


class Aggregation(Enum):
    """What is reported of the values of an interval."""

    VALUE, MEAN, COUNT, SUM, MAX, MIN = range(6)


VALUE, MEAN, COUNT, SUM, MAX, MIN = Aggregation


class Event:
    """Something that happened: a name, a time and data."""

    def __init__(self, name: str, timestamp: datetime.datetime, data: dict[str, Any]):
        self.name, self.timestamp, self.data = name, timestamp, data


class EventHandlerHandle:
    """What register_event_handler gives, to be given back."""

    def __init__(self, callback: Callable[[Event], None]):
        self.callback = callback


_handlers: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], None]) -> EventHandlerHandle:
    _handlers.append(EventHandlerHandle(callback))
    return _handlers[-1]


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Tells all handlers."""
    for handler in list(_handlers):
        handler.callback(event)


class Stat:
    """Collects numbers and, at the end of each interval (or after max_samples), logs an event of their aggregations."""

    def __init__(self, name: str, aggregations: list[Aggregation], window_size: datetime.timedelta,
                 max_samples: int | None = None):
        self.name, self.aggregations, self.window, self.most = name, aggregations, window_size.total_seconds(), max_samples
        self._values: list[float] = []
        self._since = time.time()

    @property
    def count(self) -> int:
        return len(self._values)

    def add(self, v: float) -> None:
        if time.time() - self._since >= self.window:
            self._log()
        self._values.append(v)
        if self.most is not None and len(self._values) >= self.most:
            self._log()

    def get(self) -> dict[Aggregation, float]:
        """The aggregations so far."""
        v = self._values
        known = {Aggregation.COUNT: len(v), Aggregation.SUM: sum(v), Aggregation.MEAN: sum(v) / len(v) if v else 0.0,
                 Aggregation.MAX: max(v, default=0.0), Aggregation.MIN: min(v, default=0.0),
                 Aggregation.VALUE: v[-1] if v else 0.0}
        return {a: known[a] for a in self.aggregations}

    def _log(self) -> None:
        if self._values:
            log_event(Event("torch.monitor.Stat", datetime.datetime.now(), {
                f"{self.name}.{a.name.lower()}": value for a, value in self.get().items()}))
        self._values, self._since = [], time.time()


class TensorboardEventHandler:
    """A handler that gives the numbers of `Stat` to a SummaryWriter, as scalars. Other events are not for it.

    >>> from flambeau.utils.tensorboard import SummaryWriter
    >>> with SummaryWriter("log_dir") as writer:
    ...     handle = torch.monitor.register_event_handler(torch.monitor.TensorboardEventHandler(writer))
    ...     torch.monitor.unregister_event_handler(handle)
    """

    def __init__(self, writer: Any):
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == "torch.monitor.Stat":
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
