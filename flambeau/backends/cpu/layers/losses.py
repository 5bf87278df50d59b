"""Loss kernels: the value and its reduction in one call, and the derivatives.

`reduction` is 0 for none, 1 for mean, 2 for sum. Half precision is computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import Library, library
from .. import memory
from ..halves import wide
from ..index.rows import in_range
from ..layouts import elementwise
from ..parallel import large
from ..pointwise.expressed import sigmoid
from ..reduce.reductions import mean as _mean
from ..reduce.reductions import sum_ as _sum
from ..reduce.reductions import sum_one
from ..table import KERNELS, kernel


def _dense(x: ndarray) -> ndarray:
    """x, or a copy of it, without holes (np.ascontiguousarray would give a zero-dim array a dimension)."""
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def reduced(values: ndarray, reduction: int, native: np.dtype) -> ndarray:
    """The values themselves, their mean or their sum, in the dtype of the input."""
    if reduction == 1:
        values = _mean(values, None, False, None)
    elif reduction == 2:
        values = _sum(values, None, False, None)
    return np.asarray(values) if values.dtype is native else np.asarray(values).astype(native)


def scaled(slope: ndarray, grad: ndarray, reduction: int, native: np.dtype) -> ndarray:
    """slope times the loss's gradient, which is spread over all elements when the loss was reduced."""
    factor = wide(grad)
    if reduction == 1:
        factor = factor / max(slope.size, 1) if slope.size else factor
    np.multiply(slope, factor, out=slope)
    return slope if slope.dtype is native else slope.astype(native)


KINDS = {name: i for i, name in enumerate(("mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss",
                                           "binary_cross_entropy", "bce_with_logits"))}  # as losses.c counts them


def _pair_functions(x: ndarray, y: ndarray) -> Library | None:
    """The native functions if they serve these arrays."""
    if x.dtype.char in "fd" and y.dtype is x.dtype and x.shape == y.shape and x.size:
        return library("losses")
    return None


def _pair_natively(name: str, x: ndarray, y: ndarray, reduction: int, number: float = 0.0) -> ndarray | None:
    native = _pair_functions(x, y)
    if native is None:
        return None
    x, y = _dense(x), _dense(y)
    out = np.empty((), x.dtype) if reduction else memory.empty(x.shape, x.dtype)
    if (native.fl_pair_loss_f32 if x.dtype.char == "f" else native.fl_pair_loss_f64)(
            KINDS[name], x, y, out, x.size, reduction, number):
        raise RuntimeError("all elements of input should be between 0 and 1")
    return out


def _pair_backward_natively(name: str, grad: ndarray, x: ndarray, y: ndarray, reduction: int,
                            number: float = 0.0) -> ndarray | None:
    native = _pair_functions(x, y)
    if native is None or grad.dtype is not x.dtype or grad.size != (1 if reduction else x.size):
        return None
    grad, x, y = _dense(grad), _dense(x), _dense(y)
    out = memory.empty(x.shape, x.dtype)
    (native.fl_pair_loss_backward_f32 if x.dtype.char == "f" else native.fl_pair_loss_backward_f64)(
        KINDS[name], grad, x, y, out, x.size, reduction, number)
    return out


def pairwise(name: str, value: Callable, slope: Callable) -> None:
    """Enters `name` (x, y, reduction, *numbers) and `name`_backward (grad, x, y, reduction, *numbers)."""
    def forward(x: ndarray, y: ndarray, reduction: int, *numbers: Any) -> ndarray:
        made = _pair_natively(name, x, y, reduction, *numbers)
        if made is None:
            made = reduced(np.asarray(value(wide(x), wide(y), *numbers)), reduction, x.dtype)
        return made if reduction else elementwise(made, (x, y))

    def backward(grad: ndarray, x: ndarray, y: ndarray, reduction: int, *numbers: Any) -> ndarray:
        made = _pair_backward_natively(name, grad, x, y, reduction, *numbers)
        if made is None:
            made = scaled(np.asarray(slope(wide(x), wide(y), *numbers)), grad, reduction, x.dtype)
        return elementwise(made, (x, y))

    KERNELS[name], KERNELS[f"{name}_backward"] = forward, backward


def _huber(x: ndarray, y: ndarray, delta: float) -> ndarray:
    """Half the square up to |d| = delta, delta * (|d| - delta / 2) beyond: m * (|d| - m / 2), m = min(|d|, delta)."""
    d = np.abs(x - y)
    m = np.minimum(d, delta)
    return m * (d - 0.5 * m)


