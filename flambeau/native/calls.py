"""Native functions as builtin functions of Python's: a call of one takes a fraction of what it takes through ctypes.

They take the arrays themselves as well as addresses. Where they cannot be made (another platform, no compiler, a result that
is no integer), `direct` returns the ctypes function.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

from numpy import ndarray

_P = ctypes.c_void_p
_FASTCALL = 0x80
_PYTHON = ("PyLong_AsUnsignedLongMask", "PyFloat_AsDouble", "PyLong_AsVoidPtr", "PyErr_Occurred", "PyLong_FromLong",
           "PyErr_SetString", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef",
           "PyObject_CallFunctionObjArgs")
_LONGS, _DOUBLES = 20, 8  # as in calls.c


class _Definition(ctypes.Structure):
    """Python's description of a builtin function."""

    _fields_ = [("name", ctypes.c_char_p), ("function", _P), ("flags", ctypes.c_int), ("text", ctypes.c_char_p)]


@functools.cache
def _call() -> int | None:
    """The address of calls.c's function, or None."""
    from . import toolchain
    if not toolchain.knows_python():
        return None
    try:
        library = toolchain.load(toolchain.build((toolchain.HERE / "calls.c").read_text(), "calls"))
        found = toolchain.interpreter(*_PYTHON)
    except (toolchain.BuildError, OSError, AttributeError):
        return None
    library.fl_calls_attach((_P * (len(found) + 3))(*found, id(None), id(ndarray), id(TypeError)))
    _attached.append(library)
    promises(*_promises)
    return ctypes.cast(library.fl_calls_run, _P).value


_attached: list[Any] = []  # the library, once it is loaded
_promises: tuple[Any, ...] = ()


def promises(*given: Any) -> None:
    """From now on native functions call `settle` with arrays of the type `Promise` before they use them: (Promise, settle)."""
    global _promises
    _promises = given
    if given and _attached:
        _attached[0].fl_calls_promise(*[_P(id(g)) for g in given])


_make = ctypes.pythonapi.PyCMethod_New
_make.restype, _make.argtypes = ctypes.py_object, [_P, ctypes.py_object, _P, _P]
_kept: list[Any] = []  # what the functions refer to by address: they live as long as the process


@functools.cache
def definition(library: Any, name: str, flags: int = _FASTCALL) -> int:
    """The address of Python's description of a library's function."""
    definition = _Definition(name.encode(), ctypes.cast(getattr(library, name), _P).value, flags, None)
    _kept.extend((library, definition))
    return ctypes.addressof(definition)


def builtin(library: Any, name: str, self: Any = None) -> Any:
    """A function of a library that takes (self, arguments, how many) as Python's own do, as a builtin."""
    return _make(definition(library, name), self, None, None)


@functools.cache
def offset_of(kind: type, name: str) -> int | None:
    """Where instances of a class keep a slot, in bytes: it is looked for in one of them."""
    made, mark = object.__new__(kind), object()
    kind.__dict__[name].__set__(made, mark)
    at = [n for n in range(0, kind.__basicsize__, 8) if ctypes.c_void_p.from_address(id(made) + n).value == id(mark)]
    return at[0] if len(at) == 1 else None


def direct(name: str, function: Any, result: str, arguments: str) -> Any:
    """A function of a library, given as ctypes has it and with the letters of its signature, as a builtin."""
    numbers = sum(kind in "df" for kind in arguments)
    if result not in ("", "l", "i") or numbers > _DOUBLES or len(arguments) - numbers > _LONGS or _call() is None:
        return function
    address = ctypes.cast(function, _P).value
    letters = (result or "\0").encode() + arguments.encode()
    described = ctypes.create_string_buffer(address.to_bytes(8, sys.byteorder) + len(arguments).to_bytes(8, sys.byteorder)
                                            + letters)
    definition = _Definition(name.encode(), _call(), _FASTCALL, None)
    _kept.extend((described, definition, function))
    return _make(ctypes.addressof(definition), ctypes.addressof(described), None, None)
