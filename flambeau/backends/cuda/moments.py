"""Mean and variance, by Welford's way in one pass: var, std, and batch norm with its derivative.

Arrays are (outer, columns, inner), and every column has a mean; see norms.py for how blocks share columns.
"""

from __future__ import annotations

import functools
import math
import struct
from typing import Any

from .arrays import CudaArray, device_index, windows
from .backend import contiguous, copied
from .driver import machine
from .launch import Plan, kernel
from .norms import _COLUMNS, _sums, column_plans
from .rows import WIDE, is_real, typed, wide
from .rules import blank
from .table import kernel as enter

# The walk of norms.py, and what is made of it here.
_TEXT = _COLUMNS[:_COLUMNS.index('extern "C"')].replace(
    "chunks, by_row, each; };", "chunks; double correction, momentum, eps; };") + """
struct Moments { W count, mean, squares; };
static __device__ inline Moments joined(Moments x, Moments y) {
    const W count = x.count + y.count;
    if (y.count == 0) return x;
    if (x.count == 0) return y;
    const W apart = y.mean - x.mean, part = y.count / count;
    return {count, x.mean + apart * part, x.squares + y.squares + apart * apart * x.count * part};
}

extern "C" __global__ void moments(const Columns s, Moments *parts, const A *x) {
    __shared__ Moments met[256];
    const int tile = TILED ? 32 : 1, column = threadIdx.x % tile, lane = threadIdx.x / tile, lanes = 256 / tile;
    const long tiles = (s.columns + tile - 1) / tile;
    for (long task = blockIdx.x; task < tiles * s.chunks; task += gridDim.x) {
        const long chunk = task / tiles, c = task % tiles * tile + column;
        Moments own = {0, 0, 0};
        if (c < s.columns)
            down(s, c, chunk, lane, lanes, [&](long at, long) {
                const W v = (W)value_of(x[at]), apart = v - own.mean;
                own.count += 1;
                own.mean += apart / own.count;
                own.squares += apart * (v - own.mean);
            });
        met[threadIdx.x] = own;
        __syncthreads();
        for (int half = lanes / 2; half; half /= 2) {
            if (lane < half) met[threadIdx.x] = joined(met[threadIdx.x], met[threadIdx.x + half * tile]);
            __syncthreads();
        }
        if (!lane && c < s.columns) parts[chunk * s.columns + c] = met[column];
        __syncthreads();
    }
}

static __device__ inline Moments whole(const Columns &s, const Moments *parts, long c) {
    Moments made = parts[c];
    for (long k = 1; k < s.chunks; k++) made = joined(made, parts[k * s.columns + c]);
    return made;
}

extern "C" __global__ void spread(const Columns s, R *o, R *means, const Moments *parts) {
    for (long c = (long)blockIdx.x * blockDim.x + threadIdx.x; c < s.columns; c += (long)gridDim.x * blockDim.x) {
        const Moments m = whole(s, parts, c);
        const W free = m.count - (W)s.correction, made = m.squares / (free > 0 ? free : 0);
        o[c] = to<R>(ROOT ? sqrt(made) : made);
        means[c] = to<R>(m.mean);
    }
}

// mean and 1 / deviation; the running statistics move towards the batch's.
extern "C" __global__ void statistics(const Columns s, W *mean, W *inverse, P *running_mean, P *running_var,
                                      const Moments *parts) {
    for (long c = (long)blockIdx.x * blockDim.x + threadIdx.x; c < s.columns; c += (long)gridDim.x * blockDim.x) {
        const Moments m = whole(s, parts, c);
        const W var = m.squares / m.count, free = m.count > 1 ? m.count - 1 : 1, pace = (W)s.momentum;
        mean[c] = m.mean;
        inverse[c] = 1 / sqrt(var + (W)s.eps);
        if (RUNNING) {
            running_mean[c] = to<P>((1 - pace) * (W)value_of(running_mean[c]) + pace * m.mean);
            running_var[c] = to<P>((1 - pace) * (W)value_of(running_var[c]) + pace * (m.squares / free));
        }
    }
}
"""
_APPLIED = """
#include "elements.cuh"
struct Columns { long columns, inner, count; double eps; };

// EVAL: the statistics are a variance, not 1 / deviation.
static __device__ inline W inverse_of(S x, const Columns &s) {
    return EVAL ? 1 / sqrt((W)value_of(x) + (W)s.eps) : (W)value_of(x);
}
template <class F> static __device__ inline void each_run(const Columns &s, F f) { // f(first element, its column, its place)
    const bool small = s.count <= 0x7fffffff;
    for (long e = ((long)blockIdx.x * blockDim.x + threadIdx.x) * RUN; e < s.count; e += (long)gridDim.x * blockDim.x * RUN) {
        const long q = small ? (long)((unsigned)e / (unsigned)s.inner) : e / s.inner;
        f(e, small ? (long)((unsigned)q % (unsigned)s.columns) : q % s.columns, e - q * s.inner);
    }
}
#define NEXT if (++place == s.inner) place = 0, c = c + 1 == s.columns ? 0 : c + 1

extern "C" __global__ void normalised(const Columns s, A *o, const A *x, const S *mean, const S *inverse, const P *weight,
                                      const P *bias) {
    each_run(s, [&](long e, long c, long place) {
        const Run<A, RUN> r = *(const Run<A, RUN> *)(x + e);
        Run<A, RUN> made;
        #pragma unroll
        for (int k = 0; k < RUN; k++) {
            const W v = ((W)value_of(r.at[k]) - (W)value_of(mean[c])) * inverse_of(inverse[c], s);
            made.at[k] = to<A>(v * (WEIGHT ? (W)value_of(weight[c]) : 1) + (BIAS ? (W)value_of(bias[c]) : 0));
            NEXT;
        }
        *(Run<A, RUN> *)(o + e) = made;
    });
}

// sums: (2, columns), of the gradients and of their products with what was normalised.
extern "C" __global__ void gradient(const Columns s, G *o, const G *g, const A *x, const S *mean, const S *inverse,
                                    const P *weight, const W *sums) {
    const W share = (W)1 / (W)(s.count / s.columns);
    each_run(s, [&](long e, long c, long place) {
        const Run<A, RUN> r = *(const Run<A, RUN> *)(x + e);
        const Run<G, RUN> d = *(const Run<G, RUN> *)(g + e);
        Run<G, RUN> made;
        #pragma unroll
        for (int k = 0; k < RUN; k++) {
            const W over = (W)value_of(inverse[c]), scale = over * (WEIGHT ? (W)value_of(weight[c]) : 1);
            W v = (W)value_of(d.at[k]);
            if (TRAINING)
                v -= (sums[c] + ((W)value_of(r.at[k]) - (W)value_of(mean[c])) * over * sums[s.columns + c]) * share;
            made.at[k] = to<G>(v * scale);
            NEXT;
        }
        *(Run<G, RUN> *)(o + e) = made;
    });
}
"""


