"""Resizing images: every mode is a small matrix along each dimension, applied one dimension after the other.

`along` applies such matrices by BLAS; the gradient applies their transposes. Nearest-neighbour modes only pick
elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ..table import kernel

_DENSE = 1 << 24  # elements of a matrix up to which it is worth writing down

Ints = "tuple[int, ...]"


def _wide(x: ndarray) -> ndarray:
    return x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x


class _Taps:
    """A matrix with few elements per row, kept as (rows, taps) columns and values: what is too large to write down.

    The columns of one tap never decrease from row to row, so its transpose adds up runs.
    """

    def __init__(self, columns: ndarray, values: ndarray, width: int, flipped: bool = False):
        self.columns, self.values, self.width, self.flipped = columns, values, width, flipped
        self.shape = (width, len(columns)) if flipped else (len(columns), width)

    @property
    def T(self) -> _Taps:
        return _Taps(self.columns, self.values, self.width, not self.flipped)

    def astype(self, dtype: Any) -> _Taps:
        return _Taps(self.columns, self.values.astype(dtype), self.width, self.flipped)

    def apply(self, x: ndarray) -> ndarray:
        """(lead, columns, rest) -> (lead, rows, rest)."""
        made = np.zeros((x.shape[0], self.shape[0], x.shape[2]), x.dtype)
        for at, value in zip(self.columns.T, self.values.T):
            if not self.flipped:
                made += x.take(at, 1) * value[:, None]
                continue
            starts = np.flatnonzero(np.diff(at, prepend=-1))
            made[:, at[starts]] += np.add.reduceat(x * value[:, None], starts, 1)
        return made


def along(x: ndarray, matrices: list[Any]) -> ndarray:
    """x with a matrix (or None) applied along each of its last dimensions; those that shrink it come first."""
    first = x.ndim - len(matrices)
    order = sorted((d for d, m in enumerate(matrices) if m is not None),
                   key=lambda d: matrices[d].shape[0] / max(1, matrices[d].shape[1]))
    for d in order:
        matrix, axis = matrices[d], first + d
        lead, n, rest = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:])
        shape = (*x.shape[:axis], matrix.shape[0], *x.shape[axis + 1:])
        x = np.ascontiguousarray(x)
        if matrix.__class__ is _Taps:
            x = matrix.apply(x.reshape(lead, n, rest)).reshape(shape)
        elif rest == 1:
            x = np.matmul(x.reshape(lead, n), matrix.T).reshape(shape)
        else:
            x = np.matmul(matrix, x.reshape(lead, n, rest)).reshape(shape)
    return np.ascontiguousarray(x)


# ----------------------------------------------------------------------------------------------------- coordinates
def _scale(n: int, out: int, align: bool, factor: float | None) -> float:
    """Input positions per output position."""
    if align:
        return (n - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / factor if factor is not None and factor > 0 else n / out


def _nearest(n: int, out: int, exact: bool, factor: float | None, dtype: np.dtype, image: bool) -> ndarray:
    """Which input element each output element is. In the input's precision like PyTorch: that decides some ties.

    Images of the same size or of twice that size are PyTorch's special case: there the factor does not count.
    """
    if image and not exact and out in (n, 2 * n):
        factor = None
    kind = np.float64 if dtype.char == "d" else np.float32
    scale = kind(1.0 / factor) if factor is not None and factor > 0 else kind(n) / kind(out)
    at = np.arange(out, dtype=kind)
    at = np.floor((at + kind(0.5)) * scale) if exact else np.floor(at * scale)
    return np.minimum(at.astype(np.int64), n - 1)


def _cubic(x: ndarray, a: float) -> ndarray:
    """Keys' cubic kernel."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x * a - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _positions(n: int, out: int, align: bool, factor: float | None, cubic: bool) -> ndarray:
    scale = _scale(n, out, align, factor)
    at = np.arange(out, dtype=np.float64)
    if align:
        return at * scale
    at = (at + 0.5) * scale - 0.5
    return at if cubic else np.maximum(at, 0.0)


