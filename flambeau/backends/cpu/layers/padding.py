"""Padding by an array's own values. The result is allocated once: the input goes to its middle, then each border is
filled from what is there.

`pads` has one (before, after) per dimension of the array; only non-negative numbers come here.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from .. import memory
from ..table import kernel

Pads = "tuple[tuple[int, int], ...]"


def _middle(shape: tuple[int, ...], pads: Pads) -> tuple[slice, ...]:
    return tuple([slice(before, before + n) for n, (before, _) in zip(shape, pads)])


def _at(ndim: int, axis: int, piece: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (piece,) + (slice(None),) * (ndim - axis - 1)


def _borders(n: int, before: int, after: int, mode: str) -> list[tuple[slice, slice]]:
    """(border, where its values come from) in a dimension of before + n + after elements."""
    end = before + n
    found = []
    if before:
        if mode == "reflect":
            source = slice(2 * before, before, -1)
        elif mode == "replicate":
            source = slice(before, before + 1)
        else:
            source = slice(end - before, end)
        found.append((slice(0, before), source))
    if after:
        if mode == "reflect":
            stop = end - 2 - after
            source = slice(end - 2, stop if stop >= 0 else None, -1)
        elif mode == "replicate":
            source = slice(end - 1, end)
        else:
            source = slice(before, before + after)
        found.append((slice(end, end + after), source))
    return found


@kernel
def pad_edges(x: ndarray, pads: Pads, mode: str) -> ndarray:
    out = memory.empty(tuple([n + a + b for n, (a, b) in zip(x.shape, pads)]), x.dtype)
    out[_middle(x.shape, pads)] = x
    for axis, (before, after) in enumerate(pads):
        if not (before or after):
            continue
        # Earlier dimensions are complete with their borders, later ones still have only their middle.
        rest = (slice(None),) * (axis + 1) + _middle(x.shape, pads)[axis + 1:]
        view = out[rest]
        for border, source in _borders(x.shape[axis], before, after, mode):
            view[_at(x.ndim, axis, border)] = view[_at(x.ndim, axis, source)]
    return out


@kernel
def pad_edges_backward(grad: ndarray, pads: Pads, mode: str) -> ndarray:
    """Each border's gradient is added to where its values came from, last dimension first."""
    view = grad.astype(np.float32) if grad.dtype.itemsize < 4 else np.array(grad)
    shape = tuple([n - a - b for n, (a, b) in zip(grad.shape, pads)])
    for axis in range(grad.ndim - 1, -1, -1):
        before, after = pads[axis]
        if not (before or after):
            continue
        for border, source in _borders(shape[axis], before, after, mode):
            piece = view[_at(grad.ndim, axis, border)]
            if mode == "replicate":
                piece = piece.sum(axis=axis, keepdims=True)
            view[_at(grad.ndim, axis, source)] += piece
        view = view[_at(grad.ndim, axis, slice(before, before + shape[axis]))]
    return np.ascontiguousarray(view, dtype=grad.dtype)
