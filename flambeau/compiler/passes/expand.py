"""Operations that fuse better in parts: those that only move elements become copies onto windows, losses of two arrays become
an expression and a reduction."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ...backends import facts
from ...backends.cpu.pointwise.loops import Expression
from ...backends.values import by_one_mask
from ..ir.parts import CONSTANT, TEMPORARY, Op, Storage, Value, new_numbers


def expanded(ops: list[Op]) -> list[Op]:
    made: list[Op] = []
    for op in ops:
        part = _PARTS.get(op.kernel) or (
            _pair_loss if op.kernel in facts.TERMS else _pair_slope if op.kernel in facts.SLOPES else None)
        taken = part(op) if part is not None and len(op.outs) == 1 and op.outs[0].size else None
        made += [op] if taken is None else taken
    return made


_PARTS: dict[str, Callable[[Op], list[Op] | None]] = {}  # kernel -> what makes operations of it, or None where it cannot


def _part(kernel: str) -> Callable[..., Any]:
    return lambda function: _PARTS.setdefault(kernel, function)


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


@_part("cat")
def _cat(op: Op) -> list[Op] | None:
    arrays, dim, out = op.args[0], op.args[1], op.outs[0]
    parts = [p for p in arrays if p.shape != (0,)]
    if any(p.dtype != out.dtype for p in parts):
        return None
    made, at = [], 0
    for p in parts:
        if p.size:
            made.append(_into(op, _window(out, dim, at, p.shape[dim]), p))
        at += p.shape[dim]
    return made


@_part("stack")
def _stack(op: Op) -> list[Op] | None:
    arrays, dim, out = op.args[0], op.args[1], op.outs[0]
    if any(p.dtype != out.dtype for p in arrays):
        return None
    return [_into(op, _window(out, dim, i, 1, drop=True), p) for i, p in enumerate(arrays)]


def _zero(dtype: Any) -> Value:
    """A constant zero of its own: in every dtype, no bit is set."""
    memory = ctypes.create_string_buffer(dtype.itemsize)
    _zero.count += 1
    return Value(Storage(-_zero.count, CONSTANT, ctypes.addressof(memory), dtype.itemsize, memory), 0, (), (), dtype)


_zero.count = 0


@_part("slice_backward")
def _slice_backward(op: Op) -> list[Op] | None:
    grad, _, dim, start, end, step = op.args
    out = op.outs[0]
    start, end, step = slice(start, end, step).indices(out.shape[dim])
    if grad.dtype != out.dtype:
        return None
    first = [] if grad.size == out.size else [_into(op, out, _zero(out.dtype))]
    return [*first, _into(op, _window(out, dim, start, grad.shape[dim], step), grad)] if grad.size else first


@_part("select_backward")
def _select_backward(op: Op) -> list[Op] | None:
    grad, _, dim, index = op.args
    out = op.outs[0]
    if grad.dtype != out.dtype:
        return None
    return [_into(op, out, _zero(out.dtype)), _into(op, _window(out, dim, index % out.shape[dim], 1, drop=True), grad)]


@_part("index_put")
def _index_put(op: Op) -> list[Op] | None:
    """x[mask] = put, where the same is put at each element: a choice between the two."""
    x, indices, put, accumulate = op.args
    if accumulate or not by_one_mask(x, indices, put.shape):
        return None
    at = next(i for i, index in enumerate(indices) if index is not None)
    mask, behind = indices[at], len(x.shape) - at - len(indices[at].shape)
    if put.dtype != x.dtype or mask.shape != x.shape[at:len(x.shape) - behind]:
        return None
    chosen = Value(mask.storage, mask.offset, x.shape, (0,) * at + mask.strides + (0,) * behind, mask.dtype)
    before = max(0, len(put.shape) - behind - 1)  # dimensions that `put` has of those before the mask
    steps = [0 if n == 1 else s for n, s in zip(put.shape, put.strides)]
    after = steps[before + 1:] if len(put.shape) > behind else steps
    spread = [0] * (at - before) + steps[:before] + [0] * (len(mask.shape) + behind - len(after)) + after
    value = Value(put.storage, put.offset, x.shape, tuple(spread), put.dtype)
    return [Op("where", [chosen, value, x], [op.outs[0]], [], op.where)]


# ------------------------------------------------------------------------------------------------- losses of two arrays
def pair(weights: int, args: list[Any]) -> tuple[Value, Value, int, Any] | None:
    """Both arrays, how they are reduced and the number, of a loss that is plain enough."""
    x, y, reduction, *numbers = *args[:2], *args[2 + weights:]
    alike = x.shape == y.shape and x.dtype == y.dtype and x.dtype.char in "fd"
    if not alike or any(w is not None for w in args[2:2 + weights]):
        return None
    return x, y, reduction, numbers[0] if numbers else 0.0


def _pair_loss(op: Op) -> list[Op] | None:
    c, weights = facts.TERMS[op.kernel]
    found = pair(weights, op.args)
    if found is None or found[0].size < 2 or op.outs[0].dtype != found[0].dtype:
        return None
    x, y, reduction, number = found
    each = op.outs[0] if reduction == 0 else _temporary(x.shape, x.dtype)
    made = [_formula(op, c, [x, y, number], each)]
    if reduction:
        made.append(Op("mean" if reduction == 1 else "sum", [each, None, False, None], [op.outs[0]], [], op.where))
    return made


def _pair_slope(op: Op) -> list[Op] | None:
    (c, weights), grad, out = facts.SLOPES[op.kernel], op.args[0], op.outs[0]
    found = pair(weights, op.args[1:])
    if found is None or found[0].size < 2 or out.dtype != found[0].dtype or grad.dtype != out.dtype:
        return None
    x, y, reduction, number = found
    if grad.shape != (() if reduction else x.shape):
        return None
    slope, args = f"({c})", [x, y, number, grad]
    if reduction != 1:
        return [_formula(op, f"{slope} * d", args, out)]
    return [_formula(op, f"{slope} * (d / e)", [*args, float(x.size)], out)]


def _formula(op: Op, c: str, args: list[Any], out: Value) -> Op:
    """An operation that is an expression of its own."""
    made = Op(op.kernel, args, [out], [], op.where)
    made.expression = Expression(tuple("abcde"[:len(args)]), c, "f")
    return made


def _temporary(shape: tuple[int, ...], dtype: Any) -> Value:
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    storage = Storage(new_numbers.next(), TEMPORARY, 0, step * dtype.itemsize, None)
    return Value(storage, 0, shape, tuple(reversed(steps)), dtype)
