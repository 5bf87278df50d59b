"""Draws as kernels: `draw_<kind>(words, shape, dtype, ...)` makes an array of random numbers and moves a generator on.

`words` is the memory of a generator (random_engine.py), written in place; a kernel is thus a function of arrays like any other.
float32, float64 and integers are drawn by native/random.c, everything else (and all where there is no compiler) by random.py;
the numbers are the same. `out`, where given, is a contiguous array of that shape and dtype to draw into.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ...values import NUMBERS_ONLY
from .. import memory
from ..pointwise.dropout import noise_scale, scaled_mask
from ..table import KERNELS, kernel
from . import draws as random
from .engine import Engine
from .integers import _from_int

_over = Engine.over
_drawing = kernel(writes="words", safe=NUMBERS_ONLY)
EXPONENTIAL, GEOMETRIC, CAUCHY, LOG_NORMAL = range(4)  # as in random.c


def _given(out: ndarray | None, made: ndarray) -> ndarray:
    if out is None:
        return made
    out[...] = made
    return out


@_drawing
def draw_uniform(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, low: float = 0.0, high: float = 1.0,
                 out: ndarray | None = None) -> ndarray:
    native = library("random")
    char = dtype.char
    if native is None or (char != "f" and char != "d"):
        return _given(out, random.uniform(_over(words), shape, dtype, low, high))
    if out is None:
        out = memory.empty(shape, dtype)
    fill = native.fl_mt_uniform_f32 if char == "f" else native.fl_mt_uniform_f64
    fill(words, out, out.size, low, high)
    return out


@_drawing
def draw_normal(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, mean: Any = 0.0, std: Any = 1.0,
                contiguous: bool = True, out: ndarray | None = None) -> ndarray:
    native = library("random")
    char = dtype.char
    if native is None or (char != "f" and char != "d"):
        return _given(out, random.normal(_over(words), shape, dtype, mean, std, contiguous))
    if mean.__class__ is not float or std.__class__ is not float:
        return _normal_of_arrays(words, shape, dtype, mean, std, contiguous, out)
    if out is None:
        out = memory.empty(shape, dtype)
    fill = native.fl_mt_normal_f32 if char == "f" else native.fl_mt_normal_f64
    fill(words, out, out.size, mean, std, not contiguous, True)
    return out


def _normal_of_arrays(words, shape, dtype, mean, std, contiguous, out):
    """A mean or a deviation for each element."""
    if isinstance(std, ndarray):
        out = draw_normal(words, shape, dtype, 0.0, 1.0, contiguous, out)
        out *= std
    else:
        out = draw_normal(words, shape, dtype, 0.0, float(std), contiguous, out)
    out += mean if isinstance(mean, ndarray) else dtype.type(mean)
    return out


def rand(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, count: int) -> ndarray:
    """draw_uniform of [0, 1): a call in C with many arguments costs more than drawing a hundred numbers."""
    native = library("random")
    if native is None or dtype.char != "f" or count > _FEW:
        return draw_uniform(words, shape, dtype)
    out = np.empty(shape, dtype)
    native.fl_mt_rand_f32(words, out, count)
    return out


def randn(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, count: int) -> ndarray:
    """draw_normal of mean 0 and deviation 1, as `rand`."""
    native = library("random")
    if native is None or dtype.char != "f" or count > _FEW:
        return draw_normal(words, shape, dtype)
    out = np.empty(shape, dtype)
    native.fl_mt_randn_f32(words, out, count)
    return out


@_drawing
def draw_bernoulli(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, p: Any = 0.5,
                   out: ndarray | None = None) -> ndarray:
    native = library("random")
    if isinstance(p, ndarray) and native is not None and p.dtype.char in "fd" and p.shape == tuple(shape) and p.size:
        return _given(out, _bernoulli_each(words, p).astype(dtype, copy=False))
    if native is None or isinstance(p, ndarray) or not 0.0 <= p <= 1.0:
        return _given(out, random.bernoulli(_over(words), shape, dtype, p))
    made = out if out is not None and dtype.char in "fd?" else memory.empty(shape, dtype if dtype.char in "fd" else _BOOL)
    bound = math.ceil(p * 2.0**53)
    if made.dtype.char == "?":
        native.fl_mt_mask(words, made, made.size, bound)
    else:
        fill = native.fl_mt_noise_f32 if dtype.char == "f" else native.fl_mt_noise_f64
        fill(words, made, made.size, bound, 1.0)
    return made if made is out else _given(out, made.astype(dtype, copy=False))


def _bernoulli_each(words: ndarray, p: ndarray) -> ndarray:
    """Booleans with a probability each: a uniform number of p's dtype is below p."""
    if not (p.min() >= 0 and p.max() <= 1):  # those before the first that is none have been drawn
        draw_uniform(words, (int(np.argmin((p >= 0) & (p <= 1))),), p.dtype)
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    drawn = draw_uniform(words, p.shape, p.dtype)
    return np.less(drawn, p, out=memory.empty(p.shape, _BOOL))


@_drawing
def draw_noise(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, p: float) -> ndarray:
    """Factors of dropout: 0 with probability p, else 1 / (1 - p)."""
    native = library("random")
    if native is None or dtype.char not in "fd":
        return scaled_mask(_over(words), shape, dtype, p)
    out = memory.empty(shape, dtype)
    fill = native.fl_mt_noise_f32 if dtype.char == "f" else native.fl_mt_noise_f64
    fill(words, out, out.size, math.ceil((1.0 - p) * 2.0**53), noise_scale(dtype, p))
    return out


