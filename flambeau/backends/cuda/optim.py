"""Optimizer updates of many tensors in one launch, and clipping of gradients by their norm (as cpu/layers/optim.py).

A table in the device's memory holds the sizes and addresses of all tensors, and behind them the pieces that blocks share.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ...native.toolchain import HERE
from ..cpu.layers.optim import RULES
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
#define GIVEN(what) (what)
#define SQUARE_TIMES(x, factor) (factor * x * x)  // rounded otherwise than in C
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


# -------------------------------------------------------------------------------------------------------------- rules
class _Rule(NamedTuple):
    """What native/optim_rules.h says of an optimizer."""

    names: tuple[str, ...]  # of the numbers that travel with a launch
    numbers: Callable[..., tuple[float, ...]]  # these, of the step's count, the second count, and all hyper-parameters
    body: str               # the update of element k


def _declared(text: str) -> Iterator[tuple[str, str, str]]:
    """(type, name, expression in Python) of declarations in C."""
    for kind, names in re.findall(r"(T|double) (.*);", text):
        for one in re.split(r", (?=\w+ = )", names):
            name, value = one.split(" = ", 1)
            yield kind, name, re.sub(r"(.*) \? (.*) : (.*)", r"\2 if \1 else \3", value)


def _rule(arguments: str, per_tensor: str, per_element: str) -> _Rule:
    given = re.findall(r"\w+ (\w+)", arguments)
    declared = list(_declared(per_tensor))
    values = {"sign": "-1 if maximize else 1", "decay": "weight_decay", "little": "eps", "shrink": "1"}
    values.update({name: value for _, name, value in declared})
    inner = {name for kind, name, _ in declared if kind == "double"} | {"shrink"} - {name for _, name, _ in declared}
    names = tuple([name for name in values if name not in inner])
    lines = [f"def numbers(step, product, lr, {', '.join(given)}, maximize{'' if 'eps' in given else ', eps=0'}):",
             *[f"    {name} = {value}" for name, value in values.items()],
             f"    return {', '.join([f'float({name})' for name in names])}"]
    scope: dict[str, Any] = {"sqrt": math.sqrt}
    exec(compile("\n".join(lines), __file__, "exec"), scope)
    fixed = "const T shrink = 1;\n" if "shrink" in inner else ""
    return _Rule(names, scope["numbers"], f"{fixed}T gk = g[k] * sign, pk = p[k] * shrink;\n"
                                          f"if (decay != 0) gk = gk + pk * decay;\n{per_element}")


@functools.cache
def _rules() -> dict[str, _Rule]:
    form = r"^RULE\((\w+?)(?:_step)?, NUMBERS\((.*?)\),\s+\w+, \(\n(.*?)\n\), \(\n(.*?)\n\)\)$"
    found = re.findall(form, (HERE / "optim_rules.h").read_text(), re.M | re.S)
    return {name: _rule(*parts) for name, *parts in found}


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
    rule = _rules()[name]
    return _text(_UPDATE, dtype, parameters="".join([f", double {n}_" for n in rule.names]), body=rule.body,
                 numbers=" ".join([f"const T {n} = (T){n}_;" for n in rule.names]))


# ------------------------------------------------------------------------------------------------------------ updates
def _update(name: str, columns: tuple[_Arrays, ...], numbers: tuple[float, ...]) -> bool:
    found = _collected(*columns)
    if found is None:
        return False
    device, (table, *sizes) = found
    if sizes[1]:
        text = _rule_text(name, columns[0][0].dtype)
        _plan(text, "update", device, tuple(sizes), "p" + "d" * len(numbers)).run(table, *numbers)
    return True


def _counted(name: str, columns: tuple[_Arrays, ...], counts: tuple[list[Any], ...], numbers: tuple[Any, ...]) -> bool:
    """An update whose numbers depend on how many came before. Tensors that have come equally far share a launch."""
    if any([type(count) is CudaArray or count.ndim for some in counts for count in some]):
        return False
    if current.capture is not None and not current.capture.live:
        raise NotRecordable("Attempting CUDA graph capture of step() for an optimizer whose counts are on the host: a launch "
                            "would not move them. flambeau.compile makes graphs of whole training steps")
    steps = counts[0]
    products = _products(*counts, numbers) if len(counts) > 1 else [0.0] * len(steps)
    kinds: dict[Any, list[int]] = {}
    for i, step in enumerate(steps):
        kinds.setdefault((step.item() + 1, float(products[i])), []).append(i)
    if len(kinds) > 1 and _collected(*columns) is None:
        return False
    for reached, some in kinds.items():
        parts = tuple([[c[i] for i in some] if c else c for c in columns]) if len(kinds) > 1 else columns
        if not _update(name, parts, _rules()[name].numbers(*reached, *numbers)):
            return False
    for some, moved in zip(counts, ([step + 1 for step in steps], products)):
        for count, value in zip(some, moved):
            count[...] = value
    return True


def _products(steps: list[Any], products: list[Any], numbers: tuple[Any, ...]) -> list[Any]:
    """NAdam's products of all mu so far, with this step's (as in native/optim.c)."""
    beta1, momentum_decay, kind = numbers[1], numbers[5], products[0].dtype.type
    return [kind(product) * kind(beta1 * (1 - 0.5 * 0.96 ** ((step.item() + 1) * momentum_decay)))
            for step, product in zip(steps, products)]


def _enter(name: str, states: int, counts: int) -> None:
    @kernel(f"fused_{name}")
    def update(*args: Any) -> bool:
        columns, counted, numbers = args[:2 + states], args[2 + states:2 + states + counts], args[2 + states + counts:]
        if counted:
            return _counted(name, columns, counted, numbers)
        return _update(name, columns, _rules()[name].numbers(0, 0, *numbers))


for _name, (_states, _counts) in RULES.items():
    _enter(_name, len(_states.split()), len(_counts.split()))


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
