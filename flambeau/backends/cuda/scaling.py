"""Gradients divided by a scale that is on the device, with a look for elements that are not finite (ops/lists/scaling.py)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..cpu.memory import dense_order
from .arrays import CudaArray, device_index, windows
from .backend import copied
from .launch import plan_of
from .pointwise import STORED
from .random import blocks_of
from .table import kernel

_UNSCALED = """// gradients divided by a scale
#include "elements.cuh"
typedef {stored} R;
typedef {wide} T;
extern "C" __global__ void unscaled(const long count, R *x, float *found, const float *inverse) {{
    const float factor = *inverse;
    bool finite = true;
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x) {{
        const T value = (T)value_of(x[i]);
        finite = finite && value - value == 0;
        if (factor != 1) x[i] = to<R>(value * (T)factor);
    }}
    if (!finite) *found = 1;
}}
"""
_SCALE = """// the scale after a step
#include "elements.cuh"
extern "C" __global__ void updated(const long interval, float *scale, int *good, const float *found, double growth,
                                   double backoff) {
    if (*found) {
        *scale = (float)(*scale * backoff), *good = 0;
    } else if (*good + 1 == interval) {
        const float grown = (float)(*scale * growth);
        if (isfinite_f32(grown)) *scale = grown;
        *good = 0;
    } else {
        *good += 1;
    }
}
"""


@functools.cache
def _text(dtype: np.dtype) -> str:
    return _UNSCALED.format(stored=STORED[dtype], wide="double" if dtype.char == "d" else "float")


@kernel("amp_unscale")
def amp_unscale(x: CudaArray, found: CudaArray, inverse: CudaArray) -> None:
    if not x.size:
        return
    dense = x if x.flags.c_contiguous or dense_order(x) is not None else copied(x, windows.empty(x.shape, x.dtype))
    device = device_index(x)
    plan = plan_of(_text(x.dtype), "unscaled", device, blocks_of(x.size, device), 256, "ppp", x.size.to_bytes(8, "little"))
    plan.run(dense, found, inverse)
    if dense is not x:
        copied(dense, x)


@kernel("amp_update_scale")
def amp_update_scale(scale: CudaArray, good: CudaArray, found: Any, growth: float, backoff: float, interval: int) -> None:
    device = device_index(scale)
    plan_of(_SCALE, "updated", device, 1, 1, "pppdd", interval.to_bytes(8, "little")).run(scale, good, found, growth, backoff)
