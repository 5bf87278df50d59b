"""Mean and variance in one pass: var, std, and batch norm with its derivative.

Arrays are (outer, columns, inner), and every column has a mean; columns.cuh says how threads share them. Images whose channels
lie side by side are (all places, channels, 1).
"""

from __future__ import annotations

import math
import struct
from typing import Any

from .arrays import CudaArray, device_index, windows
from .backend import contiguous, copied
from .columns import column_plan, joining_plan
from .norms import column_sums
from .rows import WIDE, into, is_real, settled, typed, wide
from .rules import blank
from .table import kernel as enter

_TEXT = """
struct Batch { Columns s; double correction, momentum, eps; };
struct Moments { W count, mean, squares, base; }; // the mean is counted from the base, the column's first element
struct Join {
    __device__ Moments operator()(Moments x, Moments y) const {
        const W count = x.count + y.count;
        if (y.count == 0) return x;
        if (x.count == 0) return y;
        const W apart = y.mean - x.mean, part = y.count / count;
        return {count, x.mean + apart * part, x.squares + y.squares + apart * apart * x.count * part, x.base};
    }
};

// A thread adds up how far its elements are from one of them, and the squares of that: such sums do not cancel, and the one
// element that is far from all others is among them.
extern "C" __launch_bounds__(THREADS) __global__ void moments(const Batch f, Moments *parts, const A *x) {
    for (Task t(f.s); t.more(); t.next()) {
        W near[OWN], sum[RUN], squares[RUN], count = 0;
        FOR_RUN sum[j] = squares[j] = 0;
        t.each([&](long at, long) {
            W v[RUN];
            fetch_run(x + at, v);
            if (count == 0) {
                FOR_OWN near[j] = v[j];
            }
            count += 1;
            FOR_RUN {
                const W apart = v[j] - near[SIDE ? j : 0];
                sum[j] += apart, squares[j] += apart * apart;
            }
        });
        if (!SIDE) for (int j = 1; j < RUN; j++) sum[0] += sum[j], squares[0] += squares[j];
        Moments own[OWN];
        if (!SIDE) count *= RUN;
        FOR_OWN {
            const W mean = count == 0 ? 0 : sum[j] / count, rest = squares[j] - sum[j] * mean;
            const W base = t.real ? (W)value_of(x[(t.c + j) * f.s.inner]) : 0;
            own[j] = {count, count == 0 ? 0 : near[j] - base + mean, rest < 0 ? 0 : rest, base};
        }
        t.meet(own, Join());
        if (t.first()) {
            FOR_OWN parts[t.chunk * f.s.columns + t.c + j] = own[j];
        }
    }
}

extern "C" __launch_bounds__(LAST) __global__ void spread(const Batch f, R *o, R *means, const Moments *parts) {
    const long n = f.s.columns;
    FOR_LAST(c, n) {
        const Moments m = together(parts + c, c < n, f.s.chunks, n, {0, 0, 0, 0}, Join());
        if (c >= n || threadIdx.x >= EIGHT) continue;
        const W free = m.count - (W)f.correction, made = m.squares / (free > 0 ? free : 0);
        o[c] = to<R>(ROOT ? sqrt(made) : made);
        means[c] = to<R>(m.base + m.mean);
    }
}

// mean and 1 / deviation; the running statistics move towards the batch's.
extern "C" __launch_bounds__(LAST) __global__ void statistics(const Batch f, W *mean, W *inverse, P *running_mean,
                                                              P *running_var, const Moments *parts) {
    const long n = f.s.columns;
    FOR_LAST(c, n) {
        const Moments m = together(parts + c, c < n, f.s.chunks, n, {0, 0, 0, 0}, Join());
        if (c >= n || threadIdx.x >= EIGHT) continue;
        const W var = m.squares / m.count, free = m.count > 1 ? m.count - 1 : 1, pace = (W)f.momentum;
        const W middle = m.base + m.mean;
        mean[c] = middle;
        inverse[c] = 1 / sqrt(var + (W)f.eps);
        if (RUNNING) {
            running_mean[c] = to<P>((1 - pace) * (W)value_of(running_mean[c]) + pace * middle);
            running_var[c] = to<P>((1 - pace) * (W)value_of(running_var[c]) + pace * (m.squares / free));
        }
    }
}
"""
_APPLIED = """
struct Applied { Columns s; double eps; };

// EVAL: the statistics are a variance, not 1 / deviation.
static __device__ inline W inverse_of(S x, const Applied &f) {
    return EVAL ? 1 / sqrt((W)value_of(x) + (W)f.eps) : (W)value_of(x);
}
#define COLUMN (SIDE ? j : 0)

extern "C" __launch_bounds__(THREADS) __global__ void normalised(
        const Applied f, A *__restrict__ o, const A *__restrict__ x, const S *mean, const S *inverse, const P *weight,
        const P *bias) {
    for (Task t(f.s); t.more(); t.next()) {
        W middle[OWN], over[OWN], scale[OWN], more[OWN];
        if (t.real) {
            FOR_OWN {
                middle[j] = (W)value_of(mean[t.c + j]), over[j] = inverse_of(inverse[t.c + j], f);
                scale[j] = WEIGHT ? (W)value_of(weight[t.c + j]) : 1, more[j] = BIAS ? (W)value_of(bias[t.c + j]) : 0;
            }
        }
        t.each([&](long at, long) {
            W v[RUN];
            fetch_run(x + at, v);
            FOR_RUN v[j] = (v[j] - middle[COLUMN]) * over[COLUMN] * scale[COLUMN] + more[COLUMN];
            store_run(o + at, v);
        });
    }
}

// sums: (2, columns), of the gradients and of their products with what was normalised.
extern "C" __launch_bounds__(THREADS) __global__ void gradient(
        const Applied f, G *__restrict__ o, const G *__restrict__ g, const A *__restrict__ x, const S *mean, const S *inverse,
        const P *weight, const W *sums) {
    const W share = (W)1 / (W)(f.s.outer * f.s.inner);
    for (Task t(f.s); t.more(); t.next()) {
        W middle[OWN], scale[OWN], sum[OWN], dot[OWN];
        if (t.real) {
            FOR_OWN {
                const W over = (W)value_of(inverse[t.c + j]);
                middle[j] = (W)value_of(mean[t.c + j]), scale[j] = over * (WEIGHT ? (W)value_of(weight[t.c + j]) : 1);
                sum[j] = TRAINING ? sums[t.c + j] * share : 0;
                dot[j] = TRAINING ? sums[f.s.columns + t.c + j] * share * over : 0;
            }
        }
        t.each([&](long at, long) {
            W v[RUN], d[RUN];
            fetch_run(g + at, d);
            if (TRAINING) fetch_run(x + at, v);
            FOR_RUN {
                if (TRAINING) d[j] -= sum[COLUMN] + (v[j] - middle[COLUMN]) * dot[COLUMN];
                d[j] *= scale[COLUMN];
            }
            store_run(o + at, d);
        });
    }
}
"""


