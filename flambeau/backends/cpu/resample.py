"""Resizing images: every mode is a small matrix along each dimension, applied one dimension after the other.

`along` applies such matrices by BLAS; the gradient applies their transposes. Nearest-neighbour modes only pick
elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from .table import kernel

_DENSE = 1 << 24  # elements of a matrix up to which it is worth writing down

Ints = "tuple[int, ...]"


def _wide(x: ndarray) -> ndarray:
    return x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x


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
        if rest == 1:
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


def _nearest(n: int, out: int, exact: bool, factor: float | None, dtype: np.dtype) -> ndarray:
    """Which input element each output element is. In the input's precision like PyTorch: that decides some ties."""
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


def _scatter(rows: ndarray, columns: ndarray, values: ndarray, shape: tuple[int, int]) -> ndarray:
    matrix = np.zeros(shape, np.float64)
    np.add.at(matrix, (np.broadcast_to(rows, columns.shape), columns), values)
    return matrix


def _matrix(mode: str, n: int, out: int, align: bool, factor: float | None) -> ndarray:
    """The (out, n) matrix of one dimension."""
    if n * out > _DENSE:
        raise RuntimeError(f"interpolate: resizing a dimension of {n} elements to {out} is not implemented: the "
                           "product may "
                           f"be at most {_DENSE}")
    if mode.endswith("_aa"):
        return _antialiased(mode, n, out, align, factor)
    cubic = mode == "cubic"
    at = _positions(n, out, align, factor, cubic)
    low = np.minimum(np.floor(at), n - 1).astype(np.int64) if not cubic else np.floor(at).astype(np.int64)
    part = at - low
    rows = np.arange(out)[:, None]
    if not cubic:
        part = np.clip(part, 0.0, 1.0)
        high = np.minimum(low + 1, n - 1)
        return _scatter(rows, np.stack([low, high], 1), np.stack([1 - part, part], 1), (out, n))
    taps = np.arange(-1, 3)
    return _scatter(rows, np.clip(low[:, None] + taps, 0, n - 1), _cubic(part[:, None] - taps, -0.75), (out, n))


def _antialiased(mode: str, n: int, out: int, align: bool, factor: float | None) -> ndarray:
    """The kernel is widened when shrinking, so that every input element counts."""
    cubic = mode == "cubic_aa"
    scale = _scale(n, out, align, factor)
    support = (2.0 if cubic else 1.0) * max(scale, 1.0)
    inverse = 1.0 / scale if scale >= 1.0 else 1.0
    center = scale * (np.arange(out) + 0.5)
    start = np.maximum((center - support + 0.5).astype(np.int64), 0)
    end = np.minimum((center + support + 0.5).astype(np.int64), n)
    at = np.arange(n)
    distance = (at + 0.5 - center[:, None]) * inverse
    weight = _cubic(distance, -0.5) if cubic else np.maximum(1.0 - np.abs(distance), 0.0)
    weight = np.where((at >= start[:, None]) & (at < end[:, None]), weight, 0.0)
    total = weight.sum(1, keepdims=True)
    return weight / np.where(total == 0, 1, total)


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
            at = _nearest(n, o, mode == "nearest-exact", f, native)
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
    made = along(x.astype(np.float32), _matrices(mode, x.shape[2:], out_size, align, factors, np.dtype(np.float32)))
    return np.clip(np.floor(made + 0.5), 0, np.iinfo(x.dtype).max).astype(x.dtype)


@kernel
def upsample_grad(g: ndarray, mode: str, size: Ints, align: bool, factors: Any) -> ndarray:
    """The gradient of the input, of spatial size `size`."""
    native, g = g.dtype, _wide(g)
    out_size = g.shape[2:]
    if mode.startswith("nearest"):
        for d, (n, o, f) in enumerate(zip(size, out_size, factors)):
            g = _add_picked(g, _nearest(n, o, mode == "nearest-exact", f, native), n, 2 + d)
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
