"""Convolution: native (native/conv.c; of volumes see conv3d.py), else by matrix products: the windows of a few samples at a
time are copied into a matrix, and BLAS does the rest. Large strides, as those of image patches, always take that way.

Three kernels, each the derivative of the others: `conv_forward` (input, weight), `conv_input` (what the input's
gradient is, and what a transposed convolution computes) and `conv_weight` (the weight's gradient). Weights are
(out channels, in channels / groups, *kernel).
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from .... import native as _native
from ...geometry import out_size, transposed_size
from .. import memory
from ..halves import narrow, wide
from ..linalg import blas
from ..shape.windows import Windows
from ..table import kernel
from . import conv3d

BUFFER = 3 << 19   # bytes of copied windows at a time: about what a core's own cache holds
_SHARED = 1 << 22  # multiplications from which both cores work

Ints = "tuple[int, ...]"


def _ready(x: ndarray) -> ndarray:
    return x if x.flags.c_contiguous and x.dtype.char in "fd" else np.ascontiguousarray(wide(x))


def _bias(bias: ndarray | None, dims: int) -> ndarray | None:
    return None if bias is None else wide(bias).reshape(-1, *(1,) * dims)


# ------------------------------------------------------------------------------------------------ the native kernels
def geometry(image: Ints, weight: Ints, out: Ints, stride: Ints, padding: Ints, dilation: Ints,
             groups: int) -> tuple[int, ...] | None:
    """The numbers that the native kernels want, one-dimensional images being one row high; None where they do not serve.

    image: (batch, channels, *size); out: the size of the result.
    """
    dims = len(out)
    kernel = weight[2:]
    if dims not in (1, 2) or 0 in image or 0 in weight or min(out) < 1:
        return None
    if math.prod(stride) > 16 or max(kernel[:-1], default=1) > 32:
        return None  # their tables have so many places
    reach = [(o + d * (k - 1)) * s for o, d, k, s in zip(out, dilation, kernel, stride)]
    if max(image[1], weight[0]) * math.prod([r + n + 2 * p for r, n, p in zip(reach, image[2:], padding)]) >= 1 << 30:
        return None  # places are counted in 32 bits
    flat = dims == 1
    pairs = [(fill, *values) if flat else values for fill, values in (
        (1, image[2:]), (1, out), (1, kernel), (1, stride), (0, padding), (1, dilation))]
    size, out, kernel, stride, padding, dilation = pairs
    return (*image[:2], *size, weight[0], *out, *kernel, *stride, *padding, *dilation, groups)


class _Call(NamedTuple):
    """A native kernel for one geometry."""

    function: Callable[..., None]
    numbers: int    # the address of the geometry
    size: Ints      # of the output
    kept: Any       # the geometry itself


@functools.lru_cache(maxsize=1024)
def _call(lib: Any, which: str, dtype: np.dtype, image: Ints, weight: Ints, size: Ints | None, stride: Ints, padding: Ints,
          dilation: Ints, groups: int) -> _Call | None:
    if size is None:
        size = out_size(image[2:], weight[2:], stride, padding, dilation)
    found = geometry(image, weight, size, stride, padding, dilation, groups)
    if found is None:
        return None
    kept = (ctypes.c_long * len(found))(*found)
    function = getattr(lib, f"fl_conv_{which}_{'f32' if dtype.char == 'f' else 'f64'}")
    return _Call(function, ctypes.addressof(kept), size, kept)


def _served(which: str, dtype: np.dtype, *args: Any) -> _Call | None:
    """The native kernel that can do it. args: image and weight shape, the output's size (None: what follows from the rest),
    stride, padding, dilation and groups."""
    if dtype.char not in "fd" or (lib := _native.library("conv")) is None:
        return None
    return _call(lib, which, dtype, *args)


def _deep(kind: np.dtype, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
          out: Ints | None = None) -> conv3d.Depth | None:
    """The depth of volumes that native kernels can convolve plane by plane; None for anything else."""
    if len(kernel) != 3 or kind.char not in "fd" or 0 in (*size, *kernel) or _native.library("conv") is None:
        return None
    if out is None:
        out = out_size(size, kernel, stride, padding, dilation)
    return conv3d.Depth(size[0], kernel[0], stride[0], padding[0], dilation[0], out[0]) if min(out) > 0 else None


# ----------------------------------------------------------------------------------------------------------- by products
def _shared(n: int, win: Windows, channels: int, itemsize: int, multiplications: int,
            work: Callable[[int, int], None]) -> None:
    """work(start, stop) over samples, as many at a time as have their windows in the buffer, on all cores where it pays."""
    step = max(1, min(n, BUFFER // max(1, channels * math.prod(win.kernel) * math.prod(win.out) * itemsize)))

    def share(start: int, stop: int) -> None:
        for at in range(start, stop, step):
            work(at, min(at + step, stop))

    blas.split(n, share, multiplications >= _SHARED)


def _forward(x: ndarray, w: ndarray, bias: ndarray | None, win: Windows, groups: int, out: ndarray) -> None:
    inner, count = w.size // len(w), math.prod(win.out)
    matrix = w.reshape(groups, len(w) // groups, inner)

    def work(start: int, stop: int) -> None:
        columns = np.ascontiguousarray(win.view(win.pad(x[start:stop]))).reshape(stop - start, groups, inner, count)
        np.matmul(matrix, columns, out=out[start:stop].reshape(stop - start, *matrix.shape[:2], count))
        if bias is not None:  # while the result is in the cache
            out[start:stop] += bias

    _shared(len(x), win, x.shape[1], x.itemsize, out.size * inner, work)


def _input(g: ndarray, w: ndarray, win: Windows, groups: int, out: ndarray) -> None:
    inner, each = w.size // len(w), len(w) // groups
    matrix = w.reshape(groups, each, inner).transpose(0, 2, 1)

    def work(start: int, stop: int) -> None:
        rows = g[start:stop].reshape(stop - start, groups, each, math.prod(win.out))
        columns = np.matmul(matrix, rows, out=memory.empty((stop - start, groups, inner, rows.shape[-1]), g.dtype))
        win.add(columns.reshape(stop - start, out.shape[1], *win.kernel, *win.out), out[start:stop])

    _shared(len(g), win, out.shape[1], g.itemsize, g.size * inner, work)


def _weight(g: ndarray, x: ndarray, win: Windows, groups: int) -> ndarray:
    """(groups, inner, out channels of each): this way round the product is up to twice as fast."""
    channels, count = x.shape[1], math.prod(win.out)
    inner = channels // groups * math.prod(win.kernel)
    sums: list[tuple[int, ndarray]] = []

    def work(start: int, stop: int) -> None:
        columns = np.moveaxis(win.view(win.pad(x[start:stop])), 0, 1 + len(win.kernel))
        columns = np.ascontiguousarray(columns).reshape(groups, inner, (stop - start) * count)
        rows = np.ascontiguousarray(g[start:stop].swapaxes(0, 1)).reshape(groups, -1, (stop - start) * count)
        sums.append((start, np.matmul(columns, rows.transpose(0, 2, 1))))

    _shared(len(g), win, channels, x.itemsize, g.size * inner, work)
    return sum([own for _, own in sorted(sums, key=lambda pair: pair[0])])  # always in one order: reproducible


# ----------------------------------------------------------------------------------------------------------- the kernels
@kernel(batch="convolution")
def conv_forward(x: ndarray, w: ndarray, bias: ndarray | None, stride: Ints, padding: Ints, dilation: Ints,
                 groups: int) -> ndarray:
    """The convolution of x (batch, channels, *size)."""
    native = x.dtype
    x, w = _ready(x), _ready(w)
    served = _served("forward", x.dtype, x.shape, w.shape, None, stride, padding, dilation, groups)
    if served is not None:
        out = memory.empty((len(x), len(w), *served.size), x.dtype)
        ready = None if bias is None else _ready(bias)
        served.function(served.numbers, x, w, ready, out)
        return narrow(out, native)
    size = out_size(x.shape[2:], w.shape[2:], stride, padding, dilation)
    depth = _deep(x.dtype, x.shape[2:], w.shape[2:], stride, padding, dilation) if x.size and w.size else None
    if depth is not None:
        plane = lambda images, weight: conv_forward(images, weight, bias, stride[1:], padding[1:], dilation[1:], groups)
        return narrow(conv3d.forward(depth, x, w, size, plane), native)
    out, bias = memory.empty((len(x), len(w), *size), x.dtype), _bias(bias, len(size))
    if not x.size or not w.size:
        out[...] = 0 if bias is None else bias
    elif out.size:
        _forward(x, w, bias, Windows(x.shape[2:], w.shape[2:], stride, padding, dilation, size), groups, out)
    return narrow(out, native)


@kernel
def convolution(x: ndarray, w: ndarray, bias: ndarray | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
                output_padding: Ints, groups: int) -> ndarray:
    """A convolution or, transposed, what inverts the shapes of one."""
    if not transposed:
        return conv_forward(x, w, bias, stride, padding, dilation, groups)
    size = transposed_size(x.shape[2:], w.shape[2:], stride, padding, dilation, output_padding)
    return conv_input(x, w, bias, size, stride, padding, dilation, groups)


@kernel
def conv_input(g: ndarray, w: ndarray, bias: ndarray | None, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
               groups: int) -> ndarray:
    """The gradient of the input, of spatial size `size`, from the output's; also the transposed convolution of g."""
    native = g.dtype
    g, w = _ready(g), _ready(w)
    shape = (len(g), w.shape[1] * groups, *size)
    served = _served("input", g.dtype, shape, w.shape, g.shape[2:], stride, padding, dilation, groups)
    if served is not None:
        out = memory.empty(shape, g.dtype)
        ready = None if bias is None else _ready(bias)
        served.function(served.numbers, g, w, ready, out)
        return narrow(out, native)
    depth = _deep(g.dtype, size, w.shape[2:], stride, padding, dilation, g.shape[2:]) if g.size and w.size else None
    if depth is not None:
        plane = lambda part, weight: conv_input(part, weight, None, size[1:], stride[1:], padding[1:], dilation[1:], groups)
        out = conv3d.input_gradient(depth, g, w, shape, plane)
    else:
        out = memory.empty(shape, g.dtype)
        if not g.size or not w.size:
            out[...] = 0
        elif out.size:
            _input(g, w, Windows(size, w.shape[2:], stride, padding, dilation, g.shape[2:]), groups, out)
    if bias is not None:
        out += _bias(bias, len(size))
    return narrow(out, native)


