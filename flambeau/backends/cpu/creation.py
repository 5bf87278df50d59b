"""Fresh arrays: filled, counted out, or read from Python numbers. Sizes are checked before anything is allocated."""

from __future__ import annotations

import math
import os
from typing import Any

import ml_dtypes
import numpy as np
from numpy import ndarray

from ..dtypes import COMPLEX, PARTS
from . import arrays, memory
from .random.engine import fma
from .table import kernel

_FLOAT64, _COMPLEX128 = np.dtype(np.float64), np.dtype(np.complex128)
SMALL = memory.POOLED_BYTES
MOST_BYTES = (1 << 63) - 1
_SAFE = 1 << 62  # numbers up to here can be added in int64


def _memory_bytes() -> int:
    """All the memory this machine could give, swap included."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return MOST_BYTES
    try:
        with open("/proc/meminfo") as lines:
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("SwapTotal"))
    except OSError:
        pass
    return total


_limit: list[int] = []


def check_bytes(nbytes: int, shape: Any) -> None:
    """Refuses sizes that cannot be addressed or that this machine does not have."""
    if nbytes > MOST_BYTES:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    if nbytes > SMALL:
        if not _limit:
            _limit.append(_memory_bytes())
        if nbytes > _limit[0]:
            raise RuntimeError(f"not enough memory: you tried to allocate {nbytes} bytes for a tensor of size {list(shape)} "
                               f"(this machine has {_limit[0]} bytes)")


def empty(shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < SMALL:
        return np.empty(shape, dtype)
    check_bytes(nbytes, shape)
    return memory.empty(shape, dtype)


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < SMALL:
        return np.zeros(shape, dtype)
    out = empty(shape, dtype)
    out.fill(0)
    return out


def full(shape: tuple[int, ...], dtype: np.dtype, value: Any) -> ndarray:
    out = empty(shape, dtype)
    out.fill(number(value, dtype))
    return out


def number(value: Any, dtype: np.dtype) -> Any:
    """One Python number in the given type, rounded as PyTorch does (half types by way of float32)."""
    if dtype.kind in "iu" and value.__class__ is not int:
        value = int(value)
    if dtype.kind in "iu" and value < 0 and dtype.kind == "u":
        value += 1 << (8 * dtype.itemsize)
    if dtype.itemsize <= 2 and dtype.kind not in "iub":
        return np.asarray(value, np.float32).astype(dtype)
    return value


def empty_strided(shape: tuple[int, ...], stride: tuple[int, ...], dtype: np.dtype) -> ndarray:
    count = 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    check_bytes(count * dtype.itemsize, shape)
    return arrays.empty_strided(shape, stride, dtype)


def like(x: ndarray, dtype: np.dtype) -> ndarray:
    """Uninitialised memory in PyTorch's preserve_format: x's own strides if dense, else its order of dimensions."""
    check_bytes(x.size * dtype.itemsize, x.shape)
    return memory.like(x, dtype)


def ordered(shape: tuple[int, ...], order: Any, dtype: np.dtype) -> ndarray:
    """Uninitialised memory whose dimensions lie in the given order, slowest first."""
    out = empty(tuple(shape[i] for i in order), dtype)
    inverse = [0] * len(shape)
    for position, i in enumerate(order):
        inverse[i] = position
    return out.transpose(inverse)


# ------------------------------------------------------------------------------------------------ counting out
def arange(start: Any, step: Any, count: int, dtype: np.dtype) -> ndarray:
    """start + i * step in PyTorch's arithmetic: int64 for the integers, float64 accumulation for the others."""
    check_bytes(count * dtype.itemsize, (count,))
    if dtype.kind in "iu":
        stop = start + count * step
        if -_SAFE < start < _SAFE and -_SAFE < stop < _SAFE:
            return np.arange(start, stop, step, np.int64).astype(dtype, copy=False)
        return np.array([start + i * step for i in range(count)], dtype)
    return _float_range(float(start), float(step), count, dtype)


def _float_range(start: float, step: float, count: int, dtype: np.dtype) -> ndarray:
    """PyTorch's order of rounding: a vector register starts at a rounded number and counts on from there.

    The tail that does not fill two registers is counted from the start. (PyTorch does so within each thread's part of a
    tensor of more than 32768 elements; here all is one part.)
    """
    half = dtype.itemsize == 2
    lanes = 16 if half else 32 // dtype.itemsize
    index = np.arange(count, dtype=np.float64)
    in_pairs = count - count % (2 * lanes)
    lane = index % lanes
    if dtype == _FLOAT64:
        out = fma(index, step, start)
        if in_pairs:
            first = np.repeat(out[:in_pairs:lanes], lanes)
            out[:in_pairs] = fma(lane[:in_pairs], step, first)
        return out
    if half:
        start, step = float(np.float32(start)), float(np.float32(step))
    out = fma(index, step, start).astype(np.float32).astype(dtype)
    if in_pairs:
        first = np.repeat(out[:in_pairs:lanes], lanes).astype(np.float64)
        out[:in_pairs] = fma(lane[:in_pairs], step, first).astype(np.float32)
    return out


