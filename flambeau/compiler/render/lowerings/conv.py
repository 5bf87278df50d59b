"""Convolutions and their gradients as C: calls of native/conv.c."""

from __future__ import annotations

from typing import Any

from ....backends.cpu.layers.conv import geometry
from ...ir.literals import array
from . import lower


def _call(op: Any, function: str, numbers: tuple[int, ...] | None, *values: Any) -> str | None:
    """function(geometry, values...), all of them contiguous and of one float type."""
    out = op.outs[0]
    given = [v for v in values if v is not None]
    if numbers is None or any(not v.contiguous or v.dtype != out.dtype for v in given) or out.dtype.char not in "fd":
        return None
    names = ", ".join("0" if v is None else str(v) for v in values)
    return (f"{{ {array('geometry', numbers)}\n"
            f"  fl_conv_{function}_{out.suffix}(geometry, {names}); }}")


@lower("convolution")
def convolution(op: Any) -> str | None:
    x, w, bias, stride, padding, dilation, transposed, _, groups = op.args
    out = op.outs[0]
    if transposed:
        numbers = geometry(out.shape, w.shape, x.shape[2:], stride, padding, dilation, groups) if x.size else None
        return _call(op, "input", numbers, x, w, bias, out)
    return _call(op, "forward", geometry(x.shape, w.shape, out.shape[2:], stride, padding, dilation, groups),
                 x, w, bias, out)


@lower("conv_forward")
def conv_forward(op: Any) -> str | None:
    x, w, bias, stride, padding, dilation, groups = op.args
    numbers = geometry(x.shape, w.shape, op.outs[0].shape[2:], stride, padding, dilation, groups)
    return _call(op, "forward", numbers, x, w, bias, op.outs[0])


@lower("conv_input")
def conv_input(op: Any) -> str | None:
    g, w, bias, _, stride, padding, dilation, groups = op.args
    numbers = geometry(op.outs[0].shape, w.shape, g.shape[2:], stride, padding, dilation, groups)
    return _call(op, "input", numbers, g, w, bias, op.outs[0])


@lower("conv_weight", "conv_weight_bias")
def conv_weight(op: Any) -> str | None:
    g, x, _, stride, padding, dilation, groups = op.args
    numbers = geometry(x.shape, op.outs[0].shape, g.shape[2:], stride, padding, dilation, groups)
    return _call(op, "weight", numbers, g, x, *(op.outs if len(op.outs) == 2 else (op.outs[0], None)))