pairwise("mse_loss", lambda x, y: np.square(x - y), lambda x, y: 2 * (x - y))
pairwise("huber_loss", _huber, lambda x, y, delta: np.clip(x - y, -delta, delta))
pairwise("smooth_l1_loss", lambda x, y, beta: _huber(x, y, beta) / beta, lambda x, y, beta: np.clip(x - y, -beta, beta) / beta)
pairwise("soft_margin_loss", lambda x, y: np.logaddexp(0, -x * y).astype(x.dtype), lambda x, y: -y * sigmoid(-x * y))


# --------------------------------------------------------------------------------------------- binary cross entropy
def weighted(name: str, value: Callable, slope: Callable) -> None:
    """Enters `name` (x, target, weight, ..., reduction) and its derivative; what comes before the reduction weighs too."""
    def forward(x: ndarray, target: ndarray, weight: ndarray | None, *rest: Any) -> ndarray:
        *weights, reduction = rest
        made = _pair_natively(name, x, target, reduction) if _unweighted(weight, *weights) else None
        if made is None:
            values = np.asarray(value(wide(x), wide(target), *weights))
            made = reduced(values if weight is None else np.asarray(values * wide(weight)), reduction, x.dtype)
        return made if reduction else elementwise(made, (x, target))

    def backward(grad: ndarray, x: ndarray, target: ndarray, weight: ndarray | None, *rest: Any) -> ndarray:
        *weights, reduction = rest
        made = _pair_backward_natively(name, grad, x, target, reduction) if _unweighted(weight, *weights) else None
        if made is None:
            slopes = np.asarray(slope(wide(x), wide(target), *weights))
            made = scaled(slopes if weight is None else np.asarray(slopes * wide(weight)), grad, reduction, x.dtype)
        return elementwise(made, (x, target))

    KERNELS[name], KERNELS[f"{name}_backward"] = forward, backward


def _unweighted(*weights: ndarray | None) -> bool:
    return all([w is None for w in weights])


def _binary_cross_entropy(a: ndarray, t: ndarray) -> ndarray:
    if a.size and not (a.min() >= 0 and a.max() <= 1):
        raise RuntimeError("all elements of input should be between 0 and 1")
    return (t - 1) * np.maximum(np.log1p(-a), -100) - t * np.maximum(np.log(a), -100)


def _with_logits(a: ndarray, t: ndarray, pos_weight: ndarray | None) -> ndarray:
    values = np.logaddexp(0, -a).astype(a.dtype)
    return (values if pos_weight is None else values * (1 + (wide(pos_weight) - 1) * t)) + (1 - t) * a


def _with_logits_slope(a: ndarray, t: ndarray, pos_weight: ndarray | None) -> ndarray:
    if pos_weight is None:
        return sigmoid(a) - t
    positive = wide(pos_weight) * t
    return (positive + 1 - t) * sigmoid(a) - positive


weighted("binary_cross_entropy", _binary_cross_entropy, lambda a, t: (a - t) / np.maximum((1 - a) * a, 1e-12))
weighted("bce_with_logits", _with_logits, _with_logits_slope)


# ------------------------------------------------------------------------------------------- negative log-likelihood
def _check_targets(target: ndarray, classes: int, ignored: ndarray | None) -> None:
    bad = (target < 0) | (target >= classes)
    if ignored is not None:
        bad &= ~ignored
    if bad.any():
        raise IndexError(f"Target {int(target[bad][0])} is out of bounds.")


def _counted(target: ndarray, classes: int, ignore_index: int) -> ndarray | None:
    """Which targets count; None when all do (the usual case, found out in one pass)."""
    if not target.size:
        return None
    if in_range(target, classes) and not 0 <= ignore_index < classes:
        return None
    ignored = target == ignore_index
    _check_targets(target, classes, ignored)
    return ~ignored if ignored.any() else None


def _in_three(x: ndarray, target: ndarray) -> tuple[ndarray, ndarray]:
    """(N, C, L) and (N, L) of inputs with any number of dimensions behind the classes."""
    if x.ndim == 1:
        return x[None, :, None], target.reshape(1, 1)
    return x.reshape(x.shape[0], x.shape[1], -1) if x.size else x.reshape(
        x.shape[0], x.shape[1], math.prod(x.shape[2:])), target.reshape(x.shape[0], -1) if x.size else target.reshape(
        x.shape[0], math.prod(x.shape[2:]))


