"""What the rest of flambeau asks of the CUDA backend (interface.py)."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import ndarray

from ...tensors.device import device
from ..cpu import arrays as _cpu_arrays
from ..cpu import creation as _host
from ..cpu import parallel as _parallel
from ..cpu.memory import dense_order
from ..cpu.table import KERNELS as _HOST_KERNELS
from ..facts import POINTWISE, VIEWS
from ..registry import two_devices
from . import faults, fills, folds, pointwise
from .arrays import CudaArray, device_index, download, upload, windows
from .driver import blocking, machine
from .fills import arange, eye, linspace  # noqa: F401
from .launch import Plan, choose_stream, unrepeatable
from .memory import Awaited
from .streams import current
from .table import KERNELS

ARRAY = CudaArray
NAME = "cuda"

empty, empty_strided, ordered = windows.empty, windows.empty_strided, windows.ordered
as_strided, storage_bytes, over_bytes = windows.as_strided, windows.storage_bytes, windows.over_bytes
storage_offset = windows.storage_offset
strides, address, is_contiguous, settled = (_cpu_arrays.strides, _cpu_arrays.address, _cpu_arrays.is_contiguous,
                                            lambda x: windows.view(_cpu_arrays.settled(windows.bare(x))))


@functools.cache
def _device(index: int) -> device:
    return device("cuda", index)


def current_device() -> device:
    return _device(current.device)


class _On:
    """The backend, with another device than the thread's current one for what it makes."""

    def __init__(self, index: int):
        self.index = index

    def __getattr__(self, name: str) -> Any:
        found = globals()[name]
        if not callable(found) or isinstance(found, type):
            return found

        def guarded(*args: Any, **kwargs: Any) -> Any:
            with at(self.index):
                return found(*args, **kwargs)
        return guarded


@contextlib.contextmanager
def at(index: int) -> Iterator[None]:
    """A block in which a device is the current one, and its stream the one that is launched on."""
    before, current.device = current.device, index
    choose_stream(current.stream)
    try:
        yield
    finally:
        current.device = before
        choose_stream(current.stream)


def _arrays_in(args: tuple[Any, ...]) -> list[ndarray]:
    return [a for group in args for a in (group if group.__class__ in (list, tuple) else (group,)) if isinstance(a, ndarray)]


def _other_device(args: tuple[Any, ...]) -> int | None:
    """The device of arrays, if it is not the current one."""
    arrays = _arrays_in(args)
    found = {device_index(a) for a in arrays if type(a) is CudaArray}
    if len(found) > 1:
        raise two_devices(arrays)
    return found.pop() if found and found != {current.device} else None


def where_it_is(function: Any) -> Any:
    """Runs a function on the device of its first argument, where there is more than one device to choose from."""
    @functools.wraps(function)
    def placed(*args: Any) -> Any:
        other = _other_device(args[:1]) if machine().count > 1 else None
        if other is None:
            return function(*args)
        with at(other):
            return function(*args)
    return placed


like = where_it_is(windows.like)


def on(index: int) -> Any:
    """The backend for a device: this module where that is the current one."""
    return sys.modules[__name__] if index == current.device else _On(index)


def device_of(array: Any) -> device:
    return _device(device_index(array))


class Storage:
    """What `untyped_storage()` needs to know: the address and length of the memory behind an array."""

    __slots__ = ("address", "nbytes", "owner")

    def __init__(self, x: CudaArray):
        self.owner = owner = windows.owner(x)
        self.address, self.nbytes = owner.ctypes.data, getattr(owner, "used", owner.nbytes)


# ------------------------------------------------------------------------------------------------------- new arrays
def zeros(shape: Any, dtype: np.dtype) -> CudaArray:
    return full(shape, dtype, 0)


def full(shape: Any, dtype: np.dtype, value: Any) -> CudaArray:
    made = empty(shape, dtype)
    fill(made, value)
    return made


def asarray(value: Any, dtype: Any = None) -> CudaArray:
    return value if type(value) is CudaArray else upload(np.asarray(value, dtype))


def logspace(start: Any, end: Any, steps: int, base: Any, dtype: np.dtype) -> CudaArray:
    return upload(_host.logspace(start, end, steps, base, dtype))


@where_it_is
def empty_like(x: CudaArray) -> CudaArray:
    return like(x, x.dtype)


def check_bytes(nbytes: int, shape: Any) -> None:
    """The allocation itself says where there is too little."""


# ------------------------------------------------------------------------------------------------ copies and movement
def _cast_text(source: np.dtype, result: np.dtype) -> str:
    suffix = pointwise.COMPUTED.get(source)
    if suffix is None or result not in pointwise.STORED:
        raise NotImplementedError(f"copies from {source} to {result} on a CUDA device")
    wide = "f64" if source.char == "d" else suffix
    return pointwise.text(f"copy: {source} to {result}", "a", wide, result, [pointwise._Operand("a", source)])


_UNITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}


