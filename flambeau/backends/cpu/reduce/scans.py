"""Running sums, products and extremes along an axis; softmax and its derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory
from ..parallel import SPLIT, split
from ..table import kernel
from .reductions import FEW, FLOAT32, FLOAT64, INT64, NARROW, TAME, narrow, ones_of, wide

# Elements of a block: small enough to stay in a core's cache from one step to the next, large enough that the threads
# seldom meet at the interpreter lock.
_CACHED = 1 << 17
_FEW = 1 << 12  # up to here the number of calls counts, not the work


# -------------------------------------------------------------------------------------------------- running
def _wanted(x: ndarray, dtype: np.dtype | None) -> np.dtype:
    return dtype or (INT64 if x.dtype.kind in "iub" else x.dtype)


def running_sum(x: ndarray, axis: int) -> ndarray:
    """cumsum of floats that have dimensions."""
    native = library("scan")
    if native is None or x.size > _FEW or not x.flags.c_contiguous:
        return _accumulated(x, axis, x.dtype, np.add)
    n, out = x.shape[axis], np.empty(x.shape, x.dtype)
    inner = x.strides[axis] // x.itemsize if n > 1 else 1
    (native.fl_cumulate_f32 if x.dtype is FLOAT32 else native.fl_cumulate_f64)(x, out, x.size // (n * inner), n, inner, _SUMS)
    return out


@kernel
def cumsum(x: ndarray, axis: int, dtype: np.dtype | None = None) -> ndarray:
    if dtype is None and x.ndim and x.size and x.dtype.char in "fd":
        return running_sum(x, axis)
    return _accumulated(x, axis, _wanted(x, dtype), np.add)


@kernel
def cumprod(x: ndarray, axis: int, dtype: np.dtype | None = None) -> ndarray:
    return _accumulated(x, axis, _wanted(x, dtype), np.multiply)


@kernel
def cumsum_from_end(x: ndarray, axis: int) -> ndarray:
    """Running sums from the last element to the first: the derivative of cumsum."""
    if x.ndim and x.size > _FEW and x.dtype.char in "fd" and library("scan") is not None:
        return _native_cumulate(x, axis, _FROM_END)
    if not x.ndim:
        return x.copy()
    return np.ascontiguousarray(np.flip(_accumulated(np.flip(x, axis), axis, x.dtype, np.add), axis))


_SUMS, _PRODUCTS, _FROM_END = range(3)


def _native_cumulate(x: ndarray, axis: int, mode: int) -> ndarray:
    x = np.ascontiguousarray(x)
    out = memory.empty(x.shape, x.dtype)
    native = library("scan")
    function = native.fl_cumulate_f32 if x.dtype is FLOAT32 else native.fl_cumulate_f64
    function(x, out, math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:]), mode)
    return out


def _accumulated(x: ndarray, axis: int, dtype: np.dtype, step: np.ufunc) -> ndarray:
    """One element after the other; narrow floats in float64, rounded at the end, as PyTorch does."""
    if not x.ndim:
        return x.astype(dtype)
    if dtype.kind == "b":
        return step.accumulate(x.astype(dtype), axis=axis, dtype=dtype)
    if x.size <= _FEW and x.dtype is dtype and dtype.char in "fd":
        made = step.accumulate(x, axis, FLOAT64)
        return made if dtype is FLOAT64 else made.astype(dtype)
    if x.dtype is dtype and dtype.char in "fd" and x.size and library("scan") is not None:
        return _native_cumulate(x, axis, _PRODUCTS if step is np.multiply else _SUMS)
    narrow_float = dtype.num == FLOAT32.num or dtype.num in NARROW
    exact = FLOAT64 if narrow_float else dtype
    if narrow_float:
        x = x.astype(dtype, copy=False)
        x = wide(x)
    outer, n, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:])
    out = memory.empty(x.shape, dtype)
    if not out.size:
        return out
    source, target = np.ascontiguousarray(x).reshape(outer, n, inner), out.reshape(outer, n, inner)
    if inner >= 128:  # across memory: whole rows at a time
        for i in range(outer):
            total = source[i, 0].astype(exact)
            target[i, 0] = total
            for k in range(1, n):
                step(total, source[i, k], out=total)
                target[i, k] = total
        return out
    block = max(1, (_CACHED >> 3) // (n * inner))

    def share(start: int, stop: int) -> None:
        for i in range(start, stop, block):
            j = min(i + block, stop)
            piece = source[i:j].astype(exact)
            step.accumulate(piece, axis=1, out=piece)
            target[i:j] = piece

    if out.size >= SPLIT // 2:
        split(outer, share)
    else:
        share(0, outer)
    return out


def _running(x: ndarray, axis: int, extreme: np.ufunc, reaches: np.ufunc) -> tuple[ndarray, ndarray]:
    """Running extreme and the last place so far where it was reached; NaN stays once met."""
    if not x.ndim:
        return x.copy(), np.zeros((), INT64)
    a = wide(x)
    values = extreme.accumulate(a, axis=axis)
    if not a.size:
        return values.astype(x.dtype, copy=False), np.zeros(x.shape, INT64)
    before = np.moveaxis(values, axis, -1)
    now = np.moveaxis(a, axis, -1)
    hit = np.ones(now.shape, bool)
    if now.shape[-1] > 1:
        hit[..., 1:] = reaches(now[..., 1:], before[..., :-1])
        if now.dtype.kind == "f":
            hit[..., 1:] |= np.isnan(now[..., 1:])
    place = np.where(hit, np.arange(now.shape[-1]), 0)
    index = np.maximum.accumulate(place, axis=-1)
    return values.astype(x.dtype, copy=False), np.ascontiguousarray(np.moveaxis(index, -1, axis))


@kernel
def cummax(x: ndarray, axis: int) -> tuple[ndarray, ndarray]:
    return _running(x, axis, np.maximum, np.greater_equal)


@kernel
def cummin(x: ndarray, axis: int) -> tuple[ndarray, ndarray]:
    return _running(x, axis, np.minimum, np.less_equal)


@kernel
def logcumsumexp(x: ndarray, axis: int) -> ndarray:
    if not x.ndim:
        return x.copy()
    a = wide(x)
    if a.dtype.kind == "c":
        return _complex_logcumsumexp(a, axis)
    exact = a.astype(FLOAT64)
    return np.logaddexp.accumulate(exact, axis=axis).astype(x.dtype)


def _complex_logcumsumexp(x: ndarray, axis: int) -> ndarray:
    """log(exp(a) + exp(b)) step by step, with the larger real part taken out first."""
    steps = np.moveaxis(x, axis, 0).astype(np.complex128)
    out = np.empty_like(steps)
    before = np.full(steps.shape[1:], complex(-math.inf, 0))
    for i, now in enumerate(steps):
        swap = now.real > before.real
        high, low = np.where(swap, now, before), np.where(swap, before, now)
        joined = high + np.log1p(np.exp(low - high))
        # Both infinite: of two zeros (exp of -inf) the first stays; two infinities have no larger one to take out.
        joined = np.where(np.isposinf(low.real), np.log(np.exp(low) + np.exp(high)), joined)
        joined = np.where(np.isneginf(high.real), before, joined)
        before = out[i] = np.where(np.isnan(now.real) | np.isnan(before.real), complex(math.nan, math.nan), joined)
    return np.ascontiguousarray(np.moveaxis(out, 0, axis)).astype(x.dtype)


# -------------------------------------------------------------------------------------------------- softmax


def _blocks(x: ndarray, axis: int, work, *others: ndarray) -> ndarray:
    """work(out, x, *others) on pieces (outer, n, inner) with the axis in the middle, shared among the cores."""
    shape = x.shape
    outer, n, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1:])
    parts = [np.ascontiguousarray(a).reshape(outer, n, inner) for a in (x, *others)]
    out = memory.empty((outer, n, inner), x.dtype)
    if outer < 2 or out.size <= _CACHED:
        work(out, *parts)
    else:
        step = max(1, _CACHED // (n * inner))

        def share(start: int, stop: int) -> None:
            for i in range(start, stop, step):
                j = min(i + step, stop)
                work(out[i:j], *[p[i:j] for p in parts])

        split(outer, share)
    return out.reshape(shape)


def _totals(x: ndarray) -> ndarray:
    """Sums over the middle of (outer, n, inner), kept as a dimension of one; BLAS's threads would collide with ours."""
    if x.shape[2] == 1 and x.flags.c_contiguous:
        return np.add.reduce(x.reshape(x.shape[:2]), axis=1)[:, None, None]
    return np.add.reduce(x, axis=1, keepdims=True)