@kernel
def conv_weight(g: ndarray, x: ndarray, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
                groups: int) -> ndarray:
    """The gradient of the weight, of kernel size `size`, from the output's and the input."""
    native = g.dtype
    g, x = _ready(g), _ready(x)
    shape = (g.shape[1], x.shape[1] // groups, *size)
    made = _native_weight(g, x, shape, stride, padding, dilation, groups, None)
    if made is not None:
        return narrow(made, native)
    if not g.size or not x.size:
        return np.zeros(shape, native)
    depth = _deep(g.dtype, x.shape[2:], size, stride, padding, dilation, g.shape[2:])
    if depth is not None:
        plane = lambda part, images: conv_weight(part, images, size[1:], stride[1:], padding[1:], dilation[1:], groups)
        return narrow(conv3d.weight_gradient(depth, g, x, shape, plane), native)
    total = _weight(g, x, Windows(x.shape[2:], size, stride, padding, dilation, g.shape[2:]), groups)
    return np.ascontiguousarray(total.transpose(0, 2, 1), native).reshape(shape)


def _native_weight(g, x, shape: Ints, stride, padding, dilation, groups: int, bias: ndarray | None) -> ndarray | None:
    """The gradient of the weight by the native kernel, where it serves; that of the bias is written into `bias`."""
    served = _served("weight", g.dtype, x.shape, shape, g.shape[2:], stride, padding, dilation, groups)
    if served is None:
        return None
    made = memory.empty(shape, g.dtype)
    served.function(served.numbers, g, x, made, bias)
    return made


@kernel
def conv_weight_bias(g: ndarray, x: ndarray, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
                     groups: int) -> tuple[ndarray, ndarray]:
    """The gradients of weight and bias, while the output's gradient is in the cache."""
    native = g.dtype
    grads, image = _ready(g), _ready(x)
    bias = np.empty(g.shape[1], grads.dtype)
    shape = (g.shape[1], x.shape[1] // groups, *size)
    made = _native_weight(grads, image, shape, stride, padding, dilation, groups, bias)
    if made is None:
        made = conv_weight(grads, image, size, stride, padding, dilation, groups)
        grads.sum((0, *range(2, g.ndim)), out=bias)
    return narrow(made, native), narrow(bias, native)


# ------------------------------------------------------------------------------------------------- unfold and fold
@kernel
def im2col(x: ndarray, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> ndarray:
    """([batch,] channels, *size) -> ([batch,] channels * taps, windows)."""
    win = Windows(x.shape[x.ndim - len(kernel):], kernel, stride, padding, dilation)
    *lead, channels = x.shape[:x.ndim - len(kernel)]
    return np.ascontiguousarray(win.view(win.pad(x))).reshape(*lead, channels * math.prod(kernel), math.prod(win.out))


@kernel
def col2im(columns: ndarray, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> ndarray:
    """The sum of all windows at their places: the transpose of im2col."""
    win = Windows(size, kernel, stride, padding, dilation)
    *lead, rows, _ = columns.shape
    given = wide(columns).reshape(*lead, rows // math.prod(kernel), *kernel, *win.out)
    made = memory.empty((*given.shape[:len(lead) + 1], *size), given.dtype)
    win.add(given, made)
    return narrow(made, columns.dtype)