@kernel
def nll_loss(x: ndarray, target: ndarray, weight: ndarray | None, reduction: int,
             ignore_index: int) -> tuple[ndarray, ndarray]:
    if x.dtype.char in "fd" and x.size and target.dtype.char == "l" and (weight is None or weight.dtype is x.dtype):
        native = library("crossentropy")
        if native is not None:
            return _nll_natively(native, x, target, weight, reduction, ignore_index)
    a, t = _in_three(x, target)
    count, classes, places = a.shape
    counts = _counted(t, classes, ignore_index)
    chosen = t if counts is None else np.where(counts, t, 0)
    values = -wide(a[np.arange(count)[:, None], chosen, np.arange(places)[None]])
    number = values.dtype.type
    weights = None if weight is None else wide(weight)[chosen]
    if weights is not None:
        values = values * weights
    if counts is not None:
        values = np.where(counts, values, number(0))
        weights = counts.astype(values.dtype) if weights is None else np.where(counts, weights, number(0))
    total = number(t.size) if weights is None else np.add.reduce(weights, axis=None)
    if reduction == 0:
        return values.reshape(target.shape).astype(x.dtype, copy=False), np.zeros((), x.dtype)
    made = _sum(np.ascontiguousarray(values), None, False, None)
    if reduction == 1:
        made = np.divide(made, total)
    return np.asarray(made).astype(x.dtype), np.asarray(total).astype(x.dtype)


