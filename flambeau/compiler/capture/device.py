"""Arrays of a CUDA device while a call is captured, and their backend: kernels run, and their calls are noted."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ...autograd.state import not_repeatable
from ...backends import registry
from ...backends.cuda import backend
from ...backends.cuda.arrays import CudaArray
from . import slot
from .backend import wrapped
from .traced import PLAIN, TRACED, active, stripped
from .watch import present


class _Unwatched:
    """The backend, whose functions run nothing of the user's: what CuPy's or a driver's Python does there is theirs."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(backend, name)
        if not callable(function) or isinstance(function, type):
            return function

        def run(*args: Any, **kwargs: Any) -> Any:
            witness = present()
            if witness is None:
                return function(*args, **kwargs)
            return witness.unwatched(lambda: function(*args, **kwargs))
        setattr(self, name, run)
        return run


cuda = _Unwatched()


class TracedOnDevice(CudaArray):
    """An array of a CUDA device whose kernel calls are noted. See the text of tracing.py."""

    original: Any = None   # the array that this one stands for, where it is known

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        not_repeatable(f"NumPy's {ufunc.__name__} was called on a tensor's memory")
        if "out" in kwargs:
            kwargs["out"] = tuple([stripped(o) for o in kwargs["out"]])
        return getattr(ufunc, method)(*[stripped(i) for i in inputs], **kwargs)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        return copy(self, np.dtype(dtype))

    def copy(self, order: str = "C") -> Any:
        return duplicate(self, order)

    def fill(self, value: Any) -> None:
        fill(self, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        write(self[key], value)

    def item(self, *args: Any) -> Any:
        return _looked_at(self).item(*args)

    def tolist(self) -> Any:
        return _looked_at(self).tolist()


def _looked_at(x: Any) -> Any:
    if (recorder := active()) is not None:
        recorder.look(x, "a tensor's value was read")
    return stripped(x)


ARRAY = TracedOnDevice
NAME = "cuda"
PLAIN_BACKEND = backend
KERNELS = cuda.KERNELS
check_bytes, current_device = cuda.check_bytes, cuda.current_device
globals().update(wrapped(cuda))


def device_of(x: Any) -> Any:
    return cuda.device_of(stripped(x))


def on(index: int) -> Any:
    """The backend for a device. What is done on another than the current one is not noted."""
    if index != cuda.current_device().index:
        not_repeatable("work on several CUDA devices")
        return cuda.on(index)
    return sys.modules[__name__]


def _copying(name: str) -> Any:
    """A function of the backend that copies its first argument."""
    function = getattr(cuda, name)

    def run(x: Any, *args: Any) -> Any:
        recorder, made = active(), function(stripped(x), *map(stripped, args))
        if recorder is None or made is stripped(x):
            return made if recorder is None else x
        return recorder.made("cast", [x], made)
    return run


copy, duplicate, dense, copy_with_layout = map(_copying, ("copy", "duplicate", "dense", "copy_with_layout"))


def write(target: Any, source: Any) -> None:
    recorder = active()
    if recorder is None:
        cuda.write(stripped(target), stripped(source))
    else:
        recorder.write(target, source, cuda)


fill = write


def asarray(value: Any, dtype: Any = None) -> Any:
    return value if value.__class__ is TracedOnDevice else from_cpu(np.asarray(stripped(value), dtype))


def from_cpu(array: Any) -> Any:
    """Only constants come from the host: what a program reads there at each call, it would have to wait for."""
    recorder = active()
    if recorder is not None and array.__class__ in PLAIN:
        recorder.look(array, "a tensor is moved to a CUDA device")
    made, recorder = cuda.from_cpu(stripped(array)), active()
    return made if recorder is None else recorder.adopt(made)


from_pinned = from_cpu


def from_device(array: Any) -> Any:
    return array


def to_cpu(array: Any) -> Any:
    if (recorder := active()) is not None:
        recorder.look(array, "a tensor is moved from a CUDA device")
    return cuda.to_cpu(stripped(array))


def resized(x: Any, *args: Any) -> Any:
    not_repeatable("a tensor's storage was resized")
    return cuda.resized(stripped(x), *args)


def record_stream(x: Any, stream: int) -> None:
    not_repeatable("Tensor.record_stream was called")
    cuda.record_stream(stripped(x), stream)


def to_shared(x: Any) -> Any:
    return x


def call(name: str, args: tuple[Any, ...]) -> Any:
    recorder = active()
    if recorder is None:
        return cuda.call(name, stripped(args))
    return recorder.call(name, args, cuda)


def draw_into(words: Any, out: Any, name: str, args: tuple[Any, ...]) -> None:
    """Fills an array with random numbers: noted as a kernel that writes the generator's words and the array."""
    recorder = active()
    if recorder is None:
        cuda.draw_into(stripped(words), stripped(out), name, stripped(args))
    else:
        recorder.draw_into(words, out, name, args, cuda)


PLAIN[TracedOnDevice] = CudaArray
TRACED[CudaArray] = TracedOnDevice
registry.ARRAY_TYPES[TracedOnDevice] = sys.modules[__name__]
slot.hide(TracedOnDevice)
