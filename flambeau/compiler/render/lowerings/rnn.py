"""Recurrent layers: one native call for all steps of one direction, forward or back (native/rnn.c)."""

from __future__ import annotations

from typing import Any

from ....backends.cpu.layers.rnn import native_order, work_elements
from ...ir.parts import Value
from ...ir.statements import Addresses, Call, Copy, Longs, Scratch, Statement
from ...ir.statements import sizes as extents
from . import like, lower

_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _call(op: Any, inputs: list[Any], outputs: list[Any], x: Value, hidden: int, sizes: tuple[int, ...], reverse: bool,
          *more: int) -> list[Statement] | None:
    """The call with a table of arrays and a workspace behind them."""
    order = native_order(sizes, reverse)
    values = [v for v in (*inputs, *outputs) if v is not None]
    if order is None or x.dtype.char not in "fd" or any(v.dtype != x.dtype for v in values):
        return None
    if any(v is not None and not v.contiguous for v in outputs):
        return None
    # A copy for one direction's part of a gradient of both, for a gradient that is all one number.
    entries = [v if v is None or v.contiguous else like(op, v) for v in inputs]
    copies = [Copy(to, v) for to, v in zip(entries, inputs) if to is not v]
    (rows, features), name = x.shape, op.kernel.replace("_layer", "")
    work = Scratch(op.scratch(work_elements(rows, hidden, _GATES[name.partition("_")[0]]) * x.dtype.itemsize))
    table = Addresses([*entries, *outputs, work])
    return [*copies, Call(name, x.element, [table, *extents(len(sizes), max(sizes), rows, features, hidden),
                                            Longs("order", order), *more])]


@lower("lstm_layer")
def lstm(op: Any) -> list[Statement] | None:
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, sizes, reverse = op.args
    if w_hr is not None or len(op.outs) != 6:
        return None
    return _call(op, [x, h0, c0, w_ih, w_hh, b_ih, b_hh], op.outs, x, h0.shape[1], sizes, reverse)


@lower("gru_layer")
def gru(op: Any) -> list[Statement] | None:
    x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse = op.args
    if len(op.outs) != 4:
        return None
    out, h, gates, recurrent = op.outs
    return _call(op, [x, h0, None, w_ih, w_hh, b_ih, b_hh], [out, h, None, gates, recurrent, None], x, h0.shape[1], sizes,
                 reverse)


@lower("rnn_layer")
def rnn(op: Any) -> list[Statement] | None:
    x, h0, w_ih, w_hh, b_ih, b_hh, sizes, reverse, relu = op.args
    return _call(op, [x, h0, None, w_ih, w_hh, b_ih, b_hh], [*op.outs, None, None, None, None], x, h0.shape[1], sizes, reverse,
                 int(relu))


def _results(op: Any, needs: Any, cells: bool) -> list[Any]:
    """Where gradients go: of x, h0, c0, w_ih, w_hh, b_ih, b_hh, None for those that were not made."""
    outs = list(op.outs)
    made = [outs.pop(0) if needs[0] else None, outs.pop(0), outs.pop(0) if cells else None]
    return made + (outs[:4] if needs[1] else [None] * 4)


@lower("lstm_layer_backward")
def lstm_backward(op: Any) -> list[Statement] | None:
    grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, w_hr, sizes, reverse, out, gates, cells, tanhs, needs = op.args
    if w_hr is not None:
        return None
    given = [grad_out, grad_h, grad_c, x, h0, c0, w_ih, w_hh, out, gates, cells, tanhs]
    return _call(op, given, _results(op, needs, True), x, h0.shape[1], sizes, reverse)


@lower("gru_layer_backward")
def gru_backward(op: Any) -> list[Statement] | None:
    grad_out, grad_h, x, h0, w_ih, w_hh, sizes, reverse, out, gates, recurrent, needs = op.args
    given = [grad_out, grad_h, None, x, h0, None, w_ih, w_hh, out, gates, recurrent, None]
    return _call(op, given, _results(op, needs, False), x, h0.shape[1], sizes, reverse)


@lower("rnn_layer_backward")
def rnn_backward(op: Any) -> list[Statement] | None:
    grad_out, grad_h, x, h0, w_ih, w_hh, sizes, reverse, relu, out, needs = op.args
    given = [grad_out, grad_h, None, x, h0, None, w_ih, w_hh, out, None, None, None]
    return _call(op, given, _results(op, needs, False), x, h0.shape[1], sizes, reverse, int(relu))