def _places(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(N, C, L) as sizes."""
    return (1, shape[0], 1) if len(shape) == 1 else (shape[0], shape[1], math.prod(shape[2:]))


def _nll_natively(native: Library, x: ndarray, target: ndarray, weight: ndarray | None, reduction: int,
                  ignore_index: int) -> tuple[ndarray, ndarray]:
    kind = x.dtype
    x, target = _dense(x), _dense(target)
    weight = None if weight is None else _dense(weight)
    made, total = np.empty(() if reduction else target.shape, kind), np.empty((), kind)
    bad = (native.fl_nll_loss_f32 if kind.char == "f" else native.fl_nll_loss_f64)(
        x, target, weight, made, made, total, *_places(x.shape), ignore_index, reduction)
    if bad >= 0:
        raise IndexError(f"Target {int(target.reshape(-1)[bad])} is out of bounds.")
    return made, total


def _nll_backward_natively(native: Library, grad: ndarray, shape: tuple[int, ...], target: ndarray, weight: ndarray | None,
                           reduction: int, ignore_index: int, total: ndarray) -> ndarray:
    kind = grad.dtype
    out = memory.empty(tuple(shape), kind)
    grad, target = _dense(grad), _dense(target)
    weight = None if weight is None else _dense(weight)
    (native.fl_nll_loss_backward_f32 if kind.char == "f" else native.fl_nll_loss_backward_f64)(
        grad, target, weight, total, out, *_places(tuple(shape)), ignore_index, reduction)
    return out


@kernel
def nll_loss_backward(grad: ndarray, shape: tuple[int, ...], target: ndarray, weight: ndarray | None, reduction: int,
                      ignore_index: int, total: ndarray) -> ndarray:
    if grad.dtype.char in "fd" and target.dtype.char == "l" and target.size and total.dtype is grad.dtype and (
            weight is None or weight.dtype is grad.dtype):
        native = library("crossentropy")
        if native is not None:
            return _nll_backward_natively(native, grad, shape, target, weight, reduction, ignore_index, total)
    g = wide(grad)
    out = memory.empty(tuple(shape), g.dtype)
    out.fill(0)
    a, t = _in_three(out, target)
    counts = _counted(t, a.shape[1], ignore_index)
    chosen = t if counts is None else np.where(counts, t, 0)
    values = -g.reshape(t.shape) if reduction == 0 else -g
    if reduction == 1:
        values = values / wide(total)
    values = np.broadcast_to(values, t.shape)
    if weight is not None:
        values = values * wide(weight)[chosen]
    if counts is not None:
        values = np.where(counts, values, g.dtype.type(0))
    a[np.arange(a.shape[0])[:, None], chosen, np.arange(a.shape[2])[None]] = values
    return out if out.dtype is grad.dtype else out.astype(grad.dtype)


def _by_class(weight: ndarray, dims: int) -> ndarray:
    return weight.reshape(-1, *(1,) * (dims - 2))


@kernel
def smoothed_nll(x: ndarray, target: ndarray, weight: ndarray | None, reduction: int, ignore_index: int,
                 smoothing: float) -> tuple[ndarray, ndarray]:
    """nll_loss of float32 or float64 (N, C, ...), a share `smoothing` of which goes to all classes alike."""
    loss, total = nll_loss(x, target, weight, reduction, ignore_index)
    spread = sum_one(x if weight is None else x * _by_class(weight, x.ndim), 1, False)
    spread = np.where(target == ignore_index, x.dtype.type(0), spread)
    if reduction:
        spread = _sum(spread, None, False, None)
    if reduction == 1:
        spread = spread / total
    number = x.dtype.type
    return np.asarray(loss * number(1 - smoothing) - spread * number(smoothing / x.shape[1])), total


@kernel
def smoothed_nll_backward(grad: ndarray, shape: tuple[int, ...], target: ndarray, weight: ndarray | None, reduction: int,
                          ignore_index: int, total: ndarray, smoothing: float) -> ndarray:
    number = grad.dtype.type
    own = np.asarray(grad * number(1 - smoothing))
    out = nll_loss_backward(own, shape, target, weight, reduction, ignore_index, total)
    share = grad * number(-smoothing / shape[1])
    share = np.where(target == ignore_index, number(0), share / total if reduction == 1 else share)[:, None]
    large(np.add, out, share if weight is None else share * _by_class(weight, len(shape)), out=out)
    return out


@kernel
def cross_entropy(x: ndarray, target: ndarray, weight: ndarray | None, reduction: int, ignore_index: int,
                  keep: bool) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """Of logits (N, C) and classes (N): the loss; what the derivative takes: exp(x - maximum) (empty without keep), one over
    their sums (0 where the target does not count); and what the sum of losses was divided by."""
    native = library("crossentropy")
    if native is not None:
        return _cross_entropy_natively(native, x, target, weight, reduction, ignore_index, keep)
    kind = x.dtype
    count, classes = x.shape
    counts = _counted(target, classes, ignore_index)
    top = x.max(axis=1, keepdims=True)
    powers = np.subtract(x, top, out=memory.empty(x.shape, kind))
    np.exp(powers, out=powers)
    sums = powers.sum(axis=1)
    chosen = target if counts is None else np.where(counts, target, 0)
    values = np.log(sums) + (top[:, 0] - x[np.arange(count), chosen])
    inverse = 1 / sums
    weights = np.ones(count, kind) if weight is None else weight[chosen]
    if counts is not None:
        values, inverse, weights = (np.where(counts, v, kind.type(0)) for v in (values, inverse, weights))
    if weight is not None:
        values = values * weights
    total = kind.type(1 if reduction != 1 else np.add.reduce(weights, dtype=np.float64))
    if reduction:
        made = np.add.reduce(values) if count < 1 << 12 else _sum(values, None, False, None)
        values = np.asarray(np.divide(made, total), kind)
    return values, powers if keep else np.empty((0, 0), kind), inverse, np.asarray(total)


def _cross_entropy_natively(native: Library, x: ndarray, target: ndarray, weight: ndarray | None, reduction: int,
                            ignore_index: int, keep: bool) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    kind = x.dtype
    count, classes = x.shape
    x, target, weight = _dense(x), _dense(target), None if weight is None else _dense(weight)
    powers = memory.empty((count, classes) if keep else (0, 0), kind)
    inverse, values, total = np.empty(count, kind), np.empty(count, kind), np.empty((), kind)
    made = np.empty((), kind) if reduction else values
    bad = (native.fl_cross_entropy_f32 if kind.char == "f" else native.fl_cross_entropy_f64)(
        x, target, weight, powers if keep else None, inverse, values, made, total, count, classes, ignore_index, reduction)
    if bad >= 0:
        raise IndexError(f"Target {int(target[bad])} is out of bounds.")
    return made, powers, inverse, total


@kernel
def cross_entropy_backward(grad: ndarray, powers: ndarray, inverse: ndarray, target: ndarray, weight: ndarray | None,
                           total: ndarray, ignore_index: int) -> ndarray:
    """(softmax - one hot) * grad / total, zero for targets that do not count."""
    count, classes = powers.shape
    kind = powers.dtype
    out = memory.empty(powers.shape, kind)
    native = library("crossentropy")
    if native is not None and grad.dtype is kind:
        grad, target, weight = _dense(grad), _dense(target), None if weight is None else _dense(weight)
        (native.fl_cross_entropy_backward_f32 if kind.char == "f" else native.fl_cross_entropy_backward_f64)(
            grad, powers, inverse, target, weight, total, out, count, classes, ignore_index, grad.ndim)
        return out
    counts = target != ignore_index
    chosen = np.where(counts, target, 0)
    factor = grad / total if weight is None else grad / total * weight[chosen]
    factor = np.where(counts, factor, kind.type(0)).astype(kind, copy=False)
    np.multiply(powers, (factor * inverse)[:, None], out=out)
    out[np.arange(count), chosen] -= factor
    return out


# ------------------------------------------------------------------------------------------------------------ margins
@kernel
def multi_margin_loss(x: ndarray, target: ndarray, p: int, margin: float, weight: ndarray | None,
                      reduction: int) -> ndarray:
    a = wide(np.atleast_2d(x))
    z, _ = _margins(a, np.atleast_1d(target), margin)
    values = (z if p == 1 else z * z)
    if weight is not None:
        values = values * wide(weight)[np.atleast_1d(target)][:, None]
    values = values.sum(axis=1) / a.shape[1]
    if x.ndim < 2 or (reduction == 0 and target.ndim == 0):
        values = values.reshape(target.shape)
    return reduced(values, reduction, x.dtype)


def _margins(a: ndarray, t: ndarray, margin: float) -> tuple[ndarray, ndarray]:
    if t.size and not in_range(t, a.shape[1]):
        raise RuntimeError(f"target out of range: expected classes from 0 to {a.shape[1] - 1}")
    rows = np.arange(len(t))
    z = margin - a[rows, t][:, None] + a
    np.maximum(z, 0, out=z)
    z[rows, t] = 0
    return z, rows


@kernel
def multi_margin_loss_backward(grad: ndarray, x: ndarray, target: ndarray, p: int, margin: float,
                               weight: ndarray | None, reduction: int) -> ndarray:
    a, t = wide(np.atleast_2d(x)), np.atleast_1d(target)
    z, rows = _margins(a, t, margin)
    slope = (z > 0).astype(a.dtype) if p == 1 else 2 * z
    if weight is not None:
        slope *= wide(weight)[t][:, None]
    slope /= a.shape[1]
    slope[rows, t] = -slope.sum(axis=1)
    g = wide(grad)
    slope *= g.reshape(-1, 1) if reduction == 0 else g / len(t) if reduction == 1 else g
    return slope.reshape(x.shape).astype(x.dtype, copy=False)


def _label_parts(target: ndarray, classes: int) -> tuple[ndarray, ndarray]:
    """(which list entries hold a label, which classes are labels) of lists that end at the first negative number."""
    listed = np.logical_and.accumulate(target >= 0, axis=1)
    if (target >= classes).any() or (target < -1).any():
        raise RuntimeError("argument #2 'target' is out of range: expected labels from 0 to "
                           f"{classes - 1}, or -1 at the end of a list")
    labels = np.zeros(target.shape, bool)
    rows, places = np.nonzero(listed)
    labels[rows, target[rows, places]] = True
    return listed, labels


@kernel
def multilabel_margin_loss(x: ndarray, target: ndarray, reduction: int) -> tuple[ndarray, ndarray]:
    a, t = wide(np.atleast_2d(x)), np.atleast_2d(target)
    listed, labels = _label_parts(t, a.shape[1])
    values = np.zeros(len(a), a.dtype)
    for n in range(len(a)):
        z = 1 - a[n, t[n, listed[n]]][:, None] + a[n, ~labels[n]][None]
        values[n] = np.maximum(z, 0).sum()
    values /= max(a.shape[1], 1)
    if x.ndim < 2:
        values = values.reshape(())
    return reduced(values, reduction, x.dtype), labels.astype(x.dtype).reshape(target.shape)


@kernel
def multilabel_margin_loss_backward(grad: ndarray, x: ndarray, target: ndarray, reduction: int) -> ndarray:
    a, t = wide(np.atleast_2d(x)), np.atleast_2d(target)
    listed, labels = _label_parts(t, a.shape[1])
    slope = np.zeros(a.shape, a.dtype)
    for n in range(len(a)):
        chosen = t[n, listed[n]]
        over = (1 - a[n, chosen][:, None] + a[n, ~labels[n]][None] > 0).astype(a.dtype)
        slope[n, ~labels[n]] = over.sum(axis=0)
        np.subtract.at(slope[n], chosen, over.sum(axis=1))
    slope /= max(a.shape[1], 1)
    g = wide(grad)
    slope *= g.reshape(-1, 1) if reduction == 0 else g / len(a) if reduction == 1 else g
    return slope.reshape(x.shape).astype(x.dtype, copy=False)
