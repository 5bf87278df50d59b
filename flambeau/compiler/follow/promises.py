"""`Promise`: an array that is handed out before its elements are there, and the reserved memory that it lies over.

While a compiled call is followed (follower.py), the result of a kernel is a Promise: its shape, strides, dtype and address are
known, its elements come when the native program has run. Whoever touches them earlier, by whatever way NumPy has, makes the
program run first. When the elements are there, the very same object becomes a plain array again, so nobody has to know who
refers to it; and an array from before whose memory a pending kernel will change is a Promise for that time.

Changing the type of a living object needs two types of one layout. A class statement makes objects with a header for the
collector, which plain arrays do not have; so the type comes from Python's function for extension types.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import weakref
from sys import getrefcount
from typing import Any

import numpy as np
from numpy import ndarray

from ...autograd.state import state
from ...backends.cpu import memory
from ...backends.cpu.memory import Region
from ...native import pointer
from ..run import pages

_at = ctypes.c_void_p.from_address
_TYPE = object.__basicsize__ - ctypes.sizeof(ctypes.c_void_p)  # an object's type is the last word of its header
_BASETYPE = 1 << 10  # a flag of types: subclasses are allowed


class _Slot(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("function", ctypes.c_void_p)]


class _Description(ctypes.Structure):
    """Python's description of a type."""

    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_int), ("item_size", ctypes.c_int), ("flags", ctypes.c_uint),
                ("slots", ctypes.c_void_p)]


def _made() -> Any:
    slots = (_Slot * 1)()
    name = ctypes.create_string_buffer(f"{__name__}.Promise".encode())
    described = _Description(ctypes.cast(name, ctypes.c_char_p), ndarray.__basicsize__, 0, _BASETYPE, ctypes.addressof(slots))
    make = ctypes.pythonapi.PyType_FromSpecWithBases
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object]
    made = make(ctypes.addressof(described), (ndarray,))
    made.__doc__ = "An array whose elements are still to come; see the module's text."
    _kept.extend((slots, name, described))
    ctypes.c_ssize_t.from_address(id(made)).value += 1 << 28  # lives for ever: follow.c counts no references to it
    return made


_kept: list[Any] = []
Promise: Any = _made()
memory.promised = Promise


def stripped(value: Any) -> Any:
    """A Promise as a plain array over the same memory."""
    return value.view(ndarray) if type(value) is Promise else value


def usable() -> bool:
    """Whether objects of this Python and this NumPy lie in memory as this file takes for granted."""
    sample = np.arange(3.0)
    collected = Promise.__flags__ >> 14 & 1
    if collected or Promise.__basicsize__ != ndarray.__basicsize__ or _at(id(sample) + _TYPE).value != id(ndarray):
        return False
    _at(id(sample) + _TYPE).value = id(Promise)
    changed = type(sample) is Promise and pointer(sample) == ndarray.__getattribute__(sample, "ctypes").data
    _at(id(sample) + _TYPE).value = id(ndarray)
    return changed and type(sample) is ndarray and sample.tolist() == [0.0, 1.0, 2.0]


def _references() -> int:
    """What getrefcount says, in a loop over pairs, of an array that only its pair refers to."""
    pairs = [(None, np.empty(1))]
    for _, array in pairs:
        return getrefcount(array)
    return 0


PAIRED = _references()


# ----------------------------------------------------------------------------------------------- what NumPy does with one
followers: list[Any] = []  # of all threads


def settle(array: Any, what: str) -> None:
    """The elements of a Promise are needed, now."""
    mine = state.follower
    if mine is not None:
        mine.look(array, what)
    if type(array) is Promise:
        for other in list(followers):
            if other is not mine:
                other.settle()


memory.settle = settle


def finalized(self: Any, source: Any) -> None:
    """Called for each new Promise, views included: they all become plain arrays together. (follow.c does this in the thread
    that follows a call.)"""
    follower = state.follower
    if follower is not None:
        follower.views.append(weakref.ref(self))


_GEOMETRY = frozenset((np.may_share_memory, np.shares_memory, np.shape, np.ndim, np.size, np.result_type, np.can_cast,
                       np.iscomplexobj, np.isrealobj))