def _raw(x: CudaArray) -> CudaArray:
    """Elements of any type as whole numbers, to be moved as they are; of complex128 two each."""
    if x.itemsize in _UNITS:
        return ndarray.view(x, _UNITS[x.itemsize])
    return ndarray.view(x[..., None], np.int64)


def _parts(x: CudaArray) -> CudaArray:
    """Complex numbers as pairs of real ones."""
    return ndarray.view(x[..., None], x.real.dtype)


def copied(x: Any, target: CudaArray) -> CudaArray:
    """The elements of x, which broadcasts, in a target that does not overlap it."""
    if type(x) is not CudaArray:
        x = upload(np.asarray(x))
    if not target.size:
        return target
    if x.dtype == target.dtype:
        plain_x, plain_target = _raw(x), _raw(target)
        if x.shape == target.shape and x.strides == target.strides and not x.flags.c_contiguous and (
                order := dense_order(plain_x)) is not None:  # as they lie in memory
            plain_x, plain_target = plain_x.transpose(order), plain_target.transpose(order)
    elif target.dtype.kind == "c":
        parts = _parts(target)
        if x.dtype.kind == "c":
            copied(_parts(x), parts)
        else:
            copied(x, parts[..., 0])
            fill(parts[..., 1], 0)
        return target
    elif x.dtype.kind == "c" and target.dtype.kind != "b":
        return copied(_parts(x)[..., 0], target)
    else:
        plain_x, plain_target = x, target
    key = (plain_x.dtype.num, plain_target.dtype.num, plain_x.shape, plain_x.strides, plain_target.shape, plain_target.strides,
           device_index(target))
    plan = _copies.get(key)
    if plan is None:
        if plain_x.shape != np.broadcast_shapes(plain_x.shape, plain_target.shape) and (
                np.broadcast_shapes(plain_x.shape, plain_target.shape) != plain_target.shape):
            raise ValueError(f"could not broadcast input array from shape {x.shape} into shape {target.shape}")
        plan = _copies[key] = pointwise.launched(_cast_text(plain_x.dtype, plain_target.dtype), plain_target, [plain_x])
    plan.run(target, x)
    return target


_copies: dict[Any, Plan] = {}


@where_it_is
def copy(x: CudaArray, dtype: np.dtype | None = None) -> CudaArray:
    return copied(x, like(x, dtype or x.dtype))


@where_it_is
def duplicate(x: CudaArray, order: str) -> CudaArray:
    """A copy in the order of C, or of x's own dimensions."""
    return copied(x, empty(x.shape, x.dtype) if order == "C" else windows.like(x, x.dtype))


@where_it_is
def dense(x: CudaArray) -> CudaArray:
    """x, or a copy of it if there are holes between its elements or several share a place."""
    return x if x.flags.c_contiguous or dense_order(x) is not None else copied(x, empty(x.shape, x.dtype))


def contiguous(x: CudaArray) -> CudaArray:
    """x, or a copy of it, row by row without holes."""
    if type(x) is not CudaArray:  # a kernel would read the host's memory
        raise host_array()
    return x if x.flags.c_contiguous else copied(x, empty(x.shape, x.dtype))


@where_it_is
def copy_with_layout(source: CudaArray, like: CudaArray) -> CudaArray:
    return copied(source, windows.like(like, source.dtype))


@where_it_is
def write(target: CudaArray, source: Any) -> None:
    """target[...] = source, casting as asked; source may overlap target."""
    if type(source) is CudaArray and device_index(source) != device_index(target):
        source = from_device(source)
    elif type(source) is CudaArray and windows.owner(source) is windows.owner(target):
        source = copied(source, empty(source.shape, source.dtype))
    elif type(source) is not CudaArray and not getattr(source, "ndim", 0):
        return fill(target, source)
    copied(source, target)


@where_it_is
def fill(target: CudaArray, value: Any) -> None:
    if target.size:
        fills.fill(target, value.item() if isinstance(value, ndarray) else value)


def from_cpu(array: ndarray) -> CudaArray:
    return upload(array)


def from_pinned(array: ndarray) -> CudaArray:
    """A pinned array on the current device, some time soon: what is asked of the device next comes after the copy."""
    return upload(array, wait=False)


def from_device(array: CudaArray) -> CudaArray:
    """An array of any device on the current one: itself, or a copy from device to device."""
    there, here = device_index(array), current.device
    if there == here:
        return array
    unrepeatable()
    with at(there):
        source = dense(array)
        machine().activate(there)
        machine().synchronize(current.stream)
    made = windows.like(source, source.dtype)
    if made.size:
        machine().copy_between(made.ctypes.data, here, source.ctypes.data, there, made.nbytes, current.stream)
        machine().synchronize(current.stream)  # the source may be overwritten as soon as this returns
    return made


def to_cpu(array: CudaArray) -> ndarray:
    return download(array)