def _powers(out: ndarray, x: ndarray) -> ndarray | None:
    """exp(x) and its sums, when that neither overflows nor leaves a row without weight; else None.

    Without a maximum to find and take out first, a mask of -inf included, this is most of the time.
    """
    if not np.maximum.reduce(x, axis=None) <= TAME:
        return None
    np.exp(x, out=out)
    total = _totals(out)
    return total if np.minimum.reduce(total, axis=None) > 1e-15 else None


def _softmax(out: ndarray, x: ndarray) -> None:
    total = _powers(out, x)
    if total is None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.exp(out, out=out)
        total = _totals(out)
    np.divide(out, total, out=out)


def _log_softmax(out: ndarray, x: ndarray) -> None:
    total = _powers(out, x)
    if total is None:
        np.subtract(x, x.max(axis=1, keepdims=True), out=out)
        np.subtract(out, np.log(_totals(np.exp(out))), out=out)
        return
    exact = np.log(total.astype(FLOAT64))
    high = exact.astype(x.dtype)  # in two parts: x - log(...) is then rounded once
    np.subtract(x, high, out=out)
    if x.dtype is FLOAT32:
        np.subtract(out, (exact - high).astype(FLOAT32), out=out)


@kernel
def softmax(x: ndarray, axis: int, dtype: np.dtype | None = None) -> ndarray:
    if dtype is not None and x.dtype.num != dtype.num:
        x = x.astype(dtype)
    native = library("softmax") if x.dtype.char in "fd" and x.size and x.ndim else None
    if native is not None:
        return _natively(native.fl_softmax_f32 if x.dtype.char == "f" else native.fl_softmax_f64, axis, x)
    return _normalised(x, axis, _softmax, 1)


