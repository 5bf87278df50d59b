"""New elements that follow from numbers alone: one value everywhere, ranges, identity matrices. The host waits for nothing."""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from ..cpu import creation as _host
from . import pointwise
from .arrays import CudaArray, device_index, upload, windows
from .launch import Plan, launch, numbers_of
from .table import writer

_TEXT = """
#include "elements.cuh"
typedef {stored} R;
typedef {number} T;
extern "C" __global__ void made(const long count, R *o, T a, T b, T c, long n) {{
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x)
        o[i] = to<R>({value});
}}
"""
_RANGE = "a + i * b"
_SPACED = "i < n / 2 ? a + b * (T)i : c - b * (T)(n - 1 - i)"
_SPACED_ONCE = "i < n / 2 ? fma((T)i, b, a) : fma((T)(n - 1 - i), -b, c)"  # rounded once, as the host does
_DIAGONAL = "i / n == i % n ? a : b"


# ---------------------------------------------------------------------------------------------------------- one value
_BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.int16), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


def fill(target: CudaArray, value: Any) -> None:
    """One number in all of an array's elements."""
    from .repeated import INTO
    one = np.empty((), target.dtype)
    one.fill(_host.number(value, target.dtype))
    if target.itemsize in _BITS:
        INTO(np.ndarray.view(target, _BITS[target.itemsize]), "fill", int(one.view(_BITS[target.itemsize])))
        return
    parts = np.ndarray.view(target[..., None], one.real.dtype)  # of a complex number
    fill(parts[..., 0], one.real.item())
    fill(parts[..., 1], one.imag.item())


@writer("fill")
def _fill(target: CudaArray, bits: int) -> bool:
    if target.size:
        numbers_of("fill", 2)
        _filling(target.dtype, target.shape, target.strides, target, device_index(target)).run(target, bits)
    return True


_plans: dict[Any, Plan] = {}


def _filling(dtype: np.dtype, shape: Any, strides: Any, target: CudaArray, device: int) -> Plan:
    key = dtype, shape, strides, device
    if key not in _plans:
        number = [pointwise._Operand("a", None)]
        source = pointwise.text("fill", "a", pointwise.COMPUTED[dtype], dtype, number)
        _plans[key] = pointwise.launched(source, target, [], "l")
    return _plans[key]


# -------------------------------------------------------------------------------------------------------------- ranges
@functools.lru_cache(1024)
def _plan(value: str, stored: str, whole: bool, count: int, device: int) -> Plan:
    source = _TEXT.format(stored=stored, number="long" if whole else "double", value=value)
    return launch(source, "made", "pllll" if whole else "pdddl", count, struct.pack("q", count), device)


def _made(value: str, shape: tuple[int, ...], dtype: np.dtype, whole: bool, a: Any, b: Any, c: Any = 0,
          n: int = 0) -> CudaArray:
    out = windows.empty(shape, dtype)
    if out.size:
        _plan(value, pointwise.STORED[dtype], whole, out.size, device_index(out)).run(out, a, b, c, n)
    return out


def arange(start: Any, step: Any, count: int, dtype: np.dtype) -> CudaArray:
    whole = dtype.kind in "iu"
    if dtype not in pointwise.STORED or dtype.kind == "b" or (not whole and dtype.itemsize == 2):
        return upload(_host.arange(start, step, count, dtype))  # half types round in steps
    return _made(_RANGE, (count,), dtype, whole, start, step)


def linspace(start: Any, end: Any, steps: int, dtype: np.dtype) -> CudaArray:
    whole = dtype.kind in "iu"
    if steps < 2 or dtype not in pointwise.STORED or (not whole and dtype.char not in "fd"):
        return upload(_host.linspace(start, end, steps, dtype))
    if dtype.char == "f":
        first, last = np.float32(start), np.float32(end)
        step = (last - first) / np.float32(steps - 1)
        return _made(_SPACED, (steps,), dtype, False, float(first), float(step), float(last), steps)
    first, last = (int(start), int(end)) if whole else (start, end)
    return _made(f"(long)({_SPACED_ONCE})" if whole else _SPACED_ONCE, (steps,), dtype, False, float(first),
                 (last - first) / (steps - 1), float(last), steps)


def eye(n: int, m: int, dtype: np.dtype) -> CudaArray:
    if dtype not in pointwise.STORED:
        return upload(_host.eye(n, m, dtype))
    return _made(_DIAGONAL, (n, m), dtype, dtype.kind in "iub", 1, 0, 0, m)
