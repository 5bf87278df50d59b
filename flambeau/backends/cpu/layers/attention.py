"""Scaled dot-product attention and its backward pass: natively (native/attention.c), or head by head.

The backward pass computes the scores again from the saved log-sum-exp, so memory grows with the length of a sequence, not with
its square.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
from numpy import ndarray

from ....native import Library, library
from .. import memory
from ..halves import FLOAT32, cast, narrow
from ..table import KERNELS, kernel


def _as_four(x: ndarray) -> ndarray:
    """(..., rows, columns) as (batch, heads, rows, columns), a view where NumPy can."""
    if x.ndim == 4:
        return x
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 2:
        return x[None, None]
    return x.reshape(-1, *x.shape[-3:])


def _wide(x: ndarray) -> ndarray:
    """x as BLAS takes it: float32 or float64, the elements of each row side by side (NumPy multiplies anything else in a
    plain loop)."""
    if x.dtype.char not in "fd":
        return cast(x, FLOAT32)
    dense = x.strides[-1] == x.itemsize and x.strides[-2] >= x.itemsize * x.shape[-1]
    return x if dense or x.size == 0 else np.ascontiguousarray(x)


def _additive(mask: ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> ndarray | None:
    """The mask as numbers to add, broadcast to four dimensions."""
    if mask is None:
        return None
    if mask.dtype.kind == "b":
        mask = np.where(mask, dtype.type(0), dtype.type(-np.inf))
    elif mask.dtype != dtype:
        mask = cast(mask, dtype)
    if mask.ndim > 4:
        mask = np.broadcast_to(mask, (*shape[:-2], *mask.shape[-2:]))
        mask = mask.reshape(-1, *mask.shape[-3:])
    elif len(shape) == 3 and mask.ndim == 3:
        mask = mask[:, None]
    batch, heads, rows, columns = _four_shape(shape)
    return np.broadcast_to(mask, (batch, heads, rows, columns))


def _four_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) >= 4:
        return (int(np.prod(shape[:-3], dtype=np.int64)), *shape[-3:])
    return (1, 1, *shape) if len(shape) == 2 else (shape[0], 1, *shape[1:])


def _like_query(q: ndarray, columns: int) -> ndarray:
    """Memory for a result with q's order of dimensions: merging the heads afterwards is then free."""
    if q.shape[-1] == columns and q.ndim <= 4:
        made = memory.like(q)
        if made.strides[-1] == made.itemsize or not made.size:
            return made
    return memory.empty((*q.shape[:-1], columns), q.dtype)


def _functions(q: ndarray, *others: ndarray) -> Library | None:
    """The native functions where they serve these arrays."""
    return library("attention") if q.size and all([x.size and x.dtype is q.dtype for x in others]) else None


@kernel
def attention(q: ndarray, k: ndarray, v: ndarray, mask: ndarray | None, causal: bool,
              scale: float) -> tuple[ndarray, ndarray]:
    """(softmax(q k^T * scale + mask) v, the log-sum-exp of each row of scores). Leading dimensions are equal."""
    dtype = q.dtype
    q, k, v = _wide(q), _wide(k), _wide(v)
    bias = _additive(mask, (*q.shape[:-1], k.shape[-2]), q.dtype)
    out = _like_query(q, v.shape[-1])
    statistic = np.empty((*q.shape[:-1], 1), q.dtype)
    functions = _functions(q, k, v)
    if functions is not None:
        _attention_natively(functions, q, k, v, bias, causal, scale, out, statistic)
        return narrow(out, dtype), statistic
    values, made, logs = _as_four(v), _as_four(out), _as_four(statistic)
    for head, scores in _scores(_as_four(q), _as_four(k), bias, causal, scale):
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        top[np.isneginf(top)] = 0  # a row that sees nothing
        powers = np.exp(scores - top)
        total = powers.sum(-1, keepdims=True)
        logs[head] = np.where(total == 0, np.inf, np.log(total) + top)
        made[head] = np.divide(powers @ values[head], total, where=total != 0, out=np.zeros_like(made[head]))
    return narrow(out, dtype), statistic


def _scores(q: ndarray, k: ndarray, bias: ndarray | None, causal: bool,
            scale: float) -> Iterator[tuple[tuple[int, ...], ndarray]]:
    """q k^T * scale + mask of each head."""
    for head in np.ndindex(q.shape[:2]):
        scores = (q[head] * scale) @ k[head].T
        if bias is not None:
            scores += bias[head]
        if causal:
            scores[np.triu_indices(scores.shape[0], 1, scores.shape[1])] = -np.inf
        yield head, scores