def _parts(chunks: int, columns: int, w: str) -> CudaArray:
    return windows.empty((4 * chunks, columns), WIDE[w])


def _run(*dtypes: Any) -> int:
    return 16 // max([d.itemsize for d in dtypes])


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
    numbers, device = struct.pack("3d", correction, 0, 0), device_index(x)
    first, chunks = column_plan(_TEXT, "moments", types, flags, "pp", sizes, _run(x.dtype), numbers, device)
    parts = _parts(chunks, sizes[1], w)
    first.run(parts, dense)
    joining_plan(_TEXT, "spread", types, flags, "ppp", sizes[1], chunks, numbers, device).run(out, means, parts)
    return rule


def _entered(name: str, root: bool) -> None:
    @enter(name)
    def spread(x: CudaArray, axes: Any, correction: float, keepdim: bool) -> Any:
        return _spread(name, (x, axes, correction, keepdim), root)


for _name in ("var", "std", "var_mean", "std_mean"):
    _entered(_name, _name[0] == "s")


# ---------------------------------------------------------------------------------------------------------- batch norm
_BUSY = 16  # blocks of a multiprocessor, for kernels that leave no parts behind


def _order(x: CudaArray) -> list[int] | None:
    """The order of dimensions in which channels-last images lie densely; None for all others."""
    if x.ndim < 4 or x.flags.c_contiguous:
        return None
    order = [0, *range(2, x.ndim), 1]
    return order if x.transpose(order).flags.c_contiguous else None


def _laid(x: CudaArray, order: list[int] | None) -> CudaArray:
    """An array, dense in an order of its dimensions."""
    return contiguous(x if order is None else x.transpose(order))


def _target(out: CudaArray, order: list[int] | None) -> tuple[CudaArray, CudaArray]:
    """A result in that order, and what a kernel writes for it."""
    target = out if order is None else out.transpose(order)
    return target, into(target)


