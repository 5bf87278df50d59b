"""Sliding windows over the last dimensions of an array: the geometry that convolution, unfold and pooling share.

A window of stride 1 at the flat position p of the (padded) input reads p, p + 1, ... and p + width, ...: so all
windows of one tap are one long run of memory. `wide` windows use that: they also visit the few positions where a
window would wrap around the end of a row, and whoever reads the result skips those. Copies and sums then run over long
rows, several times faster than NumPy walks many short ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from ...geometry import Ints, out_size
from .. import memory

_WASTE = 1.6  # wide windows may visit this many times the positions that are wanted


class Windows:
    """All windows over arrays (batch, channels, *size)."""

    __slots__ = (
        "count",
        "dilation",
        "exact",
        "is_padded",
        "kernel",
        "out",
        "padded",
        "padding",
        "row",
        "single",
        "size",
        "steps",
        "stride",
        "wide",
    )

    def __init__(self, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out: Ints | None = None,
                 wide: bool = True):
        self.size, self.kernel, self.stride, self.padding, self.dilation = size, kernel, stride, padding, dilation
        self.out = out = out or out_size(size, kernel, stride, padding, dilation)
        self.is_padded = any(padding)
        self.padded = tuple([n + 2 * p for n, p in zip(size, padding)]) if self.is_padded else size
        self.steps = tuple([math.prod(self.padded[i + 1:]) for i in range(len(size))])
        wanted = math.prod(out)
        run = sum([(o - 1) * s for o, s in zip(out, self.steps)]) + 1
        self.wide = run == wanted or (wide and run <= _WASTE * wanted)
        self.wide = self.wide and all([s == 1 or o == 1 for s, o in zip(stride, out)])
        self.count = run if self.wide else wanted                      # positions that each tap visits
        self.exact = self.count == wanted
        self.row = wanted if self.exact else out[0] * self.steps[0]    # memory for them, as whole rows
        self.single = self.wide and run == math.prod(self.padded) and all([k == 1 for k in kernel])

    def taps(self):
        """The positions inside a window, first dimension slowest."""
        return itertools.product(*[range(k) for k in self.kernel])

    def pad(self, x: ndarray, buffer: ndarray | None) -> ndarray:
        """x inside the buffer, whose margin holds the padding already; x itself when there is none."""
        if buffer is None:
            return x
        target = buffer[:len(x)]
        self.inner(target)[...] = x
        return target

    def inner(self, padded: ndarray) -> ndarray:
        """The part of a padded array that is not padding."""
        return padded[(..., *[slice(p, p + n) for p, n in zip(self.padding, self.size)])]

    def buffer(self, n: int, channels: int, dtype: np.dtype, value: float = 0) -> ndarray | None:
        """Memory for `pad`, filled with the padding value; None when nothing is padded."""
        if not self.is_padded:
            return None
        made = memory.empty((n, channels, *self.padded), dtype)
        made.fill(value)
        return made

    def view(self, x: ndarray) -> ndarray:
        """(batch, channels, *kernel, positions...) over a contiguous padded array, without a copy."""
        item = x.itemsize
        inside = [d * s * item for d, s in zip(self.dilation, self.steps)]
        shape: tuple[int, ...]
        if self.wide:
            shape, across = (self.count,), [item]
        else:
            shape, across = self.out, [s * t * item for s, t in zip(self.stride, self.steps)]
        return memory.window(x, (*x.shape[:2], *self.kernel, *shape), (*x.strides[:2], *inside, *across))

    def grid(self, rows: ndarray) -> ndarray:
        """The wanted positions of an array (a, b, row) that was made over wide windows: (a, b, *out)."""
        if self.exact:
            return rows.reshape(*rows.shape[:2], *self.out)
        item = rows.itemsize
        return memory.window(rows, (*rows.shape[:2], *self.out), (*rows.strides[:2], *[s * item for s in self.steps]))

    def add(self, target: ndarray, columns: ndarray) -> None:
        """target += columns at the place of each tap; target (a, b, *padded), columns (a, b, *kernel, row)."""
        self.add_each(target, lambda tap: columns[(slice(None), slice(None), *tap)])

    def add_each(self, target: ndarray, values: Callable[[tuple[int, ...]], ndarray]) -> None:
        """target (a, b, *padded), contiguous, += values(tap), an array (a, b, row), at the place of each tap."""
        if self.wide:
            flat = target.reshape(*target.shape[:2], -1)
            for tap in self.taps():
                at = sum([t * d * s for t, d, s in zip(tap, self.dilation, self.steps)])
                part = flat[:, :, at:at + self.count]
                np.add(part, values(tap)[:, :, :self.count], out=part)
            return
        for tap in self.taps():
            where = tuple([slice(t * d, t * d + s * (o - 1) + 1, s)
                           for t, d, s, o in zip(tap, self.dilation, self.stride, self.out)])
            part = target[(..., *where)]
            np.add(part, values(tap).reshape(part.shape), out=part)
