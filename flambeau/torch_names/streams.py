"""`torch.Stream` and `torch.Event` on the CPU, where all work is done in order: there is never anything to wait for."""

from __future__ import annotations

from typing import Any

from .tensors.device import device as Device
from .tensors.device import to_device

__all__ = ["Stream", "Event"]


def _cpu_only(place: Any) -> Device:
    found = to_device("cpu" if place is None else place)
    if found.type != "cpu":
        raise RuntimeError(f"PyTorch is not linked with support for {found.type} devices")
    return found


def _no_events() -> Any:
    raise RuntimeError("cpu backend doesn't support events.")


class Stream:
    """A queue of work; the CPU has one, and it is always empty.

    >>> torch.Stream(device="cpu").query()
    True
    """

    device_index, device_type, stream_id = -1, 0, 0

    def __init__(self, device: Any = None, *, priority: int = 0):
        self.device = _cpu_only(device)

    def query(self) -> bool:
        """Whether all work is done."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Stream) -> None:
        _no_events()

    def record_event(self, event: Event | None = None) -> Event:
        return _no_events()

    def is_capturing(self) -> bool:
        return False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: Any) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return hash((self.device_type, self.stream_id))

    def __repr__(self) -> str:
        return "torch.Stream device_type=cpu, device_index=-1, stream_id=0"


class Event:
    """A mark in a stream; on the CPU none can be recorded.

    >>> torch.Event().query()
    True
    """

    event_id = 0

    def __init__(self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        self.device, self._timed = _cpu_only(device), enable_timing

    def record(self, stream: Stream | None = None) -> None:
        _no_events()

    def query(self) -> bool:
        """Whether the work before it is done."""
        return True

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end_event: Event) -> float:
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        raise ValueError("Both events must be recorded before calculating elapsed time.")

    def __repr__(self) -> str:
        return f"torch.Event device_type=cpu, device_index=-1, event_flag={int(self._timed)}, event_id=0"


for _class in (Stream, Event):
    _class.__module__ = __package__
