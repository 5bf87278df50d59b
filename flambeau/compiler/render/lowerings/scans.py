"""Running sums and products: native/scan.c."""

from __future__ import annotations

import math
from typing import Any

from ...ir.literals import sizes
from . import lower

_MODES = {"cumsum": 0, "cumprod": 1, "cumsum_from_end": 2}


@lower("cumsum", "cumprod", "cumsum_from_end")
def cumulate(op: Any) -> str | None:
    x, axis, out = op.args[0], op.args[1], op.outs[0]
    if x.dtype.char not in "fd" or out.dtype != x.dtype or not x.shape or not x.size or not (x.contiguous and out.contiguous):
        return None
    outer, n, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:])
    return f"fl_cumulate_{x.suffix}({x}, {out}, {sizes(outer, n, inner)}, {_MODES[op.kernel]});"
