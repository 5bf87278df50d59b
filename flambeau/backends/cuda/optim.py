"""Optimizer updates of many tensors in one launch, and clipping of gradients by their norm (as cpu/layers/optim.py).

A table in the device's memory holds the sizes and addresses of all tensors, and behind them the pieces that blocks share.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import Any, NamedTuple

import numpy as np

from . import pinned
from .arrays import CudaArray, NotRecordable, device_index, upload, windows
from .driver import machine
from .launch import Plan, library
from .launch import kernel as built
from .streams import current
from .table import kernel

_Arrays = list[CudaArray]
_PIECE = 1 << 13    # elements of a piece, at most; a multiple of 4
_SMALLEST = 1 << 10  # and at least
_THREADS = 256
_COLUMNS = 6        # of a tensor: its size, then addresses: parameter, gradient, three parts of the state
_PRELUDE = """#include "elements.cuh"
typedef {T} T;
#define SQRT sqrt_{suffix}
#define ABS fabs_{suffix}
struct Head {{ long rows, pieces, piece; }};
// Runs the code with `row`, the tensor's entries of the table, and the elements [from, stop) of a block's piece.
#define PIECES(...) \\
    for (long piece = blockIdx.x; piece < h.pieces; piece += gridDim.x) {{ \\
        const long code = table[h.rows * 6 + piece], from = (code & 0xffffffff) * h.piece; \\
        const long *row = table + (code >> 32) * 6; \\
        const long stop = from + h.piece < row[0] ? from + h.piece : row[0]; \\
        __VA_ARGS__ \\
    }}
"""
_UPDATE = _PRELUDE + """
// Elements of an array in registers, to the update what the array is: it may not be there.
enum {{ RUN = 16 / sizeof(T) }};
struct Held {{
    Run<T, RUN> run;
    bool there;
    __device__ Held(const T *array, long k) : there(array) {{
        if (there) run = *(const Run<T, RUN> *)(array + k);
    }}
    __device__ void back(T *array, long k) const {{
        if (there) store(array + k, run);
    }}
    __device__ explicit operator bool() const {{ return there; }}
    __device__ T &operator[](long k) {{ return run.at[k]; }}
}};

