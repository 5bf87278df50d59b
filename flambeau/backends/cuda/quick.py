"""Calls of kernels and new arrays without Python in between (native/cuda.c): what was settled once for a kernel and the geometry of
its arguments is found again by native code. Whatever it does not know comes here, and is done the long way.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy import ndarray

from ...native import calls, toolchain
from ..cpu.pointwise import loops
from . import memory
from .arrays import CudaArray, windows
from .driver import machine
from .launch import Plan, library

_P = ctypes.c_void_p
_MOST = 1 << 15  # calls that are remembered
_METHOD = 4      # of an object, without further arguments
_kept: list[Any] = []


def _numpy(*numbers: int) -> list[int]:
    """The addresses of functions of NumPy's C interface, by their places in its table."""
    from numpy._core import _multiarray_umath
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
    table = (_P * (max(numbers) + 1)).from_address(pointer(_multiarray_umath._ARRAY_API, None))
    return [table[n] for n in numbers]


def _slow(name: str, *args: Any) -> Any:
    from . import backend
    return backend.call(name, args)


def _slow_into(target: CudaArray, name: str, *args: Any) -> bool:
    """Writes what a pointwise kernel makes of its arguments to an array, and says whether it did."""
    from . import pointwise
    for a in args:
        if type(a) is CudaArray and windows.owner(a) is windows.owner(target) and (
                a.ctypes.data, a.shape, a.strides) != (target.ctypes.data, target.shape, target.strides):
            return False  # they may have elements in common
    if np.broadcast_shapes(*[a.shape for a in args if isinstance(a, ndarray)]) != target.shape:
        return False
    return pointwise.run(name, args, target) is not None


def learn(made: CudaArray, name: str, args: tuple[Any, ...], plan: Plan, order: list[int], in_place: bool) -> None:
    """From now on such calls are native code's. order: the arguments that the plan takes after the result."""
    if len(_kept) >= _MOST or machine().count > 1 or not made.size:
        return
    values = name not in loops.FIXED
    reach = made.itemsize + sum([(n - 1) * s for n, s in zip(made.shape, made.strides)])
    call = (made, name, *args) if in_place else (name, *args)
    _learn(int(in_place), int(values), plan.address, tuple(order), made, reach, *call)
    _kept.append((plan, name, *[a.dtype if isinstance(a, ndarray) else a for a in (made, *args)]))


def _attached() -> Any:
    types = (CudaArray, memory.Block, memory.Pages, float, int, bool, str)
    names = (np.dtype(np.uint8), "used", "home")
    functions = (windows.storage, memory.freed, _slow, _slow_into, True)
    _kept.append((types, names, functions))
    found = [*_numpy(94, 282), *toolchain.interpreter("PyObject_Vectorcall")]
    native = library()
    native.fl_cuda_arrays((_P * (len(found) + 15))(*found, *[id(o) for o in (*types, *names, *functions)]), _P(id(ndarray)))
    return native


def _method(kind: type, native: Any, name: str) -> Any:
    make = ctypes.pythonapi.PyDescr_NewMethod
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, _P]
    return make(kind, calls.definition(native, name, _METHOD))


_native = _attached()
EMPTY = calls.builtin(_native, "fl_cuda_empty")  # (shape, bytes of an element, dtype)
CALL = calls.builtin(_native, "fl_cuda_call")    # (name, arguments...)
INTO = calls.builtin(_native, "fl_cuda_into")    # (result, name, arguments...) -> whether it was written
_learn = calls.builtin(_native, "fl_cuda_learn")
memory.Block.__del__ = _method(memory.Block, _native, "fl_cuda_freed")
