"""What stands in front of `Tensor._array` while a call is captured (native/slot.c): other threads keep their speed."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from ...native import toolchain
from ...native.calls import offset_of
from ...tensors.tensor import Tensor
from .traced import Traced

SLOT = Tensor.__dict__["_array"]  # where a tensor keeps its array
_PYTHON = ("PyObject_CallFunctionObjArgs", "Py_IncRef", "Py_DecRef")


@functools.cache
def _native() -> Any:
    """The library; None where this Python or this machine is not one it was tested with."""
    offset = offset_of(Tensor, "_array")
    if offset is None or not toolchain.knows_python():
        return None
    try:
        library = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "slot.c").read_text(), "slot", ("-pthread",))))
        functions = (ctypes.c_void_p * len(_PYTHON))(*toolchain.interpreter(*_PYTHON))
    except (toolchain.BuildError, OSError, AttributeError):
        return None
    library.fl_slot_begin.restype = ctypes.c_void_p
    library.fl_slot_begin.argtypes = [ctypes.py_object, ctypes.py_object]
    library.fl_slot_abroad.argtypes = [ctypes.py_object]
    library.fl_slot_attach(functions, ctypes.c_ssize_t(offset), ctypes.py_object(Traced))
    return library


def hide(kind: type) -> None:
    """Arrays of this type, too, are for the capturing thread alone."""
    if (library := _native()) is not None:
        library.fl_slot_hide(ctypes.py_object(kind))


def put_in_front(read: Callable[..., Any], write: Callable[..., Any]) -> None:
    """From now on `tensor._array` calls these, in this thread. They must live until `take_away`."""
    library = _native()
    if library is None:
        Tensor._array = property(read, write)
        return
    make = ctypes.pythonapi.PyDescr_NewGetSet
    make.restype, make.argtypes = ctypes.py_object, [ctypes.py_object, ctypes.c_void_p]
    Tensor._array = make(Tensor, library.fl_slot_begin(read, write))


def made_abroad(tensor: Any) -> bool:
    """Whether another thread made this tensor meanwhile."""
    library = _native()
    return library is not None and bool(library.fl_slot_abroad(tensor))


def take_away() -> bool:
    """The slot is bare again; whether something was in front of it."""
    if Tensor.__dict__["_array"] is SLOT:
        return False
    Tensor._array = SLOT
    if (library := _native()) is not None:
        library.fl_slot_end()
    return True
