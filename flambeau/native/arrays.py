"""Questions about NumPy's arrays, and new windows onto them, in one native call each (arrays.c).

Every function returns None where a call is not of the simple kind that it knows, and always where there is no native code: the
caller then goes the general way. They are looked up when they are first used:

    reshaped(x, sizes, only_contiguous)   expanded(x, sizes)   windows of other shapes; sizes as `*args` of a method
    unsqueezed(x, dim)                    permuted(x, dims)
    parted(x, size, dim, by_number)       a list of windows that follow each other, each of a size, or so many
    suited(x, y)                          whether a kernel may take two arrays as they are: one dtype, in order, few elements
    room_like(x)                          a new array like a contiguous one of few elements
    extreme(x, dim, least)                the largest or the smallest of a few elements, along a dimension or (None) of all
    selected(condition, x, y)             `where` of few elements in one shape
    joined(tensors, dim, fresh_dim)       what tensors' arrays are side by side
    any_history(tensors)                  whether one of them has a history; this one always knows
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from . import calls, toolchain

NAMES = frozenset(("any_history", "expanded", "extreme", "joined", "parted", "permuted", "reshaped", "room_like", "selected",
                   "suited", "unsqueezed"))
_PYTHON = ("Py_IncRef", "PyLong_AsLongAndOverflow", "PyTuple_Size", "PyTuple_GetItem", "PyList_Size", "PyList_GetItem",
           "PyList_New", "PyList_SetItem", "Py_DecRef")
_NUMPY = (94, 282)  # PyArray_NewFromDescr and PyArray_SetBaseObject in NumPy's table of functions, where places never change
_P = ctypes.c_void_p
_described: tuple[Any, ...] = ()


def describe(tensor: type, parameter: type, size: type, dtypes: Any, large: int) -> None:
    """Called once: the classes and dtypes that the native functions know, and from how many elements on an array is large."""
    global _described
    _described = tensor, parameter, size, dtypes, large


def _nothing(*args: Any) -> None:
    """What stands for a function where there is no native one."""


def _any_history(tensors: Any) -> bool:
    return any([t._node is not None or t._counter is not None for t in tensors])


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(loaded())
    return globals()[name]


def loaded() -> dict[str, Any]:
    """The functions by name."""
    if "suited" not in globals():
        library = _library()
        found = {n: _nothing if library is None else calls.builtin(library, f"fl_{n}") for n in NAMES}
        globals().update(found if library is not None else found | {"any_history": _any_history})
    return {n: globals()[n] for n in NAMES}


def _library() -> Any:
    if not toolchain.usable() or not toolchain.knows_python():
        return None
    try:
        library = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "arrays.c").read_text(), "arrays")))
        functions = [*toolchain.interpreter(*_PYTHON), *_of_numpy()]
    except (toolchain.BuildError, OSError, AttributeError):
        return None
    tensor, parameter, size, dtypes, large = _described
    slots = [calls.offset_of(tensor, name) for name in ("_array", "_node", "_counter")]
    if None in slots:
        return None
    objects = (None, True, np.ndarray, tensor, parameter, int, tuple, list, size, np.dtype("f4"), np.dtype("f8"),
               np.dtype("?"), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16))
    library.fl_arrays_attach((_P * len(functions))(*functions), (_P * len(objects))(*map(id, objects)),
                             (ctypes.c_ssize_t * 3)(*slots), ctypes.c_ssize_t(large))
    for dtype in dtypes:
        library.fl_arrays_dtype(_P(id(dtype)), ctypes.c_ssize_t(dtype.itemsize))
    return library


def _of_numpy() -> list[int]:
    find = ctypes.pythonapi.PyCapsule_GetPointer
    find.restype, find.argtypes = _P, [ctypes.py_object, ctypes.c_char_p]
    table = find(np._core.multiarray._ARRAY_API, None)
    return [_P.from_address(table + n * ctypes.sizeof(_P)).value or 0 for n in _NUMPY]
