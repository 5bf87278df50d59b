"""Convolutions of volumes as convolutions of images: the taps along the depth become channels.

Each plane of the result sees as many planes of each channel as the kernel is deep. Laid out side by side as channels of one
image they make a two-dimensional convolution, whose kernels are native; the copy costs little beside the products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy import ndarray

from .. import memory
from ..parallel import copy_into, large

Ints = "tuple[int, ...]"
_ROOM = 1 << 24  # bytes of unfolded samples at a time


class Depth:
    """The first of three dimensions: its size, kernel, stride, padding and dilation, and the size of the output."""

    def __init__(self, size: int, kernel: int, stride: int, padding: int, dilation: int, out: int):
        self.size, self.kernel, self.stride, self.out = size, kernel, stride, out
        self.shifts = [i * dilation - padding for i in range(kernel)]

    def chunk(self, sample: ndarray) -> int:
        """Samples at a time."""
        return max(1, _ROOM // max(1, sample.nbytes * self.kernel * self.out // max(1, self.size)))

    def taps(self) -> Iterator[tuple[int, int, int, slice]]:
        """(tap, first and last output that see more than padding through it, the planes that they see)."""
        for i, shift in enumerate(self.shifts):
            low = min(self.out, max(0, -(shift // self.stride)))
            high = max(low, min(self.out, (self.size - 1 - shift) // self.stride + 1))
            first = low * self.stride + shift
            yield i, low, high, slice(first, first + (high - low) * self.stride, self.stride) if high > low else slice(0, 0)

    def unfold(self, x: ndarray) -> ndarray:
        """(samples, channels, depth, *plane) -> (samples * outputs, channels * taps, *plane)."""
        n, channels, _, *plane = x.shape
        made = memory.empty((n, self.out, channels, self.kernel, *plane), x.dtype)
        for i, low, high, seen in self.taps():
            made[:, :low, :, i] = 0
            made[:, high:, :, i] = 0
            copy_into(made[:, low:high, :, i], x[:, :, seen].swapaxes(1, 2))
        return made.reshape(n * self.out, channels * self.kernel, *plane)

    def fold(self, planes: ndarray, out: ndarray) -> None:
        """The sum of all that `unfold` would have taken from each plane of `out`."""
        n, channels, _, *plane = out.shape
        planes = planes.reshape(n, self.out, channels, self.kernel, *plane)
        out.fill(0)
        for i, low, high, seen in self.taps():
            target = out[:, :, seen]
            large(np.add, target, planes[:, low:high, :, i].swapaxes(1, 2), out=target)


def _apart(x: ndarray) -> ndarray:
    """(samples, channels, depth, *plane) -> (samples * depth, channels, *plane)."""
    n, channels, depth, *plane = x.shape
    made = memory.empty((n, depth, channels, *plane), x.dtype)
    copy_into(made, x.swapaxes(1, 2))
    return made.reshape(n * depth, channels, *plane)


def _flat(w: ndarray) -> ndarray:
    return w.reshape(len(w), w.shape[1] * w.shape[2], *w.shape[3:])


def forward(depth: Depth, x: ndarray, w: ndarray, size: Ints, conv: Callable[[ndarray, ndarray], ndarray]) -> ndarray:
    """The convolution of volumes; conv(images, weight) is that of images."""
    out, chunk = memory.empty((len(x), len(w), *size), x.dtype), depth.chunk(x[0])
    for at in range(0, len(x), chunk):
        part = out[at:at + chunk]
        made = conv(depth.unfold(x[at:at + chunk]), _flat(w))
        copy_into(part, made.reshape(len(part), depth.out, *made.shape[1:]).swapaxes(1, 2))
    return out


def input_gradient(depth: Depth, g: ndarray, w: ndarray, shape: Ints, conv: Callable[[ndarray, ndarray], ndarray]) -> ndarray:
    """The gradient of an input of that shape; conv(gradient, weight) gives it for images."""
    out = memory.empty(shape, g.dtype)
    chunk = depth.chunk(out[0])
    for at in range(0, len(g), chunk):
        depth.fold(conv(_apart(g[at:at + chunk]), _flat(w)), out[at:at + chunk])
    return out


def weight_gradient(depth: Depth, g: ndarray, x: ndarray, shape: Ints, conv: Callable[[ndarray, ndarray], ndarray]) -> ndarray:
    """The gradient of a weight of that shape; conv(gradient, images) gives it for images."""
    chunk, total = depth.chunk(x[0]), None
    for at in range(0, len(g), chunk):
        made = conv(_apart(g[at:at + chunk]), depth.unfold(x[at:at + chunk]))
        total = made if total is None else np.add(total, made, out=total)
    return total.reshape(shape)
