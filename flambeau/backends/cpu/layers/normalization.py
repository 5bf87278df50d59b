"""Batch, layer and group normalization: natively (native/batchnorm.c, layernorm.c), or by their formulas.

Half precision is computed in float32. Statistics come back in the precision of the parameters or of the computation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory
from ..halves import FLOAT32, is_half, narrow, suffix, wide
from ..table import kernel

_FLOAT64 = np.dtype(np.float64)


def _like(x: ndarray | None, dtype: np.dtype) -> Any:
    return None if x is None else x if x.dtype is dtype and x.flags.c_contiguous else np.ascontiguousarray(x, dtype)


def _changeable(x: ndarray | None, dtype: np.dtype) -> Any:
    """A running statistic that native code may write, or a copy of it."""
    return x if x is None or (x.dtype is dtype and x.flags.c_contiguous and memory.is_writable(x)) else np.array(x, dtype)


def _dense(x: ndarray) -> ndarray:
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def _functions(name: str, x: ndarray) -> Any:
    """The native functions of a family where they serve this array; None otherwise."""
    return library(name) if x.dtype.char in "fd" and x.size else None


def _typed(functions: Any, name: str, x: ndarray) -> Any:
    return getattr(functions, name + ("_f32" if x.dtype.char == "f" else "_f64"))


def _handed_out(x: ndarray, weight: ndarray | None, out: ndarray, *statistics: ndarray) -> tuple[ndarray, ...]:
    """The result in the input's dtype; the statistics, of half precision, in the dtype of the parameters or of the input."""
    if out.dtype is x.dtype:
        return out, *statistics
    kept = x.dtype if weight is None else weight.dtype
    return out.astype(x.dtype), *[narrow(s, kept) for s in statistics]


def _channels(x: ndarray) -> ndarray:
    """(batch, channels, positions)."""
    return x.reshape(*x.shape[:2], math.prod(x.shape[2:]))


def _moments(x: ndarray, axes: tuple[int, ...], eps: float) -> tuple[ndarray, ndarray, ndarray]:
    """Mean, variance and 1 / deviation over some axes, which are kept; sums are taken in float64."""
    mean = x.mean(axes, _FLOAT64, keepdims=True)
    variance = np.square(x - mean).mean(axes, keepdims=True)
    return tuple([m.astype(x.dtype) for m in (mean, variance, 1 / np.sqrt(variance + eps))])


def _affine(x: ndarray, weight: ndarray | None, bias: ndarray | None) -> ndarray:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _gradient(weighted: ndarray, normal: ndarray, inverse: ndarray, axes: tuple[int, ...]) -> ndarray:
    """The gradient of an input whose mean and deviation over some axes were taken out; `weighted` is that of the result."""
    along = (weighted * normal).mean(axes, _FLOAT64, keepdims=True)
    return (weighted - weighted.mean(axes, _FLOAT64, keepdims=True) - normal * along) * inverse


# ------------------------------------------------------------------------------------------------------ batch norm
@kernel
def batch_norm(x: ndarray, weight: ndarray | None, bias: ndarray | None, running_mean: ndarray | None,
               running_var: ndarray | None, training: bool, momentum: float,
               eps: float) -> tuple[ndarray, ndarray, ndarray]:
    """(result, mean, 1 / deviation) per channel; in training the running statistics are brought up to date."""
    a = _dense(wide(x))
    shape, kind = a.shape, a.dtype
    w, b = _like(weight, kind), _like(bias, kind)
    means, variances = _changeable(running_mean, kind), _changeable(running_var, kind)
    functions = _functions("batchnorm", a)
    if functions is not None:
        out, saved = memory.empty(shape, kind), shape[1] if training else 0
        mean, inverse = np.empty(saved, kind), np.empty(saved, kind)
        _typed(functions, "fl_batch_norm", a)(
            a, out, w, b, means, variances, mean, inverse, shape[0], shape[1], a.size // (shape[0] * shape[1]), training,
            momentum, eps)
    else:
        out, mean, inverse = _batch_norm(a, w, b, means, variances, training, momentum, eps)
    if training and not (means is running_mean and variances is running_var):
        for running, changed in ((running_mean, means), (running_var, variances)):
            if changed is not running and memory.is_writable(running):
                running[...] = changed
    return _handed_out(x, weight, out, mean, inverse)


