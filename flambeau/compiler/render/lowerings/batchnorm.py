"""Batch and group normalization: native/batchnorm.c."""

from __future__ import annotations

import math
from typing import Any

from ...ir.literals import literal, size, sizes
from ...ir.parts import Value
from . import lower


def _usable(x: Value, *others: Value | None) -> bool:
    """Whether all that are given are contiguous and of x's dtype."""
    return x.dtype.char in "fd" and x.size > 0 and all([
        v is None or (v.dtype == x.dtype and v.contiguous) for v in (x, *others)])


def _pointer(value: Value | None) -> str:
    return "0" if value is None else str(value)


def _sizes(x: Value) -> str:
    return sizes(x.shape[0], x.shape[1], math.prod(x.shape[2:]))


def _wanted(op: Any, needs: Any) -> list[Any]:
    """The gradients of input, weight and bias: None where one is not needed."""
    made = iter(op.outs)
    return [next(made) if need else None for need in needs]


@lower("batch_norm")
def batch_norm(op: Any) -> str | None:
    x, weight, bias, running_mean, running_var, training, momentum, eps = op.args
    if len(op.outs) != 3:
        return None
    out, mean, inverse = op.outs
    if not _usable(x, weight, bias, running_mean, running_var, out):
        return None
    saved = (mean, inverse) if training else (None, None)
    pointers = ", ".join(map(_pointer, (x, out, weight, bias, running_mean, running_var, *saved)))
    return f"fl_batch_norm_{x.suffix}({pointers}, {_sizes(x)}, {int(training)}, {op.number(momentum)}, {literal(eps)});"


@lower("batch_norm_grad")
def batch_norm_grad(op: Any) -> str | None:
    g, x, weight, mean, inverse, training, needs = op.args
    made = _wanted(op, needs)
    if not _usable(x, g, weight, mean, inverse, *made):
        return None
    pointers = ", ".join(map(_pointer, (g, x, weight, mean, inverse, *made)))
    return f"fl_batch_norm_grad_{x.suffix}({pointers}, {_sizes(x)}, {int(training)});"


@lower("group_norm")
def group_norm(op: Any) -> str | None:
    x, groups, weight, bias, eps = op.args
    if len(op.outs) != 3 or not _usable(x, weight, bias, *op.outs):
        return None
    pointers = ", ".join(map(_pointer, (x, op.outs[0], weight, bias, *op.outs[1:])))
    return f"fl_group_norm_{x.suffix}({pointers}, {_sizes(x)}, {size(groups)}, {literal(eps)});"


@lower("group_norm_grad")
def group_norm_grad(op: Any) -> str | None:
    g, x, groups, mean, inverse, weight, needs = op.args
    made = _wanted(op, needs)
    if not _usable(x, g, weight, mean, inverse, *made):
        return None
    sums = op.scratch(2 * 8 * x.shape[0] * x.shape[1])
    pointers = ", ".join(map(_pointer, (g, x, weight, mean, inverse, *made)))
    return f"fl_group_norm_grad_{x.suffix}({pointers}, {sums}, {_sizes(x)}, {size(groups)});"
