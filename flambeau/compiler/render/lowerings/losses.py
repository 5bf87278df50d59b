"""Cross entropy and the negative log-likelihood (native/crossentropy.c), losses of two arrays (native/losses.c).

A target out of range ends the program with status 4, an IndexError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ....backends.cpu.layers.losses import KINDS
from ....backends.facts import SLOPES
from ...ir.parts import Value
from ...ir.statements import Call, Scratch, Size, number, sizes
from ...passes.expand import pair
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


@lower(*KINDS)
def pair_loss(op: Any) -> Call | None:
    found, loss = pair(SLOPES[f"{op.kernel}_backward"][1], op.args), op.outs[0]
    if found is None or not found[0].size or not floats(*found[:2], loss):
        return None
    x, y, reduction, value = found
    return Call("pair_loss", x.element, [KINDS[op.kernel], x, y, loss, Size(x.size), reduction, number(value)], ("true", 5))


@lower(*[f"{name}_backward" for name in KINDS])
def pair_loss_backward(op: Any) -> Call | None:
    name, grad, out = op.kernel.removesuffix("_backward"), op.args[0], op.outs[0]
    found = pair(SLOPES[op.kernel][1], op.args[1:])
    if found is None or not found[0].size or not floats(*found[:2], grad, out):
        return None
    x, y, reduction, value = found
    if grad.size != (1 if reduction else x.size):
        return None
    return Call("pair_loss_backward", x.element, [KINDS[name], grad, x, y, out, Size(x.size), reduction, number(value)])
