"""Pooling: native/pool.c with the geometry of the windows as a table in the program."""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.layers.pooling import TAPS, geometry, varying
from ...ir.literals import array, size
from ...ir.parts import Value
from . import lower


def _usable(*values: Value) -> bool:
    return all([v.contiguous and v.size for v in values])


def _call(function: str, before: str, table: Any, after: str) -> str:
    return f"{{ {array('g', table.tolist())} {function}({before}, (void *)g, {after}); }}"


def _tuples(*given: Any) -> list[tuple[int, ...]]:
    return [tuple(g) for g in given]


def _last(shape: tuple[int, ...], like: Any) -> tuple[int, ...]:
    return tuple(shape[len(shape) - len(like):])


@lower("max_pool", "max_pool_values")
def max_pool(op: Any) -> str | None:
    x, (kernel, stride, padding, dilation, out_size) = op.args[0], _tuples(*op.args[1:6])
    out, which = op.outs[0], op.outs[1] if len(op.outs) > 1 else None
    if x.dtype.char not in "fd" or not _usable(*[v for v in (x, out, which) if v is not None]) or math.prod(kernel) > TAPS:
        return None
    wide = int(which is not None and which.dtype.itemsize > 1)
    return _call(f"fl_max_pool_{x.suffix}", f"{x}, {out}, {0 if which is None else which}, {wide}",
                 geometry(_last(x.shape, kernel), kernel, stride, padding, dilation, out_size),
                 size(out.size // math.prod(out_size)))


@lower("max_pool_indices")
def max_pool_indices(op: Any) -> str | None:
    which, (held, kernel, stride, padding, dilation) = op.args[0], _tuples(*op.args[1:6])
    out = op.outs[0]
    if not _usable(which, out) or math.prod(kernel) > TAPS:
        return None
    windows = _last(which.shape, kernel)
    return _call("fl_max_pool_indices", f"{which}, {int(which.dtype.itemsize > 1)}, {out}",
                 geometry(held, kernel, stride, padding, dilation, windows), size(out.size // math.prod(windows)))


@lower("max_pool_scatter")
def max_pool_scatter(op: Any) -> str | None:
    g, which, (held, kernel, stride, padding, dilation) = *op.args[:2], _tuples(*op.args[2:7])
    out = op.outs[0]
    if g.dtype.char not in "fd" or not _usable(g, which, out) or math.prod(kernel) > TAPS:
        return None
    windows = _last(which.shape, kernel)
    return _call(f"fl_max_pool_scatter_{g.suffix}", f"{g}, {which}, {int(which.dtype.itemsize > 1)}, {out}",
                 geometry(held, kernel, stride, padding, dilation, windows), size(g.size // math.prod(windows)))


@lower("avg_pool", "avg_pool_grad")
def avg_pool(op: Any) -> str | None:
    x, out = op.args[0], op.outs[0]
    include_pad, override = op.args[5:7]
    if x.dtype.char not in "fd" or not _usable(x, out) or (override is not None and override <= 0):
        return None
    if op.kernel == "avg_pool":
        kernel, stride, padding, windows = _tuples(*op.args[1:5])
        held = _last(x.shape, kernel)
    else:
        held, kernel, stride, padding = _tuples(*op.args[1:5])
        windows = _last(x.shape, kernel)
    return _call(f"fl_{op.kernel}_{x.suffix}", f"{x}, {out}",
                 geometry(held, kernel, stride, padding, (1,) * len(held), windows),
                 f"{size(x.size // math.prod(held if op.kernel == 'avg_pool' else windows))}, {int(include_pad)}, "
                 f"{size(override or 0)}")


@lower("adaptive_avg_pool", "adaptive_avg_pool_grad")
def adaptive_avg_pool(op: Any) -> str | None:
    x, given = op.args[0], tuple(op.args[1])
    out = op.outs[0]
    if x.dtype.char not in "fd" or not _usable(x, out):
        return None
    held = _last(x.shape, given)
    if op.kernel == "adaptive_avg_pool":
        return _call(f"fl_adaptive_avg_{x.suffix}", f"{x}, {out}", varying(held, given), size(x.size // math.prod(held)))
    return _call(f"fl_adaptive_avg_grad_{x.suffix}", f"{x}, {out}", varying(given, held), size(x.size // math.prod(held)))


@lower("adaptive_max_pool")
def adaptive_max_pool(op: Any) -> str | None:
    x, out_size = op.args[0], tuple(op.args[1])
    out, at = op.outs
    if x.dtype.char not in "fd" or not _usable(x, out, at):
        return None
    held = _last(x.shape, out_size)
    return _call(f"fl_adaptive_max_{x.suffix}", f"{x}, {out}, {at}", varying(held, out_size), size(x.size // math.prod(held)))