@functools.lru_cache(maxsize=64)
def _geometry(itemsize: int, causal: bool, q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...],
              mask: tuple[int, ...] | None, *strides: tuple[int, ...]) -> tuple[ndarray, ndarray]:
    """Sizes and strides (in elements) as the native functions take them: q, k and v are shapes, the rest strides in bytes."""
    steps = [s // itemsize for one in strides for s in one[:3]]
    steps += [0] * 4 if mask is None else [s // itemsize for s in mask]
    return np.array([*q[:3], k[2], q[3], v[3], causal], np.int64), np.array(steps, np.int64)


def _attention_natively(functions: Library, q: ndarray, k: ndarray, v: ndarray, bias: ndarray | None, causal: bool,
                        scale: float, out: ndarray, statistic: ndarray) -> None:
    """Fills out, and statistic with the log-sum-exp of each row."""
    q, k, v, out = _as_four(q), _as_four(k), _as_four(v), _as_four(out)
    sizes, strides = _geometry(q.itemsize, causal, q.shape, k.shape, v.shape, None if bias is None else bias.strides, q.strides,
                               k.strides, v.strides, out.strides)
    (functions.fl_attention_f32 if q.dtype.char == "f" else functions.fl_attention_f64)(
        q, k, v, bias, out, statistic, sizes, strides, scale)


def _backward_natively(functions: Library, grad: ndarray, q: ndarray, k: ndarray, v: ndarray, bias: ndarray | None,
                       causal: bool, scale: float, out: ndarray, statistic: ndarray) -> list[ndarray]:
    grad, q, k, v, out = (_as_four(x) for x in (grad, q, k, v, out))
    made = [_gradient_memory(x) for x in (q, k, v)]
    sizes, strides = _geometry(q.itemsize, causal, q.shape, k.shape, v.shape, None if bias is None else bias.strides,
                               *[x.strides for x in (grad, q, k, v, out, *made)])
    (functions.fl_attention_backward_f32 if q.dtype.char == "f" else functions.fl_attention_backward_f64)(
        grad, q, k, v, bias, out, statistic, *made, sizes, strides, scale)
    return made


@kernel
def attention_backward(grad: ndarray, q: ndarray, k: ndarray, v: ndarray, mask: ndarray | None, causal: bool,
                       scale: float, out: ndarray, statistic: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """The gradients of q, k and v."""
    dtype = q.dtype
    grad, q, k, v, out = (_wide(x) for x in (grad, q, k, v, out))
    bias = _additive(mask, (*q.shape[:-1], k.shape[-2]), q.dtype)
    functions = _functions(q, k, v, grad)
    if functions is not None:
        made = _backward_natively(functions, grad, q, k, v, bias, causal, scale, out, statistic)
    else:
        slopes, queries, keys, values, results, logs = (_as_four(x) for x in (grad, q, k, v, out, statistic))
        made = dq, dk, dv = [_gradient_memory(x) for x in (queries, keys, values)]
        for head, scores in _scores(queries, keys, bias, causal, scale):
            weights, slope = np.exp(scores - logs[head]), slopes[head]
            inner = weights * (slope @ values[head].T - (slope * results[head]).sum(-1, keepdims=True)) * scale
            dq[head], dk[head], dv[head] = inner @ keys[head], inner.T @ queries[head], weights.T @ slope
    return tuple([narrow(x.reshape(y.shape), dtype) for x, y in zip(made, (q, k, v))])


def _gradient_memory(x: ndarray) -> ndarray:
    """Room for a gradient of a (batch, heads, rows, columns) array, laid out as (batch, rows, heads, columns): the
    layer in front of attention merges the heads."""
    batch, heads, rows, columns = x.shape
    return memory.empty((batch, rows, heads, columns), x.dtype).swapaxes(1, 2)


@kernel
def safe_softmax(x: ndarray, axis: int, dtype: np.dtype | None) -> ndarray:
    """softmax, and 0 instead of nan where a whole row is -inf."""
    made = KERNELS["softmax"](x, axis, dtype)
    if x.ndim and x.shape[axis]:
        empty = np.isneginf((x if x.dtype.char in "fd" else cast(x, FLOAT32)).max(axis=axis, keepdims=True))
        if empty.any():
            np.copyto(made, made.dtype.type(0), where=empty)
    return made
