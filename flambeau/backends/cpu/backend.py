"""What the rest of flambeau asks of the CPU backend besides kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import arrays, memory
from .table import KERNELS  # noqa: F401

ARRAY = np.ndarray
NAME = "cpu"
_device = None

strides = arrays.strides
storage_offset = arrays.storage_offset
address = arrays.address
Storage = arrays.Storage
as_strided = arrays.as_strided
empty = memory.empty
empty_strided = arrays.empty_strided
empty_like = memory.like
asarray = np.asarray


def device_of(array: Any) -> Any:
    global _device
    if _device is None:
        from ...device import CPU
        _device = CPU
    return _device


def copy_with_layout(source: Any, like: Any) -> Any:
    out = memory.like(like)
    np.copyto(out, source, casting="unsafe")
    return out


def write(target: Any, source: Any) -> None:
    """target[...] = source, casting as asked; source may overlap target."""
    np.copyto(target, source, casting="unsafe")


def call(name: str, args: tuple[Any, ...]) -> Any:
    return KERNELS[name](*args)
