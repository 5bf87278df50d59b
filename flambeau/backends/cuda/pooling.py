"""Pooling and its gradients (names and meaning as in cpu/layers/pooling.py). Gradients are gathered: each element of the input
asks the windows that see it, always in one order."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .arrays import CudaArray, windows
from .backend import call, contiguous, fill
from .pointwise import COMPUTED, STORED
from .sliding import PRELUDE, Sliding, index_type, run
from .table import kernel

Ints = "tuple[int, ...]"
_TYPES = """
typedef {stored} A;
typedef {wide} W;
"""
# For each window that sees an element: o0, o1, o2 are its place, tap is which of its taps that is.
_SEEN = """
#define SEEN(...) \\
    for (I o0 = first_window(s, 0, at[0]); o0 <= last_window(s, 0, at[0]); o0++) {{ \\
        const I k0 = at[0] + s.padding[0] - o0 * s.stride[0]; \\
        if (k0 % s.dilation[0]) continue; \\
        for (I o1 = first_window(s, 1, at[1]); o1 <= last_window(s, 1, at[1]); o1++) {{ \\
            const I k1 = at[1] + s.padding[1] - o1 * s.stride[1]; \\
            if (k1 % s.dilation[1]) continue; \\
            for (I o2 = first_window(s, 2, at[2]); o2 <= last_window(s, 2, at[2]); o2++) {{ \\
                const I k2 = at[2] + s.padding[2] - o2 * s.stride[2]; \\
                if (k2 % s.dilation[2]) continue; \\
                const I tap = (k0 / s.dilation[0] * s.kernel[1] + k1 / s.dilation[1]) * s.kernel[2] + k2 / s.dilation[2]; \\
                __VA_ARGS__ \\
            }} \\
        }} \\
    }}