@kernel
def log_softmax(x: ndarray, axis: int, dtype: np.dtype | None = None) -> ndarray:
    if dtype is not None and x.dtype.num != dtype.num:
        x = x.astype(dtype)
    native = library("softmax") if x.dtype.char in "fd" and x.size and x.ndim else None
    if native is not None:
        return _natively(native.fl_log_softmax_f32 if x.dtype.char == "f" else native.fl_log_softmax_f64, axis, x)
    return _normalised(x, axis, _log_softmax, 0)


def _natively(function: Callable[..., None], axis: int, *arrays: ndarray) -> ndarray:
    """function(arrays..., result, how many elements are before, along and behind the axis)."""
    arrays = tuple([x if x.flags.c_contiguous else np.ascontiguousarray(x) for x in arrays])
    shape = arrays[0].shape
    n = shape[axis]
    out = memory.empty(shape, arrays[0].dtype)
    inner = 1 if axis == len(shape) - 1 else math.prod(shape[axis + 1:])
    function(*arrays, out, out.size // (n * inner), n, inner)
    return out


def _normalised(x: ndarray, axis: int, work, alone: float) -> ndarray:
    if not x.ndim:
        return np.asarray(wide(x) * 0 + alone).astype(x.dtype)
    if not x.size:
        return np.empty(x.shape, x.dtype)
    if x.dtype.num in NARROW:
        return _half(x, axis, work is _log_softmax)
    if x.size <= _FEW:
        apart = x - np.maximum.reduce(x, axis=axis, keepdims=True)
        powers = np.exp(apart)
        if axis == x.ndim - 1 and x.size <= FEW and powers.flags.c_contiguous:
            total = powers.dot(ones_of(x.dtype, x.shape[axis]))[..., None]
        else:
            total = np.add.reduce(powers, axis=axis, keepdims=True)
        if work is _softmax:
            return np.divide(powers, total, out=powers)
        return np.subtract(apart, np.log(total), out=apart)
    return _blocks(x, axis, work)


def _half(x: ndarray, axis: int, log: bool) -> ndarray:
    """Half precision: float32, with the intermediate roundings that PyTorch has on the last axis or off it."""
    a, last = x.astype(FLOAT32), axis == x.ndim - 1
    a = a - a.max(axis=axis, keepdims=True)
    powers = np.exp(a)
    total = np.add.reduce(powers, axis=axis, keepdims=True)
    if not log:
        return ((powers if last else powers.astype(x.dtype).astype(FLOAT32)) / total).astype(x.dtype)
    if last:
        total = np.log(total.astype(x.dtype).astype(FLOAT32)).astype(x.dtype).astype(FLOAT32)
    else:
        total = np.log(total)
    return (a - total).astype(x.dtype)


def _softmax_grad(out: ndarray, result: ndarray, grad: ndarray) -> None:
    np.multiply(grad, result, out=out)
    np.subtract(out, result * _totals(out), out=out)


def _log_softmax_grad(out: ndarray, result: ndarray, grad: ndarray) -> None:
    np.exp(result, out=out)
    np.multiply(out, _totals(grad), out=out)
    np.subtract(grad, out, out=out)


@kernel
def softmax_backward(grad: ndarray, result: ndarray, axis: int) -> ndarray:
    native = library("softmax") if _alike(grad, result) else None
    if native is not None:
        function = native.fl_softmax_backward_f32 if result.dtype.char == "f" else native.fl_softmax_backward_f64
        return _natively(function, axis, grad, result)
    return _derived(grad, result, axis, _softmax_grad)


@kernel
def log_softmax_backward(grad: ndarray, result: ndarray, axis: int) -> ndarray:
    native = library("softmax") if _alike(grad, result) else None
    if native is not None:
        function = native.fl_log_softmax_backward_f32 if result.dtype.char == "f" else native.fl_log_softmax_backward_f64
        return _natively(function, axis, grad, result)
    return _derived(grad, result, axis, _log_softmax_grad)


def _alike(grad: ndarray, result: ndarray) -> bool:
    """Whether a gradient and its result are float32 or float64 arrays of one dtype and shape, and not empty."""
    return result.dtype.char in "fd" and grad.dtype is result.dtype and grad.shape == result.shape and result.ndim > 0 and (
        result.size > 0)


def _derived(grad: ndarray, result: ndarray, axis: int, work) -> ndarray:
    if not result.size:
        return np.empty(result.shape, grad.dtype)
    g, r = wide(grad), wide(result)
    if not r.ndim:
        return np.zeros((), grad.dtype)
    return narrow(_blocks(r, axis, work, np.broadcast_to(g, r.shape)), grad.dtype)