def _scatter(columns: ndarray, values: ndarray, n: int) -> Any:
    """The matrix with these values at these columns of its rows."""
    out = len(columns)
    if n * out > _DENSE:
        return _Taps(columns, values, n)
    matrix = np.zeros((out, n), np.float64)
    np.add.at(matrix, (np.broadcast_to(np.arange(out)[:, None], columns.shape), columns), values)
    return matrix


def _matrix(mode: str, n: int, out: int, align: bool, factor: float | None) -> Any:
    """The (out, n) matrix of one dimension."""
    if mode.endswith("_aa"):
        return _antialiased(mode, n, out, align, factor)
    cubic = mode == "cubic"
    at = _positions(n, out, align, factor, cubic)
    low = np.minimum(np.floor(at), n - 1).astype(np.int64) if not cubic else np.floor(at).astype(np.int64)
    part = at - low
    if not cubic:
        part = np.clip(part, 0.0, 1.0)
        high = np.minimum(low + 1, n - 1)
        return _scatter(np.stack([low, high], 1), np.stack([1 - part, part], 1), n)
    taps = np.arange(-1, 3)
    return _scatter(np.clip(low[:, None] + taps, 0, n - 1), _cubic(part[:, None] - taps, -0.75), n)


def _antialiased(mode: str, n: int, out: int, align: bool, factor: float | None) -> Any:
    """The kernel is widened when shrinking, so that every input element counts."""
    cubic = mode == "cubic_aa"
    scale = _scale(n, out, align, factor)
    support = (2.0 if cubic else 1.0) * max(scale, 1.0)
    inverse = 1.0 / scale if scale >= 1.0 else 1.0
    center = scale * (np.arange(out) + 0.5)
    start = np.maximum((center - support + 0.5).astype(np.int64), 0)
    end = np.minimum((center + support + 0.5).astype(np.int64), n)
    at = start[:, None] + np.arange(max(1, (end - start).max()))
    distance = (at + 0.5 - center[:, None]) * inverse
    weight = _cubic(distance, -0.5) if cubic else np.maximum(1.0 - np.abs(distance), 0.0)
    weight = np.where(at < end[:, None], weight, 0.0)
    total = weight.sum(1, keepdims=True)
    return _scatter(np.minimum(at, n - 1), weight / np.where(total == 0, 1, total), n)


def _matrices(mode: str, size: Ints, out: Ints, align: bool, factors: Any, dtype: np.dtype) -> list[Any]:
    """None for a dimension that stays as it is."""
    return [None if n == o and not mode.endswith("_aa") and _same_grid(f, align) else
            _matrix(mode, n, o, align, f).astype(dtype) for n, o, f in zip(size, out, factors)]


def _same_grid(factor: float | None, align: bool) -> bool:
    return align or factor is None or factor == 1.0


