"""Convolution: native (native/conv.c; of volumes see conv3d.py), else by matrix products: the windows are copied into a matrix
that stays in the cache, and BLAS does the rest.

Three kernels, each the derivative of the others: `conv_forward` (input, weight), `conv_input` (what the input's
gradient is, and what a transposed convolution computes) and `conv_weight` (the weight's gradient). Weights are
(out channels, in channels / groups, *kernel). Depthwise convolutions have no matrix to speak of: there each tap of the
kernel is one multiplication and one addition over the whole input.
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
from ..linalg import blas
from ..shape.windows import Windows
from ..table import kernel
from . import conv3d

BUFFER = 3 << 19   # bytes of copied windows at a time: about what a core's own cache holds
_SHARED = 1 << 22  # multiplications from which both cores work
_FLIP = 1          # output channels per input channel up to which the input's gradient is a convolution
_THIN = 32         # rows of windows below which shorter products are faster
SHORT = 100        # positions below which several samples are put side by side for one product
_DEPTHWISE = 1 << 18  # bytes of a sample chunk in a depthwise convolution

Ints = "tuple[int, ...]"


def _wide(x: ndarray) -> ndarray:
    """Half precision is computed in float32."""
    return x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x


def _ready(x: ndarray) -> ndarray:
    return x if x.flags.c_contiguous and x.dtype.char in "fd" else np.ascontiguousarray(_wide(x))


def _narrow(x: ndarray, dtype: np.dtype) -> ndarray:
    return x if x.dtype == dtype else x.astype(dtype)


def _chunk(n: int, row_bytes: int) -> int:
    return max(1, min(n, BUFFER // max(1, row_bytes)))


def _pays(w: ndarray, groups: int) -> bool:
    """Whether wide windows pay: short rows of each tap take longer to copy than gaps in each output to skip."""
    return w.size // len(w) * groups > len(w) if len(w) else False


def _few(n: int, sample_bytes: int) -> int:
    """Samples at a time in a depthwise convolution."""
    return max(1, min(n, _DEPTHWISE // max(1, sample_bytes)))


def _zeros(win: Windows, shape: Ints, dtype: np.dtype) -> ndarray | None:
    """Memory for a gradient laid out as wide windows are; None when they have no gaps."""
    if win.exact:
        return None
    made = memory.empty(shape, dtype)
    made.fill(0)
    return made


def _bias(bias: ndarray | None, dims: int) -> ndarray | None:
    return None if bias is None else _wide(bias).reshape(-1, *(1,) * dims)


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


# ------------------------------------------------------------------------------------------------------ forward
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
        return _narrow(out, native)
    depth = _deep(x.dtype, x.shape[2:], w.shape[2:], stride, padding, dilation) if x.size and w.size else None
    if depth is not None:
        plane = lambda images, weight: conv_forward(images, weight, bias, stride[1:], padding[1:], dilation[1:], groups)
        size = out_size(x.shape[2:], w.shape[2:], stride, padding, dilation)
        return _narrow(conv3d.forward(depth, x, w, size, plane), native)
    win = Windows(x.shape[2:], w.shape[2:], stride, padding, dilation, wide=_pays(w, groups))
    out = memory.empty((len(x), len(w), *win.out), x.dtype)
    if not out.size:
        return _narrow(out, native)
    bias = _bias(bias, len(win.out))
    if not x.shape[1] or not w.size:
        out[...] = 0 if bias is None else bias
    elif groups == x.shape[1] == len(w) and groups > 1:
        _depthwise(x, w, bias, win, out)
    elif groups == 1 and win.count < SHORT and len(x) > 1:
        _side_by_side(x, w, bias, win, out)
    else:
        _each_sample(x, w, bias, win, groups, out)
    return _narrow(out, native)


def _each_sample(x, w, bias, win: Windows, groups: int, out: ndarray) -> None:
    """One product per sample and group, a few samples in the buffer at a time."""
    n, channels = x.shape[:2]
    inner = w.size // len(w)
    window = math.prod(win.kernel)
    taps = channels * window
    matrix = w.reshape(len(w), inner) if groups == 1 else w.reshape(groups, len(w) // groups, inner)
    split = (inner,) if groups == 1 else (groups, inner)
    with_bias = bias is not None and groups == 1 and not win.single
    if with_bias:  # as one more row of windows, full of ones: a pass over the result less
        matrix, bias, split, taps = np.concatenate([matrix, bias.reshape(-1, 1)], 1), None, (inner + 1,), taps + 1

    def work(start: int, stop: int) -> None:
        size = _chunk(stop - start, taps * win.count * x.itemsize)
        margin = win.buffer(size, channels, x.dtype)
        copied = None if win.single else memory.empty((size, taps, win.count), x.dtype)
        if with_bias:
            copied[:, -1] = 1
        rows = None if win.exact else memory.empty((size, len(w), win.row), x.dtype)
        for at in range(start, stop, size):
            part = win.pad(x[at:min(at + size, stop)], margin)
            m = len(part)
            if copied is None:
                columns = part.reshape(m, *split, win.count)
            else:
                view = win.view(part)
                np.copyto(copied[:m, :channels * window].reshape(view.shape), view)
                columns = copied[:m].reshape(m, *split, win.count)
            target = out[at:at + m]
            if rows is None:
                flat = target.reshape(m, *matrix.shape[:-1], win.count)
                np.matmul(matrix, columns, out=flat)
                if bias is not None:
                    np.add(target, bias, out=target)
            else:
                made = rows[:m].reshape(m, *matrix.shape[:-1], win.row)
                np.matmul(matrix, columns, out=made[..., :win.count])
                _take(win.grid(rows[:m]), bias, target)

    blas.split(n, work, out.size * inner >= _SHARED)


def _take(source: ndarray, bias: ndarray | None, out: ndarray) -> None:
    if bias is None:
        np.copyto(out, source)
    else:
        np.add(source, bias, out=out)


def _side_by_side(x, w, bias, win: Windows, out: ndarray) -> None:
    """Few positions per sample: one product for many samples."""
    n, channels = x.shape[:2]
    inner = w.size // len(w)

    def work(start: int, stop: int) -> None:
        size = _chunk(stop - start, inner * win.row * x.itemsize)
        margin = win.buffer(size, channels, x.dtype)
        for at in range(start, stop, size):
            part = win.pad(x[at:min(at + size, stop)], margin)
            m = len(part)
            columns = _columns(win, part)
            made = np.matmul(w.reshape(len(w), inner), columns.reshape(inner, m * win.row)).reshape(len(w), m, win.row)
            _take(win.grid(made).swapaxes(0, 1), bias, out[at:at + m])

    blas.split(n, work, out.size * inner >= _SHARED)


def _columns(win: Windows, part: ndarray) -> ndarray:
    """The windows of several samples side by side: (channels, *kernel, samples, row)."""
    view = win.view(part)
    dims = len(win.kernel)
    order = (1, *range(2, 2 + dims), 0, *range(2 + dims, view.ndim))
    if not win.wide:
        return np.ascontiguousarray(view.transpose(order)).reshape(part.shape[1], *win.kernel, len(part), win.row)
    columns = memory.empty((part.shape[1], *win.kernel, len(part), win.row), part.dtype)
    columns[..., win.count:] = 0
    np.copyto(columns[..., :win.count], view.transpose(order))
    return columns


def _depthwise(x, w, bias, win: Windows, out: ndarray) -> None:
    n, channels = x.shape[:2]
    w = w.reshape(channels, *win.kernel)
    grid = (win.count,) if win.wide else win.out

    def work(start: int, stop: int) -> None:
        size = _few(stop - start, channels * win.row * x.itemsize)
        margin = win.buffer(size, channels, x.dtype)
        total = memory.empty((size, channels, win.row), x.dtype)
        product = memory.empty((size, channels, *grid), x.dtype)
        for at in range(start, stop, size):
            part = win.pad(x[at:min(at + size, stop)], margin)
            m = len(part)
            view = win.view(part)
            sums = total[:m].reshape(m, channels, *grid) if not win.wide else total[:m, :, :win.count]
            for i, tap in enumerate(win.taps()):
                factor = w[(slice(None), *tap)].reshape(channels, *(1,) * len(grid))
                if i == 0:
                    np.multiply(view[(slice(None), slice(None), *tap)], factor, out=sums)
                else:
                    np.multiply(view[(slice(None), slice(None), *tap)], factor, out=product[:m])
                    np.add(sums, product[:m], out=sums)
            _take(win.grid(total[:m]), bias, out[at:at + m])

    blas.split(n, work, out.size * math.prod(win.kernel) >= _SHARED)


# ------------------------------------------------------------------------------------------- gradient of the input
@kernel
def convolution(x: ndarray, w: ndarray, bias: ndarray | None, stride: Ints, padding: Ints, dilation: Ints,
                transposed: bool,
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
    channels = w.shape[1] * groups
    served = _served("input", g.dtype, (len(g), channels, *size), w.shape, g.shape[2:], stride, padding, dilation, groups)
    if served is not None:
        out = memory.empty((len(g), channels, *size), g.dtype)
        ready = None if bias is None else _ready(bias)
        served.function(served.numbers, g, w, ready, out)
        return _narrow(out, native)
    depth = _deep(g.dtype, size, w.shape[2:], stride, padding, dilation, g.shape[2:]) if g.size and w.size else None
    if depth is not None:
        plane = lambda part, weight: conv_input(part, weight, None, size[1:], stride[1:], padding[1:], dilation[1:], groups)
        out = conv3d.input_gradient(depth, g, w, (len(g), channels, *size), plane)
        return _narrow(out if bias is None else np.add(out, _bias(bias, 3), out=out), native)
    if groups == 1 and len(w) <= _FLIP * channels and set(stride) == {1} and bias is None:
        margin = tuple([d * (k - 1) - p for d, k, p in zip(dilation, w.shape[2:], padding)])
        natural = out_size(g.shape[2:], w.shape[2:], stride, margin, dilation)
        if min(margin) >= 0 and natural == tuple(size):
            return _narrow(_flipped(g, w, margin, dilation), native)
    win = Windows(size, w.shape[2:], stride, padding, dilation, g.shape[2:], wide=_pays(w, groups))
    out = memory.empty((len(g), channels, *size), g.dtype)
    if not out.size:
        return _narrow(out, native)
    if not g.size or not w.size:
        out[...] = 0
    elif groups == channels == len(w) and groups > 1:
        _input_depthwise(g, w, win, out)
    elif groups == 1 and win.count < SHORT and len(g) > 1:
        _input_side_by_side(g, w, win, out)
    else:
        _input_each_sample(g, w, win, groups, out)
    if bias is not None:
        out += _bias(bias, len(size))
    return _narrow(out, native)


def _flipped(g: ndarray, w: ndarray, margin: Ints, dilation: Ints) -> ndarray:
    """At stride 1 the gradient of the input is a convolution itself, with the weight turned around: copying the windows
    of the gradient takes less time than adding up windows of the input, unless there are many more of them."""
    dims = len(margin)
    turned = w.swapaxes(0, 1)[(slice(None), slice(None), *[slice(None, None, -1)] * dims)]
    return conv_forward(g, turned, None, (1,) * dims, margin, dilation, 1)


def _target(win: Windows, out: ndarray, margin: ndarray | None) -> ndarray:
    """Zeroed memory to add windows into: the result's own, unless a margin is needed around it."""
    target = out if margin is None else margin[:len(out)]
    target.fill(0)
    return target


