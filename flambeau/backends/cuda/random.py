"""Random numbers on the device, those of PyTorch's CUDA generator: `draw_<kind>(words, shape, dtype, ...)`, as in cpu/random.

Each thread has a Philox stream of its own, whose number is the thread's. Which thread makes which element, and so which number
goes where, depends on how many threads there are: PyTorch starts 256 to a block, and at most as many blocks as the device
can run at once; each takes four words at a time, for elements that lie as far apart as there are threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ..cpu.random.integers import int_bounds
from ..cpu.random.kernels import memory_order
from ..dtypes import native
from .arrays import CudaArray, device_index, windows
from .backend import call, copied
from .driver import machine
from .launch import Plan, plan_of
from .philox import advance
from .pointwise import STORED
from .table import kernel

_THREADS = 256
_BF16, _F16, _F32, _F64 = native("bfloat16"), np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
_FLOATS = (_F32, _F64, _F16, _BF16)

_DRAWN = """// {name}
#include "elements.cuh"
#include "philox.cuh"
typedef {stored} R;
typedef {wide} T;
extern "C" __global__ void drawn(const long count, R *o, unsigned long seed, unsigned long offset, {kind} first_,
                                 {kind} second_) {{
    const long thread = (long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long)gridDim.x * blockDim.x;
    {numbers}
    Stream stream = stream_of(seed, thread, offset);
    for (long at = thread; at < count; at += threads * {source}<T>::COUNT) {{
        T values[{source}<T>::COUNT];
        {source}<T>::draw(stream, values);
        #pragma unroll
        for (int k = 0; k < {source}<T>::COUNT; k++) {{
            const long i = at + threads * k;
            const T a = values[k];
            if (i < count) {{ {value} }}
        }}
    }}
}}
"""


class _Kind(NamedTuple):
    """source: what the words make. numbers: what is made of a launch's two, once. value: the statement for each element."""

    source: str
    numbers: str
    value: str


_PLAIN = "const T first = (T)first_, second = (T)second_;"
_KINDS = {
    # Rounded to the elements' type first, as are the bounds. The number 1 becomes the lower bound.
    "uniform": _Kind("Uniform", """const R low = to<R>((T)first_), high = to<R>((T)second_);
    const T first = (T)value_of(low), top = (T)value_of(high), span = (T)value_of(to<R>(top - first));""",
                     "const R e = to<R>(joined(a, span, first)); o[i] = (T)value_of(e) == top ? low : e;"),
    "normal": _Kind("Normal", _PLAIN, "o[i] = to<R>(joined(a, second, first));"),
    "log_normal": _Kind("Normal", _PLAIN, "o[i] = to<R>(quick_exp(joined(a, second, first)));"),
    "exponential": _Kind("Uniform", "const T scale = (T)-1 / (T)first_;",
                         "o[i] = to<R>(scale * (a >= (T)1 - epsilon<T>() / 2 ? -epsilon<T>() / 2 : quick_log(a)));"),
    "cauchy": _Kind("Uniform", _PLAIN, "o[i] = to<R>(joined(second, quick_tan((T)M_PI * (inside(a) - (T)0.5)), first));"),
    "geometric": _Kind("Uniform", "const T below = quick_log1p(-(T)first_);", "o[i] = to<R>((T)ceil(quick_log(a) / below));"),
    "bernoulli": _Kind("Uniform", _PLAIN, "o[i] = to<R>(a < first ? (T)1 : (T)0);"),
    "int": _Kind("Bits", "const unsigned long first = first_, span = second_;",
                 "o[i] = to<R>({whole}((long)((span ? a % span : a) + first)));"),
}
_plans: dict[Any, tuple[Plan, int]] = {}