def _sizes(x: CudaArray, order: list[int] | None) -> tuple[int, int, int]:
    per = math.prod(x.shape[2:])
    return (x.shape[0], x.shape[1], per) if order is None else (x.shape[0] * per, x.shape[1], 1)


@enter("batch_norm", repeatable=True)
def batch_norm(x: CudaArray, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
               eps: float) -> Any:
    given = weight if weight is not None else bias
    if not all([a is None or is_real(a) for a in (x, weight, bias, running_mean, running_var)]) or not x.size or (
            weight is not None and bias is not None and weight.dtype != bias.dtype):
        return NotImplemented
    out, mean, inverse = blank("batch_norm", x, weight, bias, running_mean, running_var, training, momentum, eps)
    order = _order(x)
    dense, sizes = _laid(x, order), _sizes(x, order)
    weight, bias = (None if a is None else contiguous(a) for a in (weight, bias))
    used = mean, inverse
    if training:
        _statistics(dense, sizes, mean, inverse, running_mean, running_var, momentum, eps)
    else:
        used = contiguous(running_mean), contiguous(running_var)
    types = (*typed(A=x.dtype, G=x.dtype, S=used[0].dtype, P=x.dtype if given is None else given.dtype), ("W", wide(x.dtype)))
    flags = (("EVAL", int(not training)), ("WEIGHT", int(weight is not None)), ("BIAS", int(bias is not None)), ("TRAINING", 0))
    target, made = _target(out, order)
    column_plan(_APPLIED, "normalised", types, flags, "pppppp", sizes, _run(x.dtype), struct.pack("d", eps), device_index(x),
                _BUSY)[0].run(made, dense, *used, used[0] if weight is None else weight, used[0] if bias is None else bias)
    settled(made, target)
    return out, mean, inverse


def _statistics(x: CudaArray, sizes: tuple[int, int, int], mean: CudaArray, inverse: CudaArray, running_mean: Any,
                running_var: Any, momentum: float, eps: float) -> None:
    w, device = wide(x.dtype), device_index(x)
    running = None if running_mean is None or running_var is None else (contiguous(running_mean), contiguous(running_var))
    types = (*typed(A=x.dtype, R=x.dtype, G=x.dtype, P=x.dtype if running is None else running[0].dtype), ("W", w))
    flags, numbers = (("ROOT", 0), ("RUNNING", int(running is not None))), struct.pack("3d", 0, momentum, eps)
    first, chunks = column_plan(_TEXT, "moments", types, flags, "pp", sizes, _run(x.dtype), numbers, device)
    parts = _parts(chunks, sizes[1], w)
    first.run(parts, x)
    joining_plan(_TEXT, "statistics", types, flags, "ppppp", sizes[1], chunks, numbers, device).run(
        mean, inverse, *(running or (mean, inverse)), parts)
    for kept, changed in zip(running or (), (running_mean, running_var)):
        if kept is not changed:
            copied(kept, changed)


@enter("batch_norm_grad", repeatable=True)
def batch_norm_grad(g: CudaArray, x: CudaArray, weight: Any, mean: CudaArray, inverse: CudaArray, training: bool,
                    needs: Any) -> Any:
    if not is_real(x) or not is_real(g) or not x.size:
        return NotImplemented
    dx, dw, db = blank("batch_norm_grad", g, x, weight, mean, inverse, training, needs)
    order, kind = _order(x), mean.dtype
    dense, g, sizes = _laid(x, order), _laid(g, order), _sizes(x, order)
    mean, inverse = (contiguous(s) if s.dtype == kind else copied(s, windows.empty(s.shape, kind)) for s in (mean, inverse))
    sums = None
    if training or dw is not None or db is not None:
        sums = column_sums(g, dense, mean, inverse, sizes, 0, 1, dw, db)
    if dx is not None:
        weight = None if weight is None else contiguous(weight)
        types = (*typed(A=x.dtype, G=g.dtype, S=mean.dtype, P=x.dtype if weight is None else weight.dtype),
                 ("W", wide(x.dtype)))
        flags = (("EVAL", 0), ("WEIGHT", int(weight is not None)), ("BIAS", 0), ("TRAINING", int(training)))
        target, made = _target(dx, order)
        column_plan(_APPLIED, "gradient", types, flags, "ppppppp", sizes, _run(x.dtype, g.dtype), struct.pack("d", 0.0),
                    device_index(x), _BUSY)[0].run(made, g, dense, mean, inverse, mean if weight is None else weight,
                                                   mean if sums is None else sums)
        settled(made, target)
    return dx, dw, db