def _batch_norm(x: ndarray, weight: Any, bias: Any, means: Any, variances: Any, training: bool, momentum: float,
                eps: float) -> tuple[ndarray, ndarray, ndarray]:
    """On NumPy. The variance that is kept as a running statistic is the unbiased one."""
    kind, rows = x.dtype, _channels(x)
    count = rows.shape[0] * rows.shape[2]
    if training:
        mean, variance, inverse = [m.reshape(-1) for m in _moments(rows, (0, 2), eps)]
        for running, value in ((means, mean), (variances, variance * (count / max(count - 1, 1)))):
            if running is not None:
                running[...] = (1 - momentum) * running + momentum * value
    else:
        mean, inverse = means, (1 / np.sqrt(variances + kind.type(eps))).astype(kind)
    scale = inverse if weight is None else inverse * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    out = (rows * scale[:, None] + shift[:, None]).reshape(x.shape)
    return (out, mean, inverse) if training else (out, np.empty(0, kind), np.empty(0, kind))


@kernel
def batch_norm_grad(g: ndarray, x: ndarray, weight: ndarray | None, mean: ndarray, inverse: ndarray, training: bool,
                    needs: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias (None where not needed)."""
    a = _dense(wide(x))
    shape, kind = a.shape, a.dtype
    grads, w, mean, inverse = _like(g, kind), _like(weight, kind), _like(mean, kind), _like(inverse, kind)
    kept = kind if weight is None else weight.dtype
    functions = _functions("batchnorm", a)
    if functions is not None:
        dx = memory.empty(shape, kind) if needs[0] else None
        dw, db = [np.empty(shape[1], kind) if need else None for need in needs[1:]]
        _typed(functions, "fl_batch_norm_grad", a)(
            grads, a, w, mean, inverse, dx, dw, db, shape[0], shape[1], a.size // (shape[0] * shape[1]), training)
        return (dx, dw, db) if g.dtype is kind is kept else _narrowed((dx, dw, db), needs, g.dtype, kept)
    grads, normal = _channels(grads), (_channels(a) - mean[:, None]) * inverse[:, None]
    weighted = grads if w is None else grads * w[:, None]
    slope = _gradient(weighted, normal, inverse[:, None], (0, 2)) if training else weighted * inverse[:, None]
    dw, db = (grads * normal).sum((0, 2), _FLOAT64), grads.sum((0, 2), _FLOAT64)
    return _narrowed((slope.reshape(shape), dw, db), needs, g.dtype, kept)


def _narrowed(made: tuple[Any, ...], needs: tuple[bool, ...], dtype: np.dtype, kept: np.dtype) -> tuple[Any, ...]:
    """The gradients of an input and of its parameters in their dtypes; None where not needed."""
    return tuple([narrow(d, kind) if need else None for d, need, kind in zip(made, needs, (dtype, kept, kept))])


# ------------------------------------------------------------------------------------------------------ layer norm
@kernel
def layer_norm(x: ndarray, dims: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> Any:
    """(result, mean, 1 / deviation) over the last `dims` dimensions."""
    if is_half(x.dtype) and x.size and (functions := library("layernorm")) is not None:
        out, mean, inverse = _half_rows(functions, _dense(x), dims, weight, bias, eps, True)
        kept = x.dtype if weight is None else weight.dtype
        return out, narrow(mean, kept), narrow(inverse, kept)
    a = _dense(wide(x))
    shape, kind = a.shape, a.dtype
    w, b = _like(weight, kind), _like(bias, kind)
    saved = (*shape[:len(shape) - dims], *(1,) * dims)
    functions = _functions("layernorm", a)
    if functions is not None:
        out, mean, inverse = memory.empty(shape, kind), np.empty(saved, kind), np.empty(saved, kind)
        run = functions.fl_layer_norm_f32 if kind.char == "f" else functions.fl_layer_norm_f64
        run(a, w, b, out, mean, inverse, mean.size, a.size // mean.size, eps)
    elif not a.size:
        out = np.empty(shape, kind)
        mean, inverse = np.zeros(saved, kind), np.full(saved, 1 / math.sqrt(eps) if eps else np.inf, kind)
    else:
        mean, _, inverse = _moments(a, tuple(range(a.ndim - dims, a.ndim)), eps)
        out = _affine((a - mean) * inverse, w, b)
    return _handed_out(x, weight, out, mean, inverse)


def _half_rows(functions: Any, x: ndarray, dims: int, weight: ndarray | None, bias: ndarray | None, eps: float,
               centred: bool) -> tuple[ndarray, ndarray | None, ndarray]:
    """The norm of rows in half precision, widened a few at a time; the statistics are float32."""
    saved = (*x.shape[:x.ndim - dims], *(1,) * dims)
    out, inverse = memory.empty(x.shape, x.dtype), np.empty(saved, FLOAT32)
    mean = np.empty(saved, FLOAT32) if centred else None
    getattr(functions, "fl_layer_norm_" + suffix(x.dtype))(
        x, _like(weight, FLOAT32), _like(bias, FLOAT32), out, mean, inverse, inverse.size, x.size // inverse.size, eps, centred)
    return out, mean, inverse


def layer_norm_only(x: ndarray, dims: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> ndarray:
    """`layer_norm` of float32 or float64 arrays of one dtype that are not empty, without the statistics: they take as long
    as the rest of a small one."""
    functions = library("layernorm")
    if functions is None or not x.flags.c_contiguous or (weight is not None and not weight.flags.c_contiguous) or (
            bias is not None and not bias.flags.c_contiguous):
        return layer_norm(x, dims, weight, bias, eps)[0]
    shape, native = x.shape, x.dtype
    out = memory.empty(shape, native)
    length = shape[-1] if dims == 1 else math.prod(shape[len(shape) - dims:])
    run = functions.fl_layer_norm_only_f32 if native.char == "f" else functions.fl_layer_norm_only_f64
    run(x, weight, bias, out, x.size // length, length, eps)
    return out


@kernel
def layer_norm_shaped(x: ndarray, shape: tuple[int, ...], weight: ndarray | None, bias: ndarray | None,
                      eps: float) -> Any:
    return layer_norm(x, len(shape), weight, bias, eps)


@kernel
def layer_norm_grad(g: ndarray, x: ndarray, dims: int, mean: ndarray, inverse: ndarray, weight: ndarray | None,
                    needs: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias (None where not needed)."""
    a = _dense(wide(x))
    kind, inner = a.dtype, a.shape[a.ndim - dims:]
    grads, w, mean, inverse = _like(g, kind), _like(weight, kind), _like(mean, kind), _like(inverse, kind)
    kept = kind if weight is None else weight.dtype
    functions = _functions("layernorm", a)
    if functions is not None:
        made = _row_gradients(functions, grads, a, inner, mean, inverse, w, needs)
        return made if x.dtype is kind is kept else _narrowed(made, needs, x.dtype, kept)
    axes, lead = tuple(range(a.ndim - dims, a.ndim)), tuple(range(a.ndim - dims))
    normal = (a - mean) * inverse
    dx = _gradient(grads if w is None else grads * w, normal, inverse, axes) if needs[0] and a.size else a
    dw, db = (grads * normal).sum(lead, _FLOAT64), grads.sum(lead, _FLOAT64)
    return _narrowed((dx, dw, db), needs, x.dtype, kept)


def _row_gradients(functions: Any, g: ndarray, x: ndarray, inner: tuple[int, ...], mean: ndarray | None, inverse: ndarray,
                   weight: ndarray | None, needs: tuple[bool, ...]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias; without a mean, of RMS norm."""
    kind = x.dtype
    dx = memory.empty(x.shape, kind) if needs[0] else None
    dw, db = [np.empty(inner, kind) if need else None for need in needs[1:]]
    run = functions.fl_layer_norm_backward_f32 if kind.char == "f" else functions.fl_layer_norm_backward_f64
    run(g, x, mean, inverse, weight, dx, dw, db, inverse.size, x.size // inverse.size)
    return dx, dw, db


@kernel
def rms_norm(x: ndarray, dims: int, weight: ndarray | None, eps: float) -> tuple[ndarray, ndarray]:
    """(x * inverse * weight, inverse), inverse = 1 / sqrt(mean(x * x) + eps) over the last `dims` dimensions."""
    if is_half(x.dtype):
        functions = library("layernorm") if x.size else None
        if functions is not None:
            out, _, inverse = _half_rows(functions, _dense(x), dims, weight, None, eps, False)
            return out, inverse
        out, inverse = rms_norm(wide(x), dims, None if weight is None else wide(weight), eps)
        return narrow(out, x.dtype), inverse
    saved = (*x.shape[:x.ndim - dims], *(1,) * dims)
    functions = _functions("layernorm", x) if weight is None or weight.dtype is x.dtype else None
    if functions is not None:
        x = _dense(x)
        out, inverse = memory.empty(x.shape, x.dtype), np.empty(saved, x.dtype)
        _typed(functions, "fl_layer_norm", x)(
            x, _like(weight, x.dtype), None, out, None, inverse, inverse.size, x.size // inverse.size, eps)
        return out, inverse
    axes = tuple(range(x.ndim - dims, x.ndim))
    inverse = 1 / np.sqrt(np.mean(x * x, axes, keepdims=True) + x.dtype.type(eps))
    return _affine(x * inverse, weight, None), inverse


@kernel
def rms_norm_grad(g: ndarray, x: ndarray, dims: int, inverse: ndarray, weight: ndarray | None,
                  needs: tuple[bool, bool]) -> tuple[Any, Any]:
    """Gradients of input and weight (None where not needed)."""
    if is_half(x.dtype):
        made = rms_norm_grad(wide(g), wide(x), dims, inverse, None if weight is None else wide(weight), needs)
        return tuple([m if m is None else narrow(m, x.dtype) for m in made])
    inner = x.shape[x.ndim - dims:]
    functions = _functions("layernorm", x) if g.dtype is x.dtype and (weight is None or weight.dtype is x.dtype) else None
    if functions is not None:
        g, x, inverse, weight = _dense(g), _dense(x), _dense(inverse), _like(weight, x.dtype)
        return _row_gradients(functions, g, x, inner, None, inverse, weight, (*needs, False))[:2]
    axes, lead = tuple(range(x.ndim - dims, x.ndim)), tuple(range(x.ndim - dims))
    normal = x * inverse
    dw = np.sum(g * normal, lead) if needs[1] else None
    if not needs[0]:
        return None, dw
    weighted = g if weight is None else g * weight
    return (weighted - normal * np.mean(weighted * normal, axes, keepdims=True)) * inverse, dw


# ------------------------------------------------------------------------------------------------------ group norm
def _in_groups(x: ndarray, groups: int) -> ndarray:
    """(batch, groups, channels of each, positions)."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))


@kernel
def group_norm(x: ndarray, groups: int, weight: ndarray | None, bias: ndarray | None, eps: float) -> Any:
    """(result, mean, 1 / deviation) over groups of channels; the statistics are (batch, groups)."""
    a = _dense(wide(x))
    shape, kind = a.shape, a.dtype
    w, b = _like(weight, kind), _like(bias, kind)
    functions = _functions("batchnorm", a)
    if functions is not None:
        out, saved = memory.empty(shape, kind), (shape[0], groups)
        mean, inverse = np.empty(saved, kind), np.empty(saved, kind)
        _typed(functions, "fl_group_norm", a)(
            a, out, w, b, mean, inverse, shape[0], shape[1], a.size // (shape[0] * shape[1]), groups, eps)
    else:
        rows = _in_groups(a, groups)
        mean, _, inverse = _moments(rows, (2, 3), eps)
        w, b = [None if v is None else v.reshape(groups, -1, 1) for v in (w, b)]
        out = _affine((rows - mean) * inverse, w, b).reshape(shape)
        mean, inverse = [v.reshape(shape[0], groups) for v in (mean, inverse)]
    return _handed_out(x, weight, out, mean, inverse)


@kernel
def group_norm_grad(g: ndarray, x: ndarray, groups: int, mean: ndarray, inverse: ndarray, weight: ndarray | None,
                    needs: tuple[bool, bool, bool]) -> tuple[Any, Any, Any]:
    """Gradients of input, weight and bias (None where not needed)."""
    a = _dense(wide(x))
    shape, kind = a.shape, a.dtype
    grads, w, mean, inverse = _like(g, kind), _like(weight, kind), _like(mean, kind), _like(inverse, kind)
    kept = kind if weight is None else weight.dtype
    functions = _functions("batchnorm", a)
    if functions is not None:
        dx = memory.empty(shape, kind) if needs[0] else None
        dw, db = [np.empty(shape[1], kind) if need else None for need in needs[1:]]
        sums = np.empty(2 * shape[0] * shape[1], _FLOAT64)
        _typed(functions, "fl_group_norm_grad", a)(
            grads, a, w, mean, inverse, dx, dw, db, sums, shape[0], shape[1], a.size // (shape[0] * shape[1]), groups)
        return (dx, dw, db) if x.dtype is kind is kept else _narrowed((dx, dw, db), needs, x.dtype, kept)
    grads, inverse = _in_groups(grads, groups), inverse[..., None, None]
    normal = (_in_groups(a, groups) - mean[..., None, None]) * inverse
    dw, db = [v.sum((0, 3), _FLOAT64).reshape(-1) for v in (grads * normal, grads)]
    dx = _gradient(grads if w is None else grads * w.reshape(groups, -1, 1), normal, inverse, (2, 3)).reshape(shape)
    return _narrowed((dx, dw, db), needs, x.dtype, kept)
