"""Running sums and products: native/scan.c."""

from __future__ import annotations

from typing import Any

from ...ir.statements import Call
from . import around, floats, lower

_MODES = {"cumsum": 0, "cumprod": 1, "cumsum_from_end": 2}


@lower(*_MODES)
def cumulate(op: Any) -> Call | None:
    x, axis, out = op.args[0], op.args[1], op.outs[0]
    if not x.shape or not x.size or not floats(x, out):
        return None
    return Call("cumulate", x.element, [x, out, *around(x.shape, axis), _MODES[op.kernel]])
