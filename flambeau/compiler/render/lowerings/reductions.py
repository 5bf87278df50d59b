"""Sums, means, norms, extremes, variances: plain loops while they are small, native/reduce.c above."""

from __future__ import annotations

import math
from typing import Any

from ...ir.literals import size, sizes
from ...ir.parts import C_TYPES, Value
from ...passes.fusion import all_axes
from . import lower

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


def _one(x: Value, axes: Any, *outs: Value) -> tuple[int, int, int] | None:
    """The grid of a reduction of contiguous floats over one run of axes; None if it is anything else."""
    grids = _grids(x, axes)
    if x.dtype.char not in "fd" or not x.size or not x.contiguous or not all(o.contiguous for o in outs) or len(grids) != 1:
        return None
    return grids[0]


def _loop(x: Value, at: str, out: str, grid: tuple[int, int, int], tail: str) -> str:
    """Sums in place over (outer, n, inner) at `at`; tail: what happens to a total `s`."""
    outer, n, inner = grid
    kind = C_TYPES[x.dtype.char]
    wide = "long" if x.dtype.kind in "iub" else kind if n <= _SHORT else "double"
    head = f"for (long o = 0; o < {size(outer)}; o++) {{\n    const {kind} *p = {at} + o * {size(n * inner)};\n"
    rows, columns = size(n), size(inner)
    if inner == 1:
        return (f"{head}    {wide} s = 0;\n    #pragma omp simd reduction(+ : s)\n"
                f"    for (long i = 0; i < {rows}; i++) s += p[i];\n    {out}[o] = {tail};\n}}")
    return (f"{head}    {wide} t[{columns}];\n    for (long j = 0; j < {columns}; j++) t[j] = p[j];\n"
            f"    for (long i = 1; i < {rows}; i++) {{\n        #pragma omp simd\n"
            f"        for (long j = 0; j < {columns}; j++) t[j] += p[i * {columns} + j];\n    }}\n"
            f"    for (long j = 0; j < {columns}; j++) {{ {wide} s = t[j]; {out}[o * {columns} + j] = {tail}; }}\n}}")


def _sums(op: Any, x: Value, axes: Any, out: Value, divisor: int) -> str | None:
    grids = _grids(x, axes)
    if not x.contiguous or not out.contiguous or not x.size or not grids:
        return None
    whole = x.dtype.kind in "iub"
    if whole and (out.dtype.char not in "lq" or len(grids) > 1 or divisor != 1):
        return None
    if not whole and (x.dtype != out.dtype or x.dtype.char not in "fd"):
        return None
    lines, at, kind = [], str(x), C_TYPES[x.dtype.char]
    for k, grid in enumerate(grids):
        last = k == len(grids) - 1
        target = str(out) if last else f"(({kind} *){op.scratch(grid[0] * grid[2] * x.dtype.itemsize)})"
        share = divisor if last else 1
        if whole or (math.prod(grid) <= _INLINE and not op.general):
            if whole and grid[2] > _INLINE:
                return None
            lines.append(_loop(x, at, target, grid, f"s / ({kind}){size(share)}" if share != 1 else "s"))
        else:
            lines.append(f"fl_sum_{x.suffix}({at}, {target}, {sizes(*grid)}, 0, {size(share)}, 0);")
        at = target
    return "\n".join(lines)


@lower("sum")
def sum_(op: Any) -> str | None:
    x, axes = op.args[0], op.args[1] if len(op.args) > 1 else None
    return _sums(op, x, axes, op.outs[0], 1)


@lower("sum_to_size")
def sum_to_size(op: Any) -> str | None:
    """Over leading dimensions and those that were of length one: what broadcasting undoes."""
    x, axes, _ = op.args
    return _sums(op, x, axes, op.outs[0], 1) if axes else None


@lower("mean")
def mean(op: Any) -> str | None:
    x, axes = op.args[0], op.args[1] if len(op.args) > 1 else None
    return _sums(op, x, axes, op.outs[0], math.prod(x.shape[a] for a in all_axes(x, axes)))


@lower("vector_norm")
def vector_norm(op: Any) -> str | None:
    x, order, axes = (*op.args, None)[:3]
    grid = _one(x, axes, op.outs[0])
    if grid is None or order not in (1, 2) or op.outs[0].dtype != x.dtype:
        return None
    mode = 1 if order == 2 else 2
    return f"fl_sum_{x.suffix}({x}, {op.outs[0]}, {sizes(*grid)}, {mode}, 1.0, {int(order == 2)});"


def _extreme(op: Any, axes: Any, values: Value | None, places: Value | None) -> str | None:
    x = op.args[0]
    grid = _one(x, axes, *[v for v in (values, places) if v is not None])
    if grid is None:
        return None
    least = int("min" in op.kernel)
    return (f"fl_extreme_{x.suffix}({x}, {values if values is not None else 0}, {places if places is not None else 0}, "
            f"{sizes(*grid)}, {least});")


@lower("amax", "amin")
def extreme(op: Any) -> str | None:
    return _extreme(op, op.args[1] if len(op.args) > 1 else None, op.outs[0], None)


@lower("max_dim", "min_dim")
def extreme_dim(op: Any) -> str | None:
    return _extreme(op, (op.args[1],), *op.outs)


@lower("argmax", "argmin")
def place(op: Any) -> str | None:
    axis = op.args[1] if len(op.args) > 1 else None
    return _extreme(op, None if axis is None else (axis,), None, op.outs[0])


@lower("logsumexp")
def logsumexp(op: Any) -> str | None:
    x, out = op.args[0], op.outs[0]
    grid = _one(x, op.args[1] if len(op.args) > 1 else None, out)
    if grid is None:
        return None
    return f"fl_logsumexp_{x.suffix}({x}, {out}, {sizes(*grid)});"


@lower("var_mean", "std_mean", "var", "std")
def var_mean(op: Any) -> str | None:
    x, axes, correction = op.args[:3]
    grid = _one(x, axes, *op.outs)
    if grid is None:
        return None
    spread = op.outs[0]
    middle = op.outs[1] if len(op.outs) > 1 else f"(({C_TYPES[x.dtype.char]} *){op.scratch(spread.nbytes)})"
    free = f"fmax({size(grid[1])} - {op.number(correction)}, 0)"
    return (f"fl_var_mean_{x.suffix}({x}, {spread}, {middle}, {sizes(*grid)}, {free}, "
            f"{int('std' in op.kernel)});")
