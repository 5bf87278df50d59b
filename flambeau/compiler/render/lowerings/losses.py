"""Cross entropy and the negative log-likelihood (native/crossentropy.c), losses of two arrays (native/losses.c).

A target out of range ends the program with status 4, an IndexError.
"""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.layers.losses import KINDS
from ...ir.literals import size, sizes
from ...ir.parts import Value
from . import lower


def _at(value: Value | None) -> str:
    return "0" if value is None else str(value)


def _usable(kind: Any, *values: Value | None) -> bool:
    return kind.char in "fd" and all([v is None or (v.dtype == kind and v.contiguous) for v in values])


def _classes(target: Value) -> bool:
    return target.dtype.char == "l" and target.contiguous and target.size > 0


@lower("cross_entropy")
def cross_entropy(op: Any) -> str | None:
    x, target, weight, reduction, ignore_index, keep = op.args
    loss, powers, inverse, total = op.outs
    if not _usable(x.dtype, x, weight, loss, powers, inverse, total) or not _classes(target):
        return None
    count, classes = x.shape
    values = f"({loss})" if reduction == 0 else f"((void *){op.scratch(count * x.dtype.itemsize)})"
    return (f"if (fl_cross_entropy_{x.suffix}({x}, {target}, {_at(weight)}, {powers if keep else 0}, {inverse}, {values}, "
            f"{loss}, {total}, {sizes(count, classes, ignore_index)}, {reduction}) >= 0) {{ status = 4; goto failed; }}")


@lower("cross_entropy_backward")
def cross_entropy_backward(op: Any) -> str | None:
    grad, powers, inverse, target, weight, total, ignore_index = op.args
    out = op.outs[0]
    if not _usable(out.dtype, grad, powers, inverse, weight, total, out) or not _classes(target):
        return None
    count, classes = powers.shape
    return (f"fl_cross_entropy_backward_{out.suffix}({grad}, {powers}, {inverse}, {target}, {_at(weight)}, {total}, "
            f"{out}, {sizes(count, classes, ignore_index)}, {len(grad.shape)});")


def _places(shape: tuple[int, ...]) -> str:
    return f"1, {size(shape[0])}, 1" if len(shape) == 1 else sizes(shape[0], shape[1], math.prod(shape[2:]))


@lower("nll_loss")
def nll_loss(op: Any) -> str | None:
    x, target, weight, reduction, ignore_index = op.args
    loss, total = op.outs
    if not _usable(x.dtype, x, weight, loss, total) or not _classes(target) or not x.size:
        return None
    return (f"if (fl_nll_loss_{x.suffix}({x}, {target}, {_at(weight)}, {loss}, {loss}, {total}, {_places(x.shape)}, "
            f"{size(ignore_index)}, {reduction}) >= 0) {{ status = 4; goto failed; }}")


@lower("nll_loss_backward")
def nll_loss_backward(op: Any) -> str | None:
    grad, shape, target, weight, reduction, ignore_index, total = op.args
    out = op.outs[0]
    if not _usable(out.dtype, grad, weight, total, out) or not _classes(target) or not out.size:
        return None
    return (f"fl_nll_loss_backward_{out.suffix}({grad}, {target}, {_at(weight)}, {total}, {out}, {_places(tuple(shape))}, "
            f"{size(ignore_index)}, {reduction});")


def _pair(op: Any, name: str, x: Value, y: Value, reduction: int, number: Any) -> str | None:
    loss = op.outs[0]
    if x.shape != y.shape or not x.size or not _usable(x.dtype, x, y, loss):
        return None
    call = f"fl_pair_loss_{x.suffix}({KINDS[name]}, {x}, {y}, {loss}, {size(x.size)}, {reduction}, {op.number(number)})"
    return f"if ({call}) {{ status = 5; goto failed; }}"


def _pair_backward(op: Any, name: str, grad: Value, x: Value, y: Value, reduction: int, number: Any) -> str | None:
    out = op.outs[0]
    if x.shape != y.shape or not x.size or grad.size != (1 if reduction else x.size) or not _usable(x.dtype, grad, x, y, out):
        return None
    return (f"fl_pair_loss_backward_{x.suffix}({KINDS[name]}, {grad}, {x}, {y}, {out}, {size(x.size)}, {reduction}, "
            f"{op.number(number)});")


@lower("mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss")
def pair_loss(op: Any) -> str | None:
    x, y, reduction, *number = op.args
    return _pair(op, op.kernel, x, y, reduction, *number or (0.0,))


@lower("mse_loss_backward", "huber_loss_backward", "smooth_l1_loss_backward", "soft_margin_loss_backward")
def pair_loss_backward(op: Any) -> str | None:
    grad, x, y, reduction, *number = op.args
    return _pair_backward(op, op.kernel.removesuffix("_backward"), grad, x, y, reduction, *number or (0.0,))


@lower("binary_cross_entropy", "bce_with_logits")
def binary_loss(op: Any) -> str | None:
    x, y, *weights, reduction = op.args
    return _pair(op, op.kernel, x, y, reduction, 0.0) if weights.count(None) == len(weights) else None


@lower("binary_cross_entropy_backward", "bce_with_logits_backward")
def binary_loss_backward(op: Any) -> str | None:
    grad, x, y, *weights, reduction = op.args
    if weights.count(None) < len(weights):
        return None
    return _pair_backward(op, op.kernel.removesuffix("_backward"), grad, x, y, reduction, 0.0)
