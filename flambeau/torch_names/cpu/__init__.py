"""What programs ask of the CPU as a device: there is one, and its work is always done."""

from __future__ import annotations

from typing import Any

from ..amp.by_device import module_for as _module_for

__all__ = ["amp", "current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device",
           "stream", "synchronize", "Stream", "StreamContext"]

amp = _module_for("cpu", f"{__name__}.amp")


def is_available() -> bool:
    """Whether there is a CPU."""
    return True


def is_initialized() -> bool:
    """Whether it is ready."""
    return True


def synchronize(device: Any = None) -> None:
    """Does nothing: operations on the CPU are done when they return."""


def device_count() -> int:
    """The number of CPU devices: one."""
    return 1


def current_device() -> str:
    """The name of the only CPU device."""
    return "cpu"


def set_device(device: Any) -> None:
    """Does nothing: there is only one device."""


class Stream:
    """Work in order; on the CPU there is no other."""

    def __init__(self, priority: int = -1):
        pass

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


_default = Stream()


def current_stream(device: Any = None) -> Stream:
    """The only stream."""
    return _default


class StreamContext:
    """A block that changes nothing."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


def stream(stream: Any) -> StreamContext:
    """A block that changes nothing."""
    return StreamContext(stream)


def get_capabilities() -> dict[str, Any]:
    """What the processor can do; NumPy asks for itself, so only its architecture is said here."""
    import platform
    return {"architecture": platform.machine()}


def _no_such_unit() -> bool:
    """PyTorch's tests choose low-precision kernels by these: flambeau has none to choose."""
    return False


_is_avx2_supported = _is_avx512_supported = _is_avx512_bf16_supported = _is_vnni_supported = _no_such_unit
_is_amx_tile_supported = _is_amx_fp16_supported = _is_arm_sve_supported = _init_amx = _no_such_unit
