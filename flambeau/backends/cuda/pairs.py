"""Losses of two arrays, element by element, with their mean or sum, and their derivatives: C from facts.TERMS and SLOPES.

The sum is made in chunks, one per block, which a second kernel adds up in order.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

import numpy as np

from ..cpu.pointwise import loops
from ..facts import SLOPES, TERMS
from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import copied
from .driver import machine
from .launch import Plan, plan_of
from .pointwise import COMPUTED, STORED
from .rows import WIDE, into, is_real, settled, wide
from .rules import blank
from .table import kernel as enter

# Of elements a and b, a number c, and p, what positive targets weigh.
_POSITIVE = "(atleast(-a, 0.0) + log1p(exp(-fabs(a))))"
_TERMS = {"soft_margin_loss": "(atleast(-a * b, 0.0) + log1p(exp(-fabs(a * b))))",
          "binary_cross_entropy": "(b - 1.0) * atleast(log1p(-a), -100.0) - b * atleast(log(a), -100.0)",
          "bce_with_logits": f"{_POSITIVE} + (1.0 - b) * a",
          "bce_with_logits, positive": f"{_POSITIVE} * (1.0 + (p - 1.0) * b) + (1.0 - b) * a"}
_SLOPES = {"bce_with_logits, positive": "(p * b + 1.0 - b) * sigmoid(a) - p * b"}
_TEXT = """
#include "faults.cuh"
typedef {a} A;
typedef {w} W;
enum {{ WEIGHT = {weight}, POSITIVE = {positive}, EACH = {each}, WITHIN = {within}, THREADS = 256 }};
struct Pairs {{ long count, chunks; double c, share; }};

static __device__ inline W value(const Pairs &f, const A *x, const A *y, const A *weight, const A *positive, long i) {{
    const W a = (W)value_of(x[i]), b = (W)value_of(y[i]), c = (W)f.c, p = POSITIVE ? (W)value_of(positive[i]) : 1;
    return {value} * (WEIGHT ? (W)value_of(weight[i]) : 1);
}}
static __device__ inline void within(A x, const Fault &fault) {{
    if (WITHIN && !(value_of(x) >= 0 && value_of(x) <= 1)) report(fault, 0);
}}
#define FOR_ALL(i) for (long i = (long)blockIdx.x * THREADS + threadIdx.x; i < f.count; i += (long)gridDim.x * THREADS)

extern "C" __global__ void each(const Pairs f, A *o, const A *x, const A *y, const A *weight, const A *positive, long address,
                                long site) {{
    FOR_ALL(i) {{
        within(x[i], {{address, site}});
        o[i] = to<A>(value(f, x, y, weight, positive, i));
    }}
}}

extern "C" __global__ void back(const Pairs f, A *o, const A *x, const A *y, const A *weight, const A *positive,
                                const A *grad) {{
    FOR_ALL(i) o[i] = to<A>(value(f, x, y, weight, positive, i) * ((W)value_of(grad[EACH ? i : 0]) * (W)f.share));
}}

extern "C" __global__ void summed(const Pairs f, W *parts, const A *x, const A *y, const A *weight, const A *positive,
                                  long address, long site) {{
    __shared__ W met[THREADS];
    W total = 0;
    #pragma unroll 4
    FOR_ALL(i) {{
        within(x[i], {{address, site}});
        total += value(f, x, y, weight, positive, i);
    }}
    met[threadIdx.x] = total;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {{
        if (threadIdx.x < half) met[threadIdx.x] += met[threadIdx.x + half];
        __syncthreads();
    }}
    if (!threadIdx.x) parts[blockIdx.x] = met[0];
}}

