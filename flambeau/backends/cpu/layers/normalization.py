"""Batch, layer and group normalization: few passes, over pieces that stay in the cache.

Half precision is computed in float32. Statistics come back in the precision of the parameters or of the computation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory, parallel
from ..reduce.reductions import add_up
from ..table import kernel

CHUNK = 1 << 17    # elements at a time: input, result and a temporary fit into a core's cache
_SHARED = 1 << 18  # elements from which both cores work

FLOAT32 = np.dtype(np.float32)


def _wide(x: ndarray) -> ndarray:
    return x.astype(FLOAT32) if x.dtype.kind in "fV" and x.dtype.itemsize < 4 else x


def _like(x: ndarray | None, dtype: np.dtype) -> Any:
    return None if x is None else np.ascontiguousarray(x, dtype)


def _pieces(count: int, each: int, work: Any) -> None:
    """work(start, stop) over pieces of `count` things of `each` elements."""
    step = max(1, CHUNK // max(1, each))

    def piece(start: int, stop: int) -> None:
        for at in range(start, stop, step):
            work(at, min(at + step, stop))

    if count * each >= _SHARED and count > 1:
        parallel.split(count, piece)
    else:
        piece(0, count)


def _squares(x: ndarray, y: ndarray) -> ndarray:
    """Sums of products along the last axis."""
    return np.vecdot(x, y) if x.shape[-1] > 1 else (x * y)[..., 0]


# ------------------------------------------------------------------------------------------------------ batch norm
def _channels(x: ndarray) -> ndarray:
    """(batch, channels, positions)."""
    return np.ascontiguousarray(x).reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _mean_and_variance(x: ndarray) -> tuple[ndarray, ndarray]:
    """Per channel, the variance around the mean (not from the sum of squares, which cancels)."""
    n, channels, length = x.shape
    count = n * length
    mean = (add_up(x, (0, 2), False) / x.dtype.type(count)).astype(x.dtype)
    if length == 1:
        centred = x[:, :, 0] - mean
        return mean, (add_up(centred * centred, (0,), False) / x.dtype.type(count)).astype(x.dtype)
    parts = np.empty((n, channels), x.dtype)

    def work(start: int, stop: int) -> None:
        centred = x[start:stop] - mean[:, None]
        parts[start:stop] = _squares(centred, centred)

    _pieces(n, channels * length, work)
    return mean, (parts.sum(0, dtype=np.float64) / count).astype(x.dtype)


def _scaled(x: ndarray, scale: ndarray, shift: ndarray) -> ndarray:
    """x * scale + shift for x (batch, channels, positions), the others (channels, 1) or (batch, channels, 1)."""
    out = memory.empty(x.shape, x.dtype)
    each = scale.ndim == 3

    def work(start: int, stop: int) -> None:
        part = out[start:stop]
        np.multiply(x[start:stop], scale[start:stop] if each else scale, out=part)
        np.add(part, shift[start:stop] if each else shift, out=part)

    _pieces(len(x), x.shape[1] * x.shape[2], work)
    return out


@kernel
def batch_norm(x: ndarray, weight: ndarray | None, bias: ndarray | None, running_mean: ndarray | None,
               running_var: ndarray | None, training: bool, momentum: float, eps: float) -> tuple[ndarray, ndarray,
                                                                                                  ndarray]:
    """(result, mean, 1 / deviation) per channel; in training the running statistics are brought up to date."""
    native, shape = x.dtype, x.shape
    quick = _quick(x, weight, bias, running_mean, running_var)
    if quick is not None:
        x, channels = _plain(x), shape[1]
        out = memory.empty(shape, native)
        mean, inverse = np.empty(channels if training else 0, native), np.empty(channels if training else 0, native)
        _typed(quick, "fl_batch_norm", x)(
            x, out, weight, bias, running_mean, running_var, mean,
            inverse, shape[0], channels, x.size // (shape[0] * channels), training, momentum, eps)
        return out, mean, inverse
    wide = _channels(_wide(x))
    kind = wide.dtype
    if training:
        mean, var = _mean_and_variance(wide)
        _update(running_mean, running_var, mean, var, momentum, wide.shape[0] * wide.shape[2])
        inverse = (1 / np.sqrt(var + kind.type(eps))).astype(kind)
        saved = (_kept(mean, x, weight), _kept(inverse, x, weight))
    else:
        mean = _like(running_mean, kind)
        inverse = (1 / np.sqrt(_like(running_var, kind) + kind.type(eps))).astype(kind)
        saved = (_kept(np.empty(0, kind), x, weight), _kept(np.empty(0, kind), x, weight))
    scale = inverse if weight is None else inverse * _like(weight, kind)
    shift = -mean * scale if bias is None else _like(bias, kind) - mean * scale
    out = _scaled(wide, scale[:, None], shift[:, None]).reshape(shape)
    return (out if out.dtype == native else out.astype(native), *saved)


def _kept(statistic: ndarray, x: ndarray, weight: ndarray | None) -> ndarray:
    """A statistic as PyTorch hands it out: for half precision in the dtype of the parameters, or of the input."""
    wanted = x.dtype if weight is None else weight.dtype
    return statistic.astype(wanted) if x.dtype != statistic.dtype and wanted != statistic.dtype else statistic


def _quick(x: ndarray, *others: ndarray | None) -> Any:
    """The native functions if all arrays are float32 or float64 and the small ones plain; None otherwise."""
    kind = x.dtype
    if kind.char not in "fd" or not x.size:
        return None
    for a in others:
        if a is not None and (a.dtype is not kind or not a.flags.c_contiguous or not memory.is_writable(a)):
            return None
    return library("batchnorm")


def _typed(functions: Any, name: str, x: ndarray) -> Any:
    return getattr(functions, name + ("_f32" if x.dtype.char == "f" else "_f64"))


def _plain(x: ndarray) -> ndarray:
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def _update(running_mean: Any, running_var: Any, mean: ndarray, var: ndarray, momentum: float, count: int) -> None:
    """Moves the running statistics towards the batch's, in place; the variance kept is the unbiased one."""
    for running, value in ((running_mean, mean), (running_var, var * var.dtype.type(count / max(count - 1, 1)))):
        if running is not None and memory.is_writable(running):
            running[...] = (1 - momentum) * running + momentum * value


