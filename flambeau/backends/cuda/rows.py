"""Softmax, its logarithm, derivatives and sums, along a dimension: a row is read once where it fits into registers (rows.cuh).

`plan` serves every kernel that works on rows: it chooses how many threads have a row and what they hold of it.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, NamedTuple

import numpy as np

from .arrays import CudaArray, device_index, windows
from .backend import contiguous, copied
from .driver import machine
from .launch import Plan, kernel
from .pointwise import COMPUTED, STORED
from .rules import blank
from .table import kernel as enter

_TEXT = """
extern "C" __launch_bounds__(THREADS) __global__ void softmax(const Rows s, R *o, const A *x) {
    for (Line l(s); l.more(); l.next()) {
        Share<A> a(x, l);
        W top, total, v[RUN];
        powers(a, l, top, total, !LOG);
        const W over = LOG ? logarithm(total) : 1 / total;
        const bool nothing = SAFE && top == -INFINITY; // such a row becomes zeros
        l.each([&](int k) {
            a.get(v, l, k);
            FOR_RUN v[j] = LOG ? (v[j] - top) - over : nothing ? 0 : (ITEMS ? v[j] : power(v[j] - top)) * over;
            stored(o, l, k, v);
        });
    }
}

extern "C" __launch_bounds__(THREADS) __global__ void logsumexp(const Rows s, R *o, const A *x) {
    for (Line l(s); l.more(); l.next()) {
        Share<A> a(x, l);
        W top, total;
        powers(a, l, top, total);
        if (!l.lane && l.real) o[l.row] = to<R>(top - top != 0 ? top : top + logarithm(total)); // infinite, or not a number
    }
}