extern "C" __global__ void last(const Pairs f, A *o, const W *parts) {{
    W total = 0;
    for (long k = 0; k < f.chunks; k++) total += parts[k];
    *o = to<A>(total * (W)f.share);
}}
"""
_OUTSIDE = "all elements of input should be between 0 and 1"


@functools.lru_cache(256)
def _text(name: str, dtype: np.dtype, slope: bool, weight: bool, positive: bool, each: bool) -> str:
    key, found = f"{name}, positive" if positive else name, _SLOPES if slope else _TERMS
    c = found.get(key) or (SLOPES[f"{name}_backward"] if slope else TERMS[name])[0]
    return _TEXT.format(a=STORED[dtype], w=wide(dtype), weight=int(weight), positive=int(positive), each=int(each),
                        within=int(name == "binary_cross_entropy" and not slope),
                        value=loops.to_c(c, "f64" if dtype.char == "d" else "f32", {}))


def _plan(source: str, name: str, kinds: str, blocks: int, threads: int, count: int, chunks: int, c: float, share: float,
          device: int) -> Plan:
    return plan_of(source, name, device, blocks, threads, kinds, struct.pack("2q2d", count, chunks, c, share))


def _spread(a: CudaArray | None, shape: Any, dtype: np.dtype) -> CudaArray | None:
    """An array that broadcasts, dense and in full."""
    if a is None or (type(a) is CudaArray and a.shape == shape and a.dtype == dtype and a.flags.c_contiguous):
        return a
    return copied(a, windows.empty(shape, dtype))


def _blocks(count: int, device: int) -> int:
    return max(min(-(-count // 1024), 8 * machine().attribute("multiprocessors", device)), 1)


def _loss(name: str, rule: tuple[Any, ...], x: CudaArray, y: CudaArray, weight: Any, positive: Any, reduction: int,
          c: float) -> Any:
    if not is_real(x) or x.dtype not in COMPUTED:
        return NotImplemented
    out, device = blank(name, *rule), device_index(x)
    shape = np.broadcast_shapes(x.shape, y.shape, *[a.shape for a in (weight, positive) if a is not None])
    x, y, weight, positive = (_spread(a, shape, x.dtype) for a in (x, y, weight, positive))
    given = x, y, x if weight is None else weight, x if positive is None else positive
    source = _text(name, x.dtype, False, weight is not None, positive is not None, False)
    reports = faults.address(), faults.site(RuntimeError, _OUTSIDE)
    blocks = _blocks(x.size, device)
    if not reduction:
        made = into(out)
        if x.size:
            _plan(source, "each", "pppppll", blocks, 256, x.size, 1, c, 1.0, device).run(made, *given, *reports)
        return settled(made, out)
    parts = windows.empty((blocks,), WIDE[wide(x.dtype)])
    share = 1.0 if reduction == 2 else 1 / x.size if x.size else float("nan")
    _plan(source, "summed", "pppppll", blocks, 256, x.size, blocks, c, share, device).run(parts, *given, *reports)
    _plan(source, "last", "pp", 1, 1, x.size, blocks, c, share, device).run(out, parts)
    return out


def _slope(name: str, rule: tuple[Any, ...], grad: CudaArray, x: CudaArray, y: CudaArray, weight: Any, positive: Any,
           reduction: int, c: float) -> Any:
    if not is_real(x) or not is_real(grad):
        return NotImplemented
    out, device = blank(f"{name}_backward", *rule), device_index(x)
    if not out.size:
        return out
    x, y, weight, positive = (_spread(a, out.shape, x.dtype) for a in (x, y, weight, positive))
    grad = _spread(grad, grad.shape if grad.size == 1 else out.shape, x.dtype)
    given = x, y, x if weight is None else weight, x if positive is None else positive
    source = _text(name, x.dtype, True, weight is not None, positive is not None, grad.size != 1)
    share, made = 1 / x.size if reduction == 1 else 1.0, into(out)
    _plan(source, "back", "pppppp", _blocks(x.size, device), 256, x.size, 1, c, share, device).run(made, *given, grad)
    return settled(made, out)


def _entered(name: str) -> None:
    """A loss (x, y, reduction, number) and its derivative."""
    @enter(name)
    def forward(x: CudaArray, y: CudaArray, reduction: int, *number: Any) -> Any:
        return _loss(name, (x, y, reduction, *number), x, y, None, None, reduction, float(*number))

    @enter(f"{name}_backward")
    def backward(grad: CudaArray, x: CudaArray, y: CudaArray, reduction: int, *number: Any) -> Any:
        return _slope(name, (grad, x, y, reduction, *number), grad, x, y, None, None, reduction, float(*number))


for _name in ("mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss"):
    _entered(_name)


@enter("binary_cross_entropy", repeatable=True)
def binary_cross_entropy(x: CudaArray, y: CudaArray, weight: Any, reduction: int) -> Any:
    return _loss("binary_cross_entropy", (x, y, weight, reduction), x, y, weight, None, reduction, 0.0)


@enter("binary_cross_entropy_backward", repeatable=True)
def binary_cross_entropy_backward(grad: CudaArray, x: CudaArray, y: CudaArray, weight: Any, reduction: int) -> Any:
    return _slope("binary_cross_entropy", (grad, x, y, weight, reduction), grad, x, y, weight, None, reduction, 0.0)


@enter("bce_with_logits", repeatable=True)
def bce_with_logits(x: CudaArray, y: CudaArray, weight: Any, pos_weight: Any, reduction: int) -> Any:
    return _loss("bce_with_logits", (x, y, weight, pos_weight, reduction), x, y, weight, pos_weight, reduction, 0.0)


@enter("bce_with_logits_backward", repeatable=True)
def bce_with_logits_backward(grad: CudaArray, x: CudaArray, y: CudaArray, weight: Any, pos_weight: Any, reduction: int) -> Any:
    rule = grad, x, y, weight, pos_weight, reduction
    return _slope("bce_with_logits", rule, grad, x, y, weight, pos_weight, reduction, 0.0)
