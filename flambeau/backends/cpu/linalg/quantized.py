"""Products with weights of 8 and 4 bits: natively (native/quantized.c), or by way of float32.

The integers of a weight are (n, k), a row per column of the result. Sums of products of integers are exact; those of floats
with integers are float32, rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory
from ..halves import FLOAT32, narrow, wide
from . import gemm

_SMALLEST_SCALE = 6.1e-5  # FBGEMM's: its inverse is a number of half precision


_BLOCK = 32  # 4-bit numbers that are packed together
_MANY = 16   # rows from which a weight is made float32 once, for a product of matrices


def _product(x: ndarray, w: ndarray) -> ndarray:
    made = gemm.linear(x, w, None)
    return x @ w.T if made is None else made


def _rows(x: ndarray) -> ndarray:
    """The rows of an array as a contiguous float32 matrix."""
    return np.ascontiguousarray(wide(x).reshape(-1, x.shape[-1]))


def weight_int8pack_mm(x: ndarray, weight: ndarray, scales: ndarray) -> ndarray:
    """x @ (weight * scales[:, None]).T"""
    rows, factors = _rows(x), np.ascontiguousarray(wide(scales))
    lib = library("quantized")
    if lib is None or len(rows) >= _MANY:
        return narrow(_product(rows, weight.astype(FLOAT32)) * factors, x.dtype)
    out = memory.empty((len(rows), len(weight)), FLOAT32)
    lib.fl_weight8(rows, np.ascontiguousarray(weight), *out.shape, rows.shape[1], factors, out)
    return narrow(out, x.dtype)


def int4_packed(weight: ndarray) -> ndarray:
    """Numbers 0 to 15, two to a byte: of every 32 the first half is in the lower halves of 16 bytes; both are vectors."""
    n, whole = len(weight), weight.shape[1] // _BLOCK * _BLOCK
    parts = [part.reshape(n, -1, 2, size // 2) & 15 for part, size in (
        (weight[:, :whole], _BLOCK), (weight[:, whole:], weight.shape[1] - whole)) if part.size]
    return np.concatenate([(p[:, :, 0] | p[:, :, 1] << 4).reshape(n, -1) for p in parts], 1).astype(np.uint8)


def _unpacked(lib: Any, packed: ndarray, pairs: ndarray, group: int) -> ndarray:
    """The floats that 4-bit numbers stand for."""
    if lib is not None:
        out = memory.empty((len(packed), 2 * packed.shape[1]), FLOAT32)
        lib.fl_unpack4(np.ascontiguousarray(packed), *out.shape, group, pairs, out)
        return out
    n, whole = len(packed), 2 * packed.shape[1] // _BLOCK * _BLOCK // 2
    parts = [part.reshape(n, -1, 1, size // 2) for part, size in (
        (packed[:, :whole], _BLOCK), (packed[:, whole:], 2 * (packed.shape[1] - whole))) if part.size]
    q = np.concatenate([np.concatenate([p & 15, p >> 4], 2).reshape(n, -1) for p in parts], 1).astype(FLOAT32) - 8
    scales, zeros = (np.repeat(pairs[..., i].T, group, 1)[:, :q.shape[1]] for i in (0, 1))
    return q * scales + zeros


def weight_int4pack_mm(x: ndarray, packed: ndarray, group: int, scales_and_zeros: ndarray) -> ndarray:
    """x @ ((q - 8) * scale + zero).T, with a scale and a zero for every `group` numbers of a row."""
    rows, pairs = _rows(x), np.ascontiguousarray(wide(scales_and_zeros))
    lib = library("quantized")
    if lib is None or len(rows) >= _MANY:
        return narrow(_product(rows, _unpacked(lib, packed, pairs, group)), x.dtype)
    out = memory.empty((len(rows), len(packed)), FLOAT32)
    lib.fl_weight4(rows, np.ascontiguousarray(packed), *out.shape, rows.shape[1], pairs, group, out)
    return narrow(out, x.dtype)


# ------------------------------------------------------------------------------------------------ activations as they come
def parameters(least: float, greatest: float, low: int, high: int) -> tuple[float, int]:
    """(scale, zero point) with which the integers low to high cover a range and zero, which is met exactly."""
    least, greatest = min(least, 0.0), max(greatest, 0.0)
    scale = (greatest - least) / (high - low)
    if FLOAT32.type(scale) == 0 or np.isinf(1 / FLOAT32.type(scale)):
        scale = 0.1
    if scale < _SMALLEST_SCALE:
        grown = _SMALLEST_SCALE / scale
        least, greatest, scale = least * grown, greatest * grown, _SMALLEST_SCALE
    by_least, by_greatest = low - least / scale, high - greatest / scale
    zero = by_least if abs(low) + abs(least / scale) < abs(high) + abs(greatest / scale) else by_greatest
    return scale, int(min(max(np.rint(zero), low), high))


def linear_dynamic(x: ndarray, weight: ndarray, sizes: ndarray, scales: ndarray, zero_points: ndarray | None,
                   bias: ndarray | None, reduce_range: bool) -> ndarray:
    """x @ w.T + bias for a weight in int8 with a scale and a zero point (or one of each per row). x is quantized first, all of
    it with one scale, to 7 bits (reduce_range) or 8. sizes: the sums of the weight's rows; zero_points: None for 0."""
    rows, count = _rows(x), len(weight)
    shape = (*x.shape[:-1], count)
    if not rows.size:
        return np.zeros(shape, FLOAT32) if bias is None else np.broadcast_to(bias, shape).astype(FLOAT32)
    lib = library("quantized")
    ends = np.empty(2, FLOAT32)
    if lib is None:
        ends[:] = np.nanmin(rows), np.nanmax(rows)
    else:
        lib.fl_range(rows, rows.size, ends)
    highest = 127 if reduce_range else 255
    scale, zero = parameters(float(ends[0]), float(ends[1]), 0, highest)
    inverse = FLOAT32.type(1) / FLOAT32.type(scale)
    factors = scales * FLOAT32.type(scale)
    if lib is None:
        q = np.clip(np.rint(rows * inverse) + zero, 0, highest) - zero
        exact = q.astype(np.float64) @ (weight.astype(np.float64) - (0 if zero_points is None else zero_points[:, None])).T
        made = exact.astype(FLOAT32) * factors
        return (made if bias is None else made + bias).reshape(shape)
    q = memory.empty(rows.shape, np.dtype(np.uint8))
    lib.fl_quantize(rows, rows.size, float(inverse), zero, highest, q)
    out = memory.empty(shape, FLOAT32)
    given = None if bias is None else np.ascontiguousarray(bias, FLOAT32)
    lib.fl_linear_int8(q, weight, len(rows), *weight.shape, zero, sizes, zero_points, factors, given, out)
    return out