def _to(x: ndarray, dtype: np.dtype) -> ndarray:
    if dtype.itemsize <= 2 and dtype.kind not in "iub" and x.dtype == _FLOAT64:
        x = x.astype(np.float32)
    return x.astype(dtype, copy=False)


def linspace(start: Any, end: Any, steps: int, dtype: np.dtype) -> ndarray:
    """Counts from both ends towards the middle, so that both ends are exact; each element is rounded once."""
    check_bytes(steps * dtype.itemsize, (steps,))
    if steps <= 1:
        return np.array([start] * steps).astype(dtype)
    half, index = steps // 2, np.arange(steps)
    up, down = index[:half], steps - 1 - index[half:]
    if dtype.kind == "c" or (dtype.itemsize == 2 and dtype.kind not in "iu"):
        first, last = dtype.type(start), dtype.type(end)  # these round after each operation
        step = (last - first) / dtype.type(steps - 1)
        kind = dtype if dtype.kind != "c" else _FLOAT64
        return np.concatenate([first + step * up.astype(kind), last - step * down.astype(kind)]).astype(dtype)
    if dtype == _FLOAT64 or dtype.kind in "iu":
        if dtype.kind in "iu":
            start, end = int(start), int(end)
        step = (end - start) / (steps - 1)
        out = np.concatenate([fma(up.astype(np.float64), step, float(start)),
                              fma(down.astype(np.float64), -step, float(end))])
        return out if dtype == _FLOAT64 else np.trunc(out).astype(np.int64).astype(dtype)
    first, last = np.float32(start), np.float32(end)
    step = np.float64((last - first) / np.float32(steps - 1))
    return np.concatenate([np.float64(first) + step * up, np.float64(last) - step * down]).astype(dtype)


def logspace(start: Any, end: Any, steps: int, base: float, dtype: np.dtype) -> ndarray:
    """base to the powers of linspace, which are computed in double precision whatever the dtype."""
    check_bytes(steps * dtype.itemsize, (steps,))
    if dtype.kind == "c":
        return np.power(np.asarray(base, dtype), linspace(start, end, steps, dtype))
    if dtype.kind in "iu":
        first, last = int(start), int(end)
    else:
        first, last = dtype.type(start), dtype.type(end)
    step = float(last - first) / (steps - 1) if steps > 1 else 0.0
    index, half = np.arange(steps), steps // 2
    powers = np.where(index < half, float(first) + step * index, float(last) - step * (steps - 1 - index))
    if steps == 1:
        powers = np.array([float(start)])
    if dtype == _FLOAT64:  # NumPy's own power differs in the last place
        return np.array([_power(base, p) for p in powers.tolist()], np.float64)
    out = np.power(np.float64(base), powers)
    return np.trunc(out).astype(np.int64).astype(dtype) if dtype.kind in "iu" else _to(out, dtype)


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError, ZeroDivisionError):
        return float(np.power(np.float64(base), exponent))


def eye(n: int, m: int, dtype: np.dtype) -> ndarray:
    out = zeros((n, m), dtype)
    np.fill_diagonal(out, number(1, dtype)) if n and m else None
    if m and n > m:
        out[m:] = 0  # fill_diagonal wraps around in tall matrices
    return out


def tri_indices(row: int, col: int, offset: int, dtype: np.dtype, lower: bool) -> ndarray:
    """Row and column numbers of the lower (upper) triangle, row by row, without making the matrix."""
    rows = np.arange(row)
    if lower:
        counts = np.clip(rows + offset + 1, 0, col)
        first = np.zeros(row, np.int64)
    else:
        first = np.clip(rows + offset, 0, col)
        counts = col - first
    total = int(counts.sum())
    check_bytes(2 * total * 8, (2, total))
    out = np.empty((2, total), dtype)
    out[0] = np.repeat(rows, counts)
    starts = np.cumsum(counts) - counts
    out[1] = np.arange(total) - np.repeat(starts - first, counts)
    return out