def _input_each_sample(g, w, win: Windows, groups: int, out: ndarray) -> None:
    n, channels = out.shape[:2]
    inner = w.size // len(w)
    each = len(w) // groups
    matrix = w.reshape(groups, each, inner).transpose(0, 2, 1)
    straight = win.single and not win.is_padded

    def work(start: int, stop: int) -> None:
        size = _chunk(stop - start, channels * math.prod(win.kernel) * win.row * g.itemsize)
        margin = win.buffer(size, channels, g.dtype)
        gaps = _zeros(win, (size, len(w), win.row), g.dtype)
        made = None if straight else memory.empty((size, groups, inner, win.row), g.dtype)
        for at in range(start, stop, size):
            part = _spaced(win, g[at:min(at + size, stop)], gaps)
            m = len(part)
            rows = part.reshape(m, groups, each, win.row)
            target = out[at:at + m]
            if straight:
                np.matmul(matrix, rows, out=target.reshape(m, groups, inner, win.row))
                continue
            np.matmul(matrix, rows, out=made[:m])
            total = _target(win, target, margin)
            win.add(total, made[:m].reshape(m, channels, *win.kernel, win.row))
            if margin is not None:
                target[...] = win.inner(total)

    blas.split(n, work, g.size * inner >= _SHARED)