# --------------------------------------------------------------------------------------------------------- kernels
@kernel
def upsample(x: ndarray, mode: str, out_size: Ints, align: bool, factors: Any) -> ndarray:
    """x (batch, channels, *size) resized; mode: nearest, nearest-exact, linear, cubic, linear_aa, cubic_aa."""
    size, native = x.shape[2:], x.dtype
    if mode.startswith("nearest"):
        for d, (n, o, f) in enumerate(zip(size, out_size, factors)):
            at = _nearest(n, o, mode == "nearest-exact", f, native, len(size) == 2)
            if n == o and (at == np.arange(n)).all():
                continue
            x = np.repeat(x, o // n, 2 + d) if o % n == 0 and _repeats(at, n, o) else x.take(at, 2 + d)
        return np.ascontiguousarray(x)
    if x.dtype.kind in "u":
        return _bytes(x, mode, out_size, align, factors)
    x = _wide(x)
    return along(x, _matrices(mode, size, out_size, align, factors, x.dtype)).astype(native, copy=False)


def _repeats(at: ndarray, n: int, out: int) -> bool:
    return bool((at == np.arange(out) // (out // n)).all())


def _bytes(x: ndarray, mode: str, out_size: Ints, align: bool, factors: Any) -> ndarray:
    """Images of bytes: weights rounded to 15 bits, and bytes again after each dimension, the last one first."""
    matrices = _matrices(mode, x.shape[2:], out_size, align, factors, np.dtype(np.float64))
    for d in (1, 0):
        if matrices[d] is None or x.shape[2 + d] == out_size[d]:
            continue
        integers, bits = _whole_weights(matrices[d])
        apart = along(x.astype(np.float64), [integers if k == d else None for k in (0, 1)])
        x = np.clip(np.floor((apart + (1 << bits - 1)) / (1 << bits)), 0, 255).astype(x.dtype)
    return x


def _whole_weights(matrix: Any) -> tuple[Any, int]:
    """A matrix as whole numbers over 2 ** bits, with as many bits as let the largest fit into 16 with its sign."""
    values = matrix.values if matrix.__class__ is _Taps else matrix
    bits, largest = 0, max(0.0, values.max())
    while bits < 22 and int(0.5 + largest * (1 << bits + 1)) < 1 << 15:
        bits += 1
    integers = np.trunc(values * (1 << bits) + np.where(values < 0, -0.5, 0.5))
    return (_Taps(matrix.columns, integers, matrix.width) if matrix.__class__ is _Taps else integers), bits


@kernel
def upsample_grad(g: ndarray, mode: str, size: Ints, align: bool, factors: Any) -> ndarray:
    """The gradient of the input, of spatial size `size`."""
    native, g = g.dtype, _wide(g)
    out_size = g.shape[2:]
    if mode.startswith("nearest"):
        for d, (n, o, f) in enumerate(zip(size, out_size, factors)):
            g = _add_picked(g, _nearest(n, o, mode == "nearest-exact", f, native, len(size) == 2), n, 2 + d)
        return np.ascontiguousarray(g).astype(native, copy=False)
    matrices = _matrices(mode, size, out_size, align, factors, g.dtype)
    return along(g, [None if m is None else m.T for m in matrices]).astype(native, copy=False)


def _add_picked(g: ndarray, at: ndarray, n: int, axis: int) -> ndarray:
    """The sum of the output elements that each input element went to."""
    out = len(at)
    if n == out and (at == np.arange(n)).all():
        return g
    if out % n == 0 and _repeats(at, n, out):
        return g.reshape(*g.shape[:axis], n, out // n, *g.shape[axis + 1:]).sum(axis + 1)
    made = np.zeros((*g.shape[:axis], n, *g.shape[axis + 1:]), g.dtype)
    np.add.at(made, (*(slice(None),) * axis, at), g)
    return made


# ------------------------------------------------------------------------------------------------------ rearranging
@kernel
def pixel_shuffle(x: ndarray, factor: int) -> ndarray:
    """(..., c * r * r, h, w) -> (..., c, h * r, w * r)."""
    *lead, c, h, w = x.shape
    r, kept = factor, len(lead)
    split = x.reshape(*lead, c // (r * r), r, r, h, w)
    order = (*range(kept + 1), kept + 3, kept + 1, kept + 4, kept + 2)
    return np.ascontiguousarray(split.transpose(order)).reshape(*lead, c // (r * r), h * r, w * r)


@kernel
def pixel_unshuffle(x: ndarray, factor: int) -> ndarray:
    """The inverse of pixel_shuffle."""
    *lead, c, h, w = x.shape
    r, kept = factor, len(lead)
    split = x.reshape(*lead, c, h // r, r, w // r, r)
    order = (*range(kept + 1), kept + 2, kept + 4, kept + 1, kept + 3)
    return np.ascontiguousarray(split.transpose(order)).reshape(*lead, c * r * r, h // r, w // r)


@kernel
def channel_shuffle(x: ndarray, groups: int) -> ndarray:
    """Channels (groups, c) -> (c, groups)."""
    n, c = x.shape[:2]
    split = x.reshape(n, groups, c // groups, *x.shape[2:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(x.shape)
