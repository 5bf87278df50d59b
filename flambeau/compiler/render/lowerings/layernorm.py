"""Layer norm and RMS norm: native/layernorm.c."""

from __future__ import annotations

from typing import Any

from ...ir.literals import sizes
from ...ir.parts import Value
from . import lower


def _usable(x: Value, *others: Value | None) -> bool:
    """Whether all that are given are contiguous and of x's dtype."""
    return x.dtype.char in "fd" and x.size > 0 and all([
        v is None or (v.dtype == x.dtype and v.contiguous) for v in (x, *others)])


def _at(value: Value | None) -> str:
    return "0" if value is None else str(value)


def _forward(op: Any, x: Value, weight: Value | None, bias: Value | None, mean: Value | None, rstd: Value,
             eps: Any) -> str | None:
    out = op.outs[0]
    if not _usable(x, weight, bias, out, mean, rstd):
        return None
    return (f"fl_layer_norm_{x.suffix}({x}, {_at(weight)}, {_at(bias)}, {out}, {_at(mean)}, {rstd}, "
            f"{sizes(rstd.size, x.size // rstd.size)}, {op.number(eps)});")


@lower("layer_norm", "layer_norm_shaped")
def layer_norm(op: Any) -> str | None:
    x, _, weight, bias, eps = op.args
    return _forward(op, x, weight, bias, op.outs[1], op.outs[2], eps)


@lower("rms_norm")
def rms_norm(op: Any) -> str | None:
    x, _, weight, eps = op.args
    return _forward(op, x, weight, None, None, op.outs[1], eps)


def _backward(op: Any, grad: Value, x: Value, mean: Value | None, rstd: Value, weight: Value | None, needs: Any) -> str | None:
    made = iter(op.outs)
    dx, dw, db = [next(made) if needed else None for needed in needs]
    if not _usable(x, grad, mean, rstd, weight, dx, dw, db):
        return None
    return (f"fl_layer_norm_backward_{x.suffix}({grad}, {x}, {_at(mean)}, {rstd}, {_at(weight)}, {_at(dx)}, {_at(dw)}, "
            f"{_at(db)}, {sizes(rstd.size, x.size // rstd.size)});")


@lower("layer_norm_grad")
def layer_norm_grad(op: Any) -> str | None:
    grad, x, _, mean, rstd, weight, needs = op.args
    return _backward(op, grad, x, mean, rstd, weight, needs)


@lower("rms_norm_grad")
def rms_norm_grad(op: Any) -> str | None:
    grad, x, _, rstd, weight, needs = op.args
    return _backward(op, grad, x, None, rstd, weight, (*needs, False))