extern "C" __launch_bounds__(THREADS) __global__ void backward(const Rows s, R *o, const A *g, const B *y) {
    for (Line l(s); l.more(); l.next()) {
        const Share<A> grad(g, l);
        const Share<B> made(y, l);
        W total = 0, v[RUN], r[RUN];
        l.each([&](int k) {
            grad.get(v, l, k), made.get(r, l, k);
            FOR_RUN total += LOG ? v[j] : v[j] * r[j];
        });
        total = across(total, Add());
        l.each([&](int k) {
            grad.get(v, l, k), made.get(r, l, k);
            FOR_RUN v[j] = LOG ? v[j] - power(r[j]) * total : r[j] * (v[j] - total);
            stored(o, l, k, v);
        });
    }
}
"""
WARP, BLOCK, TILE = range(3)


class Sharing(NamedTuple):
    """How threads share rows: the constants of rows.cuh, and the threads of a block."""

    mode: int
    items: int
    run: int
    threads: int


def sharing(n: int, inner: int, run: int) -> Sharing:
    """run: elements of 16 bytes, or 1 where rows do not lie so."""
    if inner > 1:
        lanes = min(max(1 << (max(n // 8, 1) - 1).bit_length(), 4), 16)
        items = _power(-(-n // lanes))
        return Sharing(TILE, items if items <= 16 else 0, 1, 32 * lanes)
    run = run if n % run == 0 else 1
    runs, most = -(-n // run), 16 if run == 1 else 8 if run <= 4 else 4
    for threads in (32, 256, 512, 1024):
        items = next((n for n in _ITEMS if n * threads >= runs and n <= most), 0)
        if items:
            return Sharing(WARP, items, run, 128) if threads == 32 else Sharing(BLOCK, items, run, threads)
    return Sharing(BLOCK, 0, run, 1024)


_ITEMS = (1, 2, 3, 4, 6, 8, 12, 16)


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def wide(*dtypes: np.dtype) -> str:
    """The type of sums."""
    return "double" if any([d.char in "dlLqQiI" for d in dtypes]) else "float"


WIDE = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}


@functools.lru_cache(1024)
def text(body: str, share: Sharing, types: tuple[tuple[str, str], ...], flags: tuple[tuple[str, int], ...]) -> str:
    constants = ", ".join([f"{n} = {int(v)}" for n, v in (("MODE", share.mode), ("ITEMS", share.items), ("RUN", share.run),
                                                    ("THREADS", share.threads), *flags)])
    named = "\n".join([f"typedef {c} {letter};" for letter, c in types])
    return f'#include "elements.cuh"\nenum {{ {constants} }};\n{named}\n#include "rows.cuh"\n{body}'


@functools.lru_cache(4096)
def plan(body: str, name: str, types: tuple[tuple[str, str], ...], flags: tuple[tuple[str, int], ...], rows: int, n: int,
         inner: int, run: int, kinds: str, more: bytes, device: int) -> Plan:
    """The launch of a kernel over rows. more: what follows the struct Rows in its first parameter."""
    def made(run: int, otherwise: Plan | None) -> Plan:
        share = sharing(n, inner, run)
        at_once = {WARP: share.threads // 32, BLOCK: 1, TILE: 32}[share.mode]
        blocks = min(-(-rows // at_once), 512 * machine().attribute("multiprocessors", device))
        function = kernel(text(body, share, types, flags), name, device)
        return Plan(function, device, blocks, share.threads, kinds, struct.pack("3q", rows, n, inner) + more,
                    otherwise=otherwise)
    single = sharing(n, inner, run).run == 1
    return made(run, None if single else made(1, None))


def along(x: CudaArray, axis: int) -> tuple[int, int, int]:
    """(rows, n, inner) of a dense array seen along an axis."""
    n, inner = x.shape[axis], math.prod(x.shape[axis + 1:])
    return x.size // max(n, 1), n, inner


def typed(**dtypes: np.dtype) -> tuple[tuple[str, str], ...]:
    return tuple([(letter, STORED[d]) for letter, d in dtypes.items()])


def is_real(x: Any) -> bool:
    """Whether its elements are floating-point numbers that kernels compute with."""
    return COMPUTED.get(x.dtype) in ("f32", "f64")


def into(out: CudaArray) -> CudaArray:
    """What a kernel that wants dense results writes to: out, or an array whose elements `settled` brings there."""
    return out if out.flags.c_contiguous else windows.empty(out.shape, out.dtype)


def settled(made: CudaArray, out: CudaArray) -> CudaArray:
    return out if made is out else copied(made, out)


# ------------------------------------------------------------------------------------------------------------ softmax
def _softmax(name: str, x: CudaArray, axis: int, dtype: np.dtype | None = None) -> Any:
    dtype, log, safe = dtype or x.dtype, name == "log_softmax", name == "safe_softmax"
    if x.dtype not in COMPUTED or COMPUTED.get(dtype) not in ("f32", "f64"):
        return NotImplemented
    out = blank("log_softmax" if log else "softmax", x, axis, dtype)
    if not out.size:
        return out
    x, made = contiguous(x), into(out)
    rows, n, inner = along(x, axis) if x.ndim else (1, 1, 1)
    types = (*typed(A=x.dtype, R=dtype, B=dtype), ("W", wide(dtype)))
    run = 16 // max(x.itemsize, dtype.itemsize)
    plan(_TEXT, "softmax", types, (("LOG", log), ("SAFE", safe)), rows, n, inner, run, "pp", b"", device_index(x)).run(made, x)
    return settled(made, out)


for _name in ("softmax", "safe_softmax", "log_softmax"):  # safe: rows of nothing but -inf become zeros
    enter(_name, repeatable=True)(functools.partial(_softmax, _name))


def _backward(name: str, grad: CudaArray, result: CudaArray, axis: int) -> Any:
    if not is_real(grad) or not is_real(result):
        return NotImplemented
    out = blank(name, grad, result, axis)
    if not out.size:
        return out
    if grad.shape != result.shape:
        grad = copied(grad, windows.empty(result.shape, grad.dtype))
    grad, result, made = contiguous(grad), contiguous(result), into(out)
    rows, n, inner = along(result, axis) if result.ndim else (1, 1, 1)
    types = (*typed(A=grad.dtype, R=out.dtype, B=result.dtype), ("W", wide(grad.dtype, result.dtype)))
    run = 16 // max(grad.itemsize, result.itemsize, out.itemsize)
    plan(_TEXT, "backward", types, (("LOG", name[0] == "l"), ("SAFE", 0)), rows, n, inner, run, "ppp", b"",
         device_index(grad)).run(made, grad, result)
    return settled(made, out)


for _name in ("softmax_backward", "log_softmax_backward"):
    enter(_name, repeatable=True)(functools.partial(_backward, _name))


def gathered(x: CudaArray, axes: Any) -> tuple[CudaArray, int, int, int]:
    """x dense with (rows, n, inner) such that rows along n hold the elements of some axes (None: of all)."""
    axes = tuple(range(x.ndim)) if axes is None or not x.ndim else tuple(sorted([a % x.ndim for a in axes]))
    if not axes or axes[-1] - axes[0] + 1 != len(axes):
        kept = [d for d in range(x.ndim) if d not in axes]
        x = contiguous(x.transpose([*kept, *axes]))
        n = math.prod(x.shape[len(kept):])
        return x, x.size // max(n, 1), n, 1
    x = contiguous(x)
    n, inner = math.prod(x.shape[axes[0]:axes[-1] + 1]), math.prod(x.shape[axes[-1] + 1:])
    return x, x.size // max(n, 1), n, inner


@enter("logsumexp", repeatable=True)
def logsumexp(x: CudaArray, axes: Any = None, keepdim: bool = False) -> Any:
    if not is_real(x):
        return NotImplemented
    out = blank("logsumexp", x, axes, keepdim)
    if not x.size:
        out.fill(-math.inf)
        return out
    x, rows, n, inner = gathered(x, axes)
    made = into(out)
    types = (*typed(A=x.dtype, R=out.dtype, B=x.dtype), ("W", wide(x.dtype)))
    plan(_TEXT, "logsumexp", types, (("LOG", 1), ("SAFE", 0)), rows, n, inner, 16 // x.itemsize, "pp", b"",
         device_index(x)).run(made, x)
    return settled(made, out)
