"""Sorting, order statistics, unique elements, searching and counting.

Not-a-number is the largest value, as in NumPy and PyTorch. Sorting is stable: equal elements keep their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ..index.rows import accumulation
from ..layouts import laid_out
from ..table import kernel

_INT64 = np.dtype(np.int64)
_GROUP = 64     # elements that send one winner into the final of topk
_LONG_ROW = 64  # elements of a row from which shortcuts that need a second pass pay


def keys_of(x: ndarray) -> ndarray:
    """What to compare by: half types as float32, bool as bytes."""
    if x.dtype.kind == "b":
        return x.view(np.uint8)
    compute = accumulation(x.dtype)
    return x if compute is x.dtype else x.astype(compute)


def order_of(keys: ndarray, descending: bool = False) -> ndarray:
    """The stable order of each row (last dimension).

    Keys of 32 bits or fewer share a 64-bit word with their position: one sort of plain integers gives order and
    stability at once. Of wider floats the (faster) unstable order is taken, and equal elements are put right after.
    """
    if keys.dtype.itemsize <= 4:
        return _packed_order(keys, descending)
    if descending:
        # Ascending order of the reversed row, read backwards: descending, and equal elements still in their order.
        return keys.shape[-1] - 1 - order_of(keys[..., ::-1])[..., ::-1]
    if keys.dtype.kind == "f" and keys.shape[-1] >= _LONG_ROW:
        return _repaired_order(keys)
    return np.argsort(keys, axis=-1, kind="stable")


_SIGN = np.int32(-(1 << 31))


def _packed_order(keys: ndarray, descending: bool) -> ndarray:
    if keys.dtype.kind == "f":
        bits = (keys + np.float32(0)).view(np.int32)  # + 0 makes one zero of two
        bits = bits ^ ((bits >> 31) | _SIGN)          # unsigned order of the bits is now the order of the floats
        missing = keys != keys
        if missing.any():
            bits[missing] = -1
        words = bits.view(np.uint32)
    elif keys.dtype.kind == "i":
        words = (keys.astype(np.int32) ^ _SIGN).view(np.uint32)
    else:
        words = keys.astype(np.uint32)
    packed = (~words if descending else words).astype(np.uint64)
    packed <<= np.uint64(32)
    packed |= np.arange(keys.shape[-1], dtype=np.uint64)
    packed.sort(axis=-1)
    packed &= np.uint64(0xFFFFFFFF)
    return packed.view(_INT64)


def _repaired_order(keys: ndarray) -> ndarray:
    order = np.argsort(keys, axis=-1)
    ordered = np.take_along_axis(keys, order, -1)
    equal = ordered[..., 1:] == ordered[..., :-1]
    if np.isnan(ordered[..., -1]).any():
        equal |= np.isnan(ordered[..., 1:]) & np.isnan(ordered[..., :-1])
    if not equal.any():
        return order
    runs = np.zeros(order.shape, bool)  # whether an element is one of several equal ones
    runs[..., 1:] = equal
    starts = np.cumsum(~runs.reshape(-1)).reshape(order.shape)  # the number of the run that an element belongs to
    runs[..., :-1] |= equal
    n = keys.shape[-1]
    order[runs] = np.sort(starts[runs] * n + order[runs]) % n
    return order


@laid_out
def sort(x: ndarray, dim: int, descending: bool) -> tuple[ndarray, ndarray]:
    if x.ndim == 0:
        return x.copy(), np.zeros((), _INT64)
    rows = np.ascontiguousarray(np.moveaxis(x, dim, -1))
    order = order_of(keys_of(rows), descending)
    values = np.take_along_axis(rows, order, -1)
    return _back(values, dim), _back(order, dim)


def _back(rows: ndarray, dim: int) -> ndarray:
    return np.ascontiguousarray(np.moveaxis(rows, -1, dim))


@kernel
def topk(x: ndarray, k: int, dim: int, largest: bool) -> tuple[ndarray, ndarray]:
    if x.ndim == 0:
        return (x.copy(), np.zeros((), _INT64)) if k else (x.reshape(1)[:0], np.zeros(0, _INT64))
    rows = np.ascontiguousarray(np.moveaxis(x, dim, -1))
    keys = keys_of(rows)
    n = keys.shape[-1]
    order = None
    if 0 < k <= n // (4 * _GROUP) and keys.size <= n * n // 16:
        order = _finalists(keys, k, largest)
    elif 0 < k <= n // 4 and n >= _LONG_ROW:
        order = _leaders(keys, k, largest)
    if order is None:
        order = order_of(keys, largest)[..., :k]
    return _back(np.take_along_axis(rows, order, -1), dim), _back(order, dim)


def _finalists(keys: ndarray, k: int, largest: bool) -> ndarray | None:
    """The first k of a few long rows: only what beats the k-th best of group winners can be among them."""
    n = keys.shape[-1]
    rows = keys.reshape(-1, n)
    groups = rows[:, :n // _GROUP * _GROUP].reshape(len(rows), _GROUP, n // _GROUP)
    winners = groups.max(axis=1) if largest else groups.min(axis=1)
    if keys.dtype.kind == "f" and np.isnan(rows[:, -_GROUP:]).any() | np.isnan(winners).any():
        return None
    at = winners.shape[1] - k if largest else k - 1
    edges = np.partition(winners, at, axis=1)[:, at]
    order = np.empty((len(rows), k), _INT64)
    for row, edge, chosen in zip(rows, edges, order):
        found = np.flatnonzero(row >= edge if largest else row <= edge)
        chosen[:] = found[order_of(row[found], largest)[:k]]
    return order.reshape(*keys.shape[:-1], k)


def _leaders(keys: ndarray, k: int, largest: bool) -> ndarray | None:
    """The order of the first k without sorting the rest; None where equal elements make the choice ambiguous."""
    n = keys.shape[-1]
    at = n - k if largest else k - 1
    parted = np.partition(keys, at, axis=-1)
    if keys.dtype.kind == "f" and np.isnan(parted[..., at:]).any():
        return None
    edge = parted[..., at, None]
    chosen = keys >= edge if largest else keys <= edge
    if np.count_nonzero(chosen) != k * (keys.size // n):
        return None
    found = np.nonzero(chosen)[-1].reshape(*keys.shape[:-1], k)
    return np.take_along_axis(found, order_of(np.take_along_axis(keys, found, -1), largest), -1)


@kernel
def kthvalue(x: ndarray, k: int, dim: int, keepdim: bool) -> tuple[ndarray, ndarray]:
    if x.ndim == 0:
        return x.copy(), np.zeros((), _INT64)
    rows = np.moveaxis(x, dim, -1)
    found = np.argpartition(keys_of(np.ascontiguousarray(rows)), k - 1, axis=-1)[..., k - 1, None]
    values = np.take_along_axis(rows, found, -1)
    if keepdim:
        return _back(values, dim), _back(found, dim)
    return values[..., 0].copy(), found[..., 0].copy()  # ascontiguousarray would give a zero-dim one a dimension


# --------------------------------------------------------------------------------------------------------------- unique
@kernel
def unique(x: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """(unique elements in order, for each element its number among them, how often each comes)."""
    flat = x.reshape(-1)
    order = order_of(keys_of(flat)) if flat.size else np.zeros(0, _INT64)
    ordered = flat[order]
    new = _changes(ordered)
    values, counts = ordered[new], _lengths(new, flat.size)
    inverse = np.empty(flat.size, _INT64)
    inverse[order] = np.cumsum(new) - 1
    return values, inverse.reshape(x.shape), counts


def _changes(ordered: ndarray) -> ndarray:
    """True where an element (or row) differs from the one before it."""
    new = np.ones(len(ordered), bool)
    differs = ordered[1:] != ordered[:-1]
    new[1:] = differs.any(axis=1) if differs.ndim > 1 else differs
    return new


def _lengths(new: ndarray, count: int) -> ndarray:
    return np.diff(np.append(np.flatnonzero(new), count)).astype(_INT64)


@kernel
def unique_dim(x: ndarray, dim: int) -> tuple[ndarray, ndarray, ndarray]:
    slices = np.moveaxis(x, dim, 0)
    rows = np.ascontiguousarray(slices).reshape(len(slices), slices.size // max(len(slices), 1))
    order = np.lexsort(keys_of(rows).T[::-1]) if rows.size else np.arange(len(rows))
    new = _changes(rows[order])
    inverse = np.empty(len(rows), _INT64)
    inverse[order] = np.cumsum(new) - 1
    return np.ascontiguousarray(np.moveaxis(slices[order[new]], 0, dim)), inverse, _lengths(new, len(rows))


@kernel
def unique_consecutive(x: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    flat = x.reshape(-1)
    new = _changes(flat)
    return flat[new], (np.cumsum(new) - 1).reshape(x.shape), _lengths(new, flat.size)


@kernel
def unique_consecutive_dim(x: ndarray, dim: int) -> tuple[ndarray, ndarray, ndarray]:
    slices = np.moveaxis(x, dim, 0)
    rows = np.ascontiguousarray(slices).reshape(len(slices), slices.size // max(len(slices), 1))
    new = _changes(rows)
    return np.ascontiguousarray(np.moveaxis(slices[new], 0, dim)), np.cumsum(new) - 1, _lengths(new, len(rows))


# ------------------------------------------------------------------------------------------------------------ searching
@kernel
def searchsorted(edges: ndarray, values: ndarray, right: bool, order: ndarray | None, small: bool) -> ndarray:
    """For each value the position that keeps its row of edges sorted."""
    native = np.int32 if small else _INT64
    if edges.dtype != values.dtype:
        common = np.result_type(keys_of(edges).dtype, keys_of(values).dtype)
        edges, values = edges.astype(common), values.astype(common)
    edges, values = keys_of(edges), keys_of(values)
    if edges.ndim == 1 and order is None:
        return np.asarray(np.searchsorted(edges, values, "right" if right else "left")).astype(native)
    if order is not None:
        edges = np.take_along_axis(edges, order, -1)
    if edges.ndim == 1:
        return np.asarray(np.searchsorted(edges, values, "right" if right else "left")).astype(native)
    low = np.zeros(values.shape, _INT64)
    high = np.full(values.shape, edges.shape[-1], _INT64)
    for _ in range(edges.shape[-1].bit_length()):  # all rows at once, halving what is left of each
        middle = (low + high) // 2
        at = np.take_along_axis(edges, np.minimum(middle, edges.shape[-1] - 1), -1)
        below = ~(at > values) if right else ~(at >= values)
        below &= low < high
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, np.minimum(high, middle))
    return low.astype(native)


@laid_out
def isin(elements: ndarray, test: ndarray, assume_unique: bool, invert: bool) -> ndarray:
    if elements.dtype != test.dtype:
        common = np.result_type(keys_of(elements).dtype, keys_of(test).dtype)
        elements, test = elements.astype(common), test.astype(common)
    made = np.isin(keys_of(elements), keys_of(test), assume_unique=assume_unique and elements.ndim == test.ndim == 1,
                   invert=invert)
    return np.asarray(made).reshape(elements.shape)


# ------------------------------------------------------------------------------------------------------------- counting
@kernel
def bincount(x: ndarray, weights: ndarray | None, minlength: int) -> ndarray:
    flat = x.astype(_INT64, copy=False)
    if weights is None:
        return np.bincount(flat, minlength=minlength).astype(_INT64, copy=False)
    counts = np.bincount(flat, weights.astype(np.float64), minlength)
    return counts.astype(weights.dtype) if weights.dtype.char == "f" else counts.astype(np.float64)


@kernel
def histc(x: ndarray, bins: int, low: float, high: float) -> ndarray:
    flat = x.reshape(-1)
    keys = keys_of(flat)
    if low == high and keys.size:
        low, high = float(keys.min()), float(keys.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (np.isfinite(low) and np.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    keys = keys[(keys >= low) & (keys <= high)]
    real = keys.dtype.type
    at = ((keys - real(low)) / (real(high) - real(low)) * real(bins)).astype(_INT64)
    return np.bincount(np.minimum(at, bins - 1), minlength=bins).astype(x.dtype)


@kernel
def histogramdd(x: ndarray, edges: Any, weight: ndarray | None, density: bool) -> ndarray:
    """Counts of the rows of x in the boxes that the edges of each dimension span; the last box is closed."""
    shape = tuple(len(e) - 1 for e in edges)
    inside = np.ones(len(x), bool)
    flat = np.zeros(len(x), _INT64)
    for d, edge in enumerate(edges):
        column = x[:, d]
        inside &= (column >= edge[0]) & (column <= edge[-1])
        at = np.searchsorted(edge, column, "right") - 1
        flat = flat * shape[d] + np.clip(at, 0, shape[d] - 1)
    total = np.bincount(flat[inside], None if weight is None else weight.reshape(-1)[inside].astype(np.float64),
                        minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)
    if density:
        total /= total.sum()
        for d, edge in enumerate(edges):
            total /= np.diff(edge).reshape([-1 if k == d else 1 for k in range(len(edges))])
    return total.astype(x.dtype)
