"""Scaled dot-product attention: native/attention.c. The arrays keep their strides; only rows must be without holes."""

from __future__ import annotations

from typing import Any

from ...ir.literals import array
from ...ir.parts import Value
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


def _tables(q: Value, k: Value, v: Value, causal: bool, steps: list[int], *strided: Value) -> str:
    sizes = [*q.shape[:3], k.shape[2], q.shape[3], v.shape[3], int(causal)]
    strides = [s for one in strided for s in one.strides[:3]] + steps
    return f"{array('sizes', sizes)}\n{array('strides', strides)}"


@lower("attention")
def attention(op: Any) -> str | None:
    q, k, v, mask, causal, scale, _ = op.args
    out, statistic = op.outs[:2]
    if not _usable(q, k, v, out) or not statistic.contiguous or op.outs[2].size:
        return None
    steps = _mask_strides(mask, (*q.shape[:3], k.shape[2]), q.dtype)
    if steps is None:
        return None
    return (f"{{\n{_tables(q, k, v, causal, steps, q, k, v, out)}\nfl_attention_{q.suffix}({q}, {k}, {v}, "
            f"{0 if mask is None else mask}, {out}, {statistic}, (void *)sizes, (void *)strides, {op.number(scale)});\n}}")


@lower("attention_backward")
def attention_backward(op: Any) -> str | None:
    grad, q, k, v, mask, causal, scale, out, statistic, kept = op.args
    if not _usable(grad, q, k, v, out, *op.outs) or not statistic.contiguous or kept.size:
        return None
    steps = _mask_strides(mask, (*q.shape[:3], k.shape[2]), q.dtype)
    if steps is None:
        return None
    tables = _tables(q, k, v, causal, steps, grad, q, k, v, out, *op.outs)
    made = ", ".join(map(str, op.outs))
    return (f"{{\n{tables}\nfl_attention_backward_{q.suffix}({grad}, {q}, {k}, {v}, {0 if mask is None else mask}, {out}, "
            f"{statistic}, {made}, (void *)sizes, (void *)strides, {op.number(scale)});\n}}")