@where_it_is
def resized(x: CudaArray, shape: Any, stride: Any) -> CudaArray:
    offset, needed = windows.reaches(x, shape, stride)
    block = windows.owner(x)
    held = getattr(block, "used", block.nbytes)
    if needed > held:
        larger = windows.storage(needed)
        if held:
            unrepeatable()
            machine().copy(larger.ctypes.data, block.ctypes.data, held, current.stream)
        block = larger
    return over_bytes(block, shape, stride, offset, x.dtype)


def record_stream(x: CudaArray, stream: int) -> None:
    """Says that a stream uses an array's memory."""
    block = windows.owner(x)
    home = getattr(block, "home", None)
    if home is not None and home.stream != stream:
        block.home = Awaited(getattr(home, "home", home), {*getattr(home, "streams", ()), stream})


def is_shared(x: Any) -> bool:
    return True  # other processes can be handed its memory, as PyTorch answers


def to_shared(x: Any) -> Any:
    return x


# ----------------------------------------------------------------------------------------------------------- kernels
def call(name: str, args: tuple[Any, ...]) -> Any:
    """Runs a kernel. What is missing raises with its name: nothing goes over the host in silence."""
    if machine().count > 1 and (other := _other_device(args)) is not None:
        with at(other):
            return call(name, args)
    own = KERNELS.get(name)
    if own is not None:
        made = own(*args)
        if made is not NotImplemented:
            return made
    if name in POINTWISE:
        made = pointwise.run(name, args)
        if made is None and any([type(a) is CudaArray and a.dtype in _HALVES for a in args]):
            return _in_single(name, args)
    elif name in VIEWS:
        return windows.views(_HOST_KERNELS[name](*[windows.swapped(a) for a in args]))
    else:
        made = folds.run(name, args)
    if made is None:
        _same_device(args)
        unrepeatable()
        from . import over_cupy
        try:
            made = over_cupy.run(name, args)
        except (TypeError, AttributeError, NotImplementedError) as error:  # CuPy has no such thing, or would go over the host
            reason = error
        else:
            if made is not NotImplemented:
                return made
            reason = None if over_cupy.cupy() is not None else "not installed; `pip install flambeau[cuda]` brings it"
        kinds = ", ".join([str(a.dtype) for a in args if isinstance(a, ndarray)])
        raise NotImplementedError(
            f"flambeau has no CUDA kernel for '{name}' of {kinds or 'these arguments'} yet"
            + ("" if reason is None else f" (CuPy, which could do it, is {reason})" if reason.__class__ is str else
               f" (CuPy: {reason!r})")) from (reason if isinstance(reason, Exception) else None)
    return made


_SINGLE = np.dtype(np.float32)
_HALVES = {pointwise._BF16, pointwise._F16}


def _in_single(name: str, args: tuple[Any, ...]) -> Any:
    """A kernel without an expression for half types, in float32; what it makes is rounded if all that it took was so."""
    halves = {a.dtype for a in args if type(a) is CudaArray and a.dtype.kind not in "iub"}
    made = call(name, tuple([copy(a, _SINGLE) if type(a) is CudaArray and a.dtype in _HALVES else a for a in args]))
    if len(halves) > 1:
        return made
    rounded = [copy(m, *halves) if m.dtype == _SINGLE else m for m in (made if made.__class__ is tuple else (made,))]
    return tuple(rounded) if made.__class__ is tuple else rounded[0]


def host_array() -> RuntimeError:
    """An array of the host's where a kernel reads the device's memory."""
    return RuntimeError("Expected all tensors to be on the same device, but found at least two devices, "
                        f"cuda:{current.device} and cpu!")


def _same_device(args: tuple[Any, ...]) -> None:
    arrays = _arrays_in(args)
    if any([type(a) is not CudaArray and a.ndim for a in arrays]) and any([type(a) is CudaArray for a in arrays]):
        raise two_devices(arrays)


def run_ufunc(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A NumPy function called straight on arrays of the device: by the kernel of that name, or not at all."""
    out = kwargs.pop("out", None)
    name = _parallel.name_of(ufunc)
    made = None
    if method == "__call__" and not kwargs:
        made = call(name, inputs) if name else pointwise.run(ufunc.__name__, inputs)
    if made is None:
        _same_device(inputs)
        raise NotImplementedError(f"numpy.{ufunc.__name__} on arrays of a CUDA device")
    if out is None or out[0] is Ellipsis:
        return made
    write(out[0], made)
    return out[0]


def _waited(run: Any) -> Any:
    """`call`, waiting for the device: what a kernel finds wrong is raised where it was called (CUDA_LAUNCH_BLOCKING=1)."""
    def call(name: str, args: tuple[Any, ...]) -> Any:
        made = run(name, args)
        machine().activate(current.device)
        machine().synchronize()
        faults.check()
        return made
    return call


if blocking():
    call = _waited(call)

from . import kernels  # noqa: E402, F401  (they need what is above)
from .random import draw_into  # noqa: E402, F401
