"""What the rest of flambeau asks of the CPU backend besides kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tensors.device import CPU
from ..facts import POINTWISE
from . import arrays, creation, layouts, memory, parallel
from .data import shared
from .table import KERNELS

ARRAY = np.ndarray
NAME = "cpu"

strides = arrays.strides
storage_offset = arrays.storage_offset
address = arrays.address
Storage = arrays.Storage
as_strided = arrays.as_strided
empty, zeros, full, copy = creation.empty, creation.zeros, creation.full, creation.copy
empty_strided, like, ordered = creation.empty_strided, creation.like, creation.ordered
arange, linspace, logspace, eye = creation.arange, creation.linspace, creation.logspace, creation.eye
check_bytes = creation.check_bytes
empty_like = memory.like
is_contiguous = arrays.is_contiguous
over_bytes = arrays.over_bytes
storage_bytes = arrays.storage_bytes
resized = arrays.resized
to_shared = shared.to_shared
is_shared = shared.is_shared
settled = arrays.settled
asarray = np.asarray


def device_of(array: Any) -> Any:
    return CPU


def copy_with_layout(source: Any, like: Any) -> Any:
    out = memory.like(like)
    parallel.copy_into(out, source)
    return out


def write(target: Any, source: Any) -> None:
    """target[...] = source, casting as asked; source may overlap target."""
    arrays.cast_into(target, source)


def fill(target: Any, value: Any) -> None:
    target.fill(creation.number(value, target.dtype))


def from_cpu(array: Any) -> Any:
    return array


def to_cpu(array: Any) -> Any:
    return array


def call(name: str, args: tuple[Any, ...]) -> Any:
    kernel = KERNELS[name]
    if name not in POINTWISE:
        return kernel(*args)
    if type(args[0]) is np.ndarray and args[0].size >= parallel.LARGE:
        return layouts.elementwise(parallel.large(kernel, *args), args)
    return layouts.elementwise(kernel(*args), args)
