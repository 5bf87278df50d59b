"""Pooling: by native code (native/pool.c), or over strided views, one pass per tap of the window.

All kernels take arrays (..., *size): the last len(kernel) dimensions are pooled, the ones before are just many.
Maximum pooling notes per window which tap won (`which`, a small unsigned integer), from which both the gradient and
PyTorch's flat indices follow. Half precision is computed in float32.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory
from ..halves import narrow, wide
from ..shape.windows import Windows
from ..table import kernel
from .resample import along

TAPS = 1 << 12    # of a window, which native code keeps a table of

Ints = "tuple[int, ...]"


def _ready(x: ndarray) -> ndarray:
    return np.ascontiguousarray(wide(x))


def _lead(x: ndarray, dims: int) -> Ints:
    return x.shape[:x.ndim - dims]


# --------------------------------------------------------------------------------------------------------- native code
def _native(x: ndarray, kernel: Ints = ()) -> Any:
    """The native functions if they can work on this array; None otherwise."""
    if x.dtype.char in "fd" and x.size and math.prod(kernel) <= TAPS and len(kernel) < 4:
        return library("pool")
    return None


def _typed(functions: Any, name: str, x: ndarray) -> Any:
    return getattr(functions, name + ("_f32" if x.dtype.char == "f" else "_f64"))


@lru_cache(1024)
def geometry(size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out: Ints) -> ndarray:
    """What native/pool.c wants to know: each filled up to three dimensions."""
    more = 3 - len(size)
    blanks = (1, 1, 1, 0, 1, 1)
    return np.array([n for given, blank in zip((size, kernel, stride, padding, dilation, out), blanks)
                     for n in (*(blank,) * more, *given)], np.int64)


def varying(size: Ints, out: Ints) -> ndarray:
    """The geometry of adaptive pooling, whose windows follow from the sizes."""
    ones = (1,) * len(size)
    return geometry(size, ones, ones, ones, ones, out)


def _small(kernel: Ints) -> np.dtype:
    """The dtype that numbers the taps of a window."""
    return np.dtype(np.uint8 if math.prod(kernel) <= 256 else np.int32)


# -------------------------------------------------------------------------------------------------------- maximum
@kernel
def max_pool(x: ndarray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out_size: Ints,
             ceil_mode: bool = False) -> tuple[ndarray, ndarray]:
    """The largest element of each window, and which tap it is."""
    return _max_pool(x, kernel, stride, padding, dilation, out_size, True)


@kernel
def max_pool_values(x: ndarray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out_size: Ints) -> ndarray:
    return _max_pool(x, kernel, stride, padding, dilation, out_size, False)[0]


def _max_pool(x, kernel, stride, padding, dilation, out_size, noted: bool) -> Any:
    dtype, x, dims = x.dtype, _ready(x), len(kernel)
    lead, size = _lead(x, dims), x.shape[x.ndim - dims:]
    small = _small(kernel)
    out = memory.empty((*lead, *out_size), x.dtype)
    which = memory.empty(out.shape, small) if noted else None
    functions = _native(x, kernel)
    if functions is not None:
        _typed(functions, "fl_max_pool", x)(
            x, out, which, small.itemsize > 1,
            geometry(size, kernel, stride, padding, dilation, out_size), math.prod(lead))
    else:
        _largest(Windows(size, kernel, stride, padding, dilation, out_size), x, out, which)
    return narrow(out, dtype), which


def _largest(win: Windows, x: ndarray, out: ndarray, which: ndarray | None) -> None:
    """Strictly larger replaces, so the first of equals wins; the last nan does, as in PyTorch."""
    padded = win.pad(x, np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf)
    for i, tap in enumerate(win.taps()):
        seen = win.at(padded, tap)
        if i == 0:
            out[...] = seen
            if which is not None:
                which[...] = _first_taps(win)
            continue
        better = (seen > out) | (seen != seen)
        np.copyto(out, seen, where=better)
        if which is not None:
            np.copyto(which, i, where=better, casting="unsafe")


def _first_taps(win: Windows) -> Any:
    """Per window the first tap that is not padding: it wins where all elements are -inf."""
    first: Any = 0
    for d, p in enumerate(win.padding):
        start = np.arange(win.out[d]) * win.stride[d] - p
        tap = -(np.minimum(start, 0) // win.dilation[d])
        first = np.add.outer(first * win.kernel[d], tap) if d else tap
    return first


@kernel
def max_pool_indices(which: ndarray, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> ndarray:
    """PyTorch's indices: the winner's flat position in the input's last dimensions."""
    dims = len(kernel)
    functions = library("pool") if which.size and math.prod(kernel) <= TAPS else None
    if functions is not None:
        which, made = np.ascontiguousarray(which), memory.empty(which.shape, np.dtype(np.int64))
        out = which.shape[which.ndim - dims:]
        functions.fl_max_pool_indices(which, which.itemsize > 1, made, geometry(size, kernel, stride, padding, dilation, out),
                                  which.size // math.prod(out))
        return made
    taps = np.unravel_index(which.astype(np.int64), kernel)
    flat: Any = 0
    for d in range(dims):
        out = which.shape[which.ndim - dims + d]
        start = (np.arange(out) * stride[d] - padding[d]).reshape(-1, *(1,) * (dims - 1 - d))
        at = np.clip(start + taps[d] * dilation[d], 0, size[d] - 1)
        flat = flat * size[d] + at
    return np.asarray(flat, np.int64).reshape(which.shape)


@kernel
def max_pool_scatter(g: ndarray, which: ndarray, size: Ints, kernel: Ints, stride: Ints, padding: Ints,
                     dilation: Ints) -> ndarray:
    """The gradient of the input: each window's goes to the tap that won."""
    dtype, dims = g.dtype, len(kernel)
    g, which = _ready(g), np.ascontiguousarray(which)
    lead, out_size = _lead(g, dims), which.shape[which.ndim - dims:]
    dx = memory.empty((*lead, *size), g.dtype)
    functions = _native(g, kernel)
    if functions is not None:
        _typed(functions, "fl_max_pool_scatter", g)(
            g, which, which.itemsize > 1, dx,
            geometry(size, kernel, stride, padding, dilation, out_size), g.size // math.prod(out_size))
    else:
        taps = np.arange(math.prod(kernel)).reshape(*kernel, *(1,) * dims)
        grads, won = [a.reshape(*lead, *(1,) * dims, *out_size) for a in (g, which)]
        Windows(size, kernel, stride, padding, dilation, out_size).add(np.where(won == taps, grads, 0), dx)
    return narrow(dx, dtype)


@kernel
def max_pool_gather(x: ndarray, which: ndarray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> ndarray:
    """What the winning taps hold in another array of the input's shape."""
    dims = len(kernel)
    win = Windows(x.shape[x.ndim - dims:], kernel, stride, padding, dilation, which.shape[which.ndim - dims:])
    padded, out = win.pad(x), np.zeros(which.shape, x.dtype)
    for i, tap in enumerate(win.taps()):
        np.copyto(out, win.at(padded, tap), where=which == i)
    return out


# -------------------------------------------------------------------------------------------------------- average
def _divisor(win: Windows, include_pad: bool, override: int | None, dtype: np.dtype) -> Any:
    """By what each window's sum is divided: a number, or an array (*out)."""
    if override is not None:
        return dtype.type(override)
    total: Any = 1.0
    for n, k, s, p, o in zip(win.size, win.kernel, win.stride, win.padding, win.out):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        total = np.multiply.outer(total, end - start)
    return total.astype(dtype)


@kernel
def avg_pool(x: ndarray, kernel: Ints, stride: Ints, padding: Ints, out_size: Ints, include_pad: bool,
             override: int | None) -> ndarray:
    dtype, x, dims = x.dtype, _ready(x), len(kernel)
    lead, size, ones = _lead(x, dims), x.shape[x.ndim - dims:], (1,) * dims
    out = memory.empty((*lead, *out_size), x.dtype)
    functions = _native(x)
    if functions is not None and (override is None or override > 0):
        _typed(functions, "fl_avg_pool", x)(
            x, out, geometry(size, kernel, stride, padding, ones, out_size), math.prod(lead), include_pad, override or 0)
        return narrow(out, dtype)
    win = Windows(size, kernel, stride, padding, ones, out_size)
    padded = win.pad(x)
    out.fill(0)
    for tap in win.taps():
        np.add(out, win.at(padded, tap), out=out)
    made = out / _divisor(win, include_pad, override, x.dtype)
    return (np.trunc(made) if dtype.kind in "iu" else made).astype(dtype, copy=False)


@kernel
def avg_pool_grad(g: ndarray, size: Ints, kernel: Ints, stride: Ints, padding: Ints, include_pad: bool,
                  override: int | None) -> ndarray:
    dtype, g, dims = g.dtype, _ready(g), len(kernel)
    lead, out_size, ones = _lead(g, dims), g.shape[g.ndim - dims:], (1,) * dims
    dx = memory.empty((*lead, *size), g.dtype)
    functions = _native(g)
    if functions is not None and (override is None or override > 0):
        _typed(functions, "fl_avg_pool_grad", g)(
            g, dx, geometry(size, kernel, stride, padding, ones, out_size), g.size // math.prod(out_size), include_pad,
            override or 0)
        return narrow(dx, dtype)
    win = Windows(size, kernel, stride, padding, ones, out_size)
    share = (g / _divisor(win, include_pad, override, g.dtype)).reshape(*lead, *ones, *out_size)
    win.add(np.broadcast_to(share, (*lead, *kernel, *out_size)), dx)
    return narrow(dx, dtype)


# ------------------------------------------------------------------------------------------- windows of varying size
def _bounds(n: int, out: int) -> tuple[ndarray, ndarray]:
    """Where the windows of adaptive pooling start and end."""
    at = np.arange(out)
    return at * n // out, -((-(at + 1) * n) // out)


def _averaging(n: int, out: int, dtype: np.dtype) -> ndarray:
    start, end = _bounds(n, out)
    inside = (np.arange(n) >= start[:, None]) & (np.arange(n) < end[:, None])
    return (inside / (end - start)[:, None]).astype(dtype)


@kernel
def adaptive_avg_pool(x: ndarray, out_size: Ints) -> ndarray:
    """The mean over windows that cover the input evenly."""
    dtype, x, dims = x.dtype, _ready(x), len(out_size)
    size, lead = x.shape[x.ndim - dims:], _lead(x, dims)
    functions = _native(x)
    if functions is not None and math.prod(out_size):
        made = memory.empty((*lead, *out_size), x.dtype)
        _typed(functions, "fl_adaptive_avg", x)(x, made, varying(size, out_size), math.prod(lead))
    else:
        made = along(x, [_averaging(n, o, x.dtype) for n, o in zip(size, out_size)])
    return made.astype(dtype, copy=False)


@kernel
def adaptive_avg_pool_grad(g: ndarray, size: Ints) -> ndarray:
    dtype, g, dims = g.dtype, _ready(g), len(size)
    out_size = g.shape[g.ndim - dims:]
    functions = _native(g)
    if functions is not None:
        made = memory.empty((*_lead(g, dims), *size), g.dtype)
        _typed(functions, "fl_adaptive_avg_grad", g)(g, made, varying(size, out_size), g.size // math.prod(out_size))
    else:
        made = along(g, [_averaging(n, o, g.dtype).T for n, o in zip(size, out_size)])
    return made.astype(dtype, copy=False)


def _winners(x: ndarray, places: ndarray) -> tuple[ndarray, ndarray]:
    """Per window the largest element and its flat position. x (rows, flat); places (rows or 1, windows, taps)."""
    rows = np.arange(len(x)).reshape(-1, 1, 1)
    seen = x[rows, places]
    best = seen.argmax(-1)[..., None]
    if x.dtype.kind == "f":
        bad = np.isnan(seen)
        if bad.any():  # the last nan wins, as in PyTorch
            last = bad.shape[-1] - 1 - bad[..., ::-1].argmax(-1)[..., None]
            best = np.where(bad.any(-1, keepdims=True), last, best)
    at = np.take_along_axis(np.broadcast_to(places, seen.shape), best, -1)[..., 0]
    return np.take_along_axis(seen, best, -1)[..., 0], at


def _places(tables: list[ndarray], size: Ints) -> ndarray:
    """Flat positions (rows, windows, taps) from per-dimension tables (rows, out, taps)."""
    flat: Any = np.zeros((len(tables[0]), 1, 1), np.int64)
    for table, n in zip(tables, size):
        flat = flat[:, :, None, :, None] * n + table[:, None, :, None, :]
        flat = flat.reshape(len(flat), flat.shape[1] * flat.shape[2], flat.shape[3] * flat.shape[4])
    return flat


@kernel
def adaptive_max_pool(x: ndarray, out_size: Ints) -> tuple[ndarray, ndarray]:
    dims = len(out_size)
    size, shape = x.shape[x.ndim - dims:], (*x.shape[:x.ndim - dims], *out_size)
    functions = _native(x)
    if functions is not None and math.prod(out_size):
        x = np.ascontiguousarray(x)
        out, at = memory.empty(shape, x.dtype), memory.empty(shape, np.dtype(np.int64))
        _typed(functions, "fl_adaptive_max", x)(x, out, at, varying(size, out_size), x.size // math.prod(size))
        return out, at
    tables = []
    for n, o in zip(size, out_size):
        start, end = _bounds(n, o)
        longest = int((end - start).max(initial=1))
        # Shorter windows look at their last element again: that does not change which one wins first.
        tables.append(np.minimum(start[:, None] + np.arange(longest), end[:, None] - 1)[None])
    if not math.prod(shape):
        return np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    values, at = _winners(np.ascontiguousarray(x).reshape(-1, math.prod(size)), _places(tables, size))
    return values.reshape(shape), at.reshape(shape)


@kernel
def fractional_max_pool(x: ndarray, kernel: Ints, out_size: Ints, samples: ndarray) -> tuple[ndarray, ndarray]:
    """Windows of fixed size at random distances. samples (batch, channels, dims) from [0, 1)."""
    dims = len(kernel)
    size, shape = x.shape[x.ndim - dims:], (*x.shape[:x.ndim - dims], *out_size)
    if not math.prod(shape):
        return np.zeros(shape, x.dtype), np.zeros(shape, np.int64)
    samples = samples.reshape(-1, dims)
    tables = []
    for d, (n, k, o) in enumerate(zip(size, kernel, out_size)):
        drawn = samples[:, dims - 1 - d if dims == 2 else d].astype(samples.dtype)[:, None]  # 2-d: width comes first
        start = np.full((len(drawn), o), n - k, np.int64)
        if o > 1:
            alpha = samples.dtype.type(n - k) / samples.dtype.type(o - 1)
            start[:, :-1] = ((np.arange(o - 1, dtype=samples.dtype) + drawn) * alpha).astype(np.int64) \
                - (drawn * alpha).astype(np.int64)
        tables.append(start[..., None] + np.arange(k))
    values, at = _winners(np.ascontiguousarray(x).reshape(-1, math.prod(size)), _places(tables, size))
    return values.reshape(shape), at.reshape(shape)


@kernel
def max_unpool(x: ndarray, indices: ndarray, size: Ints) -> ndarray:
    """Zeros with each element at its flat position in the last dimensions."""
    dims = len(size)
    lead, volume = x.shape[:x.ndim - dims], math.prod(size)
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= volume):
        bad = indices[(indices < 0) | (indices >= volume)].flat[0]
        raise RuntimeError(f"Found an invalid max index: {int(bad)} (output volumes are of size "
                           f"{'x'.join(str(n) for n in size)})")
    out = np.zeros((math.prod(lead), volume), x.dtype)
    if x.size:
        np.put_along_axis(out, np.ascontiguousarray(indices).reshape(len(out), -1),
                          np.ascontiguousarray(x).reshape(len(out), -1), 1)
    return out.reshape(*lead, *size)
