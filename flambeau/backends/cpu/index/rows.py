"""Rows of a matrix by position: picked, replaced and added to. The heart of indexing, embedding and their gradients.

The functions `..._natively` are native (native/index.c). They answer False, having done nothing, when they cannot serve these
arrays or when a position is out of range; the NumPy code that follows then does the work or raises the error.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library

_FLOAT32 = np.dtype(np.float32)
_INT64 = np.dtype(np.int64)
WIDE = 48     # columns from which whole rows are added at a time


def accumulation(dtype: np.dtype) -> np.dtype:
    """The dtype to add up in: float32 for the half types."""
    return _FLOAT32 if dtype.kind in "fV" and dtype.itemsize < 4 else dtype


_UNSIGNED = {4: np.uint32, 8: np.uint64}


def in_range(positions: ndarray, size: int) -> bool:
    """Whether all positions are in 0..size-1: one pass, since negative ones are huge as unsigned numbers."""
    return int(positions.view(_UNSIGNED[positions.itemsize]).max()) < size


def wrapped(positions: ndarray, size: int, dim: int) -> ndarray:
    """Positions in 0..size-1, where negative ones count from the end; IndexError for any other."""
    if positions.size and not in_range(positions, size):
        low, high = int(positions.min()), int(positions.max())
        if low < -size or high >= size:
            if size == 0:
                raise IndexError("index is out of bounds for dimension with size 0")
            raise IndexError(f"index {low if low < -size else high} is out of bounds for dimension {dim} with size {size}")
        return np.where(positions < 0, positions + size, positions)
    return positions


def picked_rows(positions: ndarray, size: int, message: str) -> ndarray:
    """Positions that may not be negative; IndexError with the given text for any out of range."""
    if positions.size and not in_range(positions, size):
        raise IndexError(message)
    return positions


def dense_positions(positions: ndarray) -> ndarray:
    return positions if positions.dtype is _INT64 and positions.flags.c_contiguous else np.ascontiguousarray(positions, _INT64)


def _dense(x: ndarray) -> ndarray:
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def _split(shape: tuple[int, ...], dim: int, itemsize: int) -> tuple[int, int]:
    """How many slices of a dimension's positions lie in front of it, and the bytes of one slice."""
    return math.prod(shape[:dim]), math.prod(shape[dim + 1:]) * itemsize


def take_natively(x: ndarray, dim: int, positions: ndarray, out: ndarray, wrap: bool) -> bool:
    """out = x[:, ..., positions] at one dimension; wrap: negative positions count from the end."""
    functions = library("index")
    if functions is None or not x.flags.c_contiguous:
        return False
    positions = dense_positions(positions)
    outer, width = _split(x.shape, dim, x.itemsize)
    return not functions.fl_take(x, positions, out, outer, x.shape[dim], positions.size, width, wrap)


def put_natively(x: ndarray, dim: int, positions: ndarray, source: ndarray, wrap: bool) -> bool:
    """x[:, ..., positions] = source of that very shape."""
    functions = library("index")
    if functions is None or not x.flags.c_contiguous or source.dtype != x.dtype or not x.size:
        return False
    positions, source = dense_positions(positions), _dense(source)
    outer, width = _split(x.shape, dim, x.itemsize)
    return not functions.fl_put(x, positions, source, outer, x.shape[dim], positions.size, width, wrap, False)


def add_natively(target: ndarray, positions: ndarray, source: ndarray, zero: bool = False, skip: int = -1) -> bool:
    """target[positions[i]] += source[i] for rows; zero: target starts as zeros; skip: a position to leave out."""
    char = target.dtype.char
    if char not in "fd" or source.dtype is not target.dtype or not target.flags.c_contiguous:
        return False
    functions: Any = library("index")
    if functions is None:
        return False
    positions, source = dense_positions(positions), _dense(source)
    add = functions.fl_add_rows_f32 if char == "f" else functions.fl_add_rows_f64
    return not add(target, positions, source, positions.size, target.shape[0], math.prod(target.shape[1:]), zero, skip)


def index_add_rows(target: ndarray, positions: ndarray, source: ndarray) -> None:
    """target[positions[i]] += source[i] for every i, in any order; positions are in range and may repeat.

    Narrow rows go through np.add.at over single elements (fast for one-dimensional arrays only). Wide rows are added in
    rounds of positions that differ from each other; few rows that come often are summed one after the other instead.
    """
    if not positions.size or not target.size or add_natively(target, positions, source):
        return
    compute = accumulation(target.dtype)
    if compute is not target.dtype:
        exact = target.astype(compute)
        index_add_rows(exact, positions, source.astype(compute))
        target[...] = exact
        return
    if target.dtype.kind == "b":
        target[positions[source.any(axis=1)]] |= source[source.any(axis=1)]
        return
    if source.dtype != target.dtype:
        source = source.astype(target.dtype)
    width = target.shape[1]
    if width >= WIDE:
        _in_rounds(target, positions, source)
        return
    if not target.flags.c_contiguous:
        packed = np.ascontiguousarray(target)
        index_add_rows(packed, positions, source)
        target[...] = packed
        return
    if width == 1:
        np.add.at(target.reshape(-1), positions, source.reshape(-1))
        return
    flat = (positions[:, None] * width + np.arange(width)).reshape(-1)
    np.add.at(target.reshape(-1), flat, np.ascontiguousarray(source).reshape(-1))


def _in_rounds(target: ndarray, positions: ndarray, source: ndarray) -> None:
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    counts = np.diff(np.append(starts, ordered.size))
    rows = ordered[starts]
    done = 0
    while rows.size:
        if rows.size < int(counts.max()) - done:  # fewer rows than rounds to come
            for row, start, count in zip(rows.tolist(), starts.tolist(), counts.tolist()):
                target[row] += source[order[start + done:start + count]].sum(axis=0, dtype=target.dtype)
            return
        target[rows] += source[order[starts + done]]
        done += 1
        left = counts > done
        if not left.all():
            rows, starts, counts = rows[left], starts[left], counts[left]
