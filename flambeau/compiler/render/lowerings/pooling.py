"""Pooling: native/pool.c with the geometry of the windows as a table in the program."""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.layers.pooling import TAPS, geometry, varying
from ...ir.parts import Value
from ...ir.statements import Call, Longs, Size
from . import lower


def _usable(*values: Value | None) -> bool:
    return all([v is None or (v.contiguous and v.size) for v in values])


def _call(function: str, kind: str, before: list[Any], table: Any, *after: Any) -> Call:
    return Call(function, kind, [*before, Longs("g", table.tolist()), *after])


def _tuples(*given: Any) -> list[tuple[int, ...]]:
    return [tuple(g) for g in given]


def _last(shape: tuple[int, ...], like: Any) -> tuple[int, ...]:
    return tuple(shape[len(shape) - len(like):])


def _images(v: Value, extents: tuple[int, ...]) -> Size:
    """How many of these extents it holds."""
    return Size(v.size // math.prod(extents))


@lower("max_pool", "max_pool_values")
def max_pool(op: Any) -> Call | None:
    x, (kernel, stride, padding, dilation, out_size) = op.args[0], _tuples(*op.args[1:6])
    out, which = op.outs[0], op.outs[1] if len(op.outs) > 1 else None
    if x.dtype.char not in "fd" or not _usable(x, out, which) or math.prod(kernel) > TAPS:
        return None
    wide = int(which is not None and which.dtype.itemsize > 1)
    return _call("max_pool", x.element, [x, out, which, wide],
                 geometry(_last(x.shape, kernel), kernel, stride, padding, dilation, out_size), _images(out, out_size))


@lower("max_pool_indices", "max_pool_scatter")
def from_winners(op: Any) -> Call | None:
    """Positions of the largest elements of windows, or gradients that go there."""
    grads = op.args[:int(op.kernel == "max_pool_scatter")]
    which, *given = op.args[len(grads):len(grads) + 6]
    held, kernel, stride, padding, dilation = _tuples(*given)
    out, windows = op.outs[0], _last(which.shape, kernel)
    if any(g.dtype.char not in "fd" for g in grads) or not _usable(*grads, which, out) or math.prod(kernel) > TAPS:
        return None
    return _call(op.kernel, grads[0].element if grads else "", [*grads, which, int(which.dtype.itemsize > 1), out],
                 geometry(held, kernel, stride, padding, dilation, windows), _images(which, windows))


@lower("avg_pool", "avg_pool_grad")
def avg_pool(op: Any) -> Call | None:
    x, out = op.args[0], op.outs[0]
    include_pad, override = op.args[5:7]
    if x.dtype.char not in "fd" or not _usable(x, out) or (override is not None and override <= 0):
        return None
    if op.kernel == "avg_pool":
        kernel, stride, padding, windows = _tuples(*op.args[1:5])
        held = mine = _last(x.shape, kernel)
    else:
        held, kernel, stride, padding = _tuples(*op.args[1:5])
        windows = mine = _last(x.shape, kernel)
    return _call(op.kernel, x.element, [x, out], geometry(held, kernel, stride, padding, (1,) * len(held), windows),
                 _images(x, mine), int(include_pad), Size(override or 0))


@lower("adaptive_avg_pool", "adaptive_avg_pool_grad", "adaptive_max_pool")
def adaptive(op: Any) -> Call | None:
    x, given = op.args[0], tuple(op.args[1])
    if x.dtype.char not in "fd" or not _usable(x, *op.outs):
        return None
    held = _last(x.shape, given)
    table = varying(given, held) if op.kernel.endswith("_grad") else varying(held, given)
    return _call(op.kernel.replace("_pool", ""), x.element, [x, *op.outs], table, _images(x, held))
