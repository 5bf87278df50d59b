"""Windows of images as columns of a matrix, and their sum at their places: the kernels im2col and col2im."""

from __future__ import annotations

import functools
import math

import numpy as np

from ..geometry import out_size
from .arrays import CudaArray, windows
from .backend import _parts, contiguous, fill
from .pointwise import COMPUTED, STORED
from .sliding import PRELUDE, Sliding, index_type, run
from .table import kernel

Ints = "tuple[int, ...]"
_MOVED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long", 16: "Two"}
_UNFOLD = PRELUDE + """
struct Two {{ unsigned long first, second; }};
typedef {stored} A;
// columns: row (channel, tap) `by` elements apart, samples `apart`, windows next to each other. more: channels, by, apart.
extern "C" __global__ void unfold(const Sliding s, A *columns, const A *x) {{
    const I channels = s.more[0], by = s.more[1], apart = s.more[2];
    const I taps = s.kernel[0] * s.kernel[1] * s.kernel[2], spots = s.out[0] * s.out[1] * s.out[2];
    EACH(i, s.count) {{
        I o[3], t[3], from = 0;
        I rest = split(i, s.out, o);
        const I samples = s.count / (spots * channels * taps);
        const bool rows_first = apart < by;  // the order of the columns in memory: neighbours are written by neighbours
        const I sample = rows_first ? rest % samples : rest / (channels * taps);
        const I row = rows_first ? rest / samples : rest % (channels * taps);
        const I channel = split(row, s.kernel, t);
        bool inside = true;
        #pragma unroll
        for (int d = 0; d < 3; d++) {{
            const I at = o[d] * s.stride[d] - s.padding[d] + t[d] * s.dilation[d];
            inside &= at >= 0 && at < s.size[d];
            from = from * s.size[d] + at;
        }}
        A value = {{}};
        if (inside) value = x[(sample * channels + channel) * s.size[0] * s.size[1] * s.size[2] + from];
        columns[sample * apart + row * by + i % spots] = value;
    }}
}}
"""
_FOLD = PRELUDE + """
typedef {stored} A;
typedef {wide} W;
extern "C" __global__ void fold(const Sliding s, A *x, const A *columns) {{
    const I channels = s.more[0], by = s.more[1], apart = s.more[2];
    EACH(i, s.count) {{
        I at[3], first[3], last[3];
        const I row = split(i, s.size, at), sample = row / channels, channel = row % channels;
        #pragma unroll
        for (int d = 0; d < 3; d++) first[d] = first_window(s, d, at[d]), last[d] = last_window(s, d, at[d]);
        W total = 0;
        for (I a = first[0]; a <= last[0]; a++) {{
            const I k0 = at[0] + s.padding[0] - a * s.stride[0];
            if (k0 % s.dilation[0]) continue;
            for (I b = first[1]; b <= last[1]; b++) {{
                const I k1 = at[1] + s.padding[1] - b * s.stride[1];
                if (k1 % s.dilation[1]) continue;
                for (I c = first[2]; c <= last[2]; c++) {{
                    const I k2 = at[2] + s.padding[2] - c * s.stride[2];
                    if (k2 % s.dilation[2]) continue;
                    const I tap = (k0 / s.dilation[0] * s.kernel[1] + k1 / s.dilation[1]) * s.kernel[2] + k2 / s.dilation[2];
                    total += (W)value_of(columns[sample * apart + (channel * s.kernel[0] * s.kernel[1] * s.kernel[2] + tap) * by
                                              + (a * s.out[1] + b) * s.out[2] + c]);
                }}
            }}
        }}
        x[i] = to<A>(total);
    }}
}}
"""


@functools.cache
def _unfold_text(itemsize: int, index: str) -> str:
    return _UNFOLD.format(stored=_MOVED[itemsize], index=index)


@functools.cache
def _fold_text(dtype: np.dtype, index: str) -> str | None:
    if dtype not in COMPUTED:
        return None
    wide = {"f32": "float", "f64": "double"}.get(COMPUTED[dtype], "long")
    return _FOLD.format(stored=STORED[dtype], wide=wide, index=index)


def columns_of(x: CudaArray, s: Sliding, columns: CudaArray, by: int, apart: int) -> None:
    """Writes the windows of x (samples, channels, *size), contiguous, into columns (see the kernel)."""
    index = index_type(columns.size, x.size)
    fixed = s.packed(index, columns.size, x.shape[1], by, apart)
    run(_unfold_text(x.itemsize, index), "unfold", columns.size, fixed, columns, x)


def sum_of(columns: CudaArray, s: Sliding, x: CudaArray, by: int, apart: int) -> None:
    """Writes what the windows add up to at each place of x (samples, channels, *size)."""
    index = index_type(columns.size, x.size)
    text = _fold_text(x.dtype, index)
    if text is None:
        raise NotImplementedError(f'"col2im" not implemented for \'{x.dtype}\'')
    run(text, "fold", x.size, s.packed(index, x.size, x.shape[1], by, apart), x, columns)


@kernel("im2col")
def im2col(x: CudaArray, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> CudaArray:
    if x.ndim == len(kernel) + 1:
        return im2col(x[None], kernel, dilation, padding, stride)[0]
    s = Sliding(x.shape[2:], kernel, stride, padding, dilation, out_size(x.shape[2:], kernel, stride, padding, dilation))
    rows, spots = x.shape[1] * math.prod(kernel), math.prod(s.out)
    made = windows.empty((len(x), rows, spots), x.dtype)
    columns_of(contiguous(x), s, made, spots, rows * spots)
    return made


@kernel("col2im")
def col2im(columns: CudaArray, size: Ints, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints) -> CudaArray:
    if columns.ndim == 2:
        return col2im(columns[None], size, kernel, dilation, padding, stride)[0]
    if columns.dtype.kind == "c":
        return _by_parts(columns, size, kernel, dilation, padding, stride)
    s = Sliding(tuple(size), kernel, stride, padding, dilation, out_size(size, kernel, stride, padding, dilation))
    samples, rows, spots = columns.shape
    made = windows.empty((samples, rows // math.prod(kernel), *size), columns.dtype)
    if columns.size:
        sum_of(contiguous(columns), s, made, spots, rows * spots)
    else:
        fill(made, 0)
    return made


def _by_parts(columns: CudaArray, size: Ints, kernel: Ints, *rest: Ints) -> CudaArray:
    """Of complex numbers: the real parts, then the imaginary ones."""
    made = windows.empty((len(columns), columns.shape[1] // math.prod(kernel), *size), columns.dtype)
    for part in (0, 1):
        _parts(made)[..., part] = col2im(_parts(columns)[..., part], size, kernel, *rest)
    return made
