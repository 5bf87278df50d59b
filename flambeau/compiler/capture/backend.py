"""The backend of `Traced` arrays: CPU kernels whose calls are noted. Outside of a capture it is the CPU backend."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...autograd.state import not_repeatable
from ...backends import registry
from ...backends.cpu import backend as cpu
from .traced import Traced, active, stripped, traced

ARRAY = Traced
NAME = "cpu"
device_of = cpu.device_of
check_bytes = cpu.check_bytes


def making(backend: Any, name: str) -> Any:
    """A function of a backend that makes an array out of nothing: a constant."""
    function = getattr(backend, name)

    def make(*args: Any, **kwargs: Any) -> Any:
        recorder = active()
        array = function(*[stripped(a) for a in args], **{k: stripped(v) for k, v in kwargs.items()})
        return array if recorder is None else recorder.adopt(array)

    return make


def of_geometry(backend: Any, name: str) -> Any:
    """A function of a backend that looks at an array's geometry."""
    function = getattr(backend, name)
    return lambda x, *args, **kwargs: function(stripped(x), *args, **kwargs)


def placed(backend: Any, name: str) -> Any:
    """The function of a backend that says where in its storage an array begins."""
    function = getattr(backend, name)

    def asked(x: Any) -> int:
        recorder = active()
        if recorder is not None:
            recorder.place_asked(x)
        return function(stripped(x))

    return asked


def window(backend: Any, name: str) -> Any:
    """A function of a backend that gives another window onto the same memory."""
    function = getattr(backend, name)
    return lambda x, *args, **kwargs: traced(function(stripped(x), *args, **kwargs))


MAKERS = (
    "empty", "zeros", "full", "empty_strided", "like", "ordered", "arange", "linspace", "logspace", "eye", "empty_like")
GEOMETRY = ("strides", "address", "is_contiguous", "Storage", "is_shared")
VIEWS = ("as_strided", "over_bytes", "storage_bytes", "settled")


def wrapped(backend: Any) -> dict[str, Any]:
    """What a traced backend has of its own: functions of the plain one, by name."""
    return {name: wrap(backend, name) for wrap, names in ((making, MAKERS), (of_geometry, GEOMETRY), (window, VIEWS),
                                                          (placed, ("storage_offset",))) for name in names}


globals().update(wrapped(cpu))


def copy(x: Any, dtype: Any = None) -> Any:
    recorder, made = active(), cpu.copy(stripped(x), dtype)
    return made if recorder is None else recorder.made("cast", [x], made)


def copy_with_layout(source: Any, like: Any) -> Any:
    recorder, made = active(), cpu.copy_with_layout(stripped(source), stripped(like))
    return made if recorder is None else recorder.made("cast", [source], made)


def write(target: Any, source: Any) -> None:
    recorder = active()
    if recorder is None:
        cpu.write(stripped(target), stripped(source))
    else:
        recorder.write(target, source)


def fill(target: Any, value: Any) -> None:
    recorder = active()
    if recorder is None:
        cpu.fill(stripped(target), stripped(value))
    else:
        recorder.write(target, value)


def asarray(value: Any, dtype: Any = None) -> Any:
    return traced(np.asarray(stripped(value), dtype))


def from_cpu(array: Any) -> Any:
    return traced(array)


def to_cpu(array: Any) -> Any:
    return array


def resized(x: Any, *args: Any) -> Any:
    not_repeatable("a tensor's storage was resized")
    return cpu.resized(stripped(x), *args)


def to_shared(x: Any) -> Any:
    not_repeatable("a tensor was moved to shared memory")
    return cpu.to_shared(stripped(x))


def call(name: str, args: tuple[Any, ...]) -> Any:
    recorder = active()
    if recorder is None:
        return cpu.call(name, stripped(args))
    return recorder.call(name, args)


def _on_device(backend: Any) -> Any:
    """The backend of a CUDA device, or what notes its kernel calls while this thread captures."""
    if active() is None:
        return backend
    from . import device
    index = vars(backend).get("index")  # of one for another device than the current one
    return device.on(device.current_device().index if index is None else index)


registry.ARRAY_TYPES[Traced] = sys.modules[__name__]
registry.tracing = _on_device
