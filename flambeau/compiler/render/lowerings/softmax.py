"""softmax and log_softmax along any dimension: native/softmax.c."""

from __future__ import annotations

from typing import Any

from ...ir.statements import Call
from . import around, floats, lower


@lower("softmax", "log_softmax", "softmax_backward", "log_softmax_backward")
def softmax(op: Any) -> Call | None:
    """Of x, or of the gradient and the result: arrays of one shape, then the dimension."""
    out = op.outs[0]
    given = op.args[:2 if op.kernel.endswith("_backward") else 1]
    if not out.size or not out.shape or not floats(out, *given) or any(v.shape != out.shape for v in given):
        return None
    return Call(op.kernel, out.element, [*given, out, *around(out.shape, op.args[len(given)])])
