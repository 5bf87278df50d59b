"""Half precision and float32, one from the other: natively (native/half.c) where an array is worth the call, else by NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy import ndarray

from ...native import library
from . import memory

BFLOAT16, FLOAT16, FLOAT32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
NARROW = frozenset(np.dtype(t).num for t in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2))
_WORTH = 1 << 10  # elements from which the call pays


def is_half(dtype: np.dtype) -> bool:
    """Whether native kernels know the dtype as a half one (8-bit floats are narrow, too, but rare)."""
    return dtype is BFLOAT16 or dtype is FLOAT16


def suffix(dtype: np.dtype) -> str:
    """How native functions for a half dtype end."""
    return "bf16" if dtype is BFLOAT16 else "f16"


def convert(out: ndarray, x: ndarray) -> bool:
    """out[...] = x between a half dtype and float32, both without gaps and in one order of dimensions. False: they are not."""
    if x.dtype is FLOAT32:
        half, way = out.dtype, "fl_from_float_"
    else:
        half, way = x.dtype, "fl_to_float_"
        if out.dtype is not FLOAT32:
            return False
    if x.size < _WORTH or x.shape != out.shape or not is_half(half) or (lib := library("half")) is None:
        return False
    if not (x.flags.c_contiguous and out.flags.c_contiguous):
        order = memory.dense_order(x)
        if order is None or not x.transpose(order).flags.c_contiguous or not out.transpose(order).flags.c_contiguous:
            return False
    getattr(lib, way + suffix(half))(x, out, x.size)
    return True


def cast(x: ndarray, dtype: np.dtype) -> ndarray:
    """x.astype(dtype)."""
    if type(x) is ndarray and x.size >= _WORTH and (dtype is FLOAT32 or x.dtype is FLOAT32):
        out = memory.empty(x.shape, dtype) if x.flags.c_contiguous else memory.like(x, dtype)
        if convert(out, x):
            return out
    return x.astype(dtype)


def wide(x: ndarray) -> ndarray:
    """Narrow floats as float32, complex32 as complex64, all else as it is."""
    if x.dtype.num in NARROW:
        return cast(x, FLOAT32)
    return x if x.dtype.kind != "W" else x.astype(np.complex64)


def narrow(x: ndarray, dtype: np.dtype) -> ndarray:
    """x in a dtype, itself where it has it."""
    return x if x.dtype is dtype else cast(x, dtype) if type(x) is ndarray else x.astype(dtype)
