"""Pooling: by native code (native/pool.c), or over strided views: one pass per tap of the window, a few channels at a time
so that the data stays in cache.

All kernels take arrays (..., *size): the last len(kernel) dimensions are pooled, the ones before are just many.
Maximum pooling notes per window which tap won (`which`, a small unsigned integer), from which both the gradient and
PyTorch's flat indices follow.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory, parallel
from ..shape.windows import Windows
from ..table import kernel
from .resample import along

CHUNK = 1 << 18   # bytes of input at a time
_SHARED = 1 << 18  # elements from which both cores work
TAPS = 1 << 12    # of a window, which native code keeps a table of

Ints = "tuple[int, ...]"


def _wide(x: ndarray) -> ndarray:
    return x.astype(np.float32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return -np.inf


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


class Pool:
    """The windows of one call: padding on the left as asked, on the right as far as the last window reaches."""

    def __init__(self, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out: Ints):
        self.size, self.padding = size, padding
        reach = [(o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, stride, kernel, dilation)]
        padded = tuple([max(n + p, r) for n, p, r in zip(size, padding, reach)])
        self.is_padded = padded != size
        self.win = win = Windows(padded, kernel, stride, (0,) * len(size), dilation, out)
        win.wide = False
        self.taps = list(win.taps())
        # Every element of the input is in exactly one window: gradients can be written without adding.
        self.tiles = not self.is_padded and kernel == stride and all([o * s == n for o, s,
                                                                      n in zip(out, stride, size)]) \
            and all([d == 1 or k == 1 for d, k in zip(dilation, kernel)])

    def pad(self, x: ndarray, buffer: ndarray | None) -> ndarray:
        if buffer is None:
            return x
        target = buffer[:len(x)]
        self.inner(target)[...] = x
        return target

    def inner(self, padded: ndarray) -> ndarray:
        return padded[(..., *[slice(p, p + n) for p, n in zip(self.padding, self.size)])]

    def buffer(self, rows: int, dtype: np.dtype, value: Any) -> ndarray | None:
        return np.full((rows, 1, *self.win.padded), value, dtype) if self.is_padded else None

    def at(self, x: ndarray, tap: Ints) -> ndarray:
        """What all windows see at one tap: a view (rows, 1, *out) of a padded array."""
        win = self.win
        return x[(..., *[slice(t * d, t * d + s * (o - 1) + 1, s)
                         for t, d, s, o in zip(tap, win.dilation, win.stride, win.out)])]

    def first_taps(self) -> Any:
        """Per window the first tap that is not padding: it wins where all elements are -inf."""
        first: Any = 0
        win = self.win
        for d, p in enumerate(self.padding):
            start = np.arange(win.out[d]) * win.stride[d] - p
            tap = -(np.minimum(start, 0) // win.dilation[d])
            first = np.add.outer(first * win.kernel[d], tap) if d else tap
        return first

    def rows(self, total: int, work: Any) -> None:
        """work(start, stop) over pieces of the rows, on both cores where it pays."""
        each = math.prod(self.size)
        step = max(1, CHUNK // max(1, each * 4))

        def piece(start: int, stop: int) -> None:
            for at in range(start, stop, step):
                work(at, min(at + step, stop))

        if total * each >= _SHARED:
            parallel.split(total, piece)
        else:
            piece(0, total)


def _flat(x: ndarray, dims: int) -> ndarray:
    """(..., *last) -> (rows, 1, *last), contiguous."""
    return np.ascontiguousarray(x).reshape(-1, 1, *x.shape[x.ndim - dims:]) if x.size else x.reshape(
        0, 1, *x.shape[x.ndim - dims:])


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
    native, dims = x.dtype, len(kernel)
    size, lead = x.shape[x.ndim - dims:], x.shape[:x.ndim - dims]
    shape = (*lead, *out_size)
    quick = _native(x, kernel)
    if quick is not None:
        x, small = np.ascontiguousarray(x), _small(kernel)
        out, which = memory.empty(shape, native), memory.empty(shape, small) if noted else None
        _typed(quick, "fl_max_pool", x)(
            x, out, which if noted else None, small.itemsize > 1,
            geometry(size, kernel, stride, padding, dilation, out_size), math.prod(lead))
        return out, which
    pool = Pool(size, kernel, stride, padding, dilation, out_size)
    flat = _flat(_wide(x), dims)
    out = memory.empty((len(flat), 1, *out_size), flat.dtype)
    which = memory.empty(out.shape, _small(kernel)) if noted else None

    def work(start: int, stop: int) -> None:
        part = pool.pad(flat[start:stop], pool.buffer(stop - start, flat.dtype, _lowest(flat.dtype)))
        made = out[start:stop]
        noted_here = which[start:stop] if noted else None
        _largest(pool, part, made, noted_here, False)
        if noted and flat.dtype.kind == "f" and made.size and np.isnan(made.max()):
            _largest(pool, part, made, noted_here, True)

    pool.rows(len(flat), work)
    out = out.reshape(shape)
    return out if out.dtype == native else out.astype(native), which.reshape(shape) if noted else None


def _largest(pool: Pool, part: ndarray, out: ndarray, which: ndarray | None, nans: bool) -> None:
    """Strictly larger replaces, so the first of equals wins; the last nan does, as in PyTorch."""
    mask = np.empty(out.shape, np.bool_)
    for i, tap in enumerate(pool.taps):
        seen = pool.at(part, tap)
        if i == 0:
            np.copyto(out, seen)
            if which is not None:
                which[...] = pool.first_taps()
            continue
        if which is not None:
            np.greater(seen, out, out=mask)
            if nans:
                mask |= np.isnan(seen)
            if which.itemsize == 1:  # numbers only grow: two quick passes over bytes instead of a masked copy
                numbers = mask.view(np.uint8)
                np.multiply(numbers, np.uint8(i), out=numbers)
                np.maximum(which, numbers, out=which)
            else:
                np.copyto(which, i, where=mask)
        np.maximum(out, seen, out=out)


@kernel
def max_pool_indices(which: ndarray, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> ndarray:
    """PyTorch's indices: the winner's flat position in the input's last dimensions."""
    dims = len(kernel)
    quick = library("pool") if which.size and math.prod(kernel) <= TAPS else None
    if quick is not None:
        which, made = np.ascontiguousarray(which), memory.empty(which.shape, np.dtype(np.int64))
        out = which.shape[which.ndim - dims:]
        quick.fl_max_pool_indices(which, which.itemsize > 1, made, geometry(size, kernel, stride, padding, dilation, out),
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
    native, dims = g.dtype, len(kernel)
    out_size = which.shape[which.ndim - dims:]
    quick = _native(g, kernel)
    if quick is not None:
        g, which = np.ascontiguousarray(g), np.ascontiguousarray(which)
        dx = memory.empty((*g.shape[:g.ndim - dims], *size), native)
        _typed(quick, "fl_max_pool_scatter", g)(
            g, which, which.itemsize > 1, dx,
            geometry(size, kernel, stride, padding, dilation, out_size), g.size // math.prod(out_size))
        return dx
    pool = Pool(size, kernel, stride, padding, dilation, out_size)
    flat, numbers = _flat(_wide(g), dims), _flat(which, dims)
    out = memory.empty((len(flat), 1, *size), flat.dtype)

    def work(start: int, stop: int) -> None:
        grads, won, target = flat[start:stop], numbers[start:stop], out[start:stop]
        if pool.tiles:
            for i, tap in enumerate(pool.taps):
                np.multiply(grads, won == i, out=pool.at(target, tap))
            return
        total = target if not pool.is_padded else np.empty((stop - start, 1, *pool.win.padded), flat.dtype)
        total.fill(0)
        for i, tap in enumerate(pool.taps):
            place = pool.at(total, tap)
            np.add(place, np.multiply(grads, won == i), out=place)
        if pool.is_padded:
            target[...] = pool.inner(total)

    pool.rows(len(flat), work)
    out = out.reshape(*g.shape[:g.ndim - dims], *size)
    return out if out.dtype == native else out.astype(native)


@kernel
def max_pool_gather(x: ndarray, which: ndarray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> ndarray:
    """What the winning taps hold in another array of the input's shape."""
    native, dims = x.dtype, len(kernel)
    pool = Pool(x.shape[x.ndim - dims:], kernel, stride, padding, dilation, which.shape[which.ndim - dims:])
    flat, numbers = _flat(_wide(x), dims), _flat(which, dims)
    out = np.zeros(numbers.shape, flat.dtype)

    def work(start: int, stop: int) -> None:
        part = pool.pad(flat[start:stop], pool.buffer(stop - start, flat.dtype, 0))
        for i, tap in enumerate(pool.taps):
            np.copyto(out[start:stop], pool.at(part, tap), where=numbers[start:stop] == i)

    pool.rows(len(flat), work)
    return out.reshape(which.shape).astype(native, copy=False)


# -------------------------------------------------------------------------------------------------------- average
def _divisor(pool: Pool, size: Ints, kernel: Ints, stride: Ints, padding: Ints, include_pad: bool, override: int | None,
             dtype: np.dtype) -> Any:
    """By what each window's sum is divided: a number, or an array (*out)."""
    if override is not None:
        return dtype.type(override)
    total: Any = 1.0
    for n, k, s, p, o in zip(size, kernel, stride, padding, pool.win.out):
        start = np.arange(o) * s - p
        end = np.minimum(start + k, n + p)
        if not include_pad:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        total = np.multiply.outer(total, end - start)
    return dtype.type(total.flat[0]) if (total == total.flat[0]).all() else total.astype(dtype)


@kernel
def avg_pool(x: ndarray, kernel: Ints, stride: Ints, padding: Ints, out_size: Ints, include_pad: bool,
             override: int | None) -> ndarray:
    native, dims = x.dtype, len(kernel)
    size, lead = x.shape[x.ndim - dims:], x.shape[:x.ndim - dims]
    quick = _native(x)
    if quick is not None and (override is None or override > 0):
        x, out = np.ascontiguousarray(x), memory.empty((*lead, *out_size), native)
        _typed(quick, "fl_avg_pool", x)(
            x, out, geometry(size, kernel, stride, padding, (1,) * dims, out_size), math.prod(lead), include_pad, override or 0)
        return out
    pool = Pool(size, kernel, stride, padding, (1,) * dims, out_size)
    flat = _flat(_wide(x), dims)
    divisor = _divisor(pool, size, kernel, stride, padding, include_pad, override, flat.dtype)
    out = memory.empty((len(flat), 1, *out_size), flat.dtype)

    def work(start: int, stop: int) -> None:
        part = pool.pad(flat[start:stop], pool.buffer(stop - start, flat.dtype, 0))
        total = out[start:stop]
        for i, tap in enumerate(pool.taps):
            if i == 0:
                np.copyto(total, pool.at(part, tap))
            else:
                np.add(total, pool.at(part, tap), out=total)
        _divide(total, divisor)

    pool.rows(len(flat), work)
    out = out.reshape(*x.shape[:x.ndim - dims], *out_size)
    return out if out.dtype == native else out.astype(native)


def _divide(total: ndarray, divisor: Any) -> None:
    if total.dtype.kind in "iu":
        total[...] = np.trunc(total / divisor)
    else:
        np.divide(total, divisor, out=total)


@kernel
def avg_pool_grad(g: ndarray, size: Ints, kernel: Ints, stride: Ints, padding: Ints, include_pad: bool,
                  override: int | None) -> ndarray:
    native, dims = g.dtype, len(kernel)
    out_size = g.shape[g.ndim - dims:]
    quick = _native(g)
    if quick is not None and (override is None or override > 0):
        g, dx = np.ascontiguousarray(g), memory.empty((*g.shape[:g.ndim - dims], *size), native)
        _typed(quick, "fl_avg_pool_grad", g)(
            g, dx, geometry(size, kernel, stride, padding, (1,) * dims, out_size),
            g.size // math.prod(out_size), include_pad, override or 0)
        return dx
    pool = Pool(size, kernel, stride, padding, (1,) * dims, out_size)
    flat = _flat(_wide(g), dims)
    divisor = _divisor(pool, size, kernel, stride, padding, include_pad, override, flat.dtype)
    out = memory.empty((len(flat), 1, *size), flat.dtype)

    def work(start: int, stop: int) -> None:
        grads, target = flat[start:stop] / divisor, out[start:stop]
        if pool.tiles:
            for tap in pool.taps:
                np.copyto(pool.at(target, tap), grads)
            return
        total = target if not pool.is_padded else np.empty((stop - start, 1, *pool.win.padded), flat.dtype)
        total.fill(0)
        for tap in pool.taps:
            place = pool.at(total, tap)
            np.add(place, grads, out=place)
        if pool.is_padded:
            target[...] = pool.inner(total)

    pool.rows(len(flat), work)
    out = out.reshape(*g.shape[:g.ndim - dims], *size)
    return out if out.dtype == native else out.astype(native)


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
    native, dims = x.dtype, len(out_size)
    quick = _native(x)
    if quick is not None and math.prod(out_size):
        size, lead = x.shape[x.ndim - dims:], x.shape[:x.ndim - dims]
        x, out = np.ascontiguousarray(x), memory.empty((*lead, *out_size), native)
        _typed(quick, "fl_adaptive_avg", x)(x, out, varying(size, out_size), math.prod(lead))
        return out
    x = _wide(x)
    made = along(x, [_averaging(n, o, x.dtype) for n, o in zip(x.shape[x.ndim - dims:], out_size)])
    return made.astype(native, copy=False)


@kernel
def adaptive_avg_pool_grad(g: ndarray, size: Ints) -> ndarray:
    native, dims = g.dtype, len(size)
    out_size = g.shape[g.ndim - dims:]
    quick = _native(g)
    if quick is not None:
        g, dx = np.ascontiguousarray(g), memory.empty((*g.shape[:g.ndim - dims], *size), native)
        _typed(quick, "fl_adaptive_avg_grad", g)(g, dx, varying(size, out_size), g.size // math.prod(out_size))
        return dx
    g = _wide(g)
    made = along(g, [_averaging(n, o, g.dtype).T for n, o in zip(size, g.shape[g.ndim - dims:])])
    return made.astype(native, copy=False)


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
    quick = _native(x)
    if quick is not None and math.prod(out_size):
        x = np.ascontiguousarray(x)
        out, at = memory.empty(shape, x.dtype), memory.empty(shape, np.dtype(np.int64))
        _typed(quick, "fl_adaptive_max", x)(x, out, at, varying(size, out_size), x.size // math.prod(size))
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