def _parts(chunks: int, columns: int, w: str) -> CudaArray:
    return windows.empty((3 * chunks, columns), WIDE[w])


# ------------------------------------------------------------------------------------------------------- var and std
def _layout(x: CudaArray, axes: Any) -> tuple[CudaArray, tuple[int, int, int]]:
    """x dense as (outer, columns, inner), where columns are what is left of it without some axes."""
    axes = range(x.ndim) if axes is None or axes == () else [axes] if axes.__class__ is int else axes
    axes = sorted([a % x.ndim for a in axes]) if x.ndim else []
    kept = [d for d in range(x.ndim) if d not in axes]
    columns = math.prod([x.shape[d] for d in kept])
    if kept and kept[-1] == x.ndim - 1 and axes == list(range(len(axes))):  # the leading ones go
        return contiguous(x), (x.size // max(columns, 1), columns, 1)
    return contiguous(x.transpose([*kept, *axes])), (1, columns, x.size // max(columns, 1))


def _spread(name: str, args: tuple[Any, ...], root: bool) -> Any:
    x, axes, correction, _ = args
    if not is_real(x) or not x.size:
        return NotImplemented
    rule = blank(name, *args)
    out, means = rule if isinstance(rule, tuple) else (rule, windows.empty(rule.shape, rule.dtype))
    dense, sizes = _layout(x, axes)
    w = wide(x.dtype)
    types = (*typed(A=x.dtype, R=out.dtype, P=x.dtype, G=x.dtype), ("W", w))
    flags = (("ROOT", int(root)), ("RUNNING", 0))
    first, last, chunks = column_plans(_TEXT, "moments", "spread", types, flags, ("pp", "ppp"), *sizes,
                                       struct.pack("3d", correction, 0, 0), device_index(x))
    parts = _parts(chunks, sizes[1], w)
    first.run(parts, dense)
    last.run(out, means, parts)
    return rule


def _entered(name: str, root: bool) -> None:
    @enter(name)
    def spread(x: CudaArray, axes: Any, correction: float, keepdim: bool) -> Any:
        return _spread(name, (x, axes, correction, keepdim), root)


for _name in ("var", "std", "var_mean", "std_mean"):
    _entered(_name, _name[0] == "s")


# ---------------------------------------------------------------------------------------------------------- batch norm
@functools.lru_cache(4096)
def _applied(name: str, types: Any, flags: Any, kinds: str, columns: int, inner: int, count: int, run: int, eps: float,
             device: int) -> Plan:
    most = 32 * machine().attribute("multiprocessors", device)

    def made(run: int, otherwise: Plan | None) -> Plan:
        constants = ", ".join([f"{n} = {v}" for n, v in (*flags, ("RUN", run))])
        named = "".join([f"typedef {c} {letter};\n" for letter, c in types])
        source = f'#include "elements.cuh"\nenum {{ {constants} }};\n{named}{_APPLIED}'
        return Plan(kernel(source, name, device), device, min(-(-count // (256 * run)), most), 256, kinds,
                    struct.pack("3qd", columns, inner, count, eps), otherwise=otherwise)
    single = made(1, None)
    return single if run == 1 or count % run else made(run, single)


def _sizes(x: CudaArray) -> tuple[int, int, int]:
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@enter("batch_norm", repeatable=True)
def batch_norm(x: CudaArray, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
               eps: float) -> Any:
    given = weight if weight is not None else bias
    if not all([a is None or is_real(a) for a in (x, weight, bias, running_mean, running_var)]) or not x.size or (
            weight is not None and bias is not None and weight.dtype != bias.dtype):
        return NotImplemented
    out, mean, inverse = blank("batch_norm", x, weight, bias, running_mean, running_var, training, momentum, eps)
    dense, device, w, sizes = contiguous(x), device_index(x), wide(x.dtype), _sizes(x)
    weight, bias = (None if a is None else contiguous(a) for a in (weight, bias))
    used = mean, inverse
    if training:
        _statistics(dense, mean, inverse, running_mean, running_var, momentum, eps)
    else:
        used = contiguous(running_mean), contiguous(running_var)
    types = (*typed(A=x.dtype, G=x.dtype, S=used[0].dtype, P=x.dtype if given is None else given.dtype), ("W", w))
    flags = (("EVAL", int(not training)), ("WEIGHT", int(weight is not None)), ("BIAS", int(bias is not None)), ("TRAINING", 0))
    made = out if out.flags.c_contiguous else windows.empty(out.shape, out.dtype)
    _applied("normalised", types, flags, "pppppp", sizes[1], sizes[2], x.size, 16 // x.itemsize, eps, device).run(
        made, dense, *used, used[0] if weight is None else weight, used[0] if bias is None else bias)
    return (out if made is out else copied(made, out)), mean, inverse


def _statistics(x: CudaArray, mean: CudaArray, inverse: CudaArray, running_mean: Any, running_var: Any, momentum: float,
                eps: float) -> None:
    w, sizes = wide(x.dtype), _sizes(x)
    running = None if running_mean is None or running_var is None else (contiguous(running_mean), contiguous(running_var))
    types = (*typed(A=x.dtype, R=x.dtype, G=x.dtype, P=x.dtype if running is None else running[0].dtype), ("W", w))
    first, last, chunks = column_plans(_TEXT, "moments", "statistics", types,
                                       (("ROOT", 0), ("RUNNING", int(running is not None))), ("pp", "ppppp"), *sizes,
                                       struct.pack("3d", 0, momentum, eps), device_index(x))
    parts = _parts(chunks, sizes[1], w)
    first.run(parts, x)
    last.run(mean, inverse, *(running or (mean, inverse)), parts)
    for kept, changed in zip(running or (), (running_mean, running_var)):
        if kept is not changed:
            copied(kept, changed)


@enter("batch_norm_grad", repeatable=True)
def batch_norm_grad(g: CudaArray, x: CudaArray, weight: Any, mean: CudaArray, inverse: CudaArray, training: bool,
                    needs: Any) -> Any:
    if not is_real(x) or not is_real(g) or not x.size:
        return NotImplemented
    dx, dw, db = blank("batch_norm_grad", g, x, weight, mean, inverse, training, needs)
    dense, g, sizes, w = contiguous(x), contiguous(g), _sizes(x), wide(x.dtype)
    kind = mean.dtype
    mean, inverse = (contiguous(s) if s.dtype == kind else copied(s, windows.empty(s.shape, kind)) for s in (mean, inverse))
    sums = None
    if training or dw is not None or db is not None:
        sums = _sums(g, dense, mean, inverse, sizes, 0, 1, dw, db)
    if dx is not None:
        weight = None if weight is None else contiguous(weight)
        types = (*typed(A=x.dtype, G=g.dtype, S=mean.dtype, P=x.dtype if weight is None else weight.dtype), ("W", w))
        flags = (("EVAL", 0), ("WEIGHT", int(weight is not None)), ("BIAS", 0), ("TRAINING", int(training)))
        _applied("gradient", types, flags, "ppppppp", sizes[1], sizes[2], x.size, 16 // max(x.itemsize, g.itemsize), 0.0,
                 device_index(x)).run(dx, g, dense, mean, inverse, mean if weight is None else weight,
                                      mean if sums is None else sums)
    return dx, dw, db
