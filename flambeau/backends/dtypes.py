"""NumPy's side of the dtypes: the native type of each name."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

_EXTRA = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "complex32")}
COMPLEX = "cW"  # NumPy's kinds of complex types: its own, and that of complex32, which ml_dtypes has
PARTS = {np.dtype(whole): np.dtype(part) for whole, part in (
    (ml_dtypes.complex32, np.float16), (np.complex64, np.float32), (np.complex128, np.float64))}


def native(name: str) -> np.dtype:
    return _EXTRA.get(name) or np.dtype(name)


def same_size_aliases() -> dict[int, str]:
    """Type numbers of the C integer types that double a sized one, with the sized name."""
    return {np.dtype(c).num: np.dtype(c).name for c in "bhilqBHILQ"}


def iinfo(dtype: np.dtype):
    return np.iinfo(dtype)


def finfo(dtype: np.dtype):
    return ml_dtypes.finfo(dtype)


def element_at(address: int, dtype: np.dtype) -> Any:
    """The Python number that lies at an address."""
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0].item()
