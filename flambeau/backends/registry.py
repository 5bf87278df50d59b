"""Which backend an array belongs to, by the array's type, and which backend serves a device."""

from __future__ import annotations

from typing import Any

from .cpu import backend as cpu

CPU_ARRAY = cpu.ARRAY
_BY_TYPE: dict[type, Any] = {cpu.ARRAY: cpu}
ARRAY_TYPES = _BY_TYPE
WINDOWS = {cpu.ARRAY}        # types of arrays whose NumPy views are views of tensors
FOLLOWABLE = {cpu.ARRAY}     # types of arrays whose kernels the program of a followed call can run
EAGER: dict[type, Any] = {}  # type of arrays -> the function of (kernel's name, arguments...) that runs kernels on them
INTO: dict[type, Any] = {}   # likewise of (target, name, arguments...), which says whether it could write to the target

following: Any = None        # () -> the backend of plain arrays in this thread; None while no thread follows a compiled call
batched: Any = None          # the backend of arrays inside vmap, once there was one
pending: Any = None          # the backend of arrays with a conjugate or negative bit (pending.py)
tracing: Any = None          # (backend of a CUDA device) -> what notes its kernel calls, in a thread that captures a call
run_time: Any = None         # (number, dtype) -> an array, if the number is one that compiled programs read anew at each call


def backend_of(array: Any) -> Any:
    found = _BY_TYPE.get(type(array))
    if found is None:
        found = _load(type(array))
    return found if found is not cpu or following is None else following()


def _load(kind: type) -> Any:
    _meta()
    load_batched()
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    raise TypeError(f"no backend for arrays of type {kind.__name__}")


def cuda(index: int | None = None) -> Any:
    """The CUDA backend, loaded when first used; a clear error where there is no device. index: the device to be used."""
    from .cuda import driver
    try:
        count = driver.machine().count
    except driver.Unavailable as error:
        raise MissingDevice(f"Torch not compiled with CUDA enabled: flambeau was asked for a CUDA device, but there is none "
                            f"that it can use. {error}. Use device='cpu'.") from None
    if index is not None and index >= count:
        raise MissingDevice(f"CUDA error: invalid device ordinal: device cuda:{index} was asked for, there are {count}")
    from .cuda import backend
    if backend.ARRAY not in _BY_TYPE:
        from .cuda import repeated
        _BY_TYPE[backend.ARRAY] = backend
        WINDOWS.add(backend.ARRAY)
        EAGER[backend.ARRAY], INTO[backend.ARRAY] = repeated.CALL, repeated.INTO
    found = backend if index is None else backend.on(index)
    return found if tracing is None else tracing(found)


def cuda_count() -> int:
    """How many CUDA devices there are: 0 without a driver."""
    from .cuda import driver
    try:
        return driver.machine().count
    except driver.Unavailable:
        return 0


def cuda_places(arrays: list[Any]) -> list[int]:
    """On which CUDA devices arrays are, and the current one, where there are several to choose from."""
    if cuda_count() < 2:
        return []
    from .cuda import backend
    return [backend.current_device().index, *[backend.device_of(a).index for a in arrays if type(a) is backend.ARRAY]]


def cuda_was_used() -> bool:
    """Whether the CUDA backend has been asked for."""
    return any([backend.NAME == "cuda" for backend in _BY_TYPE.values()])


def _meta() -> Any:
    """The meta backend, loaded when first used."""
    from .meta import backend as meta
    _BY_TYPE[meta.ARRAY] = meta
    return meta


def load_batched() -> Any:
    """The backend of the arrays inside vmap, loaded when first used."""
    global batched
    if batched is None:
        from .batched import backend
        _BY_TYPE[backend.ARRAY] = batched = backend
    return batched


def maker(array: Any) -> Any:
    """What makes new arrays beside an array: its backend, or for one inside vmap something that makes batches too."""
    backend = backend_of(array)
    if backend.NAME == "cuda":
        return backend.on(backend.device_of(array).index)
    if backend is pending:
        return maker(array.window)
    return backend if backend.NAME != "batched" else backend.Maker(array)


def write(target: Any, source: Any) -> None:
    """target[...] = source, whatever arrays they are."""
    backend_of(target).write(target, source if pending is None else pending.resolved(source))


def backend_for(device: Any) -> Any:
    """The backend of a device; a clear error where there is none yet."""
    if device.type == "cpu":
        return cpu
    if device.type == "meta":
        return _meta()
    if device.type != "cuda":
        raise MissingDevice(f"device type '{device.type}' has no flambeau backend; expected one of cpu, cuda, meta")
    return cuda(device.index)


def placed(device: Any) -> Any:
    """A device with its number: "cuda" alone is the current one."""
    if device.type != "cuda" or device.index is not None:
        return device
    return cuda().current_device()


class MissingDevice(AssertionError, RuntimeError):
    """No backend for a device. (PyTorch raises an AssertionError here; programs catch either.)"""


class OutOfMemoryError(RuntimeError):
    """A device has no memory left."""

    __module__ = "torch"


def move(array: Any, backend: Any) -> Any:
    """An array on another backend; the array itself when it is there already."""
    source = backend_of(array)
    if source.NAME == backend.NAME == "cuda":
        return backend.from_device(array)
    if source is backend:
        return array
    return backend.from_cpu(source.to_cpu(array))


def two_devices(arrays: list[Any]) -> RuntimeError:
    """The error of arrays that do not live together: the first says where the others should be, zero-dim ones may join any.

    A CUDA device is named first, as PyTorch does.
    """
    names = list(dict.fromkeys([str(backend_of(a).device_of(a)) for a in arrays if a.ndim or backend_of(a).NAME != "cpu"]))
    names.sort(key=lambda name: not name.startswith("cuda"))
    return RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {names[0]} and "
                        f"{names[1]}! Tensor on device {names[1]} is not on the expected device {names[0]}! Move one of them: "
                        f"x.to('{names[0]}')")


def common(arrays: list[Any]) -> Any:
    """The backend of several arrays: meta wins over cpu, as zero-dim CPU tensors may join any device."""
    found, bits = cpu, False
    for array in arrays:
        backend = backend_of(array)
        if backend.NAME == "batched":
            return backend
        if backend is pending:
            bits = True
        elif backend.NAME == "cpu":
            if found is cpu:
                found = backend
        elif found.NAME == "cpu":
            found = backend
        elif vars(backend).get("PLAIN_BACKEND") is found:  # arrays of a capture that was given up
            found = backend
        elif backend is not found and vars(found).get("PLAIN_BACKEND") is not backend:
            raise two_devices(arrays)
    if bits:
        return pending  # which asks again, about arrays without bits
    if found.NAME != "cpu":
        for array in arrays:
            if array.ndim and backend_of(array).NAME == "cpu":
                raise two_devices(arrays)
    return found if found is not cpu or following is None else following()
