"""The margin loss of several labels (multilabel_margin_loss): elements of a row that are no labels against those that are."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import call, contiguous, copied
from .launch import launch
from .places import positions, zeros
from .pointwise import STORED
from .rows import is_real, wide
from .table import kernel as enter

_TEXT = """
#include "index.cuh"
typedef {a} A;
typedef {w} W;
struct Labels {{ long rows, classes; }}; // a row's labels end where a target is negative

extern "C" __global__ void labelled(const Labels f, bool *labels, long *counts, const long *target, long address, long site) {{
    FOR_ALL(row, f.rows) {{
        long k = 0;
        for (; k < f.classes && target[row * f.classes + k] >= 0; k++) {{
            const long at = checked({{address, site}}, target[row * f.classes + k], f.classes, false);
            if (at >= 0) labels[row * f.classes + at] = true;
        }}
        counts[row] = k;
    }}
}}

static __device__ inline W over(const A *row, long label, W other) {{ return 1 - (W)value_of(row[label]) + other; }}

extern "C" __global__ void missed(const Labels f, W *o, const A *x, const bool *labels, const long *counts,
                                  const long *target) {{
    FOR_ALL(e, f.rows * f.classes) {{
        const long row = e / f.classes;
        const A *own = x + row * f.classes;
        W made = 0;
        for (long k = 0; k < counts[row] && !labels[e]; k++) {{
            const long at = target[row * f.classes + k];
            const W z = at < f.classes ? over(own, at, (W)value_of(x[e])) : 0;
            if (z > 0) made += z;
        }}
        o[e] = made;
    }}
}}

extern "C" __global__ void slopes(const Labels f, W *o, const A *x, const bool *labels, const long *counts,
                                  const long *target) {{
    FOR_ALL(e, f.rows * f.classes) {{
        const long row = e / f.classes, c = e - row * f.classes;
        const A *own = x + row * f.classes;
        long found = 0, times = 0;
        for (long k = 0; k < counts[row]; k++) {{
            const long at = target[row * f.classes + k];
            if (labels[e]) times += at == c;
            else if (at < f.classes) found += over(own, at, (W)value_of(x[e])) > 0;
        }}
        if (labels[e])
            for (long other = 0; other < f.classes; other++)
                found += !labels[row * f.classes + other] && over(own, c, (W)value_of(own[other])) > 0;
        o[e] = labels[e] ? -(W)(times * found) : (W)found;
    }}
}}
"""


def _by_element(name: str, x: CudaArray, target: CudaArray) -> tuple[CudaArray, CudaArray]:
    """(what a kernel makes of each element, in the type of sums; which are labels), as rows."""
    classes = x.shape[-1] if x.ndim else 1
    x, target = contiguous(x).reshape((-1, classes)), positions(target)
    text, device = _TEXT.format(a=STORED[x.dtype], w=wide(x.dtype)), device_index(x)
    labels, counts = zeros(x.shape, np.dtype(bool)), windows.empty(x.shape[:1], np.dtype(np.int64))
    made = windows.empty(x.shape, np.dtype(np.float64 if wide(x.dtype) == "double" else np.float32))
    if x.size:
        fixed = struct.pack("2q", *x.shape)
        site = faults.site(RuntimeError, "multilabel_margin_loss: argument #2 target is out of range: {}")
        launch(text, "labelled", "pppll", x.shape[0], fixed, device).run(labels, counts, target, faults.address(), site)
        launch(text, name, "ppppp", x.size, fixed, device).run(made, x, labels, counts, target)
    return made, labels


@enter("multilabel_margin_loss")
def multilabel_margin_loss(x: CudaArray, target: CudaArray, reduction: int) -> Any:
    if not is_real(x):
        return NotImplemented
    made, labels = _by_element("missed", x, target)
    share = np.asarray(max(made.shape[1], 1), made.dtype)
    values = call("div", (call("sum", (made, (1,), False, None)), share))
    if reduction:
        values = call("mean" if reduction == 1 else "sum", (values, None, False, None))
    else:
        values = values.reshape(x.shape[:-1])
    return values.astype(x.dtype), labels.astype(x.dtype).reshape(target.shape)


@enter("multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(grad: CudaArray, x: CudaArray, target: CudaArray, reduction: int) -> Any:
    if not is_real(x):
        return NotImplemented
    slope, _ = _by_element("slopes", x, target)
    over = max(slope.shape[1], 1) * (slope.shape[0] if reduction == 1 else 1)
    above = copied(grad, windows.empty(grad.shape, slope.dtype)).reshape((-1, 1))
    made = call("div", (call("mul", (slope, above)), np.asarray(max(over, 1), slope.dtype)))
    return made.reshape(x.shape).astype(x.dtype)
