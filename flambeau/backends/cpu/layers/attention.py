"""Scaled dot-product attention and its backward pass, a block of heads at a time.

A block's scores fit into the cache, so the passes over them (mask, exp, sum) cost little beside the products. Blocks are
shared among the cores. For short sequences the exponentials are kept for the backward pass; for long ones they are
computed again from the saved log-sum-exp, so memory grows with the length, not with its square.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import Library, coming, library
from .. import memory, parallel
from ..table import KERNELS, kernel

_FLOAT32 = np.dtype(np.float32)
_BLOCK = 1 << 17      # scores of one block
_SHARED = 1 << 16     # scores from which both cores work
KEPT = 1 << 21        # scores up to which the exponentials are kept for the backward pass
_CAUSAL_ROWS = 128    # rows at a time in a long causal sequence
_SAFE = 40.0          # scores within this range need no maximum taken off before exp


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
        return x.astype(_FLOAT32)
    dense = x.strides[-1] == x.itemsize and x.strides[-2] >= x.itemsize * x.shape[-1]
    return x if dense or x.size == 0 else np.ascontiguousarray(x)


@functools.lru_cache(maxsize=16)
def _causal(rows: int, columns: int, dtype: Any) -> ndarray:
    """-inf above the diagonal: what a row may not see."""
    made = np.zeros((rows, columns), dtype)
    made[np.triu_indices(rows, 1, columns)] = -np.inf
    made.flags.writeable = False
    return made


def _additive(mask: ndarray | None, shape: tuple[int, ...], dtype: np.dtype) -> tuple[ndarray | None, bool]:
    """The mask as numbers to add, broadcast to four dimensions; and whether they are only 0 and -inf."""
    if mask is None:
        return None, True
    plain = mask.dtype.kind == "b"
    if plain:
        mask = np.where(mask, dtype.type(0), dtype.type(-np.inf))
    elif mask.dtype != dtype:
        mask = mask.astype(dtype)
    if mask.ndim > 4:
        mask = np.broadcast_to(mask, (*shape[:-2], *mask.shape[-2:]))
        mask = mask.reshape(-1, *mask.shape[-3:])
    elif len(shape) == 3 and mask.ndim == 3:
        mask = mask[:, None]
    batch, heads, rows, columns = _four_shape(shape)
    return np.broadcast_to(mask, (batch, heads, rows, columns)), plain


def _four_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) >= 4:
        return (int(np.prod(shape[:-3], dtype=np.int64)), *shape[-3:])
    return (1, 1, *shape) if len(shape) == 2 else (shape[0], 1, *shape[1:])


def _blocks(batch: int, heads: int, rows: int, columns: int) -> list[tuple[slice, slice]]:
    """The pieces of (batch, heads) to work on at a time."""
    each = max(1, rows * columns)
    total = batch * heads * each
    size = min(_BLOCK, max(1, total // parallel.get_num_threads())) if total >= _SHARED else _BLOCK
    if heads * each <= size:
        step = max(1, size // (heads * each))
        return [(slice(b, b + step), slice(0, heads)) for b in range(0, batch, step)]
    step = max(1, size // each)
    return [(slice(b, b + 1), slice(h, h + step)) for b in range(batch) for h in range(0, heads, step)]


def _share(blocks: list[Any], work: Any, scores: int) -> None:
    def some(start: int, stop: int) -> None:
        for i in range(start, stop):
            work(*blocks[i])

    if scores >= _SHARED and len(blocks) > 1:
        parallel.split(len(blocks), some)
    else:
        some(0, len(blocks))


def _times(x: ndarray, factor: Any) -> ndarray:
    return np.multiply(x, factor, out=np.empty(x.shape, x.dtype))


def _totals(p: ndarray) -> ndarray:
    """Sums of the rows, by BLAS."""
    columns = p.shape[-1]
    return np.dot(p.reshape(math.prod(p.shape[:-1]), columns), np.ones(columns, p.dtype)).reshape(*p.shape[:-1], 1)


def _powers(s: ndarray, mask: ndarray | None, plain: bool) -> tuple[ndarray, Any]:
    """exp(s + mask - shift) in place of s, the sums of its rows, and the shift (0 where none was needed)."""
    shift: Any = 0
    near = plain and s.size and -_SAFE < s.min() and s.max() < _SAFE
    if mask is not None:
        np.add(s, mask, out=s)
    if not near and s.shape[-1]:
        shift = s.max(axis=-1, keepdims=True)
        shift[np.isneginf(shift)] = 0
        np.subtract(s, shift, out=s)
    np.exp(s, out=s)
    return _totals(s), shift


def _row_step(rows: int, columns: int, whole: bool, causal: bool) -> int:
    """Rows of scores at a time: all of them, unless a single head is far larger than a block, or causal: rows then only
    meet the columns before their end, which saves almost half of the work."""
    if whole or rows * columns <= (8 * _BLOCK if not causal else 4 * _CAUSAL_ROWS**2):
        return max(1, rows)
    return _CAUSAL_ROWS if causal else max(64, 4 * _BLOCK // max(1, columns))


def _like_query(q: ndarray, columns: int) -> ndarray:
    """Memory for a result with q's order of dimensions: merging the heads afterwards is then free."""
    if q.shape[-1] == columns and q.ndim <= 4:
        made = memory.like(q)
        if made.strides[-1] == made.itemsize or not made.size:
            return made
    return memory.empty((*q.shape[:-1], columns), q.dtype)


