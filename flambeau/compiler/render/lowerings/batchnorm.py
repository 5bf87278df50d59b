"""Batch and group normalization: native/batchnorm.c."""

from __future__ import annotations

from typing import Any

from ...ir.statements import Call, Scratch, Size, number
from . import around, floats, lower, wanted


@lower("batch_norm")
def batch_norm(op: Any) -> Call | None:
    x, weight, bias, running_mean, running_var, training, momentum, eps = op.args
    if len(op.outs) != 3:
        return None
    out, mean, inverse = op.outs
    if not x.size or not floats(x, weight, bias, running_mean, running_var, out):
        return None
    saved = (mean, inverse) if training else (None, None)
    return Call("batch_norm", x.element, [x, out, weight, bias, running_mean, running_var, *saved, *around(x.shape, 1),
                                          int(training), number(momentum), number(eps)])


@lower("batch_norm_grad")
def batch_norm_grad(op: Any) -> Call | None:
    g, x, weight, mean, inverse, training, needs = op.args
    arrays = [g, x, weight, mean, inverse, *wanted(op, needs)]
    if not x.size or not floats(*arrays):
        return None
    return Call("batch_norm_grad", x.element, [*arrays, *around(x.shape, 1), int(training)])


@lower("group_norm")
def group_norm(op: Any) -> Call | None:
    x, groups, weight, bias, eps = op.args
    if len(op.outs) != 3 or not x.size or not floats(x, weight, bias, *op.outs):
        return None
    return Call("group_norm", x.element, [x, op.outs[0], weight, bias, *op.outs[1:], *around(x.shape, 1), Size(groups),
                                          number(eps)])


@lower("group_norm_grad")
def group_norm_grad(op: Any) -> Call | None:
    g, x, groups, mean, inverse, weight, needs = op.args
    arrays = [g, x, weight, mean, inverse, *wanted(op, needs)]
    if not x.size or not floats(*arrays):
        return None
    sums = Scratch(op.scratch(2 * 8 * x.shape[0] * x.shape[1]))
    return Call("group_norm_grad", x.element, [*arrays, sums, *around(x.shape, 1), Size(groups)])
