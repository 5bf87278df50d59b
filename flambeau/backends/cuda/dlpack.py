"""Memory of devices shared with other libraries: DLPack capsules and the CUDA array interface, both ways."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..cpu.data.dlpack import _get_name, _get_pointer
from ..dtypes import native
from ..strides import contiguous_strides
from .arrays import CudaArray, device_index, windows
from .driver import machine
from .memory import Block, Pages
from .streams import current

_BF16 = native("bfloat16")
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # of DLPack; bfloat16 is 4


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_NAME, _USED = b"dltensor", b"used_dltensor"
_api = ctypes.PyDLL(None)
_new = _api.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_rename = _api.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_valid = _api.PyCapsule_IsValid
_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_exported: dict[int, Any] = {}  # address of the struct -> what it keeps alive


@_DELETER
def _delete(address: Any) -> None:
    _exported.pop(address, None)


@_DELETER
def _capsule_gone(capsule: Any) -> None:
    """A capsule that nobody took: its tensor goes with it."""
    if _valid(capsule, _NAME):
        _exported.pop(_pointer_in(capsule, _NAME), None)


def export(x: CudaArray, stream: Any = None) -> Any:
    """A capsule over an array's memory; what the other library does on `stream` comes after what was asked for here."""
    index = device_index(x)
    if stream != -1:
        machine().activate(index)
        machine().synchronize(current.streams.get(index, 0))
    if x.dtype != _BF16 and x.dtype.kind not in _CODES:
        raise BufferError(f"DLPack has no type for {x.dtype}")
    shape, strides = (ctypes.c_int64 * x.ndim)(*x.shape), (ctypes.c_int64 * x.ndim)(*[s // x.itemsize for s in x.strides])
    code = 4 if x.dtype == _BF16 else _CODES[x.dtype.kind]
    made = _Managed(_Tensor(x.ctypes.data if x.size else None, 2, index, x.ndim, code, x.itemsize * 8, 1, shape, strides, 0),
                    None, ctypes.cast(_delete, ctypes.c_void_p))
    address = ctypes.addressof(made)
    _exported[address] = made, shape, strides, x
    return _new(address, _NAME, ctypes.cast(_capsule_gone, ctypes.c_void_p))


def _over(address: int, device: int, shape: Any, dtype: np.dtype, strides: Any, keeper: Any) -> CudaArray:
    """An array over memory of another library. strides in bytes."""
    least = sum([min((n - 1) * s, 0) for n, s in zip(shape, strides)]) if all(shape) else 0
    reach = sum([max((n - 1) * s, 0) for n, s in zip(shape, strides)]) + dtype.itemsize if all(shape) else 0
    if not reach:
        return windows.empty(shape, dtype)
    pages = np.frombuffer((ctypes.c_char * (reach - least)).from_address(address + least), np.uint8).view(Pages)
    block = pages.view(Block)
    block.used, block.lent_by, block.keeper = reach - least, device, keeper
    return windows.over(block, shape, dtype, -least, strides)


class _Keeper:
    """Calls a capsule's deleter when the last array over its memory is gone."""

    def __init__(self, managed: Any, address: int):
        self.managed, self.address = managed, address

    def __del__(self) -> None:
        if self.managed.deleter:
            _DELETER(self.managed.deleter)(self.address)


def take(capsule: Any) -> CudaArray:
    """An array over a capsule's memory."""
    if _get_name(capsule) != _NAME:
        raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, "
                           "so you might have already constructed a tensor from it once.")
    address = _get_pointer(capsule, _NAME)
    managed = _Managed.from_address(address)
    t = managed.tensor
    dtype = _BF16 if t.code == 4 else np.dtype({v: k for k, v in _CODES.items()}[t.code] + str(t.bits // 8))
    shape = tuple(t.shape[:t.ndim])
    steps = t.strides[:t.ndim] if t.strides else contiguous_strides(shape)
    _rename(capsule, _USED)
    return _over((t.data or 0) + t.offset, t.device, shape, dtype, tuple([s * dtype.itemsize for s in steps]),
                 _Keeper(managed, address))


def interface(x: CudaArray) -> dict[str, Any]:
    """The CUDA array interface, version 2."""
    if x.dtype == _BF16:
        raise TypeError("the CUDA array interface has no bfloat16: use DLPack")
    return {"typestr": x.dtype.str, "shape": x.shape, "strides": None if x.flags.c_contiguous else x.strides,
            "data": (x.ctypes.data if x.size else 0, False), "version": 2}


def over_interface(obj: Any) -> CudaArray:
    """An array over the memory that an object shows by the interface, which it keeps alive."""
    about = obj.__cuda_array_interface__
    dtype, shape = np.dtype(about["typestr"]), tuple(about["shape"])
    strides = about.get("strides") or [s * dtype.itemsize for s in contiguous_strides(shape)]
    stream = about.get("stream")
    if stream is not None:
        machine().synchronize({1: 0}.get(stream, stream))
    return _over(about["data"][0], current.device, shape, dtype, tuple(strides), obj)