def blocks_of(count: int, device: int) -> int:
    """As many as there is work for, and the device can run at once."""
    at_once = machine().attribute("threads_per_multiprocessor", device) // _THREADS
    return min(machine().attribute("multiprocessors", device) * at_once, -(-count // _THREADS))


def used_words(count: int, blocks: int, at_a_time: int) -> int:
    """What each stream gives."""
    return ((count - 1) // (_THREADS * blocks * at_a_time) + 1) * 4


def _text(name: str, kind: _Kind, dtype: np.dtype, wide: str) -> str:
    whole = kind.source == "Bits"
    value = kind.value.replace("{whole}", "(float)" if dtype in (_BF16, _F16) else "") if whole else kind.value
    return _DRAWN.format(name=f"{name} of {dtype}", stored=STORED[dtype], wide=wide, kind="long" if whole else "double",
                         source=kind.source, numbers=kind.numbers, value=value)

def _fill(words: ndarray, out: CudaArray, name: str, first: Any, second: Any, wide: str | None = None) -> None:
    """Draws of a kind for all elements of a contiguous array; numbers that PyTorch computes in single precision likewise."""
    if not out.size:
        return
    if out.dtype not in STORED:
        raise NotImplementedError(f"random numbers of {out.dtype} on a CUDA device")
    wide = wide or ("double" if out.dtype == _F64 else "float")
    key = (name, out.dtype, out.size, wide, device_index(out))
    found = _plans.get(key)
    if found is None:
        if len(_plans) > 1 << 12:
            _plans.clear()
        kind, blocks = _KINDS[name], blocks_of(out.size, key[-1])
        plan = plan_of(_text(name, kind, out.dtype, wide), "drawn", key[-1], blocks, _THREADS, "pll" + (
            "ll" if kind.source == "Bits" else "dd"), out.size.to_bytes(8, "little"))
        found = _plans[key] = plan, used_words(out.size, blocks, 4 if wide in ("float", "unsigned") else 2)
    plan, used = found
    plan.run(out, *advance(words, used), first, second)


# --------------------------------------------------------------------------------------------------- kinds of numbers
_FILLS: dict[str, Callable[..., None]] = {}


def _filling(fill: Callable[..., None]) -> Callable[..., None]:
    """Enters `_<kind>(words, out, ...)`, which fills a contiguous array, as what `draw_<kind>` does."""
    name = f"draw{fill.__name__}"
    _FILLS[name] = fill

    @kernel(name)
    def draw(words: ndarray, shape: Any, dtype: np.dtype, *args: Any) -> CudaArray:
        out = windows.empty(shape, dtype)
        draw_into(words, out, name, args)
        return out
    return fill


def _reals(out: CudaArray) -> CudaArray:
    """Complex numbers as pairs of real ones."""
    return ndarray.view(out[..., None], out.real.dtype) if out.dtype.kind == "c" else out


@_filling
def _uniform(words: ndarray, out: CudaArray, low: float = 0.0, high: float = 1.0) -> None:
    _fill(words, _reals(out), "uniform", low, high)


@_filling
def _normal(words: ndarray, out: CudaArray, mean: Any = 0.0, std: Any = 1.0, contiguous: bool = True) -> None:
    """mean and std: numbers, or arrays, which are added and multiplied afterwards."""
    arrays = [isinstance(v, ndarray) for v in (mean, std)]
    if out.dtype.kind == "c":
        _fill(words, _reals(out), "normal", 0.0, (1.0 if arrays[1] else std) / math.sqrt(2))
    else:
        _fill(words, out, "normal", 0.0 if any(arrays) else mean, 1.0 if arrays[1] else std)
    if arrays[1]:
        copied(call("mul", (out, std if std.dtype == out.dtype else copied(std, windows.empty(std.shape, out.dtype)))), out)
    if arrays[0] or (mean and (arrays[1] or out.dtype.kind == "c")):
        mean = mean if arrays[0] else np.asarray(mean, out.dtype)
        mean = mean if mean.dtype == out.dtype else copied(mean, windows.empty(mean.shape, out.dtype))
        copied(call("add", (out, mean)), out)


@_filling
def _bernoulli(words: ndarray, out: CudaArray, p: Any = 0.5) -> None:
    if isinstance(p, ndarray):
        _bernoulli_each(words, out, p)
    else:
        _fill(words, out, "bernoulli", p, 0.0)


@_filling
def _int(words: ndarray, out: CudaArray, low: int, high: int | None) -> None:
    low, high = int_bounds(out.dtype, low, high)
    span = high - low
    _fill(words, out, "int", low & _MASK, span & _MASK, "unsigned long" if span >= 1 << 28 else "unsigned")


_MASK = 0xFFFFFFFFFFFFFFFF


@_filling
def _full(words: ndarray, out: CudaArray) -> None:
    """`random_()`: the non-negative half of whole types, and of floating ones what they hold exactly."""
    dtype = out.dtype
    if dtype in _FLOATS:
        span = (1 << {_F32: 24, _F64: 53, _F16: 11, _BF16: 8}[dtype]) + 1
    else:
        span = 2 if dtype.kind == "b" else int(np.iinfo(dtype).max) + 1
    _fill(words, out, "int", 0, span & _MASK, "unsigned long" if dtype.itemsize == 8 else "unsigned")


@_filling
def _exponential(words: ndarray, out: CudaArray, rate: float) -> None:
    _fill(words, out, "exponential", rate, 0.0)


@_filling
def _geometric(words: ndarray, out: CudaArray, p: float) -> None:
    _fill(words, out, "geometric", p, 0.0)


@_filling
def _cauchy(words: ndarray, out: CudaArray, median: float, sigma: float) -> None:
    _fill(words, out, "cauchy", median, sigma)


@_filling
def _log_normal(words: ndarray, out: CudaArray, mean: float, std: float) -> None:
    _fill(words, out, "log_normal", mean, std)


def draw_into(words: ndarray, out: CudaArray, name: str, args: tuple[Any, ...]) -> None:
    """Fills an array of any strides, in the order of its memory."""
    fill = _FILLS.get(name)
    if fill is None:
        raise NotImplementedError(f"flambeau has no CUDA kernel for '{name}' yet")
    order, _ = memory_order(out)
    args = tuple([_laid(a, out.shape, order) if isinstance(a, ndarray) else a for a in args])
    target = out if order is None else out.transpose(order)
    dense = target if target.flags.c_contiguous else windows.empty(target.shape, target.dtype)
    fill(words, dense, *args)
    if dense is not target:
        copied(dense, target)


def _laid(x: ndarray, shape: tuple[int, ...], order: list[int] | None) -> CudaArray:
    """An argument, one of the host's too, expanded and in the order of the target's dimensions."""
    x = call("expand", (copied(x, windows.empty(x.shape, x.dtype)) if type(x) is not CudaArray else x, shape))
    return x if order is None else x.transpose(order)


# ---------------------------------------------------------------------------------------------- chances for each element
_EACH = """// ones with a probability for each element
#include "elements.cuh"
#include "philox.cuh"
typedef {stored} R;
typedef {wide} T;
extern "C" __global__ void each(const long count, R *o, const T *p, unsigned long seed, unsigned long offset) {{
    const long thread = (long)blockIdx.x * blockDim.x + threadIdx.x, from = thread * 4;
    if (from >= count) return;
    Stream stream = stream_of(seed, thread, offset);
    const Words words = stream.next();
    for (int k = 0; k < 4 && from + k < count; k++) o[from + k] = to<R>(unit(words.at[k]) <= p[from + k] ? 1.0f : 0.0f);
}}
"""


def _bernoulli_each(words: ndarray, out: CudaArray, p: CudaArray) -> None:
    """A thread makes four elements that lie side by side. Chances outside of [0, 1] are not noticed, as by PyTorch's."""
    wide = _F64 if out.dtype == _F64 else _F32
    chances, device = copied(p, windows.empty(out.shape, wide)), device_index(out)
    text = _EACH.format(stored=STORED[out.dtype], wide="double" if wide == _F64 else "float")
    plan = plan_of(text, "each", device, -(-out.size // 2048), 512, "ppll", out.size.to_bytes(8, "little"))
    plan.run(out, chances, *advance(words, 10))
