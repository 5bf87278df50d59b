"""Running sums, products and extremes along an axis; softmax and its derivatives."""

from __future__ import annotations

import math

import numpy as np
from numpy import ndarray

from ....native import arrays, library
from .. import memory
from ..halves import FLOAT32, NARROW, cast, is_half, narrow, suffix, wide
from ..layouts import contiguous
from ..table import kernel
from .reductions import FLOAT64, INT64

_FEW = 1 << 12  # up to here the number of calls counts, not the work


# -------------------------------------------------------------------------------------------------- running
def _wanted(x: ndarray, dtype: np.dtype | None) -> np.dtype:
    return dtype or (INT64 if x.dtype.kind in "iub" else x.dtype)


def running_sum(x: ndarray, axis: int) -> ndarray:
    """cumsum of floats that have dimensions."""
    native, size = library("scan"), x.size
    if native is None or size > _FEW or (out := arrays.room_like(x)) is None:
        return _accumulated(x, axis, x.dtype, np.add)
    n = x.shape[axis]
    inner = 1 if axis == x.ndim - 1 else math.prod(x.shape[axis + 1:])
    (native.fl_cumulate_f32 if x.dtype is FLOAT32 else native.fl_cumulate_f64)(x, out, size // (n * inner), n, inner, _SUMS)
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
        return contiguous(step.accumulate(x.astype(dtype), axis=axis, dtype=dtype), x)
    if x.dtype is dtype and dtype.char in "fd" and x.size > _FEW and library("scan") is not None:
        return _native_cumulate(x, axis, _PRODUCTS if step is np.multiply else _SUMS)
    narrow_float = dtype.num == FLOAT32.num or dtype.num in NARROW
    exact = FLOAT64 if narrow_float else dtype
    if narrow_float:
        x = x.astype(dtype, copy=False)
        x = wide(x)
    if x.strides[axis] < 128 * x.itemsize:
        return step.accumulate(np.ascontiguousarray(x), axis, exact).astype(dtype, copy=False)
    out = memory.empty(x.shape, exact)  # across memory: whole rows at a time
    rows, made = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    made[:1] = rows[:1]
    for i in range(1, len(rows)):
        step(made[i - 1], rows[i], out=made[i])
    return out.astype(dtype, copy=False)


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
    return contiguous(narrow(values, x.dtype), x), np.ascontiguousarray(np.moveaxis(index, -1, axis))


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
    return contiguous(np.logaddexp.accumulate(exact, axis=axis).astype(x.dtype), x)


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
def _natively(names: tuple[str, str], axis: int, *given: ndarray) -> ndarray | None:
    """One of two functions, for float32 and float64, called with (arrays..., result, how many elements are before, along and
    behind the axis); None where they do not serve."""
    x = given[0]
    shape, half = x.shape, is_half(x.dtype)
    if half and shape and axis % len(shape) != len(shape) - 1:  # elsewhere by way of whole arrays
        made = _natively(names, axis, *map(wide, given))
        return made if made is None else narrow(made, x.dtype)
    functions = library("softmax") if (half or x.dtype.char in "fd") and x.size and x.ndim else None
    if functions is None:
        return None
    n = shape[axis]
    out = arrays.room_like(x)
    if out is None or len(given) > 1:
        given = tuple([a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in given])
    if out is None:
        out = memory.empty(shape, x.dtype)
    inner = 1 if axis == len(shape) - 1 else math.prod(shape[axis + 1:])
    name = names[x.dtype.char == "d"] if not half else names[0].replace("f32", suffix(x.dtype))
    getattr(functions, name)(*given, out, x.size // (n * inner), n, inner)
    return out


@kernel
def softmax(x: ndarray, axis: int, dtype: np.dtype | None = None) -> ndarray:
    if dtype is not None and x.dtype.num != dtype.num:
        x = cast(x, dtype)
    made = _natively(("fl_softmax_f32", "fl_softmax_f64"), axis, x)
    return made if made is not None else _normalised(x, axis, False)


@kernel
def log_softmax(x: ndarray, axis: int, dtype: np.dtype | None = None) -> ndarray:
    if dtype is not None and x.dtype.num != dtype.num:
        x = cast(x, dtype)
    made = _natively(("fl_log_softmax_f32", "fl_log_softmax_f64"), axis, x)
    return made if made is not None else _normalised(x, axis, True)


def _normalised(x: ndarray, axis: int, log: bool) -> ndarray:
    """On NumPy. Half precision: float32, with the roundings between that PyTorch has on the last axis or off it."""
    if not x.ndim:
        return np.asarray(wide(x) * 0 + (0 if log else 1)).astype(x.dtype)
    if not x.size:
        return np.empty(x.shape, x.dtype)
    half, last = x.dtype.num in NARROW, axis == x.ndim - 1

    def rounded(values: ndarray, really: bool) -> ndarray:
        return values.astype(x.dtype).astype(FLOAT32) if half and really else values

    apart = wide(x) - wide(x).max(axis=axis, keepdims=True)
    powers = np.exp(apart)
    total = np.add.reduce(powers, axis=axis, keepdims=True, dtype=FLOAT32 if half else FLOAT64)
    if log:
        made = apart - rounded(np.log(rounded(total, last)), last)
    else:
        made = rounded(powers, not last) / total
    return contiguous(narrow(made, x.dtype), x)


@kernel
def softmax_backward(grad: ndarray, result: ndarray, axis: int) -> ndarray:
    names = "fl_softmax_backward_f32", "fl_softmax_backward_f64"
    made = _natively(names, axis, grad, result) if _alike(grad, result) else None
    if made is not None:
        return made
    g, r = wide(grad), wide(result)
    inner = g * r
    return _derived(inner - r * inner.sum(axis=axis, keepdims=True), grad) if r.ndim else np.zeros((), grad.dtype)


@kernel
def log_softmax_backward(grad: ndarray, result: ndarray, axis: int) -> ndarray:
    names = "fl_log_softmax_backward_f32", "fl_log_softmax_backward_f64"
    made = _natively(names, axis, grad, result) if _alike(grad, result) else None
    if made is not None:
        return made
    g, r = np.broadcast_to(wide(grad), result.shape), wide(result)
    return _derived(g - np.exp(r) * g.sum(axis=axis, keepdims=True), grad) if r.ndim else np.zeros((), grad.dtype)


def _alike(grad: ndarray, result: ndarray) -> bool:
    """Whether a gradient and its result are arrays of one dtype and shape."""
    return grad.dtype is result.dtype and grad.shape == result.shape


def _derived(made: ndarray, grad: ndarray) -> ndarray:
    return np.ascontiguousarray(narrow(made, grad.dtype))