"""
_MAXIMUM = PRELUDE + _TYPES + _SEEN + """
typedef {small} N;
static __device__ inline I place(const Sliding &s, const I *o, I tap) {{
    I t[3], at = 0;
    split(tap, s.kernel, t);
    for (int d = 0; d < 3; d++) at = at * s.size[d] + o[d] * s.stride[d] - s.padding[d] + t[d] * s.dilation[d];
    return at;
}}
// The first of the largest elements, or the last nan. more[0]: whether the tap that won is noted.
extern "C" __global__ void max_pool(const Sliding s, A *out, N *which, const A *x) {{
    EACH(i, s.count) {{
        I o[3];
        const A *from = x + split(i, s.out, o) * s.size[0] * s.size[1] * s.size[2];
        W best = {lowest};
        I won = -1, tap = 0;
        for (I a = 0; a < s.kernel[0]; a++) {{
            const I at0 = o[0] * s.stride[0] - s.padding[0] + a * s.dilation[0];
            for (I b = 0; b < s.kernel[1]; b++) {{
                const I at1 = o[1] * s.stride[1] - s.padding[1] + b * s.dilation[1];
                for (I c = 0; c < s.kernel[2]; c++, tap++) {{
                    const I at2 = o[2] * s.stride[2] - s.padding[2] + c * s.dilation[2];
                    if (at0 < 0 || at0 >= s.size[0] || at1 < 0 || at1 >= s.size[1] || at2 < 0 || at2 >= s.size[2]) continue;
                    const W value = (W)value_of(from[(at0 * s.size[1] + at1) * s.size[2] + at2]);
                    if (won < 0 || value > best || value != value) best = value, won = tap;
                }}
            }}
        }}
        out[i] = to<A>(best);
        if (s.more[0]) which[i] = (N)(won < 0 ? 0 : won);
    }}
}}
extern "C" __global__ void max_pool_indices(const Sliding s, long *indices, const N *which) {{
    EACH(i, s.count) {{
        I o[3];
        split(i, s.out, o);
        indices[i] = place(s, o, which[i]);
    }}
}}
extern "C" __global__ void max_pool_gather(const Sliding s, A *out, const A *x, const N *which) {{
    EACH(i, s.count) {{
        I o[3];
        const I row = split(i, s.out, o);
        out[i] = x[row * s.size[0] * s.size[1] * s.size[2] + place(s, o, which[i])];
    }}
}}
extern "C" __global__ void max_pool_scatter(const Sliding s, A *dx, const A *g, const N *which) {{
    EACH(i, s.count) {{
        I at[3];
        const I start = split(i, s.size, at) * s.out[0] * s.out[1] * s.out[2];
        W total = 0;
        SEEN(
            const I o = start + (o0 * s.out[1] + o1) * s.out[2] + o2;
            if ((I)which[o] == tap) total += (W)value_of(g[o]);
        )
        dx[i] = to<A>(total);
    }}
}}
"""
_AVERAGE = PRELUDE + _TYPES + _SEEN + """
// more: whether padding counts, whether there is a divisor for all, that divisor.
static __device__ inline W divisor(const Sliding &s, I o0, I o1, I o2) {{
    if (s.more[1]) return (W)s.more[2];
    const I o[3] = {{o0, o1, o2}};
    I total = 1;
    for (int d = 0; d < 3; d++) {{
        I start = o[d] * s.stride[d] - s.padding[d], end = start + s.kernel[d];
        if (end > s.size[d] + s.padding[d]) end = s.size[d] + s.padding[d];
        if (!s.more[0]) {{
            if (start < 0) start = 0;
            if (end > s.size[d]) end = s.size[d];
        }}
        total *= end - start;
    }}
    return (W)total;
}}
extern "C" __global__ void avg_pool(const Sliding s, A *out, const A *x) {{
    EACH(i, s.count) {{
        I o[3], low[3], high[3];
        const A *from = x + split(i, s.out, o) * s.size[0] * s.size[1] * s.size[2];
        for (int d = 0; d < 3; d++) {{
            low[d] = o[d] * s.stride[d] - s.padding[d], high[d] = low[d] + s.kernel[d];
            if (low[d] < 0) low[d] = 0;
            if (high[d] > s.size[d]) high[d] = s.size[d];
        }}
        W total = 0;
        for (I a = low[0]; a < high[0]; a++)
            for (I b = low[1]; b < high[1]; b++)
                for (I c = low[2]; c < high[2]; c++) total += (W)value_of(from[(a * s.size[1] + b) * s.size[2] + c]);
        out[i] = to<A>(total / divisor(s, o[0], o[1], o[2]));
    }}
}}
extern "C" __global__ void avg_pool_grad(const Sliding s, A *dx, const A *g) {{
    EACH(i, s.count) {{
        I at[3];
        const I start = split(i, s.size, at) * s.out[0] * s.out[1] * s.out[2];
        W total = 0;
        SEEN(
            (void)tap;
            total += (W)value_of(g[start + (o0 * s.out[1] + o1) * s.out[2] + o2]) / divisor(s, o0, o1, o2);
        )
        dx[i] = to<A>(total);
    }}
}}
"""
_VARYING = PRELUDE + _TYPES + """
typedef {sample} S;
// Windows of varying size (more[0] = 0), or of the kernel's size at places that follow from samples, `more[0]` per row.
static __device__ inline I start_of(const Sliding &s, int d, I o, const S *samples, I row) {{
    if (!s.more[0]) return (I)((long)o * s.size[d] / s.out[d]);
    const int dims = (int)s.more[0], own = d - (3 - dims);  // two dimensions: the width's comes first
    if (own < 0) return 0;
    if (o == s.out[d] - 1) return s.size[d] - s.kernel[d];
    const S drawn = samples[row * dims + (dims == 2 ? 1 - own : own)];
    const S alpha = (S)(s.size[d] - s.kernel[d]) / (S)(s.out[d] - 1);
    return (I)(((S)o + drawn) * alpha) - (I)(drawn * alpha);
}}
extern "C" __global__ void varying_max(const Sliding s, A *out, long *indices, const A *x, const S *samples) {{
    EACH(i, s.count) {{
        I o[3], low[3], high[3];
        const I row = split(i, s.out, o);
        const A *from = x + row * s.size[0] * s.size[1] * s.size[2];
        for (int d = 0; d < 3; d++) {{
            low[d] = start_of(s, d, o[d], samples, row);
            high[d] = s.more[0] ? low[d] + s.kernel[d]
                                : (I)((((long)o[d] + 1) * s.size[d] + s.out[d] - 1) / s.out[d]);
        }}
        W best = 0;
        I won = -1;
        for (I a = low[0]; a < high[0]; a++)
            for (I b = low[1]; b < high[1]; b++)
                for (I c = low[2]; c < high[2]; c++) {{
                    const I at = (a * s.size[1] + b) * s.size[2] + c;
                    const W value = (W)value_of(from[at]);
                    if (won < 0 || value > best || value != value) best = value, won = at;
                }}
        out[i] = to<A>(best), indices[i] = won;
    }}
}}
// more[0]: elements of a row of x.
extern "C" __global__ void unpool(const Sliding s, A *out, const A *x, const long *indices) {{
    EACH(i, s.count) out[i / s.more[0] * s.size[0] * s.size[1] * s.size[2] + (I)indices[i]] = x[i];
}}
"""


@functools.cache
def _text(form: str, dtype: np.dtype, index: str, small: str = "", sample: str = "float") -> str:
    if dtype not in COMPUTED:
        raise NotImplementedError(f"pooling of {dtype} on a CUDA device")
    wide = {"f32": "float", "f64": "double"}.get(COMPUTED[dtype], "long")
    lowest = "-INFINITY" if wide != "long" else "(-9223372036854775807L - 1)"
    return form.format(stored=STORED[dtype], wide=wide, lowest=lowest, index=index, small=small, sample=sample)


def _small(kernel: Ints) -> tuple[np.dtype, str]:
    """The type that numbers the taps of a window."""
    return (np.dtype(np.uint8), "unsigned char") if math.prod(kernel) <= 256 else (np.dtype(np.int32), "int")


def _lead(x: CudaArray, dims: int) -> Ints:
    return x.shape[:x.ndim - dims]


def _last(x: CudaArray, dims: int) -> Ints:
    return x.shape[x.ndim - dims:]


def _pooled(form: str, name: str, s: Sliding, out: CudaArray, *given: CudaArray, numbers: Ints = (), small: str = "",
            dtype: np.dtype | None = None) -> CudaArray:
    """`out`, filled by a kernel with a thread for each of its elements."""
    index = index_type(out.size, math.prod(s.size), *[a.size for a in given])
    run(_text(form, dtype or out.dtype, index, small), name, out.size, s.packed(index, out.size, *numbers), out,
        *map(contiguous, given))
    return out


# ---------------------------------------------------------------------------------------------------------- maximum
def _max_pool(x: CudaArray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out_size: Ints, noted: bool) -> Any:
    dims, (small, word) = len(kernel), _small(kernel)
    out = windows.empty((*_lead(x, dims), *out_size), x.dtype)
    which = windows.empty(out.shape, small) if noted else out
    s = Sliding(_last(x, dims), kernel, stride, padding, dilation, tuple(out_size))
    return _pooled(_MAXIMUM, "max_pool", s, out, which, x, numbers=(noted,), small=word), which


@kernel("max_pool", repeatable=True)
def max_pool(x: CudaArray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, out_size: Ints,
             ceil_mode: bool = False) -> tuple[CudaArray, CudaArray]:
    return _max_pool(x, kernel, stride, padding, dilation, out_size, True)


@kernel("max_pool_values", repeatable=True)
def max_pool_values(x: CudaArray, *numbers: Ints) -> CudaArray:
    return _max_pool(x, *numbers, False)[0]


@kernel("max_pool_indices", repeatable=True)
def max_pool_indices(which: CudaArray, size: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> CudaArray:
    made = windows.empty(which.shape, np.dtype(np.int64))
    s = Sliding(tuple(size), kernel, stride, padding, dilation, _last(which, len(kernel)))
    return _pooled(_MAXIMUM, "max_pool_indices", s, made, which, small=_small(kernel)[1], dtype=np.dtype(np.float32))


@kernel("max_pool_scatter", repeatable=True)
def max_pool_scatter(g: CudaArray, which: CudaArray, size: Ints, kernel: Ints, stride: Ints, padding: Ints,
                     dilation: Ints) -> CudaArray:
    dx = windows.empty((*_lead(g, len(kernel)), *size), g.dtype)
    s = Sliding(tuple(size), kernel, stride, padding, dilation, _last(which, len(kernel)))
    return _pooled(_MAXIMUM, "max_pool_scatter", s, dx, g, which, small=_small(kernel)[1])


@kernel("max_pool_gather", repeatable=True)
def max_pool_gather(x: CudaArray, which: CudaArray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> CudaArray:
    s = Sliding(_last(x, len(kernel)), kernel, stride, padding, dilation, _last(which, len(kernel)))
    return _pooled(_MAXIMUM, "max_pool_gather", s, windows.empty(which.shape, x.dtype), x, which, small=_small(kernel)[1])


# ---------------------------------------------------------------------------------------------------------- average
def _divisors(include_pad: bool, override: int | None) -> Ints:
    return include_pad, override is not None, override or 0


@kernel("avg_pool", repeatable=True)
def avg_pool(x: CudaArray, kernel: Ints, stride: Ints, padding: Ints, out_size: Ints, include_pad: bool,
             override: int | None) -> CudaArray:
    dims = len(kernel)
    s = Sliding(_last(x, dims), kernel, stride, padding, (1,) * dims, tuple(out_size))
    out = windows.empty((*_lead(x, dims), *out_size), x.dtype)
    return _pooled(_AVERAGE, "avg_pool", s, out, x, numbers=_divisors(include_pad, override))


@kernel("avg_pool_grad", repeatable=True)
def avg_pool_grad(g: CudaArray, size: Ints, kernel: Ints, stride: Ints, padding: Ints, include_pad: bool,
                  override: int | None) -> CudaArray:
    dims = len(kernel)
    s = Sliding(tuple(size), kernel, stride, padding, (1,) * dims, _last(g, dims))
    dx = windows.empty((*_lead(g, dims), *size), g.dtype)
    return _pooled(_AVERAGE, "avg_pool_grad", s, dx, g, numbers=_divisors(include_pad, override))


# ------------------------------------------------------------------------------------- windows of varying size, places
def _varying(x: CudaArray, kernel: Ints, out_size: Ints, samples: CudaArray | None) -> tuple[CudaArray, CudaArray]:
    dims = len(out_size)
    shape, ones = (*_lead(x, dims), *out_size), (1,) * dims
    out, at = windows.empty(shape, x.dtype), windows.empty(shape, np.dtype(np.int64))
    s = Sliding(_last(x, dims), tuple(kernel), ones, (0,) * dims, ones, tuple(out_size))
    index = index_type(x.size, out.size)
    sample = "float" if samples is None else STORED[samples.dtype]
    fixed = s.packed(index, out.size, 0 if samples is None else dims)
    run(_text(_VARYING, x.dtype, index, sample=sample), "varying_max", out.size, fixed, out, at, contiguous(x),
        out if samples is None else contiguous(samples))
    return out, at


@kernel("adaptive_max_pool", repeatable=True)
def adaptive_max_pool(x: CudaArray, out_size: Ints) -> tuple[CudaArray, CudaArray]:
    return _varying(x, (1,) * len(out_size), out_size, None)


@kernel("fractional_max_pool", repeatable=True)
def fractional_max_pool(x: CudaArray, kernel: Ints, out_size: Ints, samples: CudaArray) -> Any:
    if samples.dtype.char not in "fd":  # half precision draws places in its own rounding
        return NotImplemented
    return _varying(x, kernel, out_size, samples)


@kernel("max_unpool", repeatable=True)
def max_unpool(x: CudaArray, indices: CudaArray, size: Ints) -> CudaArray:
    dims, volume = len(size), math.prod(size)
    out, ones = windows.empty((*_lead(x, dims), *size), x.dtype), (1,) * dims
    fill(out, 0)
    if not x.size:
        return out
    for bad in (call("amin", (indices, None, False)).item(), call("amax", (indices, None, False)).item()):
        if not 0 <= bad < volume:
            raise RuntimeError(f"Found an invalid max index: {bad} (output volumes are of size {'x'.join(map(str, size))})")
    s = Sliding(tuple(size), ones, ones, (0,) * dims, ones, ones)
    index = index_type(x.size, out.size)
    fixed = s.packed(index, x.size, math.prod(_last(x, dims)))
    run(_text(_VARYING, x.dtype, index), "unpool", x.size, fixed, out, contiguous(x), contiguous(indices))
    return out
