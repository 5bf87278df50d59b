"""The backend of plain arrays while a compiled call is followed, and of promises at any time.

Kernels go to the thread's follower; what only concerns geometry, or makes memory, is done at once.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...autograd.state import FOLLOW, state
from ...backends import registry
from ...backends.cpu import backend as cpu
from ...native import calls
from .promises import Promise, settle, stripped

ARRAY = Promise
NAME = "cpu"
device_of = cpu.device_of
check_bytes = cpu.check_bytes
_me = sys.modules[__name__]


def here() -> Any:
    """The backend of plain arrays in this thread."""
    return _me if state.mode & FOLLOW else cpu


def _geometry(name: str) -> Any:
    """A function of the CPU backend that looks at an array's geometry, or makes memory of it."""
    function = getattr(cpu, name)
    return lambda *args, **kwargs: function(*[stripped(a) for a in args], **kwargs)


def _window(name: str) -> Any:
    """A function of the CPU backend that gives another window onto the same memory."""
    function = getattr(cpu, name)

    def window(x: Any, *args: Any, **kwargs: Any) -> Any:
        made = function(stripped(x), *args, **kwargs)
        return made.view(Promise) if type(x) is Promise else made

    return window


empty, zeros, full, empty_strided, like, ordered, arange, linspace, logspace, eye, empty_like = map(_geometry, (
    "empty", "zeros", "full", "empty_strided", "like", "ordered", "arange", "linspace", "logspace", "eye", "empty_like"))
strides, storage_offset, is_contiguous, is_shared = map(_geometry, ("strides", "storage_offset", "is_contiguous", "is_shared"))
as_strided, over_bytes, settled = map(_window, ("as_strided", "over_bytes", "settled"))


def _seen(name: str) -> Any:
    """A function of the CPU backend that shows the memory itself."""
    function = getattr(cpu, name)

    def seen(x: Any, *args: Any, **kwargs: Any) -> Any:
        settle(x, "a tensor's memory was asked for")
        return function(stripped(x), *args, **kwargs)

    return seen


address, Storage, storage_bytes, resized, to_shared = map(_seen, (
    "address", "Storage", "storage_bytes", "resized", "to_shared"))


def call(name: str, args: tuple[Any, ...]) -> Any:
    follower = state.follower
    if follower is None:  # a promise that was given to another thread, or outlived its call
        return cpu.call(name, _settled(args))
    return follower.call(name, args)


def _settled(value: Any) -> Any:
    if type(value) is Promise:
        settle(value, "a tensor was used by another thread")
        return stripped(value)
    if value.__class__ is list or value.__class__ is tuple:
        return value.__class__([_settled(v) for v in value])
    return value


def cast(x: Any, dtype: Any) -> Any:
    """x.astype(dtype), of a plain array in a followed call: what is pending may change its elements."""
    return state.follower.call("~astype", (x, dtype), "cast", lambda: stripped(x).astype(dtype))


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """x.reshape(shape), likewise, where that is a copy."""
    return state.follower.call("~reshape", (x, (shape,)), "reshape_copy", lambda: stripped(x).reshape(shape))


def copy(x: Any, dtype: Any = None) -> Any:
    follower = state.follower
    if follower is None:
        return cpu.copy(_settled(x), dtype)
    return follower.call("~dense", (x, dtype), "cast", lambda: cpu.copy(stripped(x), dtype))


def copy_with_layout(source: Any, like: Any) -> Any:
    follower = state.follower
    if follower is None:
        return cpu.copy_with_layout(_settled(source), stripped(like))
    geometry = like.shape, like.strides, like.dtype

    def run() -> Any:
        return cpu.copy_with_layout(stripped(source), stripped(like))
    return follower.call("~like", (source, geometry), "cast", run)


def write(target: Any, source: Any) -> None:
    follower = state.follower
    if follower is None:
        cpu.write(_settled(target), _settled(source))
    else:
        follower.write(target, source)


def fill(target: Any, value: Any) -> None:
    """For memory that was just made."""
    cpu.fill(_settled(target), value)


def asarray(value: Any, dtype: Any = None) -> Any:
    return np.asarray(_settled(value), dtype)


def from_cpu(array: Any) -> Any:
    return array


def to_cpu(array: Any) -> Any:
    return array


def _needed(array: Any) -> None:
    settle(array, "a native function was called on a tensor's memory")


calls.promises(Promise, _needed)
registry.ARRAY_TYPES[Promise] = _me
registry.WINDOWS.add(Promise)
registry.FOLLOWABLE.add(Promise)