@kernel
def attention(q: ndarray, k: ndarray, v: ndarray, mask: ndarray | None, causal: bool, scale: float,
              keep: bool) -> tuple[ndarray, ndarray, ndarray]:
    """(softmax(q k^T * scale + mask) v, statistic, exponentials).

    With keep, and where they are few, the exponentials are returned with the reciprocals of their sums; otherwise an
    empty array with the log-sum-exp. Leading dimensions are equal.
    """
    native = q.dtype
    q, k, v = _wide(q), _wide(k), _wide(v)
    rows, columns = q.shape[-2], k.shape[-2]
    scores = (*q.shape[:-1], columns)
    bias, plain = _additive(mask, scores, q.dtype)
    out = _like_query(q, v.shape[-1])
    statistic = np.empty((*q.shape[:-1], 1), q.dtype)
    functions = library("attention") if q.size and v.size and q.dtype is k.dtype is v.dtype else None
    if functions is not None:
        _attention_natively(functions, q, k, v, bias, causal, scale, out, statistic)
        return out if out.dtype == native else out.astype(native), statistic, np.empty((0, 0, 0, 0), q.dtype)
    q4, k4, v4, out4, stat4 = (_as_four(x) for x in (q, k, v, out, statistic))
    batch, heads = q4.shape[:2]
    keep = keep and not coming() and batch * heads * rows * columns <= KEPT
    kept = memory.empty((batch, heads, rows, columns) if keep else (0, 0, 0, 0), q.dtype)
    tri = _causal(rows, columns, q.dtype) if causal else None
    step = _row_step(rows, columns, keep, causal)
    cut = causal and step < rows  # no row of a piece sees further than its own end

    def work(b: slice, h: slice) -> None:
        query, key, value = _times(q4[b, h], scale), k4[b, h].swapaxes(-1, -2), v4[b, h]
        for r in range(0, max(rows, 1), step):
            at, seen = slice(r, r + step), slice(0, min(columns, r + step) if cut else columns)
            s = np.matmul(query[:, :, at], key[..., seen], out=kept[b, h] if keep else None)
            add = None if bias is None else bias[b, h, at, seen]
            if tri is not None:
                add = tri[at, seen] if add is None else add + tri[at, seen]
            total, shift = _powers(s, add, plain)
            none = total == 0
            inverse = np.divide(1, total)
            if none.any():
                inverse[none] = 0
                total[none] = np.inf
            target = out4[b, h, at]
            np.matmul(s, value[:, :, seen], out=target)
            np.multiply(target, inverse, out=target)
            stat4[b, h, at] = inverse if keep else np.log(total) + shift

    _share(_blocks(batch, heads, rows, columns), work, batch * heads * rows * columns)
    return out if out.dtype == native else out.astype(native), statistic, kept


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
                       scale: float, out: ndarray, statistic: ndarray, kept: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """The gradients of q, k and v."""
    native = q.dtype
    grad, q, k, v, out = (_wide(x) for x in (grad, q, k, v, out))
    rows, columns = q.shape[-2], k.shape[-2]
    keep = kept.shape[-1] == columns and kept.size > 0
    bias = None if keep else _additive(mask, (*q.shape[:-1], columns), q.dtype)[0]
    functions = library("attention") if not keep and q.size and v.size and q.dtype is k.dtype is v.dtype is grad.dtype else None
    if functions is not None:
        made = _backward_natively(functions, grad, q, k, v, bias, causal, scale, out, statistic)
        made = [x.reshape(y.shape) for x, y in zip(made, (q, k, v))]
        return tuple([x if x.dtype == native else x.astype(native) for x in made])
    tri = _causal(rows, columns, q.dtype) if causal and not keep else None
    g4, q4, k4, v4, o4, s4 = (_as_four(x) for x in (grad, q, k, v, out, statistic))
    dq, dk, dv = (_gradient_memory(x) for x in (q4, k4, v4))
    batch, heads = q4.shape[:2]
    step = _row_step(rows, columns, keep, causal)
    cut = causal and step < rows  # no row of a piece sees further than its own end
    many = step < rows
    ones = np.ones(v.shape[-1], q.dtype)

    def work(b: slice, h: slice) -> None:
        key, value = k4[b, h], v4[b, h]
        if many:
            dk[b, h] = 0
            dv[b, h] = 0
        for r in range(0, max(rows, 1), step):
            at, seen = slice(r, r + step), slice(0, min(columns, r + step) if cut else columns)
            query, g, near = q4[b, h, at], g4[b, h, at], key[:, :, seen]
            if keep:
                p = kept[b, h, :, seen]
                g = _times(g, s4[b, h])
            else:
                p = np.matmul(_times(query, scale), near.swapaxes(-1, -2))
                for add in (None if bias is None else bias[b, h, at, seen], None if tri is None else tri[at, seen]):
                    if add is not None:
                        np.add(p, add, out=p)
                np.subtract(p, s4[b, h, at], out=p)
                np.exp(p, out=p)
            ds = np.matmul(g, value[:, :, seen].swapaxes(-1, -2))
            np.subtract(ds, np.matmul(g * o4[b, h, at], ones)[..., None], out=ds)
            np.multiply(ds, p, out=ds)
            np.matmul(ds, near, out=dq[b, h, at])
            if many:
                dv[b, h, seen] += np.matmul(p.swapaxes(-1, -2), g)
                dk[b, h, seen] += np.matmul(ds.swapaxes(-1, -2), query)
            else:
                np.matmul(p.swapaxes(-1, -2), g, out=dv[b, h])
                np.matmul(ds.swapaxes(-1, -2), query, out=dk[b, h])
        dq[b, h] *= scale
        dk[b, h] *= scale

    _share(_blocks(batch, heads, rows, columns), work, batch * heads * rows * columns)
    made = [x.reshape(y.shape) for x, y in zip((dq, dk, dv), (q, k, v))]
    return tuple([x if x.dtype == native else x.astype(native) for x in made])


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
        empty = np.isneginf((x if x.dtype.char in "fd" else x.astype(_FLOAT32)).max(axis=axis, keepdims=True))
        if empty.any():
            np.copyto(made, made.dtype.type(0), where=empty)
    return made
