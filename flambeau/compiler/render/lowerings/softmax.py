"""softmax and log_softmax along any dimension: native/softmax.c."""

from __future__ import annotations

import math
from typing import Any

from ...ir.literals import sizes
from ...ir.parts import Value
from . import lower


def _extents(shape: tuple[int, ...], axis: int) -> str:
    return sizes(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1:]))


def _usable(*values: Value) -> bool:
    """Whether all are contiguous, not empty, and of one floating dtype."""
    first = values[0]
    return first.dtype.char in "fd" and first.size > 0 and all([v.contiguous and v.dtype == first.dtype for v in values])


@lower("softmax", "log_softmax")
def forward(op: Any) -> str | None:
    x, axis = op.args[:2]
    out = op.outs[0]
    if not x.shape or not _usable(out, x):
        return None
    return f"fl_{op.kernel}_{x.suffix}({x}, {out}, {_extents(x.shape, axis)});"


@lower("softmax_backward", "log_softmax_backward")
def backward(op: Any) -> str | None:
    grad, result, axis = op.args[:3]
    out = op.outs[0]
    if not result.shape or grad.shape != result.shape or not _usable(out, grad, result):
        return None
    return f"fl_{op.kernel}_{out.suffix}({grad}, {result}, {out}, {_extents(result.shape, axis)});"
