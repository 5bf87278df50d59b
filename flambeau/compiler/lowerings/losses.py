"""Cross entropy and the negative log-likelihood: native/crossentropy.c.

A compiled program cannot raise in the middle: a target out of range makes the loss nan.
"""

from __future__ import annotations

import math
from typing import Any

from ..ir import Value
from . import lower


def _at(value: Value | None) -> str:
    return "0" if value is None else str(value)


def _usable(kind: Any, *values: Value | None) -> bool:
    return kind.char in "fd" and all([v is None or (v.dtype == kind and v.contiguous) for v in values])


def _classes(target: Value) -> bool:
    return target.dtype.char == "l" and target.contiguous and target.size > 0


@lower("cross_entropy")
def cross_entropy(op: Any) -> str | None:
    x, target, reduction, ignore_index, keep = op.args
    loss, powers, inverse, total = op.outs
    if not _usable(x.dtype, x, loss, powers, inverse, total) or not _classes(target):
        return None
    count, classes = x.shape
    values = f"({loss})" if reduction == 0 else f"((void *){op.scratch(count * x.dtype.itemsize)})"
    return (f"if (fl_cross_entropy_{x.suffix}({x}, {target}, {powers if keep else 0}, {inverse}, {values}, {loss}, {total}, "
            f"{count}, {classes}, {ignore_index}, {reduction}) >= 0) {{ {_nan(loss)} }}")


def _nan(loss: Value) -> str:
    return f"for (long i = 0; i < {loss.size}; i++) {loss}[i] = NAN;"


@lower("cross_entropy_backward")
def cross_entropy_backward(op: Any) -> str | None:
    grad, powers, inverse, target, total, ignore_index = op.args
    out = op.outs[0]
    if not _usable(out.dtype, grad, powers, inverse, total, out) or not _classes(target):
        return None
    count, classes = powers.shape
    return (f"fl_cross_entropy_backward_{out.suffix}({grad}, {powers}, {inverse}, {target}, {total}, {out}, {count}, "
            f"{classes}, {ignore_index}, {len(grad.shape)});")


def _places(shape: tuple[int, ...]) -> str:
    return f"1, {shape[0]}, 1" if len(shape) == 1 else f"{shape[0]}, {shape[1]}, {math.prod(shape[2:])}"


@lower("nll_loss")
def nll_loss(op: Any) -> str | None:
    x, target, weight, reduction, ignore_index = op.args
    loss, total = op.outs
    if not _usable(x.dtype, x, weight, loss, total) or not _classes(target) or not x.size:
        return None
    return (f"if (fl_nll_loss_{x.suffix}({x}, {target}, {_at(weight)}, {loss}, {loss}, {total}, {_places(x.shape)}, "
            f"{ignore_index}, {reduction}) >= 0) {{ {_nan(loss)} }}")


@lower("nll_loss_backward")
def nll_loss_backward(op: Any) -> str | None:
    grad, shape, target, weight, reduction, ignore_index, total = op.args
    out = op.outs[0]
    if not _usable(out.dtype, grad, weight, total, out) or not _classes(target) or not out.size:
        return None
    return (f"fl_nll_loss_backward_{out.suffix}({grad}, {target}, {_at(weight)}, {total}, {out}, {_places(tuple(shape))}, "
            f"{ignore_index}, {reduction});")
