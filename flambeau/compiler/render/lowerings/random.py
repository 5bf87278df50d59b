"""Draws of random numbers: native/random.c works on the generator's own words, so a program moves it on as eager code does."""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.pointwise.dropout import noise_scale
from ....backends.cpu.random.kernels import BENT
from ...ir.parts import Number, Value
from ...ir.statements import Call, Long, Size, number
from . import floats, lower


def _rest(op: Any, *defaults: Any) -> list[Any]:
    """The arguments after words, shape and dtype, those left out filled in."""
    given = list(op.args[3:])
    return given + list(defaults[len(given):])


def _are_numbers(*numbers: Any) -> bool:
    return not any(isinstance(n, (Value, Number)) for n in numbers)


def _draw(op: Any, function: str, *more: Any) -> Call:
    """function(words, out, how many, ...), named for the elements of the result."""
    out = op.outs[0]
    return Call(f"mt_{function}", out.element if out.dtype.char in "fd" else "", [op.args[0], out, Size(out.size), *more])


@lower("draw_uniform")
def uniform(op: Any) -> Call | None:
    return _draw(op, "uniform", *map(number, _rest(op, 0.0, 1.0))) if floats(op.outs[0]) else None


@lower("draw_normal")
def normal(op: Any) -> Call | None:
    mean, std, contiguous = _rest(op, 0.0, 1.0, True)
    if not floats(op.outs[0]) or any(isinstance(v, Value) and v.shape for v in (mean, std)):
        return None
    return _draw(op, "normal", number(mean), number(std), int(not contiguous), 1)


def _bound(p: float) -> Long:
    return Long(math.ceil(p * 2.0**53))


@lower("draw_bernoulli")
def bernoulli(op: Any) -> Call | None:
    out = op.outs[0]
    (p,) = _rest(op, 0.5)
    if not _are_numbers(p) or not out.contiguous or out.dtype.char not in "fd?":
        return None
    return _draw(op, "mask", _bound(p)) if out.dtype.char == "?" else _draw(op, "noise", _bound(p), 1.0)


@lower("draw_noise")
def noise(op: Any) -> Call | None:
    out = op.outs[0]
    (p,) = _rest(op)
    if not _are_numbers(p) or not floats(out):
        return None
    return _draw(op, "noise", _bound(1.0 - p), number(noise_scale(out.dtype, p)))


@lower("draw_dropout")
def dropout(op: Any) -> Call | None:
    words, x, p = op.args
    out, factors = op.outs
    if not _are_numbers(p) or not floats(x, out, factors):
        return None
    scale = number(noise_scale(out.dtype, p))
    return Call("mt_dropout", out.element, [words, x, factors, out, Size(out.size), _bound(1.0 - p), scale])


@lower("draw_int")
def integers(op: Any) -> Call | None:
    out = op.outs[0]
    low, high = _rest(op)
    if out.dtype.char not in "lq" or not out.contiguous or not _are_numbers(low, high) or high is None:
        return None
    if not -(1 << 62) < low < high < 1 << 62:
        return None
    return _draw(op, "below", Long(high - low), Long(low))


@lower("draw_permutation")
def permutation(op: Any) -> Call | None:
    out = op.outs[0]
    return _draw(op, "permute") if out.dtype.char in "lq" and out.size < 0xFFFFFFFF // 20 else None


@lower(*BENT)
def bent(op: Any) -> Call | None:
    """Distributions that bend one uniform number each."""
    given = _rest(op, 0.0, 0.0)
    if not floats(op.outs[0]) or not _are_numbers(*given):
        return None
    kind, _, parameters = BENT[op.kernel]
    return _draw(op, "bent", kind, *map(number, parameters(*map(float, given))))
