"""Cross entropy and the negative log-likelihood (native/crossentropy.c), losses of two arrays (native/losses.c).

A target out of range ends the program with status 4, an IndexError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ...backends.cpu.losses import KINDS
from ..ir import Value
from ..statements import Call, Scratch, Size, number, sizes
from . import floats, lower


def _classes(target: Value) -> bool:
    return target.dtype.char == "l" and target.contiguous and target.size > 0


@lower("cross_entropy")
def cross_entropy(op: Any) -> Call | None:
    x, target, weight, reduction, ignore_index, keep = op.args
    loss, powers, inverse, total = op.outs
    if not floats(x, weight, loss, powers, inverse, total) or not _classes(target):
        return None
    count, classes = x.shape
    values = loss if reduction == 0 else Scratch(op.scratch(count * x.dtype.itemsize))
    return Call("cross_entropy", x.element, [x, target, weight, powers if keep else None, inverse, values, loss, total,
                                             *sizes(count, classes, ignore_index), reduction], ("found", 4))


@lower("cross_entropy_backward")
def cross_entropy_backward(op: Any) -> Call | None:
    grad, powers, inverse, target, weight, total, ignore_index = op.args
    out = op.outs[0]
    if not floats(out, grad, powers, inverse, weight, total) or not _classes(target):
        return None
    return Call("cross_entropy_backward", out.element, [grad, powers, inverse, target, weight, total, out,
                                                        *sizes(*powers.shape, ignore_index), len(grad.shape)])


def _places(shape: tuple[int, ...]) -> Iterable[int]:
    return (1, Size(shape[0]), 1) if len(shape) == 1 else sizes(shape[0], shape[1], math.prod(shape[2:]))


@lower("nll_loss")
def nll_loss(op: Any) -> Call | None:
    x, target, weight, reduction, ignore_index = op.args
    loss, total = op.outs
    if not floats(x, weight, loss, total) or not _classes(target) or not x.size:
        return None
    return Call("nll_loss", x.element, [x, target, weight, loss, loss, total, *_places(x.shape), Size(ignore_index), reduction],
                ("found", 4))


@lower("nll_loss_backward")
def nll_loss_backward(op: Any) -> Call | None:
    grad, shape, target, weight, reduction, ignore_index, total = op.args
    out = op.outs[0]
    if not floats(out, grad, weight, total) or not _classes(target) or not out.size:
        return None
    return Call("nll_loss_backward", out.element, [grad, target, weight, total, out, *_places(tuple(shape)), Size(ignore_index),
                                                   reduction])


def _pair(op: Any, x: Value, y: Value, reduction: int, value: Any) -> Call | None:
    loss = op.outs[0]
    if x.shape != y.shape or not x.size or not floats(x, y, loss):
        return None
    return Call("pair_loss", x.element, [KINDS[op.kernel], x, y, loss, Size(x.size), reduction, number(value)], ("true", 5))


def _pair_backward(op: Any, grad: Value, x: Value, y: Value, reduction: int, value: Any) -> Call | None:
    out = op.outs[0]
    if x.shape != y.shape or not x.size or grad.size != (1 if reduction else x.size) or not floats(x, grad, y, out):
        return None
    kind = KINDS[op.kernel.removesuffix("_backward")]
    return Call("pair_loss_backward", x.element, [kind, grad, x, y, out, Size(x.size), reduction, number(value)])


@lower("mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss")
def pair_loss(op: Any) -> Call | None:
    x, y, reduction, *value = op.args
    return _pair(op, x, y, reduction, *value or (0.0,))


@lower("mse_loss_backward", "huber_loss_backward", "smooth_l1_loss_backward", "soft_margin_loss_backward")
def pair_loss_backward(op: Any) -> Call | None:
    grad, x, y, reduction, *value = op.args
    return _pair_backward(op, grad, x, y, reduction, *value or (0.0,))


@lower("binary_cross_entropy", "bce_with_logits")
def binary_loss(op: Any) -> Call | None:
    x, y, *weights, reduction = op.args
    return _pair(op, x, y, reduction, 0.0) if weights.count(None) == len(weights) else None


@lower("binary_cross_entropy_backward", "bce_with_logits_backward")
def binary_loss_backward(op: Any) -> Call | None:
    grad, x, y, *weights, reduction = op.args
    return _pair_backward(op, grad, x, y, reduction, 0.0) if weights.count(None) == len(weights) else None