# --------------------------------------------------------------------------------------- from Python numbers
def from_numbers(values: list[Any], kind: str, shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    """An array of plain Python numbers. kind: the highest kind among them, of "b", "i", "f", "c"."""
    if kind == "f" and dtype.char in "fd":
        return np.array(values, dtype).reshape(shape)
    if kind in "bi" and dtype.kind in "iu":
        return _from_integers(values, dtype).reshape(shape)
    if dtype.kind == "b" and kind == "i":
        return np.array([v != 0 for v in values], np.bool_).reshape(shape)
    if kind == "i":
        kind = "c" if dtype.kind in COMPLEX else "f"
    source = np.array(values, {"b": np.bool_, "i": np.int64, "f": np.float64, "c": np.complex128}[kind])
    if kind == "f" and dtype.kind in "iu":
        check_range(source, dtype)
        source = source.astype(np.int64 if dtype.kind == "i" else np.uint64)
    return _to(source, dtype).reshape(shape)


def _from_integers(values: list[Any], dtype: np.dtype) -> ndarray:
    try:
        source = np.array(values, np.int64)
    except OverflowError:
        if dtype != np.dtype(np.uint64) or min(values) < 0 or max(values) >= 1 << 64:
            raise ValueError("Overflow when unpacking long long: a number does not fit in 64 bits") from None
        return np.array(values, np.uint64)
    if dtype.itemsize < 8:
        check_range(source, dtype)
    return source.astype(dtype, copy=False)


def check_range(x: ndarray, dtype: np.dtype) -> None:
    """PyTorch lets negative whole numbers wrap around in unsigned types, but none that is larger than the type."""
    if not x.size:
        return
    info = np.iinfo(dtype)
    low = -int(info.max) if dtype.kind == "u" and x.dtype.kind in "iub" else int(info.min)
    most, least = x.max(), x.min()
    if not (most <= int(info.max) and least >= low):
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")


def item_fits(value: Any, dtype: np.dtype) -> bool:
    """Whether one Python number can be converted without overflow (floating infinities may)."""
    if dtype.kind == "b":
        return True
    if value.__class__ is complex:
        if dtype not in PARTS:
            return value.imag == 0 and item_fits(value.real, dtype)
        return item_fits(value.real, PARTS[dtype]) and item_fits(value.imag, PARTS[dtype])
    if dtype in PARTS:
        return item_fits(value, PARTS[dtype])
    if dtype.kind in "iu":
        if value != value or value in (math.inf, -math.inf):
            return False
        info = np.iinfo(dtype)
        wraps = dtype.kind == "u" and value.__class__ is not float  # whole numbers below zero do
        return (-int(info.max) if wraps else int(info.min)) <= value <= int(info.max)
    if value.__class__ is int:
        return True
    if value != value or value in (math.inf, -math.inf):
        return True
    return abs(value) <= float(ml_dtypes.finfo(dtype).max)


# ---------------------------------------------------------------------------------------- what others hand us
def is_array(x: Any) -> bool:
    return isinstance(x, ndarray)


def is_scalar(x: Any) -> bool:
    return isinstance(x, np.generic)


def foreign(array: ndarray) -> ndarray:
    """A checked NumPy array, as a plain ndarray (a view): what from_numpy and tensor accept."""
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. Conversion between byte "
                         "orders is currently not supported.")
    if any(s < 0 for s in array.strides):
        raise ValueError("At least one stride in the given numpy array is negative, and tensors with negative strides are "
                         "not currently supported. (You can probably work around this by making a copy of your array "
                         " with array.copy().)")
    if any(s % array.itemsize for s in array.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to "
                         "reallocate the memory.")
    return array if type(array) is ndarray else array.view(ndarray)


def copy(array: ndarray, dtype: np.dtype | None = None) -> ndarray:
    """A fresh dense copy in the same order of dimensions."""
    dtype = dtype or array.dtype
    out = like(array, dtype)
    np.copyto(out, array, casting="unsafe")
    return out



def to_python(array: ndarray) -> Any:
    """Nested lists of Python numbers (a number for a zero-dim array)."""
    return (array.astype({"V": np.float32, "W": np.complex64}.get(array.dtype.kind, array.dtype), copy=False)).tolist()


def has_numpy_type(array: ndarray) -> bool:
    """Whether NumPy itself knows the element type (bfloat16, float8 and complex32 come from ml_dtypes)."""
    return array.dtype.kind not in "VW"


def storage_bytes(array: ndarray) -> tuple[Any, ndarray]:
    """What owns the array's memory, and all of that memory as bytes."""
    storage = arrays.Storage(array)
    return storage.owner, _bytes(storage)


def _bytes(storage: Any) -> ndarray:
    raw = arrays.External.__new__(arrays.External)
    raw.array = storage.owner
    raw.__array_interface__ = {"shape": (storage.nbytes,), "typestr": "|u1", "version": 3,
                               "data": (storage.address, False)}
    return np.asarray(raw)


def over_bytes(raw: ndarray, like_array: ndarray) -> ndarray:
    """The same geometry over other memory (a copy of the whole storage)."""
    offset = arrays.storage_offset(like_array)
    return arrays.over_bytes(raw, like_array.shape, arrays.strides(like_array), offset, like_array.dtype)


def packed(array: ndarray) -> tuple[ndarray, tuple[int, ...]]:
    """All elements in one flat array in memory order, and the strides that put them back."""
    order = memory.dense_order(array)
    if order is None:
        return np.ascontiguousarray(array).reshape(-1), arrays.contiguous_strides(array.shape)
    return np.array(array.transpose(order).reshape(-1)), arrays.strides(array)


def unpacked(flat: ndarray, shape: tuple[int, ...], stride: tuple[int, ...]) -> ndarray:
    out = empty(flat.shape, flat.dtype)
    out[...] = flat
    return ndarray(shape, flat.dtype, out, 0, [s * flat.itemsize for s in stride])


@kernel
def drawn(x: ndarray, values: ndarray) -> ndarray:
    """What a random draw replaces x by."""
    return values


@kernel
def drawn_third(a: Any, b: Any, values: ndarray) -> ndarray:
    return values
