"""Scaled dot-product attention: native/attention.c. The arrays keep their strides; only rows must be without holes."""

from __future__ import annotations

from typing import Any

from ...ir.parts import Value
from ...ir.statements import Call, Longs, number
from . import lower


def _usable(*values: Value) -> bool:
    """Whether all are (batch, heads, rows, columns) of one floating dtype, with dense rows."""
    kind = values[0].dtype
    return kind.char in "fd" and all([
        v.dtype == kind and len(v.shape) == 4 and v.size > 0 and (v.strides[3] == 1 or v.shape[3] == 1) for v in values])


def _mask_strides(mask: Value | None, scores: tuple[int, ...], kind: Any) -> list[int] | None:
    """Strides of the mask as it is broadcast to the scores; None where it is not of numbers of this dtype."""
    if mask is None:
        return [0] * 4
    if mask.dtype != kind or len(mask.shape) > 4:
        return None
    lead = 4 - len(mask.shape)
    return [0] * lead + [0 if n == 1 and m != 1 else s for n, s, m in zip(mask.shape, mask.strides, scores[lead:])]


def _call(function: str, given: list[Value], mask: Value | None, rest: list[Value], strided: list[Value], causal: bool,
          scale: Any) -> Call | None:
    """given: those up to the values, after which the mask stands. strided: those whose strides are passed."""
    q, k, v = given[-3:]
    steps = _mask_strides(mask, (*q.shape[:3], k.shape[2]), q.dtype)
    if steps is None:
        return None
    sizes = [*q.shape[:3], k.shape[2], q.shape[3], v.shape[3], int(causal)]
    strides = [s for one in strided for s in one.strides[:3]] + steps
    return Call(function, q.element, [*given, mask, *rest, Longs("sizes", sizes), Longs("strides", strides), number(scale)])


@lower("attention")
def attention(op: Any) -> Call | None:
    q, k, v, mask, causal, scale = op.args
    out, statistic = op.outs
    if not _usable(q, k, v, out) or not statistic.contiguous:
        return None
    return _call("attention", [q, k, v], mask, [out, statistic], [q, k, v, out], causal, scale)


@lower("attention_backward")
def attention_backward(op: Any) -> Call | None:
    grad, q, k, v, mask, causal, scale, out, statistic = op.args
    if not _usable(grad, q, k, v, out, *op.outs) or not statistic.contiguous:
        return None
    given = [grad, q, k, v]
    return _call("attention_backward", given, mask, [out, statistic, *op.outs], [*given, out, *op.outs], causal, scale)
