"""DLPack capsules of CPU arrays. NumPy does the work; bfloat16 and 8-bit floats, unknown to it, travel as integers."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from numpy import ndarray

from .. import arrays

_CODES = {np.dtype(getattr(ml_dtypes, name)): code for name, code in (  # DLPack's types that NumPy does not know
    ("bfloat16", 4), ("float8_e4m3fn", 10), ("float8_e4m3fnuz", 11), ("float8_e5m2", 12), ("float8_e5m2fnuz", 13),
    ("float8_e8m0fnu", 14)) if hasattr(ml_dtypes, name)}
_CPU_DEVICE = (1, 0)
_UINT = 1
# Offset of the DLTensor in the managed struct (the versioned one has version, context, deleter and flags in front), and
# of the type code in the DLTensor (after the data pointer, the device and the number of dimensions).
_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_CODE_AT = 8 + 8 + 4

_get_name = ctypes.pythonapi.PyCapsule_GetName
_get_name.restype, _get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def is_capsule(obj: Any) -> bool:
    return type(obj).__name__ == "PyCapsule"


def _type_code(capsule: Any) -> tuple[Any, int]:
    """The code and the width of the capsule's elements; the code can be written."""
    name = _get_name(capsule)
    if name not in _TENSOR_AT:
        raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, "
                           "so you might have already constructed a tensor from it once.")
    start = _get_pointer(capsule, name) + _TENSOR_AT[name] + _CODE_AT
    return ctypes.c_uint8.from_address(start), ctypes.c_uint8.from_address(start + 1).value


def device_of(capsule: Any) -> tuple[int, int]:
    """(kind, number) of the device that a capsule's memory is on."""
    name = _get_name(capsule)
    if name not in _TENSOR_AT:
        return _CPU_DEVICE
    start = _get_pointer(capsule, name) + _TENSOR_AT[name] + 8
    return ctypes.c_int32.from_address(start).value, ctypes.c_int32.from_address(start + 4).value


def export(array: ndarray, **options: Any) -> Any:
    """A capsule over the array's memory."""
    if array.dtype in _CODES:
        capsule = array.view(f"u{array.dtype.itemsize}").__dlpack__(**options)
        _type_code(capsule)[0].value = _CODES[array.dtype]
        return capsule
    if array.dtype.kind == "V":
        raise BufferError(f"DLPack has no type for {array.dtype}")
    return array.__dlpack__(**options)


class _Handover:
    """Shows NumPy a capsule under the protocol it asks for."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU_DEVICE


def take(capsule: Any) -> ndarray:
    """An array over a capsule's memory, which the capsule's owner frees when the array is gone."""
    code, bits = _type_code(capsule)
    kind = next((d for d, c in _CODES.items() if c == code.value and bits == 8 * d.itemsize), None)
    if kind is not None:
        code.value = _UINT
    array = np.from_dlpack(_Handover(capsule))
    return arrays.share(array if kind is None else array.view(kind))
