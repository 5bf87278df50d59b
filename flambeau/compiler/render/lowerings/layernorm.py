"""Layer norm and RMS norm: native/layernorm.c."""

from __future__ import annotations

from typing import Any

from ...ir.parts import Value
from ...ir.statements import Call, number, sizes
from . import floats, lower, wanted


def _forward(x: Value, weight: Value | None, bias: Value | None, out: Value, mean: Value | None, rstd: Value,
             eps: Any) -> Call | None:
    if not x.size or not floats(x, weight, bias, out, mean, rstd):
        return None
    extents = sizes(rstd.size, x.size // rstd.size)
    return Call("layer_norm", x.element, [x, weight, bias, out, mean, rstd, *extents, number(eps)])


@lower("layer_norm", "layer_norm_shaped")
def layer_norm(op: Any) -> Call | None:
    x, _, weight, bias, eps = op.args
    return _forward(x, weight, bias, *op.outs, eps)


@lower("rms_norm")
def rms_norm(op: Any) -> Call | None:
    x, _, weight, eps = op.args
    return _forward(x, weight, None, op.outs[0], None, op.outs[1], eps)


def _backward(op: Any, grad: Value, x: Value, mean: Value | None, rstd: Value, weight: Value | None, needs: Any) -> Call | None:
    arrays = [grad, x, mean, rstd, weight, *wanted(op, needs)]
    if not x.size or not floats(*arrays):
        return None
    return Call("layer_norm_backward", x.element, [*arrays, *sizes(rstd.size, x.size // rstd.size)])


@lower("layer_norm_grad")
def layer_norm_grad(op: Any) -> Call | None:
    grad, x, _, mean, rstd, weight, needs = op.args
    return _backward(op, grad, x, mean, rstd, weight, needs)


@lower("rms_norm_grad")
def rms_norm_grad(op: Any) -> Call | None:
    grad, x, _, rstd, weight, needs = op.args
    return _backward(op, grad, x, None, rstd, weight, (*needs, False))