extern "C" __global__ void update(const Head h, const long *table{parameters}) {{
    {numbers}
    const auto one = [&](auto &p, auto &g, auto &m, auto &v, auto &w, long k) {{
        {body}
    }};
    PIECES({{
        T *p = (T *)row[1], *m = (T *)row[3], *v = (T *)row[4], *w = (T *)row[5];
        const T *g = (const T *)row[2];
        const bool even = !((row[1] | row[2] | row[3] | row[4] | row[5]) & 15);
        const long middle = even ? from + (stop - from) / RUN * RUN : from;
        for (long k = from + threadIdx.x * RUN; k < middle; k += blockDim.x * RUN) {{
            Held hp(p, k), hg(g, k), hm(m, k), hv(v, k), hw(w, k);
            _Pragma("unroll")
            for (int j = 0; j < RUN; j++) one(hp, hg, hm, hv, hw, j);
            hp.back(p, k), hm.back(m, k), hv.back(v, k), hw.back(w, k);
        }}
        for (long k = middle + threadIdx.x; k < stop; k += blockDim.x) one(p, g, m, v, w, k);
    }})
}}
"""
_NORM = _PRELUDE + """
static __device__ inline double joined(double x, double y) {{ return {join}; }}
extern "C" __global__ void parts(const Head h, const long *table, double *made) {{
    __shared__ double met[256];
    PIECES({{
        const T *x = (const T *)row[1];
        double total = 0;
        for (long k = from + threadIdx.x; k < stop; k += blockDim.x) {{
            const double a = (double)x[k];
            total = joined(total, {term});
        }}
        met[threadIdx.x] = total;
        __syncthreads();
        for (int half = 128; half; half /= 2) {{
            if (threadIdx.x < half) met[threadIdx.x] = joined(met[threadIdx.x], met[threadIdx.x + half]);
            __syncthreads();
        }}
        if (!threadIdx.x) made[piece] = met[0];
        __syncthreads();
    }})
}}
extern "C" __global__ void whole(const Head h, T *out, const double *made) {{
    __shared__ double met[256];
    double total = 0;
    for (long k = threadIdx.x; k < h.pieces; k += blockDim.x) total = joined(total, made[k]);
    met[threadIdx.x] = total;
    __syncthreads();
    for (int half = 128; half; half /= 2) {{
        if (threadIdx.x < half) met[threadIdx.x] = joined(met[threadIdx.x], met[threadIdx.x + half]);
        __syncthreads();
    }}
    if (!threadIdx.x) *out = (T){finish};
}}
"""
_CLIP = _PRELUDE + """
extern "C" __global__ void clip(const Head h, const long *table, const T *norm, double most) {{
    T factor = (T)most / (*norm + (T)1e-6);
    if (factor > 1) factor = 1;
    if (factor == 1) return;
    PIECES({{
        T *p = (T *)row[1];
        for (long k = from + threadIdx.x; k < stop; k += blockDim.x) p[k] *= factor;
    }})
}}
"""


class _Rule(NamedTuple):
    """numbers: what travels with the launch, in this order; body: the update of element k."""

    numbers: str
    body: str


_DECAYED = "T gk = g[k] * sign, pk = p[k]; if (decay != 0) gk = gk + pk * decay;"
_SHRUNK = "T gk = g[k] * sign, pk = p[k] * shrink; if (decay != 0) gk = gk + pk * decay;"
_MOMENTS = _SHRUNK + """
            const T mk = m[k] + (gk - m[k]) * rest1; T vk = v[k] * keep2 + rest2 * gk * gk;
            m[k] = mk, v[k] = vk;"""
_RULES = {
    "adam": _Rule("sign decay shrink rest1 keep2 rest2 root eps rate", _MOMENTS + """
            if (w) w[k] = vk = vk > w[k] || vk != vk ? vk : w[k];
            p[k] = pk - mk / (SQRT(vk) / root + eps) * rate;"""),
    "sgd": _Rule("sign decay rate keep take ahead nesterov", _DECAYED + """
            if (m) {
                const T bk = m[k] * keep + gk * take;
                m[k] = bk;
                gk = nesterov != 0 ? gk + bk * ahead : bk;
            }
            p[k] = pk - gk * rate;"""),
    "rmsprop": _Rule("sign decay rate keep rest eps momentum", _DECAYED + """
            T vk = m[k] * keep + rest * gk * gk;
            m[k] = vk;
            if (w) {
                const T mean = w[k] + (gk - w[k]) * rest;
                w[k] = mean, vk = vk - mean * mean;
            }
            const T root = SQRT(vk) + eps;
            if (v) {
                const T bk = v[k] * momentum + gk / root;
                v[k] = bk, p[k] = pk - bk * rate;
            } else p[k] = pk - rate * gk / root;"""),
    "adagrad": _Rule("sign decay rate eps", _DECAYED + """
            const T sk = m[k] + gk * gk;
            m[k] = sk, p[k] = pk - rate * gk / (SQRT(sk) + eps);"""),
    "adadelta": _Rule("sign decay rate keep rest eps", _DECAYED + """
            const T vk = m[k] * keep + rest * gk * gk, dk = SQRT(v[k] + eps) / SQRT(vk + eps) * gk;
            m[k] = vk, v[k] = v[k] * keep + rest * dk * dk, p[k] = pk - dk * rate;"""),
    "adamax": _Rule("sign decay rate rest1 keep2 eps", _DECAYED + """
            const T mk = m[k] + (gk - m[k]) * rest1, old = v[k] * keep2; T size = ABS(gk) + eps;
            m[k] = mk, v[k] = size = size > old || size != size ? size : old;
            p[k] = pk - rate * mk / size;"""),
    "nadam": _Rule("sign decay shrink rest1 keep2 rest2 correction eps along ahead", _MOMENTS + """
            const T root = SQRT(vk / correction) + eps;
            p[k] = pk - along * gk / root - ahead * mk / root;"""),
    "radam": _Rule("sign decay shrink rest1 keep2 rest2 correction above ratio eps rate", _MOMENTS + """
            T change = mk / correction * rate;
            if (ratio != 0) change = change * (above / (SQRT(vk) + eps)) * ratio;
            p[k] = pk - change;"""),
}


# ------------------------------------------------------------------------------------------------------------- tables
class _Table(NamedTuple):
    """The table of tensors on the device: how many these are, how many pieces they have, and how many elements a piece has."""

    array: CudaArray
    rows: int
    pieces: int
    piece: int


@functools.lru_cache(64)
def _piece_numbers(sizes: bytes, multiprocessors: int) -> tuple[np.ndarray, int]:
    """The pieces of tensors of these sizes: the number of the tensor, and below it that of the piece; and how long they are.
    Few elements are cut into small ones, so that all multiprocessors have some."""
    sizes = np.frombuffer(sizes, np.int64)
    piece = min(max(1 << (int(sizes.sum()) // (8 * multiprocessors)).bit_length(), _SMALLEST), _PIECE)
    return np.concatenate([(i << 32) + np.arange(n, dtype=np.int64) for i, n in enumerate(-(-sizes // piece))]), piece


def _table(rows: np.ndarray, device: int) -> _Table:
    """Gradients lie elsewhere at every step, so the table is made anew; nobody waits for it to get there. In a graph they lie
    where they lay, and it keeps the table."""
    capture = current.capture
    key = None if capture is None else rows.tobytes()
    if capture is not None and key in capture.known:
        return capture.known[key]
    pieces, piece = _piece_numbers(rows[::_COLUMNS].tobytes(), machine().attribute("multiprocessors", device))
    made = _Table(upload(pinned.copied(np.concatenate([rows, pieces])), wait=False), len(rows) // _COLUMNS, len(pieces), piece)
    if capture is not None:
        capture.known[key] = made
    return made


@functools.cache
def _collect() -> Any:
    kinds = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return ctypes.PYFUNCTYPE(ctypes.c_long, *kinds)(("fl_cuda_collect", library()))


def _collected(*columns: _Arrays) -> tuple[int, _Table] | None:
    """(device, table); None where the arrays are not all plain ones of one type and device."""
    dtype, device, count = columns[0][0].dtype, device_index(columns[0][0]), len(columns[0])
    if dtype.char not in "fd":
        return None
    rows = np.empty(count * _COLUMNS, np.int64)
    lists = (ctypes.c_void_p * len(columns))(*map(id, columns))
    if not _collect()(ctypes.addressof(lists), len(columns), _COLUMNS, id(CudaArray), id(dtype), rows.ctypes.data):
        return None
    if machine().count > 1 and any([device_index(a) != device for column in columns for a in column]):
        return None
    return device, _table(rows, device)


@functools.cache
def _text(form: str, dtype: np.dtype, **fields: str) -> str:
    return form.format(T="float" if dtype.char == "f" else "double", suffix="f32" if dtype.char == "f" else "f64", **fields)


@functools.lru_cache(256)
def _plan(text: str, name: str, device: int, sizes: tuple[int, int, int], kinds: str, blocks: int | None = None) -> Plan:
    """sizes: rows, pieces and the length of a piece."""
    most = 16 * machine().attribute("multiprocessors", device)
    return Plan(built(text, name, device), device, min(sizes[1], most) if blocks is None else blocks, _THREADS, kinds,
                struct.pack("3q", *sizes))


@functools.cache
def _rule_text(name: str, dtype: np.dtype) -> str:
    rule = _RULES[name]
    names = rule.numbers.split()
    return _text(_UPDATE, dtype, parameters="".join([f", double {n}_" for n in names]), body=rule.body,
                 numbers=" ".join([f"const T {n} = (T){n}_;" for n in names]))


# ------------------------------------------------------------------------------------------------------------ updates
def _update(name: str, columns: tuple[_Arrays, ...], numbers: dict[str, float]) -> bool:
    found = _collected(*columns)
    if found is None:
        return False
    device, (table, *sizes) = found
    if sizes[1]:
        values = [float(numbers[n]) for n in _RULES[name].numbers.split()]
        text = _rule_text(name, columns[0][0].dtype)
        _plan(text, "update", device, tuple(sizes), "p" + "d" * len(values)).run(table, *values)
    return True


def _counted(name: str, columns: tuple[_Arrays, ...], steps: list[Any], numbers: Any, products: Any = None) -> bool:
    """An update whose numbers depend on how many came before. numbers: from the count of this step (and the product) to them.

    Tensors that have come equally far share a launch.
    """
    if any([type(s) is CudaArray or s.ndim for s in (*steps, *(products or ()))]):
        return False
    if current.capture is not None and not current.capture.live:
        raise NotRecordable("Attempting CUDA graph capture of step() for an optimizer whose counts are on the host: a launch "
                            "would not move them. flambeau.compile makes graphs of whole training steps")
    kinds: dict[Any, list[int]] = {}
    for i, step in enumerate(steps):
        kinds.setdefault((step.item() + 1, None if products is None else products[i].item()), []).append(i)
    if len(kinds) > 1 and _collected(*columns) is None:
        return False
    for (count, product), some in kinds.items():
        parts = tuple([[c[i] for i in some] if c else c for c in columns]) if len(kinds) > 1 else columns
        if not _update(name, parts, numbers(count) if products is None else numbers(count, product)):
            return False
    for step in steps:
        step += 1
    return True


def _base(weight_decay: float, maximize: bool, decoupled: bool = False, lr: float = 0.0) -> dict[str, float]:
    return dict(sign=-1 if maximize else 1, decay=0 if decoupled else weight_decay,
                shrink=1 - lr * weight_decay if decoupled else 1)


@kernel("fused_sgd")
def fused_sgd(params: _Arrays, grads: _Arrays, buffers: _Arrays, lr: float, momentum: float, dampening: float,
              weight_decay: float, nesterov: bool, maximize: bool, first: bool) -> bool:
    return _update("sgd", (params, grads, buffers), dict(
        _base(weight_decay, maximize), rate=lr, keep=0 if first else momentum, take=1 if first else 1 - dampening,
        ahead=momentum, nesterov=nesterov))


@kernel("fused_adam")
def fused_adam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, largest: _Arrays, steps: list[Any],
               lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool) -> bool:
    return _counted("adam", (params, grads, averages, squares, largest), steps, lambda count: dict(
        _base(weight_decay, maximize, decoupled, lr), rest1=1 - beta1, keep2=beta2, rest2=1 - beta2, eps=eps,
        root=math.sqrt(1 - beta2 ** count), rate=lr / (1 - beta1 ** count)))


@kernel("fused_rmsprop")
def fused_rmsprop(params: _Arrays, grads: _Arrays, squares: _Arrays, buffers: _Arrays, means: _Arrays, steps: list[Any],
                  lr: float, alpha: float, eps: float, weight_decay: float, momentum: float, maximize: bool) -> bool:
    numbers = dict(_base(weight_decay, maximize), rate=lr, keep=alpha, rest=1 - alpha, eps=eps, momentum=momentum)
    return _counted("rmsprop", (params, grads, squares, buffers, means), steps, lambda count: numbers)


@kernel("fused_adagrad")
def fused_adagrad(params: _Arrays, grads: _Arrays, sums: _Arrays, steps: list[Any], lr: float, lr_decay: float, eps: float,
                  weight_decay: float, maximize: bool) -> bool:
    return _counted("adagrad", (params, grads, sums), steps, lambda count: dict(
        _base(weight_decay, maximize), rate=lr / (1 + (count - 1) * lr_decay), eps=eps))


@kernel("fused_adadelta")
def fused_adadelta(params: _Arrays, grads: _Arrays, squares: _Arrays, deltas: _Arrays, steps: list[Any], lr: float, rho: float,
                   eps: float, weight_decay: float, maximize: bool) -> bool:
    numbers = dict(_base(weight_decay, maximize), rate=lr, keep=rho, rest=1 - rho, eps=eps)
    return _counted("adadelta", (params, grads, squares, deltas), steps, lambda count: numbers)


@kernel("fused_adamax")
def fused_adamax(params: _Arrays, grads: _Arrays, averages: _Arrays, largest: _Arrays, steps: list[Any], lr: float,
                 beta1: float, beta2: float, eps: float, weight_decay: float, maximize: bool) -> bool:
    return _counted("adamax", (params, grads, averages, largest), steps, lambda count: dict(
        _base(weight_decay, maximize), rate=lr / (1 - beta1 ** count), rest1=1 - beta1, keep2=beta2, eps=eps))


@kernel("fused_nadam")
def fused_nadam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, steps: list[Any], products: list[Any],
                lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, momentum_decay: float,
                decoupled: bool, maximize: bool) -> bool:
    part = lambda count: beta1 * (1 - 0.5 * 0.96 ** (count * momentum_decay))

    def numbers(count: float, before: float) -> dict[str, float]:
        mu, after = part(count), part(count + 1)
        product = float(kind(before) * kind(mu))
        return dict(_base(weight_decay, maximize, decoupled, lr), rest1=1 - beta1, keep2=beta2, rest2=1 - beta2, eps=eps,
                    correction=1 - beta2 ** count, along=lr * (1 - mu) / (1 - product),
                    ahead=lr * after / (1 - product * after))

    kind = products[0].dtype.type
    counts = [step.item() + 1 for step in steps] if not any([type(s) is CudaArray for s in steps]) else []
    if not _counted("nadam", (params, grads, averages, squares), steps, numbers, products):
        return False
    for product, count in zip(products, counts):
        product *= kind(part(count))
    return True


@kernel("fused_radam")
def fused_radam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, steps: list[Any], lr: float,
                beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool) -> bool:
    def numbers(count: float) -> dict[str, float]:
        above, longest = 1 - beta2 ** count, 2 / (1 - beta2) - 1
        length = longest - 2 * count * beta2 ** count / above
        ratio = math.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) if length > 5 else 0
        return dict(_base(weight_decay, maximize, decoupled, lr), rest1=1 - beta1, keep2=beta2, rest2=1 - beta2, eps=eps,
                    correction=1 - beta1 ** count, above=math.sqrt(above), ratio=ratio, rate=lr)

    return _counted("radam", (params, grads, averages, squares), steps, numbers)


# ----------------------------------------------------------------------------------------------------------- clipping
_ORDERS = {1: ("x + y", "fabs(a)", "met[0]"), 2: ("x + y", "a * a", "sqrt(met[0])"),
           math.inf: ("max_f64(x, y)", "fabs(a)", "met[0]")}


@kernel("fused_norm")
def fused_norm(arrays: _Arrays, order: float) -> Any:
    found = _collected(arrays) if order in _ORDERS else None
    if found is None:
        return False
    device, (table, *sizes) = found
    dtype = arrays[0].dtype
    join, term, finish = _ORDERS[order]
    text = _text(_NORM, dtype, join=join, term=term, finish=finish)
    made, out = windows.empty((sizes[1],), np.dtype(np.float64)), windows.empty((), dtype)
    if sizes[1]:
        _plan(text, "parts", device, tuple(sizes), "pp").run(table, made)
    _plan(text, "whole", device, tuple(sizes), "pp", 1).run(out, made)
    return out


@kernel("fused_clip")
def fused_clip(arrays: _Arrays, norm: CudaArray, max_norm: float) -> bool:
    found = _collected(arrays) if type(norm) is CudaArray and not norm.ndim and norm.dtype == arrays[0].dtype else None
    if found is None:
        return False
    device, (table, *sizes) = found
    if sizes[1]:
        text = _text(_CLIP, norm.dtype)
        _plan(text, "clip", device, tuple(sizes), "ppd").run(table, norm, float(max_norm))
    return True
