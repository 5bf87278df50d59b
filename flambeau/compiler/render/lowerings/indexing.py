"""Rows and elements by position: native/index.c. A position out of range ends the program with status 1, an IndexError."""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.index.scatter import split
from ...ir.literals import size, sizes
from ...ir.parts import Value
from . import lower


def _checked(call: str, status: int = 1) -> str:
    return f"if ({call}) {{ status = {status}; goto failed; }}"


def _positions(v: Any) -> bool:
    return isinstance(v, Value) and v.dtype.char in "lq" and v.contiguous


def _plain(*values: Any) -> bool:
    """Whether all are contiguous arrays with elements, of one dtype."""
    return all([isinstance(v, Value) and v.contiguous and v.size and v.dtype == values[0].dtype for v in values])


def _take(x: Value, dim: int, at: Value, out: Value, wrap: bool) -> str | None:
    if not _positions(at) or not _plain(x, out):
        return None
    outer, width = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1:]) * x.dtype.itemsize
    return _checked(f"fl_take({x}, {at}, {out}, {sizes(outer, x.shape[dim], at.size, width)}, {int(wrap)})")


def _copied(x: Value, out: Value) -> str:
    """The start of an operation that changes some elements of x: out holds them all."""
    return f"memcpy({out}, {x}, {size(x.nbytes)});"


@lower("embedding")
def embedding(op: Any) -> str | None:
    return _take(op.args[0], 0, op.args[1], op.outs[0], False)


@lower("index_select")
def index_select(op: Any) -> str | None:
    x, dim, at = op.args
    return _take(x, dim, at, op.outs[0], False) if x.shape else None


@lower("index")
def index(op: Any) -> str | None:
    x, indices = op.args
    given = [d for d, i in enumerate(indices) if i is not None]
    return _take(x, given[0], indices[given[0]], op.outs[0], True) if len(given) == 1 else None


@lower("take")
def take(op: Any) -> str | None:
    x, at = op.args
    out = op.outs[0]
    if not _positions(at) or not _plain(x, out):
        return None
    return _checked(f"fl_take({x}, {at}, {out}, 1, {sizes(x.size, at.size)}, {x.dtype.itemsize}, 1)")


@lower("embedding_dense_backward")
def embedding_dense_backward(op: Any) -> str | None:
    grad, at, count, padding, by_frequency = op.args
    out = op.outs[0]
    if by_frequency or not _positions(at) or not _plain(grad, out) or grad.dtype.char not in "fd":
        return None
    extents = sizes(at.size, count, grad.shape[-1])
    return _checked(f"fl_add_rows_{grad.suffix}({out}, {at}, {grad}, {extents}, 1, {size(padding)})")


@lower("added_rows")
def added_rows(op: Any) -> str | None:
    grad, at, shape = op.args
    out = op.outs[0]
    if not _positions(at) or not _plain(grad, out) or grad.dtype.char not in "fd":
        return None
    extents = sizes(at.size, shape[0], math.prod(shape[1:]))
    return _checked(f"fl_add_rows_{grad.suffix}({out}, {at}, {grad}, {extents}, 1, -1)")


@lower("index_add")
def index_add(op: Any) -> str | None:
    x, dim, at, source, alpha = op.args
    out = op.outs[0]
    if dim or alpha.__class__ not in (int, float) or alpha != 1 or not _positions(at) or not x.shape:
        return None
    if not _plain(x, source, out) or x.dtype.char not in "fd":
        return None
    extents = sizes(at.size, x.shape[0], math.prod(x.shape[1:]))
    call = f"fl_add_rows_{x.suffix}({out}, {at}, {source}, {extents}, 0, -1)"
    return f"{_copied(x, out)}\n{_checked(call)}"


@lower("gather")
def gather(op: Any) -> str | None:
    x, dim, at = op.args
    out = op.outs[0]
    extents = split(x.shape, dim, at.shape)
    if extents is None or not _positions(at) or not _plain(x, out) or x.dtype.itemsize > 8:
        return None
    return _checked(f"fl_gather_{8 * x.dtype.itemsize}({x}, {at}, {out}, {sizes(*extents)})", 3)


@lower("scatter", "scatter_add")
def scatter(op: Any) -> str | None:
    x, dim, at, source = op.args
    out = op.outs[0]
    extents = split(x.shape, dim, at.shape)
    if extents is None or not _positions(at) or not _plain(x, source, out) or source.shape != at.shape:
        return None
    given = f"{out}, {at}, {source}, {x}, {sizes(*extents, x.size)}"
    if op.kernel == "scatter_add":
        return _checked(f"fl_scatter_add_{x.suffix}({given})", 3) if x.dtype.char in "fd" else None
    return _checked(f"fl_scatter_{8 * x.dtype.itemsize}({given}, 0)", 3)


@lower("scatter_added")
def scatter_added(op: Any) -> str | None:
    source, dim, at, shape = op.args
    out = op.outs[0]
    extents = split(tuple(shape), dim, at.shape)
    if extents is None or not _positions(at) or not _plain(source, out) or source.dtype.char not in "fd":
        return None
    if source.shape != at.shape:
        return None
    given = f"{out}, {at}, {source}, 0, {sizes(*extents)}"
    return _checked(f"fl_scatter_add_{source.suffix}({given}, {size(out.size)})", 3)


@lower("masked_fill")
def masked_fill(op: Any) -> str | None:
    x, mask, value = op.args
    out, shape = op.outs[0], mask.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    if x.dtype.char not in "fd" or not _plain(x, out) or not mask.contiguous or x.shape[len(x.shape) - len(shape):] != shape:
        return None
    kind = "float" if x.dtype.char == "f" else "double"
    call = f"fl_masked_fill_{8 * x.dtype.itemsize}({x}, {mask}, {out}, {sizes(x.size // mask.size, mask.size)}, &v)"
    return f"{{ {kind} v = ({kind}){op.number(value)}; {call}; }}"


@lower("one_hot")
def one_hot(op: Any) -> str | None:
    at, classes = op.args
    out = op.outs[0]
    if not _positions(at) or not out.contiguous or not out.size:
        return None
    return _checked(f"fl_one_hot({at}, {out}, {sizes(at.size, classes)})")


@lower("sparse_adam")
def sparse_adam(op: Any) -> str | None:
    table, average, squares, at, values, rate, beta1, beta2, eps, maximize = op.args
    if not _positions(at) or not _plain(table, average, squares, values) or table.dtype.char not in "fd":
        return None
    n = at.size
    order, starts, found = op.scratch(4 * n), op.scratch(4 * n + 4), op.scratch(8 * n)
    sort = f"fl_sort_positions({at}, {sizes(n, table.shape[0])}, {order}, {starts}, {found})"
    numbers = f"{op.number(rate)}, 1 - {op.number(beta1)}, 1 - {op.number(beta2)}, {op.number(eps)}, {int(maximize)}"
    return (f"{{ long count = {sort};\nif (count < 0) {{ status = 1; goto failed; }}\n"
            f"fl_sparse_adam_{table.suffix}({table}, {average}, {squares}, {values}, {order}, {starts}, {found}, count, "
            f"{size(values.size // n)}, {numbers}); }}")
