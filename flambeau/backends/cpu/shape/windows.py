"""Sliding windows over the last dimensions of an array: the geometry that convolution, unfold and pooling share."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy import ndarray

from ...geometry import Ints, out_size
from .. import memory


class Windows:
    """All windows over arrays (..., *size): padding on the left as given, on the right as far as the last window reaches."""

    def __init__(self, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out: Ints | None = None):
        self.size, self.kernel, self.stride, self.padding, self.dilation = size, kernel, stride, padding, dilation
        self.out = out = out_size(size, kernel, stride, padding, dilation) if out is None else out
        reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, stride, kernel, dilation)]
        self.padded = tuple([max(n + p, r) for n, p, r in zip(size, padding, reach)])

    def taps(self) -> list[Ints]:
        """The positions inside a window, first dimension slowest."""
        return list(itertools.product(*[range(k) for k in self.kernel]))

    def pad(self, x: ndarray, value: Any = 0) -> ndarray:
        """x with its padding; x itself when there is none."""
        if self.padded == self.size:
            return x
        made = memory.empty((*x.shape[:x.ndim - len(self.size)], *self.padded), x.dtype)
        made.fill(value)
        self.inner(made)[...] = x
        return made

    def inner(self, padded: ndarray) -> ndarray:
        """The part of a padded array that is not padding."""
        return padded[(..., *[slice(p, p + n) for p, n in zip(self.padding, self.size)])]

    def at(self, padded: ndarray, tap: Ints) -> ndarray:
        """What all windows see at one tap: a view (..., *out)."""
        return padded[(..., *[slice(t * d, t * d + s * (o - 1) + 1, s)
                              for t, d, s, o in zip(tap, self.dilation, self.stride, self.out)])]

    def view(self, padded: ndarray) -> ndarray:
        """(..., *kernel, *out), without a copy of a contiguous array."""
        padded = np.ascontiguousarray(padded)
        lead = padded.ndim - len(self.size)
        inside, across = [[n * s for n, s in zip(way, padded.strides[lead:])] for way in (self.dilation, self.stride)]
        return memory.window(padded, (*padded.shape[:lead], *self.kernel, *self.out),
                             (*padded.strides[:lead], *inside, *across))

    def add(self, columns: ndarray, out: ndarray) -> None:
        """out (..., *size) = the sum of columns (..., *kernel, *out), each at its place."""
        lead = out.ndim - len(self.size)
        total = out if self.padded == self.size else memory.empty((*out.shape[:lead], *self.padded), out.dtype)
        total.fill(0)
        for tap in self.taps():
            place = self.at(total, tap)
            np.add(place, columns[(slice(None),) * lead + tap], out=place)
        if total is not out:
            out[...] = self.inner(total)
