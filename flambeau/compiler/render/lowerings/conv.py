"""Convolutions and their gradients: native/conv.c."""

from __future__ import annotations

from typing import Any

from ....backends.cpu.layers.conv import geometry
from ...ir.statements import Call, Longs
from . import floats, lower


def _call(function: str, numbers: tuple[int, ...] | None, *values: Any) -> Call | None:
    """function(geometry, values...), all of them contiguous and of one float type."""
    if numbers is None or not floats(*values):
        return None
    return Call(f"conv_{function}", values[0].element, [Longs("geometry", numbers), *values])


@lower("convolution")
def convolution(op: Any) -> Call | None:
    x, w, bias, stride, padding, dilation, transposed, _, groups = op.args
    out = op.outs[0]
    if transposed:
        numbers = geometry(out.shape, w.shape, x.shape[2:], stride, padding, dilation, groups) if x.size else None
        return _call("input", numbers, x, w, bias, out)
    return _call("forward", geometry(x.shape, w.shape, out.shape[2:], stride, padding, dilation, groups), x, w, bias, out)


@lower("conv_forward")
def conv_forward(op: Any) -> Call | None:
    x, w, bias, stride, padding, dilation, groups = op.args
    numbers = geometry(x.shape, w.shape, op.outs[0].shape[2:], stride, padding, dilation, groups)
    return _call("forward", numbers, x, w, bias, op.outs[0])


@lower("conv_input")
def conv_input(op: Any) -> Call | None:
    g, w, bias, _, stride, padding, dilation, groups = op.args
    numbers = geometry(op.outs[0].shape, w.shape, g.shape[2:], stride, padding, dilation, groups)
    return _call("input", numbers, g, w, bias, op.outs[0])


@lower("conv_weight", "conv_weight_bias")
def conv_weight(op: Any) -> Call | None:
    g, x, _, stride, padding, dilation, groups = op.args
    numbers = geometry(x.shape, op.outs[0].shape, g.shape[2:], stride, padding, dilation, groups)
    return _call("weight", numbers, g, x, *(op.outs if len(op.outs) == 2 else (op.outs[0], None)))
