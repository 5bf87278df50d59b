"""Optimizer updates and clipping: one native call for all tensors of a group, which finds them in a table (native/optim.c)."""

from __future__ import annotations

from typing import Any

from ...ir.parts import Number, Value
from ...ir.statements import Call, Table, number
from . import lower

_WIDTH = 7  # arrays of a tensor in the table; its size follows


def _table(lists: list[list[Value]], counts: list[list[Value]]) -> Table | None:
    """Of each tensor: parameter, gradient, up to three parts of state, two zero-dim counts. None if they are not plain."""
    dtype = lists[0][0].dtype
    wide = {c.dtype.char for some in counts for c in some} or {"f"}
    if dtype.char not in "fd" or len(wide) > 1 or wide - set("fd"):
        return None
    if any(v.dtype != dtype or not v.contiguous for some in lists for v in some):
        return None
    if any(c.shape for some in counts for c in some):
        return None
    columns = [*lists, *([[]] * (_WIDTH - 2 - len(lists))), *counts, *([[]] * (2 - len(counts)))]
    return Table([[*[some[i] if some else 0 for some in columns], first.size] for i, first in enumerate(lists[0])])


# Lists of state, lists of zero-dim state, and how many of the last arguments are truth values.
_RULES = {"adam": (3, 1, 2), "sgd": (1, 0, 3), "rmsprop": (3, 1, 1), "adagrad": (1, 1, 1), "adadelta": (2, 1, 1),
          "adamax": (2, 1, 1), "nadam": (2, 2, 2), "radam": (2, 1, 2)}


@lower(*[f"fused_{name}" for name in _RULES])
def update(op: Any) -> Call | None:
    name = op.kernel.removeprefix("fused_")
    parts, counts, flags = _RULES[name]
    args = list(op.args)
    lists, zero_dim, numbers = args[:2 + parts], args[2 + parts:2 + parts + counts], args[2 + parts + counts:]
    table = _table(lists, zero_dim)
    if table is None:
        return None
    first, last = lists[0], len(numbers) - flags
    wide = [int(zero_dim[0][0].dtype.char == "d")] if counts else []
    given = [*wide, *map(number, numbers[:last])]
    given += [number(f) if f.__class__ is Number else int(bool(f)) for f in numbers[last:]]
    return Call(name, first[0].element, [table, len(first), *given])


@lower("fused_norm")
def norm(op: Any) -> Call | None:
    arrays, order = op.args
    table, out = _table([arrays], []), op.outs[0]
    if table is None or order not in (1.0, 2.0, float("inf")) or out.dtype != arrays[0].dtype:
        return None
    return Call("total_norm", out.element, [table, len(arrays), number(order), out])


@lower("fused_clip")
def clip(op: Any) -> Call | None:
    arrays, total, limit = op.args
    table = _table([arrays], [])
    if table is None or total.dtype != arrays[0].dtype or total.shape:
        return None
    return Call("clip", total.element, [table, len(arrays), total, number(limit)])
