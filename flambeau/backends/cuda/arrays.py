"""The arrays of CUDA tensors: NumPy's geometry over addresses of a device. The host never reads or writes their elements."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from numpy import ndarray

from ..windows import Windows
from . import memory
from .driver import machine
from .launch import library, unrepeatable
from .memory import Block
from .streams import current


class NotRecordable(RuntimeError):
    """Work that a CUDA graph cannot repeat: it waits for the device, or goes past flambeau's memory."""


_PLACES = (int, slice, type(None), type(Ellipsis))


class CudaArray(ndarray):
    """An array of a CUDA tensor. Its base chain ends in a `Block`.

    What NumPy would do with elements is done on the device, or refused: the host has no access to them.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        from .backend import run_ufunc
        return run_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any([type(a) is ndarray for a in args]):
            from .backend import host_array
            raise host_array()
        raise _refused(f"numpy.{function.__name__}")

    def __getitem__(self, key: Any) -> Any:
        parts = key if key.__class__ is tuple else (key,)
        if not all([p.__class__ in _PLACES for p in parts]):
            raise _refused("indexing by arrays")
        return ndarray.__getitem__(self, parts if Ellipsis in parts else (*parts, ...))

    def __setitem__(self, key: Any, value: Any) -> None:
        from .backend import write
        write(self[key], value)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        from .backend import copy
        return copy(self, np.dtype(dtype))

    def copy(self, order: str = "C") -> Any:
        from .backend import duplicate
        return duplicate(self, order)

    def fill(self, value: Any) -> None:
        from .backend import fill
        fill(self, value)

    def item(self, *args: Any) -> Any:
        return download(self).item(*args)

    def tolist(self) -> Any:
        return download(self).tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _refused("pickling")

    def __repr__(self) -> str:
        return f"<{self.dtype} array of shape {self.shape} on a CUDA device>"

    __str__ = __repr__


def _refused(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} of an array on a CUDA device: the host cannot see its elements")


def storage(nbytes: int) -> Block:
    """A new block, of the current stream's memory; native code is shown where to take the next ones from (repeated.py)."""
    if current.capture is not None:
        return current.capture.block(nbytes)
    there, stream = memory.of(current.device), current.stream
    made = there.block(nbytes, stream)
    home = there.free.get(stream)
    if nbytes and made.home is home and not memory.history.on:
        library().fl_cuda_home(ctypes.c_void_p(id(home)), there.counts, ctypes.c_long(there.device))
    return made


class _CudaWindows(Windows):
    def empty(self, shape: Any, dtype: np.dtype) -> Any:
        """A new contiguous array."""
        made = _repeated().EMPTY(shape, dtype.itemsize, dtype) if shape.__class__ is tuple else None
        return super().empty(shape, dtype) if made is None else made


@functools.cache
def _repeated() -> Any:
    from . import repeated
    return repeated


windows = _CudaWindows(CudaArray, Block, lambda nbytes: _repeated().STORAGE(nbytes))


def at_address(address: int, nbytes: int) -> Block:
    """A block over memory that somebody else keeps."""
    made = memory.pages(address, nbytes).view(Block)
    made.used, made.lent_by = nbytes, current.device
    return made


def device_index(x: Any) -> int:
    block = windows.owner(x)
    home = getattr(block, "home", None)
    return block.__dict__.get("lent_by", current.device) if home is None else home.device.device


def upload(source: ndarray, wait: bool = True) -> CudaArray:
    """A host array on the current device, in its own order of dimensions where that is dense.

    wait: until it is there. Without, the array has to be in pinned memory, and whoever changes it meanwhile changes the copy.
    """
    source = source if type(source) is ndarray else source.view(ndarray)
    if not source.flags.c_contiguous and _host_dense(source) is None:
        source, wait = np.ascontiguousarray(source), True
    if current.capture is not None:
        return current.capture.upload(source)
    made = windows.like(source, source.dtype)
    unrepeatable()
    if made.size:
        machine().activate(current.device)
        machine().upload(made.ctypes.data, source.ctypes.data, source.nbytes, current.stream)
        if wait:
            machine().synchronize(current.stream)  # the host's memory may change as soon as this returns
        else:
            from .pinned import hold
            hold(source, current.stream)
    return made


def download(x: CudaArray) -> ndarray:
    """The elements on the host."""
    from . import faults
    from .backend import dense
    if current.capture is not None:
        raise NotRecordable("operation not permitted when stream is capturing: elements of a CUDA tensor were read on the host")
    x = dense(x)
    unrepeatable()
    made = np.empty(x.size, x.dtype)
    if made.size:
        index = device_index(x)
        stream = current.streams.get(index, 0)
        machine().activate(index)
        machine().download(made.ctypes.data, x.ctypes.data, made.nbytes, stream)
        machine().synchronize(stream)
        faults.check()
    return ndarray(x.shape, x.dtype, made, 0, x.strides)


def _host_dense(x: ndarray) -> Any:
    from ..cpu.memory import dense_order
    return dense_order(x)
