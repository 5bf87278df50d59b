"""Adding rows into a matrix at given positions: the heart of the backward pass of indexing and embedding."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

_FLOAT32 = np.dtype(np.float32)
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
            raise IndexError(f"index {low if low < -size else high} is out of bounds for dimension {dim} with size "
                             f"{size}")
        return np.where(positions < 0, positions + size, positions)
    return positions


def picked_rows(positions: ndarray, size: int, message: str) -> ndarray:
    """Positions that may not be negative; IndexError with the given text for any out of range."""
    if positions.size and not in_range(positions, size):
        raise IndexError(message)
    return positions


def index_add_rows(target: ndarray, positions: ndarray, source: ndarray) -> None:
    """target[positions[i]] += source[i] for every i, in any order; positions are in range and may repeat.

    Narrow rows go through np.add.at over single elements (fast for one-dimensional arrays only). Wide rows are added in
    rounds of positions that differ from each other; few rows that come often are summed one after the other instead.
    """
    if not positions.size or not target.size:
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