def _spaced(win: Windows, part: ndarray, gaps: ndarray | None) -> ndarray:
    """A gradient laid out as wide windows are."""
    if gaps is None:
        return part
    np.copyto(win.grid(gaps[:len(part)]), part)
    return gaps[:len(part)]


def _rows(win: Windows, part: ndarray) -> ndarray:
    """A gradient of several samples side by side: (channels, samples, row), zero where wide windows wrap around."""
    m, channels = part.shape[:2]
    if win.exact:
        return np.ascontiguousarray(part.reshape(m, channels, win.row).swapaxes(0, 1))
    rows = memory.empty((channels, m, win.row), part.dtype)
    rows.fill(0)
    np.copyto(win.grid(rows), part.swapaxes(0, 1))
    return rows


def _input_side_by_side(g, w, win: Windows, out: ndarray) -> None:
    n, channels = out.shape[:2]
    inner = w.size // len(w)

    def work(start: int, stop: int) -> None:
        size = _chunk(stop - start, inner * win.row * g.itemsize)
        margin = win.buffer(size, channels, g.dtype)
        for at in range(start, stop, size):
            rows = _rows(win, g[at:min(at + size, stop)])
            m = rows.shape[1]
            made = np.matmul(w.reshape(len(w), inner).T, rows.reshape(len(w), m * win.row))
            total = _target(win, out[at:at + m], margin)
            columns = made.reshape(channels, *win.kernel, m, win.row)
            win.add(total, np.moveaxis(columns, -2, 0))
            if margin is not None:
                out[at:at + m] = win.inner(total)

    blas.split(n, work, g.size * inner >= _SHARED)


