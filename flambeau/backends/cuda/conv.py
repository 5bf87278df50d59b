"""Convolution and its gradients: by cuDNN, or where that is not to be had (or `backends.cudnn.enabled` is off) by products of
matrices whose columns are the windows.

The names are those of cpu/layers/conv.py. Images that are channels-last stay so: which order the arrays lie in is read off
their strides, as PyTorch does it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..flags import cudnn as _flags
from ..geometry import out_size, transposed_size
from ..strides import CHANNEL_ORDER
from . import pointwise
from .arrays import CudaArray, device_index, windows
from .backend import _parts, call, contiguous, copied, fill
from .cudnn import _TYPES, Geometry, Unsupported
from .driver import machine
from .products import multiply
from .sliding import Sliding
from .table import kernel
from .unfold import columns_of, sum_of

Ints = "tuple[int, ...]"
_LAST = CHANNEL_ORDER["channels_last"]
_ROOM = 1 << 30      # bytes of columns at a time
_PAYS = 1 << 24      # multiplications from which TF32 is quicker than single precision
_MOST = 1 << 31      # elements of an array, and more, that cuDNN does not take


# --------------------------------------------------------------------------------------------------------- layouts
def _is_last(x: CudaArray) -> bool:
    """Whether an image or a weight of two dimensions looks channels-last."""
    if x.ndim != 4 or x.flags.c_contiguous or not x.size or not x.strides[1]:
        return False
    low = 0
    for d in reversed(_LAST):
        if x.strides[d] < low or (d == 0 and low == x.strides[1]):
            return False
        low = x.strides[d] * x.shape[d]
    return True


def _laid(x: CudaArray, last: bool) -> CudaArray:
    """x lying densely in the wanted order."""
    if not last:
        return contiguous(x)
    return x if x.transpose(_LAST).flags.c_contiguous else copied(x, windows.ordered(x.shape, _LAST, x.dtype))


def _new(shape: Ints, dtype: np.dtype, last: bool) -> CudaArray:
    return windows.ordered(shape, _LAST, dtype) if last else windows.empty(shape, dtype)


def _with_bias(out: CudaArray, bias: CudaArray | None) -> CudaArray:
    if bias is not None and out.size:
        pointwise.run("add", (out, bias.reshape((-1, *(1,) * (out.ndim - 2)))), out)
    return out


@functools.lru_cache(4096)
def _geometry(work: str, image: Ints, weight: Ints, result: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int,
              dtype: np.dtype, switches: tuple[bool, ...]) -> Geometry | None:
    """What the library is asked for; None where it cannot be: too large, or a result that is not the natural one."""
    if max(map(math.prod, (image, weight, result))) >= _MOST or (
            out_size(image[2:], weight[2:], stride, padding, dilation) != tuple(result[2:])):
        return None
    shapes, numbers = (image, weight, result), (stride, padding, dilation)
    if len(stride) == 1:  # the library's convolutions have two dimensions or three
        shapes = [(*s[:2], 1, *s[2:]) for s in shapes]
        numbers = [(blank, *n) for blank, n in zip((1, 0, 1), numbers)]
    last, tf32, *others = switches
    tf32 = tf32 and math.prod(result) * math.prod(weight[1:]) >= _PAYS
    return Geometry(work, *shapes, *numbers, groups, dtype, last, tf32, *others)


# ------------------------------------------------------------------------------------------------------ three works
class _Work:
    """One convolution or gradient: the geometry that all three share."""

    def __init__(self, image: Ints, weight: Ints, result: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int):
        self.shapes = {"image": tuple(image), "weight": tuple(weight), "result": tuple(result)}
        self.numbers = (tuple(stride), tuple(padding), tuple(dilation))
        self.groups = groups

    def run(self, work: str, first: CudaArray, second: CudaArray) -> CudaArray:
        """first and second: what the work reads, in the order of cuDNN's arguments (cudnn._WORKS)."""
        target = {"forward": "result", "input": "image", "weight": "weight"}[work]
        shape, dtype = self.shapes[target], first.dtype
        if not first.size or not second.size or not math.prod(shape):
            made = windows.empty(shape, dtype)
            fill(made, 0)
            return made
        if dtype.kind == "c":
            return self._complex(work, first, second)
        last = _is_last(first) or _is_last(second)
        if _flags.enabled and dtype in _TYPES:
            for order in (True, False) if last else (False,):  # what it cannot do in one order it may in the other
                try:
                    made = self._by_library(work, first, second, shape, order)
                except Unsupported:
                    continue
                if made is not None:
                    return _laid(made, last)
        made = getattr(self, f"_{work}")(contiguous(first), contiguous(second))
        return _laid(made, last)

    def _complex(self, work: str, first: CudaArray, second: CudaArray) -> CudaArray:
        """Of complex numbers: all three works are linear in both arrays."""
        (a, b), (c, d) = [[_parts(x)[..., k] for k in (0, 1)] for x in (first, second)]
        run = lambda x, y: self.run(work, x, y)
        real, imaginary = call("sub", (run(a, c), run(b, d))), call("add", (run(a, d), run(b, c)))
        made = windows.empty(real.shape, first.dtype)
        copied(real, _parts(made)[..., 0])
        copied(imaginary, _parts(made)[..., 1])
        return made

    # ------------------------------------------------------------------------------------------------- by cuDNN
    def _by_library(self, work: str, first: CudaArray, second: CudaArray, shape: Ints, last: bool) -> CudaArray | None:
        switches = last, bool(_flags.allow_tf32), bool(_flags.benchmark), bool(_flags.deterministic or _flags._required)
        geometry = _geometry(work, *self.shapes.values(), *self.numbers, self.groups, first.dtype, switches)
        found = None if geometry is None else machine().convolution(geometry, device_index(first))
        if found is None:
            return None
        out = _new(shape, first.dtype, last)
        found.run(_laid(first, last), _laid(second, last), out)
        return out

    # ---------------------------------------------------------------------------------------------- by products
    def _sliding(self) -> Sliding:
        return Sliding(tuple(self.shapes["image"][2:]), tuple(self.shapes["weight"][2:]), *self.numbers,
                       tuple(self.shapes["result"][2:]))

    def _chunks(self, itemsize: int) -> Any:
        """(first sample, samples, rows of columns, columns) of pieces of the batch whose columns have room."""
        image, weight, result = self.shapes.values()
        rows, spots = image[1] * math.prod(weight[2:]), math.prod(result[2:])
        step = max(_ROOM // (rows * spots * itemsize), 1)
        for at in range(0, image[0], step):
            samples = min(step, image[0] - at)
            yield at, samples, rows, samples * spots

    def _grouped(self, x: CudaArray, columns: int) -> CudaArray:
        return x.reshape((self.groups, -1, columns))

    def _forward(self, x: CudaArray, w: CudaArray) -> CudaArray:
        s, out = self._sliding(), windows.empty(self.shapes["result"], x.dtype)
        for at, samples, rows, count in self._chunks(x.itemsize):
            columns = windows.empty((rows, count), x.dtype)
            columns_of(x[at:at + samples], s, columns, count, count // samples)
            made = multiply(self._grouped(w, w.size // len(w)), self._grouped(columns, count))
            copied(made.reshape((len(w), samples, *s.out)).swapaxes(0, 1), out[at:at + samples])
        return out

    def _side_by_side(self, g: CudaArray) -> CudaArray:
        """Results (samples, channels, *size) as a row per channel."""
        return contiguous(g.swapaxes(0, 1)).reshape((g.shape[1], -1))

    def _input(self, w: CudaArray, g: CudaArray) -> CudaArray:
        s, out = self._sliding(), windows.empty(self.shapes["image"], g.dtype)
        matrices = self._grouped(w, w.size // len(w)).transpose(0, 2, 1)
        for at, samples, _, count in self._chunks(g.itemsize):
            columns = multiply(matrices, self._grouped(self._side_by_side(g[at:at + samples]), count))
            sum_of(columns, s, out[at:at + samples], count, count // samples)
        return out

    def _weight(self, x: CudaArray, g: CudaArray) -> CudaArray:
        s, total = self._sliding(), None
        for at, samples, rows, count in self._chunks(x.itemsize):
            columns = windows.empty((rows, count), x.dtype)
            columns_of(x[at:at + samples], s, columns, count, count // samples)
            made = multiply(self._grouped(self._side_by_side(g[at:at + samples]), count),
                            self._grouped(columns, count).transpose(0, 2, 1))
            total = made if total is None else call("add", (total, made))
        return total.reshape(self.shapes["weight"])


# ---------------------------------------------------------------------------------------------------------- kernels
@kernel("conv_forward", repeatable=True)
def conv_forward(x: CudaArray, w: CudaArray, bias: CudaArray | None, stride: Ints, padding: Ints, dilation: Ints,
                 groups: int) -> CudaArray:
    result = (len(x), len(w), *out_size(x.shape[2:], w.shape[2:], stride, padding, dilation))
    return _with_bias(_Work(x.shape, w.shape, result, stride, padding, dilation, groups).run("forward", x, w), bias)


@kernel("convolution", repeatable=True)
def convolution(x: CudaArray, w: CudaArray, bias: CudaArray | None, stride: Ints, padding: Ints, dilation: Ints,
                transposed: bool, output_padding: Ints, groups: int) -> CudaArray:
    if not transposed:
        return conv_forward(x, w, bias, stride, padding, dilation, groups)
    size = transposed_size(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding)
    return conv_input(x, w, bias, size, stride, padding, dilation, groups)


@kernel("conv_input", repeatable=True)
def conv_input(g: CudaArray, w: CudaArray, bias: CudaArray | None, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
               groups: int) -> CudaArray:
    image = (len(g), w.shape[1] * groups, *size)
    return _with_bias(_Work(image, w.shape, g.shape, stride, padding, dilation, groups).run("input", w, g), bias)


@kernel("conv_weight", repeatable=True)
def conv_weight(g: CudaArray, x: CudaArray, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> CudaArray:
    weight = (g.shape[1], x.shape[1] // groups, *size)
    return _Work(x.shape, weight, g.shape, stride, padding, dilation, groups).run("weight", x, g)


@kernel("conv_weight_bias", repeatable=True)
def conv_weight_bias(g: CudaArray, x: CudaArray, *rest: Any) -> tuple[CudaArray, CudaArray]:
    return conv_weight(g, x, *rest), call("sum", (g, (0, *range(2, g.ndim)), False, None))
