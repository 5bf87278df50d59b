"""Poisson, binomial, gamma and Dirichlet numbers on the device, from the words that PyTorch takes there (rejection.cuh).

Each element has a stream of its own; of binomial ones eight share one, as PyTorch's kernel goes through them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ..cpu.memory import dense_order
from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous, copied
from .launch import launch, plan_of
from .philox import advance
from .pointwise import STORED
from .rows import is_real
from .table import kernel

_TEXT = """
#include "index.cuh"
#include "rejection.cuh"
typedef {stored} R;
typedef {wide} T;

extern "C" __global__ void poissons(const long count, R *o, const R *rates, unsigned long seed, unsigned long offset,
                                    long address, long site) {{
    FOR_ALL(e, count) {{
        const double rate = (double)value_of(rates[e]);
        Reader reader(seed, e, offset);
        if (!(rate >= 0)) report({{address, site}}, e);
        o[e] = to<R>((T)(rate >= 0 ? poisson_of(reader, rate) : 0));
    }}
}}

extern "C" __global__ void gammas(const long count, R *o, const R *alpha, unsigned long seed, unsigned long offset,
                                  double least) {{
    FOR_ALL(e, count) {{
        Reader reader(seed, e, offset);
        const T made = gamma_of<R>(reader, (T)value_of(alpha[e]));
        o[e] = to<R>(made < (T)least ? (T)least : made);
    }}
}}

// A block of 128 threads has 1024 elements, and each thread eight of them that lie 128 apart.
extern "C" __global__ void binomials(const long count, R *o, const R *trials, const R *chances, unsigned long seed,
                                     unsigned long offset) {{
    for (long block = blockIdx.x; block * 1024 < count; block += gridDim.x) {{
        Reader reader(seed, block * 128 + threadIdx.x, offset);
        for (long e = block * 1024 + threadIdx.x; e < count && e < (block + 1) * 1024; e += 128)
            o[e] = to<R>(binomial_of(reader, (T)value_of(trials[e]), (T)value_of(chances[e])));
    }}
}}
"""


def _text(dtype: np.dtype) -> str:
    return _TEXT.format(stored=STORED[dtype], wide="double" if dtype.char == "d" else "float")


def _dense(x: CudaArray, name: str) -> CudaArray:
    """x lying densely: elements are drawn in the order of its memory."""
    if not is_real(x):
        raise NotImplementedError(f"{name} of {x.dtype} on a CUDA device")
    return x if x.flags.c_contiguous or dense_order(x) is not None else contiguous(x)


def _least(dtype: np.dtype) -> float:
    """The smallest positive normal number (bfloat16 has single precision's)."""
    return float(np.finfo(np.float32 if dtype.name == "bfloat16" else dtype).tiny)


@kernel("draw_poisson")
def draw_poisson(words: ndarray, rates: CudaArray) -> CudaArray:
    rates = _dense(rates, "poisson")
    out, state = windows.like(rates, rates.dtype), advance(words, 20)
    if out.size:
        site = faults.site(RuntimeError, "invalid Poisson rate, expected rate to be non-negative (element {})")
        launch(_text(out.dtype), "poissons", "ppllll", out.size, out.size.to_bytes(8, "little"), device_index(out)).run(
            out, rates, *state, faults.address(), site)
    return out


@kernel("draw_gamma")
def draw_gamma(words: ndarray, alpha: CudaArray) -> CudaArray:
    alpha = _dense(alpha, "_standard_gamma")
    out, state = windows.like(alpha, alpha.dtype), advance(words, 10)
    if out.size:
        launch(_text(out.dtype), "gammas", "pplld", out.size, out.size.to_bytes(8, "little"), device_index(out)).run(
            out, alpha, *state, _least(out.dtype))
    return out


@kernel("draw_dirichlet")
def draw_dirichlet(words: ndarray, alpha: CudaArray) -> CudaArray:
    """Gamma numbers over their sums, inside of (0, 1)."""
    made = draw_gamma(words, contiguous(alpha))
    if not made.size:
        return made
    made = call("div", (made, call("sum", (made, (made.ndim - 1,), True, None))))
    bits = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}[made.dtype.name]
    return call("clamp", (made, _least(made.dtype), 1 - 2.0 ** -bits))


@kernel("draw_binomial")
def draw_binomial(words: ndarray, count: CudaArray, prob: Any) -> CudaArray:
    shape = np.broadcast_shapes(count.shape, prob.shape)
    trials, chances = (copied(x, windows.empty(shape, count.dtype)) for x in (_dense(count, "binomial"), prob))
    out, state = windows.empty(shape, count.dtype), advance(words, 42)
    if out.size:
        plan_of(_text(out.dtype), "binomials", device_index(out), min(-(-out.size // 1024), 1 << 16), 128, "pppll",
                out.size.to_bytes(8, "little")).run(out, trials, chances, *state)
    return out