def _input_depthwise(g, w, win: Windows, out: ndarray) -> None:
    n, channels = out.shape[:2]
    w = w.reshape(channels, *win.kernel)

    def work(start: int, stop: int) -> None:
        size = _few(stop - start, channels * win.row * g.itemsize)
        margin = win.buffer(size, channels, g.dtype)
        gaps = _zeros(win, (size, channels, win.row), g.dtype)
        for at in range(start, stop, size):
            part = _spaced(win, g[at:min(at + size, stop)], gaps)
            m = len(part)
            total = _target(win, out[at:at + m], margin)
            rows = part.reshape(m, channels, win.row)
            win.add_each(total, lambda tap, rows=rows: rows * w[(slice(None), *tap, None)])
            if margin is not None:
                out[at:at + m] = win.inner(total)

    blas.split(n, work, g.size * math.prod(win.kernel) >= _SHARED)


# ------------------------------------------------------------------------------------------ gradient of the weight
@kernel
def conv_weight(g: ndarray, x: ndarray, size: Ints, stride: Ints, padding: Ints, dilation: Ints,
                groups: int) -> ndarray:
    """The gradient of the weight, of kernel size `size`, from the output's and the input."""
    native = g.dtype
    g, x = _ready(g), _ready(x)
    n, channels = x.shape[:2]
    each, inner = g.shape[1] // groups, channels // groups * math.prod(size)
    shape = (g.shape[1], channels // groups, *size)
    made = _native_weight(g, x, shape, stride, padding, dilation, groups, None)
    if made is not None:
        return _narrow(made, native)
    depth = _deep(g.dtype, x.shape[2:], size, stride, padding, dilation, g.shape[2:]) if g.size and x.size else None
    if depth is not None:
        plane = lambda part, images: conv_weight(part, images, size[1:], stride[1:], padding[1:], dilation[1:], groups)
        return _narrow(conv3d.weight_gradient(depth, g, x, shape, plane), native)
    if not g.size or not x.size:
        return np.zeros(shape, native)
    win = Windows(x.shape[2:], size, stride, padding, dilation, g.shape[2:], wide=inner * groups > g.shape[1])
    if groups == channels == g.shape[1] and groups > 1:
        return _narrow(_weight_depthwise(g, x, win).reshape(shape), native)
    sums: list[tuple[int, Any]] = []  # (groups, inner, each): this way round the product is up to twice as fast

    def work(start: int, stop: int) -> None:
        sample = (groups * inner + g.shape[1]) * win.row * g.itemsize
        chunk = _chunk(stop - start, sample if inner > _THIN else sample * 4)
        margin = win.buffer(chunk, channels, x.dtype)
        own = 0
        for at in range(start, stop, chunk):
            part = win.pad(x[at:min(at + chunk, stop)], margin)
            m = len(part)
            columns = _columns(win, part).reshape(groups, inner, m * win.row)
            rows = _rows(win, g[at:at + m]).reshape(groups, each, m * win.row)
            own = own + np.matmul(columns, rows.transpose(0, 2, 1))
        sums.append((start, own))

    blas.split(n, work, g.size * inner >= _SHARED)
    total = sum([own for _, own in sorted(sums, key=lambda pair: pair[0])])  # always in one order: reproducible
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
    wide, image = _ready(g), _ready(x)
    bias = np.empty(g.shape[1], wide.dtype)
    shape = (g.shape[1], x.shape[1] // groups, *size)
    made = _native_weight(wide, image, shape, stride, padding, dilation, groups, bias)
    if made is None:
        made = conv_weight(wide, image, size, stride, padding, dilation, groups)
        wide.sum((0, *range(2, g.ndim)), out=bias)
    return _narrow(made, native), _narrow(bias, native)


def _weight_depthwise(g: ndarray, x: ndarray, win: Windows) -> ndarray:
    n, channels = x.shape[:2]
    size = _few(n, channels * win.row * g.itemsize)
    margin = win.buffer(size, channels, x.dtype)
    gaps = _zeros(win, (size, channels, win.row), g.dtype)
    total = np.zeros((channels, *win.kernel), g.dtype)
    letters = "x" if win.wide else "xyz"[:len(win.out)]
    for at in range(0, n, size):
        view = win.view(win.pad(x[at:at + size], margin))
        part = _spaced(win, g[at:at + size], gaps)
        m = len(part)
        rows = part.reshape(m, channels, win.row)[..., :win.count]
        if not win.wide:
            rows = rows.reshape(m, channels, *win.out)
        for tap in win.taps():
            seen = view[(slice(None), slice(None), *tap)]
            if win.wide:
                total[(slice(None), *tap)] += np.vecdot(seen, rows).sum(0)
            else:
                total[(slice(None), *tap)] += np.einsum(f"nc{letters},nc{letters}->c", seen, rows)
    return total


# ------------------------------------------------------------------------------------------------- unfold and fold
@kernel
def im2col(x: ndarray, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> ndarray:
    """([batch,] channels, *size) -> ([batch,] channels * taps, windows)."""
    if x.ndim == len(kernel) + 1:
        return im2col(x[None], kernel, dilation, padding, stride)[0]
    win = Windows(x.shape[2:], kernel, stride, padding, dilation)
    win.wide = False
    part = win.pad(x, win.buffer(len(x), x.shape[1], x.dtype))
    taken = win.view(np.ascontiguousarray(part))
    return np.ascontiguousarray(taken).reshape(len(x), x.shape[1] * math.prod(kernel), math.prod(win.out))


@kernel
def col2im(columns: ndarray, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> ndarray:
    """The sum of all windows at their places: the transpose of im2col."""
    if columns.ndim == 2:
        return col2im(columns[None], size, kernel, dilation, padding, stride)[0]
    native, columns = columns.dtype, _wide(columns)
    win = Windows(size, kernel, stride, padding, dilation)
    win.wide = False
    n, channels = len(columns), columns.shape[1] // math.prod(kernel)
    total = np.zeros((n, channels, *win.padded), columns.dtype)
    win.add(total, columns.reshape(n, channels, *kernel, math.prod(win.out)))
    made = np.ascontiguousarray(win.inner(total)) if win.is_padded else total
    return _narrow(made, native)