def _ufunc(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    out = kwargs.get("out", ())
    for given in (*inputs, *out):
        if type(given) is Promise:
            settle(given, f"NumPy's {ufunc.__name__} was called on a tensor's memory")
    if out:
        kwargs["out"] = tuple([stripped(o) for o in out])
    return getattr(ufunc, method)(*[stripped(i) for i in inputs], **kwargs)


def _all_stripped(value: Any, what: str | None) -> Any:
    if type(value) is Promise:
        if what is not None:
            settle(value, what)
        return stripped(value)
    if value.__class__ is list or value.__class__ is tuple:
        return value.__class__([_all_stripped(v, what) for v in value])
    return value


def _function(self: Any, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    what = None if function in _GEOMETRY else f"NumPy's {function.__name__} was called on a tensor's memory"
    return function(*[_all_stripped(a, what) for a in args], **{k: _all_stripped(v, what) for k, v in kwargs.items()})


def _touching(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        settle(self, "a tensor's value was read")
        return getattr(stripped(self), name)(*[_all_stripped(a, "a tensor's value was read") for a in args], **kwargs)
    return method


for _name in """
        item tolist tobytes tofile dump dumps argmax argmin argsort argpartition nonzero searchsorted sort partition dot take
        put repeat choose clip compress round trace byteswap cumsum cumprod sum prod mean std var min max any all ptp resize
        __bool__ __float__ __int__ __index__ __complex__ __reduce__ __reduce_ex__ __setstate__ __copy__ __deepcopy__ __iter__
        __contains__ __repr__ __str__ __format__ __dlpack__""".split():
    if hasattr(ndarray, _name):
        setattr(Promise, _name, _touching(_name))


def _attribute(name: str) -> Any:
    def read(self: Any) -> Any:
        settle(self, "a tensor's memory was asked for")
        return getattr(stripped(self), name)
    return property(read)


for _name in ("data", "flat", "__array_interface__", "__array_struct__"):
    setattr(Promise, _name, _attribute(_name))


def _advanced(key: Any) -> bool:
    keys = key if key.__class__ is tuple else (key,)
    return any(isinstance(k, (list, ndarray)) for k in keys)


def _getitem(self: Any, key: Any) -> Any:
    if _advanced(key):
        settle(self, "a tensor was indexed outside of a kernel")
        return stripped(self)[_all_stripped(key, "a tensor was indexed outside of a kernel")]
    found = ndarray.__getitem__(self, key)
    if isinstance(found, ndarray):
        return found
    settle(self, "an element of a tensor was read")
    return ndarray.__getitem__(self, key)


def _setitem(self: Any, key: Any, value: Any) -> None:
    follower = state.follower
    if follower is None or _advanced(key):
        settle(self, "a tensor was written to outside of a kernel")
        stripped(self)[_all_stripped(key, "")] = _all_stripped(value, "")
        return
    key = key if key.__class__ is tuple else (key,)
    window = ndarray.__getitem__(self, key if Ellipsis in key else (*key, ...))
    follower.write(window, value)


def _fill(self: Any, value: Any) -> None:
    if state.follower is None:
        settle(self, "a tensor was written to outside of a kernel")
        stripped(self).fill(value)
    else:
        state.follower.write(self, value)


def _astype(self: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    if state.follower is None or args:
        settle(self, "a tensor was converted outside of a kernel")
        return stripped(self).astype(dtype, *args, **kwargs)
    dtype = np.dtype(dtype)
    if not kwargs.get("copy", True) and dtype == self.dtype:
        return self
    return state.follower.call("~astype", (self, dtype), "cast", lambda: stripped(self).astype(dtype))


def _copy(self: Any, order: str = "C") -> Any:
    if state.follower is None:
        settle(self, "a tensor was copied outside of a kernel")
        return stripped(self).copy(order)
    return state.follower.call("~copy", (self, order), "cast", lambda: stripped(self).copy(order))


def _reshape(self: Any, *shape: Any, **kwargs: Any) -> Any:
    try:
        return ndarray.reshape(self, *shape, copy=False, **kwargs)
    except ValueError:
        pass  # it is no view, or not possible at all
    if state.follower is None or kwargs:
        settle(self, "a tensor was reshaped outside of a kernel")
        return stripped(self).reshape(*shape, **kwargs)
    return state.follower.call("~reshape", (self, shape), "reshape_copy", lambda: stripped(self).reshape(*shape))


for _name, _method in {"__array_ufunc__": _ufunc, "__array_function__": _function,
                       "__getitem__": _getitem, "__setitem__": _setitem, "fill": _fill, "astype": _astype, "copy": _copy,
                       "reshape": _reshape, "ravel": lambda self, order="C": self.reshape(-1),
                       "flatten": lambda self, order="C": self.copy().reshape(-1)}.items():
    setattr(Promise, _name, _method)


# ------------------------------------------------------------------------------------------------------- reserved memory
_NORESERVE = 0x4000  # of Linux: pages that nobody touches need not exist
_stamps = itertools.count(1)
_GUARDED = "follow" in os.environ.get("FLAMBEAU_DEBUG", "").split(",")  # reading what is not there yet ends the process


class Reserved:
    """A range of addresses for arrays whose elements, as a rule, never reach memory: the program has an arena of its own."""

    def __init__(self, nbytes: int):
        size = 1 << (nbytes - 1).bit_length()
        raw = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        self.bytes = np.frombuffer(raw, np.uint8).view(Region)
        self.start, self.nbytes = pointer(self.bytes) or 0, size
        self.end = self.start + size
        self.pairs: dict[Any, list[Any]] = {}  # step -> the arrays that it hands out, the same each time, with their storages
        self.made: dict[int, Any] = {}         # address of one of these -> the storage that it is a window onto
        self.ready: list[Any] = []             # entries that C knows
        self.stamp = next(_stamps)
        self.guard(True)

    def changed(self) -> None:
        """Something is kept from now on."""
        self.stamp = next(_stamps)
        self.ready.clear()

    def window(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> Any:
        return ndarray.__new__(Promise, shape, dtype, self.bytes, offset, strides)

    def forget(self, nbytes: int) -> None:
        """Nobody needs what was written here."""
        pages.give_back(self.start, nbytes)
        self.guard(True)

    def guard(self, on: bool) -> None:
        if _GUARDED:
            protect = ctypes.CDLL(None).mprotect
            protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
            protect(self.start, self.nbytes, 0 if on else mmap.PROT_READ | mmap.PROT_WRITE)
