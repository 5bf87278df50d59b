"""Sums, means, norms, extremes, variances: plain loops while they are small, native/reduce.c above."""

from __future__ import annotations

import math
from typing import Any

from ...ir.parts import Value
from ...ir.statements import Call, Size, Statement, Sums, number, sizes
from ...passes.fusion import all_axes
from . import floats, like, lower

_INLINE = 1 << 12   # elements up to which a loop in place is faster than a call
_SHORT = 1 << 6     # elements that may be added up in the array's own precision


def _grids(x: Value, axes: Any) -> list[tuple[int, int, int]]:
    """(outer, n, inner) of each run of neighbouring axes, the last one first: a reduction over one after the other."""
    shape, grids = list(x.shape), []
    axes = list(all_axes(x, axes))
    while axes:
        last = first = axes.pop()
        while axes and axes[-1] == first - 1:
            first = axes.pop()
        outer, n, inner = math.prod(shape[:first]), math.prod(shape[first:last + 1]), math.prod(shape[last + 1:])
        grids.append((outer, n, inner))
        shape[first:last + 1] = [1] * (last + 1 - first)
    return grids


def _one(op: Any, axes: Any) -> map[Size] | None:
    """The grid of a reduction of contiguous floats over one run of axes; None if it is anything else."""
    x = op.args[0]
    grids = _grids(x, axes)
    if not x.size or not floats(x) or not all(o.contiguous for o in op.outs) or len(grids) != 1:
        return None
    return sizes(*grids[0])


def _axes(op: Any) -> Any:
    return op.args[1] if len(op.args) > 1 else None


@lower("sum", "sum_to_size", "mean")
def sums(op: Any) -> list[Statement] | None:
    x, out, axes = op.args[0], op.outs[0], _axes(op)
    grids = _grids(x, axes)
    if not x.contiguous or not out.contiguous or not x.size or not grids or (op.kernel == "sum_to_size" and not axes):
        return None
    divisor = math.prod([x.shape[a] for a in all_axes(x, axes)]) if op.kernel == "mean" else 1
    integers = x.dtype.kind in "iub"
    if integers and (out.dtype.char not in "lq" or len(grids) > 1 or divisor != 1 or grids[0][2] > _INLINE):
        return None
    if not integers and (x.dtype != out.dtype or x.dtype.char not in "fd"):
        return None
    made: list[Statement] = []
    at, kind = x, x.element
    for k, grid in enumerate(grids):
        last = k == len(grids) - 1
        target = out if last else like(op, x, grid[0] * grid[2] * x.dtype.itemsize)
        share = divisor if last else 1
        if integers or (math.prod(grid) <= _INLINE and not op.general):
            wide = "i64" if integers else kind if grid[1] <= _SHORT else "f64"
            made.append(Sums(at, target, kind, wide, grid, share))
        else:
            made.append(Call("sum", kind, [at, target, *sizes(*grid), 0, Size(share), 0]))
        at = target
    return made


@lower("vector_norm")
def vector_norm(op: Any) -> Call | None:
    x, order, axes = (*op.args, None)[:3]
    grid = _one(op, axes)
    if grid is None or order not in (1, 2) or op.outs[0].dtype != x.dtype:
        return None
    return Call("sum", x.element, [x, op.outs[0], *grid, 1 if order == 2 else 2, 1.0, int(order == 2)])


@lower("amax", "amin", "max_dim", "min_dim", "argmax", "argmin")
def extreme(op: Any) -> Call | None:
    """Where values go and where their positions go, one of which may not be wanted."""
    x, grid = op.args[0], _one(op, _axes(op))
    places = [None, *op.outs] if op.kernel.startswith("arg") else [*op.outs, None][:2]
    return None if grid is None else Call("extreme", x.element, [x, *places, *grid, int("min" in op.kernel)])


@lower("logsumexp")
def logsumexp(op: Any) -> Call | None:
    x, grid = op.args[0], _one(op, _axes(op))
    return None if grid is None else Call("logsumexp", x.element, [x, op.outs[0], *grid])


@lower("var_mean", "std_mean", "var", "std")
def var_mean(op: Any) -> Call | None:
    x, axes, correction = op.args[:3]
    grid = _one(op, axes)
    if grid is None:
        return None
    grid, spread = list(grid), op.outs[0]
    middle = op.outs[1] if len(op.outs) > 1 else like(op, spread)
    free = ("max", ("-", grid[1], number(correction)), 0)
    return Call("var_mean", x.element, [x, spread, middle, *grid, free, int("std" in op.kernel)])