@kernel
def batch_norm_grad(g: ndarray, x: ndarray, weight: ndarray | None, mean: ndarray, inverse: ndarray, training: bool,
                    needs: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias (None where not needed)."""
    native, shape = g.dtype, x.shape
    quick = _quick(x, weight, mean, inverse) if native is x.dtype else None
    if quick is not None:
        x, g = _plain(x), _plain(g)
        dx = memory.empty(shape, native) if needs[0] else None
        dw, db = [np.empty(shape[1], native) if need else None for need in needs[1:]]
        _typed(quick, "fl_batch_norm_grad", x)(
            g, x, weight, mean, inverse, dx, dw, db, shape[0], shape[1], x.size // (shape[0] * shape[1]), training)
        return dx, dw, db
    x, g = _channels(_wide(x)), _channels(_wide(g))
    kind = x.dtype
    mean, inverse = _like(mean, kind), _like(inverse, kind)
    n, channels, length = x.shape
    count = n * length
    sum_g = add_up(g, (0, 2), False)
    sum_gx = None
    if needs[1] or (training and needs[0]):
        parts = np.empty((n, channels), kind)

        def dots(start: int, stop: int) -> None:
            parts[start:stop] = _squares(x[start:stop] - mean[:, None], g[start:stop])

        _pieces(n, channels * length, dots)
        sum_gx = parts.sum(0, dtype=np.float64).astype(kind)
    dx = None
    if needs[0]:
        scale = inverse if weight is None else inverse * _like(weight, kind)
        if training:
            slope = -scale * inverse * inverse * sum_gx / count
            shift = -scale * sum_g / count - mean * slope
            dx = _two_terms(g, x, scale[:, None], slope.astype(kind)[:, None], shift.astype(kind)[:, None])
        else:
            dx = g * scale[:, None]
        dx = dx.reshape(shape)
        dx = dx if dx.dtype == native else dx.astype(native)
    kept = kind if weight is None else weight.dtype
    return dx, (sum_gx * inverse).astype(kept) if needs[1] else None, sum_g.astype(kept) if needs[2] else None


def _two_terms(g: ndarray, x: ndarray, a: ndarray, b: ndarray, c: ndarray) -> ndarray:
    """g * a + x * b + c for (batch, channels, positions)."""
    out = memory.empty(g.shape, g.dtype)
    each = a.ndim == 3

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop) if each else slice(None)
        part = out[start:stop]
        np.multiply(g[start:stop], a[rows], out=part)
        term = x[start:stop] * b[rows]
        np.add(term, c[rows], out=term)
        np.add(part, term, out=part)

    _pieces(len(g), g.shape[1] * g.shape[2], work)
    return out


# ------------------------------------------------------------------------------------------------------ layer norm
@kernel
def layer_norm(x: ndarray, dims: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> Any:
    """(result, mean, 1 / deviation) over the last `dims` dimensions."""
    native, shape = x.dtype, x.shape
    lead = shape[:len(shape) - dims]
    quick = _quick_rows(x, weight, bias)
    if quick is not None:
        return _rows(quick, x, dims, weight, bias, eps)
    length = math.prod(shape[len(shape) - dims:])
    given = x, weight
    x = np.ascontiguousarray(_wide(x)).reshape(math.prod(lead), length)
    kind = x.dtype
    weight = None if weight is None else _like(weight, kind).reshape(length)
    bias = None if bias is None else _like(bias, kind).reshape(length)
    out = memory.empty(x.shape, kind)
    mean, inverse = np.empty((len(x), 1), kind), np.empty((len(x), 1), kind)
    over = kind.type(1 / length) if length else kind.type(0)
    column = np.full((length, 1), over, kind)

    def work(start: int, stop: int) -> None:
        part, m, r = out[start:stop], mean[start:stop], inverse[start:stop]
        np.matmul(x[start:stop], column, out=m)
        np.subtract(x[start:stop], m, out=part)
        np.multiply(np.vecdot(part, part)[:, None], over, out=r)
        np.add(r, kind.type(eps), out=r)
        np.divide(1, np.sqrt(r, out=r), out=r)
        np.multiply(part, r, out=part)
        if weight is not None:
            np.multiply(part, weight, out=part)
        if bias is not None:
            np.add(part, bias, out=part)

    if x.size:
        _pieces(len(x), length, work)
    elif len(x):
        mean.fill(0)
        inverse.fill(1 / math.sqrt(eps) if eps else np.inf)
    saved = (*lead, *(1,) * dims)
    out = out.reshape(shape)
    out = out if out.dtype == native else out.astype(native)
    return out, _kept(mean.reshape(saved), *given), _kept(inverse.reshape(saved), *given)


def _rows(quick: Any, x: ndarray, dims: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> Any:
    x = _plain(x)
    shape, native = x.shape, x.dtype
    out = memory.empty(shape, native)
    saved = (*shape[:len(shape) - dims], *(1,) * dims)
    mean, inverse = np.empty(saved, native), np.empty(saved, native)
    rows = mean.size
    run = quick.fl_layer_norm_f32 if native.char == "f" else quick.fl_layer_norm_f64
    run(x, weight, bias, out, mean, inverse, rows, x.size // rows, eps)
    return out, mean, inverse


def layer_norm_only(x: ndarray, dims: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> ndarray:
    """`layer_norm` of float32 or float64 arrays of one dtype that are not empty, without the statistics: they take as long
    as the rest of a small one."""
    quick = library("layernorm")
    if quick is None or not x.flags.c_contiguous or (weight is not None and not weight.flags.c_contiguous) or (
            bias is not None and not bias.flags.c_contiguous):
        return layer_norm(x, dims, weight, bias, eps)[0]
    shape, native = x.shape, x.dtype
    out = memory.empty(shape, native)
    length = shape[-1] if dims == 1 else math.prod(shape[len(shape) - dims:])
    run = quick.fl_layer_norm_only_f32 if native.char == "f" else quick.fl_layer_norm_only_f64
    run(x, weight, bias, out, x.size // length, length, eps)
    return out


@kernel
def layer_norm_grad(g: ndarray, x: ndarray, dims: int, mean: ndarray, inverse: ndarray, weight: ndarray | None,
                    needs: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias (None where not needed)."""
    native, shape = x.dtype, x.shape
    inner = shape[len(shape) - dims:]
    if g.dtype is native and mean.dtype is native:
        quick = _quick_rows(x, weight)
        if quick is not None:
            return _rows_backward(quick, g, x, inner, mean, inverse, weight, needs)
    length = math.prod(inner)
    x = np.ascontiguousarray(_wide(x)).reshape(-1, length) if x.size else _wide(x).reshape(0, length)
    kind = x.dtype
    g = np.ascontiguousarray(_wide(g)).reshape(x.shape)
    mean, inverse = [_like(s, kind).reshape(-1, 1)[:len(x)] for s in (mean, inverse)]
    kept = kind if weight is None else weight.dtype
    weight = None if weight is None else _like(weight, kind).reshape(length)
    dx = memory.empty(x.shape, kind) if needs[0] else None
    sums: list[ndarray] = []
    over = kind.type(1 / length) if length else kind.type(0)
    column = np.full((length, 1), over, kind)

    def work(start: int, stop: int) -> None:
        grads, rows = g[start:stop], inverse[start:stop]
        normal = np.subtract(x[start:stop], mean[start:stop])
        np.multiply(normal, rows, out=normal)
        if needs[1]:
            sums.append(np.einsum("ij,ij->j", grads, normal))
        if dx is not None:
            weighted = grads if weight is None else grads * weight
            along = np.vecdot(weighted, normal)[:, None] * over
            np.multiply(normal, along, out=normal)
            np.add(normal, np.matmul(weighted, column), out=normal)
            part = dx[start:stop]
            np.subtract(weighted, normal, out=part)
            np.multiply(part, rows, out=part)

    if x.size:
        _pieces(len(x), length, work)
    dw = np.sum(sums, 0, dtype=np.float64).astype(kept).reshape(inner) if sums else np.zeros(inner, kept)
    db = add_up(g, (0,), False).astype(kept).reshape(inner) if needs[2] and x.size else np.zeros(inner, kept)
    if dx is not None:
        dx = dx.reshape(shape)
        dx = dx if dx.dtype == native else dx.astype(native)
    return dx, dw if needs[1] else None, db if needs[2] else None


def _quick_rows(x: ndarray, *others: ndarray | None) -> Any:
    """The native functions for rows, if all arrays are float32 or float64 and the small ones plain; None otherwise."""
    kind = x.dtype
    if kind.char not in "fd" or not x.size:
        return None
    for a in others:
        if a is not None and (a.dtype is not kind or not a.flags.c_contiguous):
            return None
    return library("layernorm")


def _rows_backward(quick: Any, g: ndarray, x: ndarray, inner: tuple[int, ...], mean: ndarray | None, inverse: ndarray,
                   weight: ndarray | None, needs: tuple[bool, ...]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias; without a mean, of RMS norm."""
    x, g, kind = _plain(x), _plain(g), x.dtype
    dx = memory.empty(x.shape, kind) if needs[0] else None
    dw = np.empty(inner, kind) if needs[1] else None
    db = np.empty(inner, kind) if needs[2] else None
    run = quick.fl_layer_norm_backward_f32 if kind.char == "f" else quick.fl_layer_norm_backward_f64
    run(g, x, mean, inverse, weight, dx, dw, db, inverse.size, x.size // inverse.size)
    return dx, dw, db


@kernel
def rms_norm(x: ndarray, dims: int, weight: ndarray | None, eps: float) -> tuple[ndarray, ndarray]:
    """(x * inverse * weight, inverse), inverse = 1 / sqrt(mean(x * x) + eps) over the last `dims` dimensions."""
    saved = (*x.shape[:x.ndim - dims], *(1,) * dims)
    quick = _quick_rows(x, weight)
    if quick is not None:
        x = _plain(x)
        out, inverse = memory.empty(x.shape, x.dtype), np.empty(saved, x.dtype)
        _typed(quick, "fl_layer_norm", x)(x, weight, None, out, None, inverse, inverse.size, x.size // inverse.size, eps)
        return out, inverse
    axes = tuple(range(x.ndim - dims, x.ndim))
    inverse = 1 / np.sqrt(np.mean(x * x, axes, keepdims=True) + x.dtype.type(eps))
    out = x * inverse
    return out if weight is None else np.multiply(out, weight, out=out), inverse


@kernel
def rms_norm_grad(g: ndarray, x: ndarray, dims: int, inverse: ndarray, weight: ndarray | None,
                  needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """Gradients of input and weight (None where not needed)."""
    inner = x.shape[x.ndim - dims:]
    quick = _quick_rows(x, weight) if g.dtype is x.dtype else None
    if quick is not None:
        return _rows_backward(quick, g, x, inner, None, inverse, weight, (*needs, False))[:2]
    axes, lead = tuple(range(x.ndim - dims, x.ndim)), tuple(range(x.ndim - dims))
    normal = x * inverse
    dw = np.sum(g * normal, lead) if needs[1] else None
    if not needs[0]:
        return None, dw
    weighted = g if weight is None else g * weight
    return (weighted - normal * np.mean(weighted * normal, axes, keepdims=True)) * inverse, dw


# ------------------------------------------------------------------------------------------------------ group norm
@kernel
def group_norm(x: ndarray, groups: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> Any:
    """(result, mean, 1 / deviation) over groups of channels; the statistics are (batch, groups)."""
    native, shape = x.dtype, x.shape
    quick = _quick(x, weight, bias)
    if quick is not None:
        x, out, saved = _plain(x), memory.empty(shape, native), (shape[0], groups)
        mean, inverse = np.empty(saved, native), np.empty(saved, native)
        _typed(quick, "fl_group_norm", x)(
            x, out, weight, bias, mean, inverse, shape[0], shape[1], x.size // (shape[0] * shape[1]), groups, eps)
        return out, mean, inverse
    given, x = x, _channels(_wide(x))
    kind = x.dtype
    n, channels, length = x.shape
    rows = x.reshape(n * groups, channels // groups * length)
    size = rows.shape[1]
    mean = add_up(rows, (1,), False) / kind.type(max(size, 1))
    var = np.empty_like(mean)

    def work(start: int, stop: int) -> None:
        centred = rows[start:stop] - mean[start:stop, None]
        var[start:stop] = _squares(centred, centred)

    _pieces(len(rows), size, work)
    inverse = 1 / np.sqrt(var / kind.type(max(size, 1)) + kind.type(eps))
    mean, inverse = mean.reshape(n, groups).astype(kind), inverse.reshape(n, groups).astype(kind)
    scale = np.repeat(inverse, channels // groups, 1)
    if weight is not None:
        scale = scale * _like(weight, kind)
    shift = -np.repeat(mean, channels // groups, 1) * scale
    if bias is not None:
        shift += _like(bias, kind)
    out = _scaled(x, scale[..., None], shift[..., None]).reshape(shape)
    out = out if out.dtype == native else out.astype(native)
    return out, _kept(mean, given, weight), _kept(inverse, given, weight)


@kernel
def group_norm_grad(g: ndarray, x: ndarray, groups: int, mean: ndarray, inverse: ndarray, weight: ndarray | None,
                    needs: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias (None where not needed)."""
    native, shape = x.dtype, x.shape
    quick = _quick(x, weight, mean, inverse) if g.dtype is native else None
    if quick is not None:
        x, g = _plain(x), _plain(g)
        dx = memory.empty(shape, native) if needs[0] else None
        dw, db = [np.empty(shape[1], native) if need else None for need in needs[1:]]
        sums = np.empty(2 * shape[0] * shape[1], np.float64)
        _typed(quick, "fl_group_norm_grad", x)(
            g, x, weight, mean, inverse, dx, dw, db, sums, shape[0], shape[1], x.size // (shape[0] * shape[1]), groups)
        return dx, dw, db
    x, g = _channels(_wide(x)), _channels(_wide(g))
    kind = x.dtype
    n, channels, length = x.shape
    each = channels // groups
    kept = kind if weight is None else weight.dtype
    sum_g = add_up(g, (2,), False).reshape(n, channels)
    sum_gx = np.empty((n, channels), kind)
    means = np.repeat(mean.astype(kind), each, 1)

    def dots(start: int, stop: int) -> None:
        sum_gx[start:stop] = _squares(x[start:stop] - means[start:stop, :, None], g[start:stop])

    _pieces(n, channels * length, dots)
    inverses = np.repeat(inverse.astype(kind), each, 1)
    dw = (sum_gx * inverses).sum(0).astype(kept) if needs[1] else None
    db = sum_g.sum(0).astype(kept) if needs[2] else None
    if not needs[0]:
        return None, dw, db
    factor = np.ones(channels, kind) if weight is None else _like(weight, kind)
    per_group = lambda sums: np.repeat((sums * factor).reshape(n, groups, each).sum(2), each, 1) / kind.type(
        max(each * length, 1))
    slope = -per_group(sum_gx) * inverses ** 3
    shift = -per_group(sum_g) * inverses - means * slope
    dx = _two_terms(g, x, (inverses * factor)[..., None], slope[..., None], shift[..., None]).reshape(shape)
    return dx if dx.dtype == native else dx.astype(native), dw, db


@kernel
def layer_norm_shaped(x: ndarray, shape: tuple[int, ...], weight: ndarray | None, bias: ndarray | None,
                      eps: float) -> Any:
    return layer_norm(x, len(shape), weight, bias, eps)