@kernel(writes="words")
def draw_dropout(words: ndarray, x: ndarray, p: float) -> tuple[ndarray, ndarray]:
    """(x * noise, noise) of a contiguous x."""
    native = library("random")
    dtype = x.dtype
    if native is None or dtype.char not in "fd":
        noise = draw_noise(words, x.shape, dtype, p)
        return np.multiply(x, noise, out=memory.empty(x.shape, dtype)), noise
    noise, out = memory.empty(x.shape, dtype), memory.empty(x.shape, dtype)
    run = native.fl_mt_dropout_f32 if dtype.char == "f" else native.fl_mt_dropout_f64
    bound, scale = math.ceil((1.0 - p) * 2.0**53), noise_scale(dtype, p)
    run(words, x, noise, out, out.size, bound, scale)
    return out, noise


@_drawing
def draw_int(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, low: int, high: int | None,
             out: ndarray | None = None) -> ndarray:
    native = library("random")
    if native is None or high is None or not -_I63 <= low < _I63 or not 0 < high - low < _I63 or (
            dtype.kind not in "biu" or dtype.char in "LQ"):
        return _given(out, random.random_int(_over(words), shape, dtype, low, high))
    made = out if out is not None and dtype == _I64 else memory.empty(shape, _I64)
    native.fl_mt_below(words, made, made.size, high - low, low)
    return made if made is out else _given(out, _from_int(made, dtype) if dtype != _I64 else made)


@kernel(writes="words", safe=False)
def draw_full(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, out: ndarray | None = None) -> ndarray:
    """`random_()`."""
    return _given(out, random.random_full(_over(words), shape, dtype))


@_drawing
def draw_permutation(words: ndarray, n: int, dtype: np.dtype) -> ndarray:
    native = library("random")
    if native is None or n >= 0xFFFFFFFF // 20:
        return random.randperm(_over(words), n, dtype)
    out = memory.empty((n,), _I64)
    native.fl_mt_permute(words, out, n)
    return out if dtype == _I64 else _from_int(out, dtype)


def _bent(kind: int, reference: Any, parameters: Any) -> Any:
    def draw(words: ndarray, shape: tuple[int, ...], dtype: np.dtype, first: float, second: float = 0.0,
             out: ndarray | None = None) -> ndarray:
        native = library("random")
        char = dtype.char
        if native is None or (char != "f" and char != "d"):
            args = (first, second) if kind in (CAUCHY, LOG_NORMAL) else (first,)
            return _given(out, reference(_over(words), shape, dtype, *args))
        if out is None:
            out = memory.empty(shape, dtype)
        fill = native.fl_mt_bent_f32 if char == "f" else native.fl_mt_bent_f64
        fill(words, out, out.size, kind, *parameters(first, second))
        return out

    return draw


BENT = {
    "draw_exponential": (EXPONENTIAL, random.exponential, lambda rate, _: (-1.0 / rate, 0.0)),
    "draw_geometric": (GEOMETRIC, random.geometric, lambda p, _: (math.log1p(-p), 0.0)),
    "draw_cauchy": (CAUCHY, random.cauchy, lambda median, sigma: (median, sigma)),
    "draw_log_normal": (LOG_NORMAL, random.log_normal, lambda mean, std: (mean, std)),
}
for _name, _row in BENT.items():
    _drawing(_bent(*_row), name=_name)


def _given_parameters(reference: Any) -> Any:
    """A kernel of draws whose parameters are arrays."""
    def draw(words: ndarray, *args: Any) -> ndarray:
        return reference(_over(words), *args)

    return draw


for _reference in (random.poisson, random.binomial, random.standard_gamma):
    _name = "gamma" if _reference is random.standard_gamma else _reference.__name__
    kernel(_given_parameters(_reference), name=f"draw_{_name}", writes="words", batch="pointwise")
for _reference in (random.dirichlet, random.multinomial):
    kernel(_given_parameters(_reference), name=f"draw_{_reference.__name__}", writes="words")


def memory_order(x: ndarray) -> tuple[list[int] | None, list[int] | None]:
    """The dimensions of an array from the slowest in memory to the fastest, and the way back; None if they are in order."""
    if x.flags.c_contiguous or x.ndim < 2:
        return None, None
    order = sorted(range(x.ndim), key=lambda i: -x.strides[i])
    return order, sorted(range(x.ndim), key=order.__getitem__)


def fill(words: ndarray, x: ndarray, name: str, args: tuple[Any, ...]) -> None:
    """Writes draws of a kernel into an array, in the order of its memory."""
    draw = KERNELS[name]
    if x.flags.c_contiguous:
        draw(words, x.shape, x.dtype, *args, out=x)
        return
    order, _ = memory_order(x)
    if order is not None:
        args = tuple([np.broadcast_to(a, x.shape).transpose(order) if isinstance(a, ndarray) else a for a in args])
        x = x.transpose(order)
    x[...] = draw(words, x.shape, x.dtype, *args)


_BOOL, _I64 = np.dtype(np.bool_), np.dtype(np.int64)
_I63 = 1 << 63
_FEW = 1 << 15
DRAWS = tuple(name for name in KERNELS if name.startswith("draw_"))  # each writes its first argument
