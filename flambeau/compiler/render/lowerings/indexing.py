"""Rows and elements by position: native/index.c. A position out of range ends the program with status 1, an IndexError."""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.index.scatter import split
from ...ir.parts import Value
from ...ir.statements import Call, Cell, Copy, Result, Scratch, Size, number, sizes
from . import floats, lower

_RANGE, _BOUNDS = ("true", 1), ("true", 3)  # how a call fails, and with which status


def _positions(v: Any) -> bool:
    return isinstance(v, Value) and v.dtype.char in "lq" and v.contiguous


def _contiguous(*values: Any) -> bool:
    """Whether all are contiguous arrays with elements, of one dtype."""
    return all([isinstance(v, Value) and v.contiguous and v.size and v.dtype == values[0].dtype for v in values])


def _bits(v: Value) -> str:
    """A kind of elements that are only moved."""
    return str(8 * v.dtype.itemsize)


def _take(x: Value, dim: int, at: Value, out: Value, wrap: bool) -> Call | None:
    if not _positions(at) or not _contiguous(x, out):
        return None
    outer, width = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1:]) * x.dtype.itemsize
    return Call("take", "", [x, at, out, *sizes(outer, x.shape[dim], at.size, width), int(wrap)], _RANGE)


@lower("embedding")
def embedding(op: Any) -> Call | None:
    return _take(op.args[0], 0, op.args[1], op.outs[0], False)


@lower("index_select")
def index_select(op: Any) -> Call | None:
    x, dim, at = op.args
    return _take(x, dim, at, op.outs[0], False) if x.shape else None


@lower("index")
def index(op: Any) -> Call | None:
    x, indices = op.args
    given = [d for d, i in enumerate(indices) if i is not None]
    return _take(x, given[0], indices[given[0]], op.outs[0], True) if len(given) == 1 else None


@lower("take")
def take(op: Any) -> Call | None:
    x, at = op.args
    out = op.outs[0]
    if not _positions(at) or not _contiguous(x, out):
        return None
    return Call("take", "", [x, at, out, 1, *sizes(x.size, at.size), x.dtype.itemsize, 1], _RANGE)


def _add_rows(out: Value, at: Value, rows: Value, shape: tuple[int, ...], fresh: bool, padding: int = -1) -> Call | None:
    """Adds rows to those of `out` at some positions. fresh: out holds nothing yet."""
    if not _positions(at) or not _contiguous(rows, out) or not floats(rows):
        return None
    extents = sizes(at.size, shape[0], math.prod(shape[1:]))
    return Call("add_rows", rows.element, [out, at, rows, *extents, int(fresh), padding], _RANGE)


@lower("embedding_dense_backward")
def embedding_dense_backward(op: Any) -> Call | None:
    grad, at, count, padding, by_frequency = op.args
    return None if by_frequency else _add_rows(op.outs[0], at, grad, (count, grad.shape[-1]), True, Size(padding))


@lower("added_rows")
def added_rows(op: Any) -> Call | None:
    grad, at, shape = op.args
    return _add_rows(op.outs[0], at, grad, shape, True)


@lower("index_add")
def index_add(op: Any) -> list[Any] | None:
    x, dim, at, source, alpha = op.args
    out = op.outs[0]
    if dim or alpha.__class__ not in (int, float) or alpha != 1 or not x.shape or not _contiguous(x, source):
        return None
    added = _add_rows(out, at, source, x.shape, False)
    return None if added is None else [Copy(out, x), added]


@lower("gather")
def gather(op: Any) -> Call | None:
    x, dim, at = op.args
    out = op.outs[0]
    extents = split(x.shape, dim, at.shape)
    if extents is None or not _positions(at) or not _contiguous(x, out) or x.dtype.itemsize > 8:
        return None
    return Call("gather", _bits(x), [x, at, out, *sizes(*extents)], _BOUNDS)


@lower("scatter", "scatter_add")
def scatter(op: Any) -> Call | None:
    x, dim, at, source = op.args
    out = op.outs[0]
    extents = split(x.shape, dim, at.shape)
    if extents is None or not _positions(at) or not _contiguous(x, source, out) or source.shape != at.shape:
        return None
    given = [out, at, source, x, *sizes(*extents, x.size)]
    if op.kernel == "scatter_add":
        return Call("scatter_add", x.element, given, _BOUNDS) if floats(x) else None
    return Call("scatter", _bits(x), [*given, 0], _BOUNDS)


@lower("scatter_added")
def scatter_added(op: Any) -> Call | None:
    source, dim, at, shape = op.args
    out = op.outs[0]
    extents = split(tuple(shape), dim, at.shape)
    if extents is None or not _positions(at) or not _contiguous(source, out) or not floats(source) or source.shape != at.shape:
        return None
    return Call("scatter_add", source.element, [out, at, source, None, *sizes(*extents, out.size)], _BOUNDS)


@lower("masked_fill")
def masked_fill(op: Any) -> Call | None:
    x, mask, value = op.args
    out, shape = op.outs[0], mask.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    if not _contiguous(x, out) or not floats(x) or not mask.contiguous or x.shape[len(x.shape) - len(shape):] != shape:
        return None
    extents = sizes(x.size // mask.size, mask.size)
    return Call("masked_fill", _bits(x), [x, mask, out, *extents, Cell(number(value), x.element)])


@lower("one_hot")
def one_hot(op: Any) -> Call | None:
    at, classes = op.args
    out = op.outs[0]
    if not _positions(at) or not out.contiguous or not out.size:
        return None
    return Call("one_hot", "", [at, out, *sizes(at.size, classes)], _RANGE)


@lower("sparse_adam")
def sparse_adam(op: Any) -> list[Any] | None:
    table, average, squares, at, values, rate, beta1, beta2, eps, maximize = op.args
    if not _positions(at) or not _contiguous(table, average, squares, values) or not floats(table):
        return None
    n = at.size
    sorted_ = [Scratch(op.scratch(nbytes)) for nbytes in (4 * n, 4 * n + 4, 8 * n)]  # order, starts, positions found
    rates = number(rate), ("-", 1, number(beta1)), ("-", 1, number(beta2)), number(eps)
    return [Call("sort_positions", "", [at, *sizes(n, table.shape[0]), *sorted_], ("negative", 1), result="count"),
            Call("sparse_adam", table.element, [table, average, squares, values, *sorted_, Result("count"),
                                                Size(values.size // n), *rates, int(maximize)])]
