"""Draws of random numbers: native/random.c works on the generator's own words, so a program moves it on as eager code does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....backends.cpu.pointwise.dropout import noise_scale
from ....backends.cpu.random.kernels import BENT
from ...ir.literals import literal, size
from ...ir.parts import Number, Value
from . import lower


def _rest(op: Any, *defaults: Any) -> list[Any]:
    """The arguments after words, shape and dtype, those left out filled in."""
    given = list(op.args[3:])
    return given + list(defaults[len(given):])


def _usable(*values: Value) -> bool:
    return all(v.dtype.char in "fd" and v.contiguous for v in values)


def _plain(*numbers: Any) -> bool:
    return not any(isinstance(n, (Value, Number)) for n in numbers)


@lower("draw_uniform")
def uniform(op: Any) -> str | None:
    out = op.outs[0]
    if not _usable(out):
        return None
    low, high = map(op.number, _rest(op, 0.0, 1.0))
    return f"fl_mt_uniform_{out.suffix}({op.args[0]}, {out}, {size(out.size)}, {low}, {high});"


@lower("draw_normal")
def normal(op: Any) -> str | None:
    out = op.outs[0]
    mean, std, contiguous = _rest(op, 0.0, 1.0, True)
    if not _usable(out) or any(isinstance(v, Value) and v.shape for v in (mean, std)):
        return None
    mean, std = op.number(mean), op.number(std)
    return f"fl_mt_normal_{out.suffix}({op.args[0]}, {out}, {size(out.size)}, {mean}, {std}, {int(not contiguous)}, 1);"


def _bound(p: float) -> str:
    return literal(math.ceil(p * 2.0**53))


@lower("draw_bernoulli")
def bernoulli(op: Any) -> str | None:
    out = op.outs[0]
    (p,) = _rest(op, 0.5)
    if not _plain(p) or not out.contiguous or out.dtype.char not in "fd?":
        return None
    if out.dtype.char == "?":
        return f"fl_mt_mask({op.args[0]}, {out}, {size(out.size)}, {_bound(p)});"
    return f"fl_mt_noise_{out.suffix}({op.args[0]}, {out}, {size(out.size)}, {_bound(p)}, 1.0);"


@lower("draw_noise")
def noise(op: Any) -> str | None:
    out = op.outs[0]
    (p,) = _rest(op)
    if not _plain(p) or not _usable(out):
        return None
    scale = literal(noise_scale(out.dtype, p))
    return f"fl_mt_noise_{out.suffix}({op.args[0]}, {out}, {size(out.size)}, {_bound(1.0 - p)}, {scale});"


@lower("draw_dropout")
def dropout(op: Any) -> str | None:
    words, x, p = op.args
    out, factors = op.outs
    if not _plain(p) or not _usable(x, out, factors):
        return None
    scale = literal(noise_scale(out.dtype, p))
    return f"fl_mt_dropout_{out.suffix}({words}, {x}, {factors}, {out}, {size(out.size)}, {_bound(1.0 - p)}, {scale});"


@lower("draw_int")
def integers(op: Any) -> str | None:
    out = op.outs[0]
    low, high = _rest(op)
    if out.dtype != np.int64 or not out.contiguous or not _plain(low, high) or high is None:
        return None
    if not -(1 << 62) < low < high < 1 << 62:
        return None
    return f"fl_mt_below({op.args[0]}, {out}, {size(out.size)}, {literal(high - low)}, {literal(low)});"


@lower("draw_permutation")
def permutation(op: Any) -> str | None:
    out = op.outs[0]
    if out.dtype != np.int64 or out.size >= 0xFFFFFFFF // 20:
        return None
    return f"fl_mt_permute({op.args[0]}, {out}, {size(out.size)});"


@lower(*BENT)
def bent(op: Any) -> str | None:
    """Distributions that bend one uniform number each."""
    out = op.outs[0]
    given = _rest(op, 0.0, 0.0)
    if not _usable(out) or not _plain(*given):
        return None
    kind, _, parameters = BENT[op.kernel]
    a, b = map(literal, parameters(*map(float, given)))
    return f"fl_mt_bent_{out.suffix}({op.args[0]}, {out}, {size(out.size)}, {kind}, {a}, {b});"
