"""Calls of kernels and new arrays without Python in between (native/cuda.c): what a call did once it does again whenever the
geometry of its arguments is the same. What native code does not know comes here, and is done the long way.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy import ndarray

from ...native import calls, toolchain
from .. import flags
from ..facts import POINTWISE
from . import folds, memory, pointwise, table
from .arrays import CudaArray, storage, windows
from .driver import blocking, machine
from .launch import library

_P, _BYTE = ctypes.c_void_p, np.dtype(np.uint8)
_BLOCKING = blocking()
_METHOD = 4      # of an object, without further arguments
_kept: list[Any] = []


def _numpy(*numbers: int) -> list[int]:
    """The addresses of functions of NumPy's C interface, by their places in its table."""
    from numpy._core import _multiarray_umath
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
    table = (_P * (max(numbers) + 1)).from_address(pointer(_multiarray_umath._ARRAY_API, None))
    return [table[n] for n in numbers]


def _first_time(name: str, *args: Any) -> Any:
    """A call that is not known yet."""
    return (_record(0, name, *args) if _is_repeatable(name) else _compute(name, *args))


def _first_time_into(target: CudaArray, name: str, *args: Any) -> bool:
    return _record(1, target, name, *args) if _is_repeatable(name) else _into(target, name, *args)


def _is_repeatable(name: str) -> bool:
    """Whether such a call does the same launches whenever its arguments have the same geometry and numbers. (Where each call
    waits for the device, Python does them all.)"""
    return not _BLOCKING and (name in table.REPEATABLE or name in table.WRITERS or (name not in table.KERNELS and (
        name in POINTWISE or folds.folds(name))))


def _compute(name: str, *args: Any) -> Any:
    from . import backend
    return backend.call(name, args)


def _into(target: CudaArray, name: str, *args: Any) -> bool:
    """Writes what a kernel makes of its arguments to an array, and says whether it did."""
    if name in table.WRITERS:
        return table.WRITERS[name](target, *args)
    if _BLOCKING:
        return False  # nobody would wait for it
    for a in args:
        if type(a) is CudaArray and windows.owner(a) is windows.owner(target) and (
                a.ctypes.data, a.shape, a.strides) != (target.ctypes.data, target.shape, target.strides):
            return False  # they may have elements in common
    if np.broadcast_shapes(*[a.shape for a in args if isinstance(a, ndarray)]) != target.shape:
        return False
    return pointwise.run(name, args, target) is not None


def _attached() -> Any:
    """The library, told of all that it uses of Python's; in the order of struct arrays."""
    objects = (CudaArray, memory.Block, memory.Pages, float, int, bool, str, tuple, list, type(type(_BYTE)),
               _BYTE, "used", "home", storage, memory.freed, _first_time, _first_time_into, _compute, _into, True)
    functions = [*_numpy(94, 282), *toolchain.interpreter("PyObject_Vectorcall")]
    _kept.append(objects)
    native = library()
    native.fl_cuda_devices(machine().count)
    native.fl_cuda_arrays((_P * (len(functions) + len(objects)))(*functions, *[id(o) for o in objects]), _P(id(ndarray)))
    return native


_settings: dict[tuple[Any, ...], int] = {}


def _settle() -> None:
    """Tells native code which of the switches' states this is: calls depend on them."""
    c = flags.cudnn
    state = flags.cuda.matmul.allow_tf32, c.enabled, c.benchmark, c.deterministic, c.allow_tf32, c._required
    _native.fl_cuda_settings(ctypes.c_long(_settings.setdefault(state, len(_settings))))


def _method(kind: type, native: Any, name: str) -> Any:
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, _P]
    return make(kind, calls.definition(native, name, _METHOD))


_native = _attached()
_settle()
flags.watchers.append(_settle)
EMPTY = calls.builtin(_native, "fl_cuda_empty")  # (shape, bytes of an element, dtype)
CALL = calls.builtin(_native, "fl_cuda_call")    # (name, arguments...)
INTO = calls.builtin(_native, "fl_cuda_into")    # (result, name, arguments...) -> whether it was written
STORAGE = calls.builtin(_native, "fl_cuda_storage")  # (bytes)
_record = calls.builtin(_native, "fl_cuda_record")
memory.Block.__del__ = _method(memory.Block, _native, "fl_cuda_freed")
