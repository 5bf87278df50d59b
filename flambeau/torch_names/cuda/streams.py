"""Streams and events: the order in which a device works, and points in it."""

from __future__ import annotations

from typing import Any

from ..tensors.device import device as _device
from .devices import current, index_of, is_available, machine


class Stream:
    """A queue of work on a device: what is in one runs in order, what is in two may run at the same time."""

    def __init__(self, device: Any = None, priority: int = 0, *, stream_id: Any = None, device_index: Any = None,
                 device_type: Any = None, stream_ptr: int | None = None):
        self.device_index = index_of(device if device_index is None else device_index, "Stream")
        self.priority = priority
        found = machine("Stream")
        found.activate(self.device_index)
        given = stream_ptr if stream_ptr is not None else stream_id
        self.cuda_stream = found.new_stream(priority) if given is None else given

    @property
    def device(self) -> _device:
        return _device("cuda", self.device_index)

    @property
    def stream_id(self) -> int:
        return self.cuda_stream

    _as_parameter_ = stream_id

    def synchronize(self) -> None:
        """Waits until everything in the stream is done."""
        self._machine().synchronize(self.cuda_stream)

    def query(self) -> bool:
        """Whether everything in the stream is done."""
        return self._machine().is_done(self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        """What comes next in the stream waits for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """What comes next in this stream waits for what is in another."""
        self.wait_event(stream.record_event())

    def record_event(self, event: Event | None = None) -> Event:
        """Puts an event into the stream, a new one if none is given."""
        event = event or Event()
        event.record(self)
        return event

    def _machine(self) -> Any:
        found = machine("Stream")
        found.activate(self.device_index)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self.cuda_stream) == (other.device_index, other.cuda_stream)

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self) -> Stream:
        self._block = StreamContext(self)
        self._block.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._block.__exit__(*exc)


class ExternalStream(Stream):
    """A stream that another library made."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any):
        super().__init__(device, stream_ptr=stream_ptr, **kwargs)


class Event:
    """A point in a stream: whether it has been reached, and when."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        if interprocess or external:
            raise NotImplementedError("Event(interprocess=True) and Event(external=True) are not implemented")
        machine("Event")
        self.enable_timing = enable_timing
        self._handle: int | None = None
        self._index = 0

    @property
    def cuda_event(self) -> int:
        return self._handle or 0

    _as_parameter_ = cuda_event

    @property
    def device(self) -> _device | None:
        return None if self._handle is None else _device("cuda", self._index)

    def record(self, stream: Stream | None = None) -> None:
        """Puts the event into a stream; the current one if none is given."""
        stream = stream or current_stream()
        found = stream._machine()
        if self._handle is None:
            self._handle, self._index = found.new_event(self.enable_timing), stream.device_index
        found.record(self._handle, stream.cuda_stream)

    def wait(self, stream: Stream | None = None) -> None:
        """What comes next in a stream waits for the event."""
        stream = stream or current_stream()
        if self._handle is not None:
            stream._machine().wait(stream.cuda_stream, self._handle)

    def query(self) -> bool:
        """Whether all that came before it is done."""
        return self._handle is None or machine("Event").has_passed(self._handle)

    def synchronize(self) -> None:
        """Waits for it."""
        if self._handle is not None:
            machine("Event").wait_event(self._handle)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another."""
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._handle is None or end_event._handle is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return machine("Event").between(self._handle, end_event._handle)

    def ipc_handle(self) -> bytes:
        raise NotImplementedError("Event.ipc_handle: events are not shared between processes")

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and is_available():
            machine("Event").end_event(self._handle)

    def __repr__(self) -> str:
        return "<torch.cuda.Event uninitialized>" if self._handle is None else f"<torch.cuda.Event {self._handle:#x}>"


def _existing(index: int, handle: int) -> Stream:
    return ExternalStream(handle, index)


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread's work on a device goes to."""
    index = index_of(device, "current_stream")
    return _existing(index, current().streams.get(index, 0))


def default_stream(device: Any = None) -> Stream:
    """The stream that work goes to where none was chosen."""
    return _existing(index_of(device, "default_stream"), 0)


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """A stream that another library made."""
    return _existing(index_of(device, "get_stream_from_external"), data_ptr)


def set_stream(stream: Stream | None) -> None:
    """Makes a stream the current one of its device."""
    if stream is None:
        return
    from ..backends.cuda import launch
    chosen = current()
    chosen.streams[stream.device_index] = stream.cuda_stream
    if stream.device_index == chosen.device:
        launch.choose_stream(stream.cuda_stream)


class StreamContext:
    """A block whose work goes to a stream, on its device."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        from .devices import switch
        if self.stream is not None:
            index = self.stream.device_index
            self._before = current().device, current().streams.get(index, 0)
            current().streams[index] = self.stream.cuda_stream
            switch(index)

    def __exit__(self, *exc: Any) -> None:
        from .devices import switch
        if self.stream is not None:
            index, handle = self._before
            current().streams[self.stream.device_index] = handle
            switch(index)


def stream(stream: Stream | None) -> StreamContext:
    """A block whose work goes to a stream; None chooses nothing."""
    return StreamContext(stream)
