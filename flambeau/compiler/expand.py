"""Operations that only move elements, taken apart into copies onto windows: copies fuse with what makes or reads them."""

from __future__ import annotations

import numpy as np

from .ir import CONSTANT, Op, Storage, Value


def expanded(ops: list[Op]) -> list[Op]:
    made: list[Op] = []
    for op in ops:
        taken = _PARTS[op.kernel](op) if op.kernel in _PARTS and len(op.outs) == 1 and op.outs[0].size else None
        made += [op] if taken is None else taken
    return made


def _into(op: Op, out: Value, source: Value) -> Op:
    return Op("copy_into", [out, source], [], [out], op.where)


def _window(out: Value, dim: int, start: int, count: int, step: int = 1, drop: bool = False) -> Value:
    """out[..., start:start + count * step:step, ...] along a dimension; drop: without that dimension."""
    shape, strides = list(out.shape), list(out.strides)
    offset = out.offset + start * strides[dim] * out.dtype.itemsize
    if drop:
        del shape[dim], strides[dim]
    else:
        shape[dim], strides[dim] = count, strides[dim] * step
    return Value(out.storage, offset, tuple(shape), tuple(strides), out.dtype)


def _cat(op: Op) -> list[Op] | None:
    pieces, dim, out = op.args[0], op.args[1], op.outs[0]
    parts = [p for p in pieces if p.shape != (0,)]
    if any(p.dtype != out.dtype for p in parts):
        return None
    made, at = [], 0
    for p in parts:
        if p.size:
            made.append(_into(op, _window(out, dim, at, p.shape[dim]), p))
        at += p.shape[dim]
    return made


def _stack(op: Op) -> list[Op] | None:
    pieces, dim, out = op.args[0], op.args[1], op.outs[0]
    if any(p.dtype != out.dtype for p in pieces):
        return None
    return [_into(op, _window(out, dim, i, 1, drop=True), p) for i, p in enumerate(pieces)]


def _zero(dtype: np.dtype) -> Value:
    """A constant zero of its own."""
    array = np.zeros((), dtype)
    _zero.count += 1
    storage = Storage(-_zero.count, CONSTANT, array.ctypes.data, array.nbytes, array)
    storage.slot = f"zero{_zero.count}"
    return Value(storage, 0, (), (), dtype)


_zero.count = 0


def _slice_backward(op: Op) -> list[Op] | None:
    grad, _, dim, start, end, step = op.args
    out = op.outs[0]
    start, end, step = slice(start, end, step).indices(out.shape[dim])
    if grad.dtype != out.dtype:
        return None
    first = [] if grad.size == out.size else [_into(op, out, _zero(out.dtype))]
    return [*first, _into(op, _window(out, dim, start, grad.shape[dim], step), grad)] if grad.size else first


def _select_backward(op: Op) -> list[Op] | None:
    grad, _, dim, index = op.args
    out = op.outs[0]
    if grad.dtype != out.dtype:
        return None
    return [_into(op, out, _zero(out.dtype)), _into(op, _window(out, dim, index % out.shape[dim], 1, drop=True), grad)]


_PARTS = {"cat": _cat, "stack": _stack, "slice_backward": _slice_backward, "select_backward": _select_backward}
