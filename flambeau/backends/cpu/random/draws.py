"""Random numbers of the CPU backend: PyTorch's CPU generator, number for number.

``Engine`` is the state behind ``torch.Generator`` (a 32-bit Mersenne twister plus the cached second
value of the last Box-Muller pair). Every other function of this module is a draw kernel
``f(engine, shape, dtype, ...) -> ndarray``: it advances the engine exactly as the PyTorch 2.13 CPU
kernel of the same name does and returns the same values. All kernels are serial in PyTorch too, so
the number of threads never matters, and since release 2.7 MKL's own streams are not used any more
(PyTorch issue 132395), so the CPU vendor does not matter either.

Order of the elements
    PyTorch hands the draws out in *memory* order of the output (strides sorted), not in logical
    order. The kernels return C-ordered arrays; a caller that fills a permuted but dense tensor draws
    with the permuted shape and assigns through the same permutation. Only ``normal`` depends on
    contiguity in another way: see its ``contiguous`` parameter.

How close to PyTorch
    Bit for bit, all dtypes: rand / uniform, randint / random_, randperm (n below 2**32 / 20),
    normal / randn on every path (float32 repeats the fused multiply-adds of PyTorch's vector kernel;
    float64 goes through the same libm, element by element, hence slower), bernoulli and dropout
    masks, exponential, geometric, log_normal, cauchy, standard_gamma, multinomial (the order of exact
    ties aside).
    Same draws, last places may differ: dirichlet in float64 (2 ulp; the order of its sum).
    Same results unless an accept/reject test falls within rounding error of its bound (none seen):
    poisson, binomial, standard_gamma, dirichlet.
    Not checked against PyTorch: randperm for n >= 2**32 / 20 (a 64-bit variant; it takes gigabytes).
    On a C library other than PyTorch's, float64 results may differ in the last place.
"""

from __future__ import annotations

import math

import numpy as np

from ...dtypes import COMPLEX, PARTS
from .engine import (
    _MASK24,
    _MASK53,
    Engine,
    _cast,
    _f32,
    _f64,
    _fma64,
    _libm,
    _shape,
    _u24,
    _u53,
)
from .integers import random_full, random_int, randperm
from .normals import log_normal, normal, randn
from .rejection import binomial, dirichlet, poisson, standard_gamma

__all__ = [
    "Engine",
    "bernoulli",
    "binomial",
    "cauchy",
    "dirichlet",
    "dropout_mask",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "randn",
    "random_full",
    "random_int",
    "randperm",
    "standard_gamma",
    "uniform",
]


def uniform(engine, shape, dtype=np.float32, low=0.0, high=1.0):
    """``tensor.uniform_(low, high)``: one output per element, two for float64.

    The range is applied with one fused multiply-add. float16 and bfloat16 draw a float32 value and
    round it. A value rounded up to ``high`` becomes ``low``. Complex dtypes fill (real, imag) pairs.
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    if dtype.kind in COMPLEX:
        return uniform(engine, 2 * n, PARTS[dtype], low, high).view(dtype).reshape(shape)
    if dtype == _f64:
        low, high = float(low), float(high)
        out = _u53(engine, n)
        if low != 0.0 or high != 1.0:
            out = _fma64(out, high - low, low)
            out[out == high] = low
        return out.reshape(shape)
    lo, hi = np.float32(low), np.float32(high)
    if lo == 0.0 and hi == 1.0:
        out = _u24(engine, n)
    else:
        span = float(hi - lo) * 2.0**-24
        out = ((engine.draw32(n) & _MASK24).view(np.int32) * span + float(lo)).astype(np.float32)
        out[out == hi] = lo
    if dtype != _f32:
        out = out.astype(dtype)
        out[out == dtype.type(hi)] = dtype.type(lo)
    return out.reshape(shape)


def rand(engine, shape, dtype=np.float32):
    return uniform(engine, shape, dtype)


# -- Bernoulli ------------------------------------------------------------------------------------


def _bernoulli_mask(engine, n, p):
    """Booleans, True with the scalar probability ``p``: a 53-bit uniform below ``p``."""
    return (engine.draw64(n) & _MASK53) < np.uint64(math.ceil(p * 2.0**53))


def bernoulli(engine, shape, dtype=np.float32, p=0.5):
    """``tensor.bernoulli_(p)`` for a scalar or an array ``p`` (``torch.bernoulli`` passes its input).

    A scalar takes two outputs per element whatever the dtype. An array takes two per element when
    it is float64 and one otherwise; it must broadcast to ``shape``.
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    if not isinstance(p, np.ndarray):
        p = float(p)
        if not 0.0 <= p <= 1.0:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
        return _bernoulli_mask(engine, n, p).reshape(shape).astype(dtype, copy=False)
    p = np.broadcast_to(p, shape)
    draw = _u53 if p.dtype == _f64 else _u24
    if p.dtype != _f64:
        p = p.astype(np.float32, copy=False)
    if not np.all(fine := (p >= 0) & (p <= 1)):
        draw(engine, int(np.argmin(fine)))  # those before the first that is none
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    return np.less(draw(engine, n).reshape(shape), p).astype(dtype, copy=False)


def dropout_mask(engine, shape, p):
    """Booleans, True where ``F.dropout(x, p)`` keeps an element: ``bernoulli_(1 - p)`` of x's shape.

    ``torch.native_dropout`` draws the same way. For p = 0 and p = 1 ``F.dropout`` (and alpha and feature
    dropout) draws nothing, which is the caller's to know; ``native_dropout`` draws all the same.
    """
    shape, n = _shape(shape)
    return _bernoulli_mask(engine, n, 1.0 - float(p)).reshape(shape)


# -- inversion of one uniform ---------------------------------------------------------------------


def exponential(engine, shape, dtype=np.float32, lambd=1.0):
    """``tensor.exponential_``: ``-log1p(-u) / lambd`` of a 53-bit uniform, in float64 for every dtype."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    u = _u53(engine, n)
    np.negative(u, out=u)
    u = _libm(math.log1p, u) if dtype == _f64 else np.log1p(u, out=u)
    u *= -1.0 / float(lambd)
    return _cast(u, dtype).reshape(shape)


def geometric(engine, shape, dtype=np.float32, p=0.5):
    """``tensor.geometric_``: ``ceil(log(u) / log1p(-p))``."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    with np.errstate(divide="ignore"):
        out = np.log(_u53(engine, n))
    out /= math.log1p(-float(p))
    return _cast(np.ceil(out, out=out), dtype).reshape(shape)


def cauchy(engine, shape, dtype=np.float32, median=0.0, sigma=1.0):
    """``tensor.cauchy_``: ``median + sigma * tan(pi * (u - 0.5))``."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    u = _u53(engine, n)
    u -= 0.5
    u *= math.pi
    out = _fma64(_libm(math.tan, u), float(sigma), float(median))
    with np.errstate(over="ignore"):
        return _cast(out, dtype).reshape(shape)


# -- multinomial ----------------------------------------------------------------------------------


def multinomial(engine, weights, num_samples, replacement=False):
    """``torch.multinomial`` of a 1-d or 2-d float array; int64 indices.

    Without replacement, and for a single sample in any case, an exponential is drawn for every weight
    and the largest weight/exponential ratios win. With replacement a 53-bit uniform per sample is
    looked up in the running sum of its row.
    """
    weights = np.asarray(weights)
    num_samples = int(num_samples)
    rows = weights if weights.ndim == 2 else weights[None]
    if not replacement or num_samples == 1:
        q = exponential(engine, weights.shape, weights.dtype).reshape(rows.shape)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            q = rows / q
        if num_samples == 1:
            out = np.argmax(q, axis=-1, keepdims=True)
        else:
            key = q if q.dtype == _f64 else q.astype(np.float32)
            out = np.argsort(-key, axis=-1, kind="stable")[:, :num_samples]
    else:
        u = _u53(engine, rows.shape[0] * num_samples).reshape(rows.shape[0], num_samples)
        out = np.empty(u.shape, np.int64)
        for row, draws, found in zip(rows, u, out):
            cum = _running_share(row)
            np.copyto(found, np.minimum(np.searchsorted(cum, draws, side="left"), row.size - 1))
    out = np.ascontiguousarray(out, dtype=np.int64)
    return out if weights.ndim == 2 else out[0]


def _running_share(row):
    """Running sum of a row divided by its total, as float64 values of the precision PyTorch keeps."""
    if row.dtype != _f64:
        row = row.astype(np.float32)
    cum = np.cumsum(row, dtype=row.dtype)
    if cum[-1] > 0:
        cum /= cum[-1]
    return cum.astype(np.float64)


# -- checks ---------------------------------------------------------------------------------------


def multinomial_problem(weights):
    """What is wrong with these weights, or None."""
    w = weights.astype(np.float64, copy=False)
    if not (np.isfinite(w).all() and (w >= 0).all()):
        return "invalid multinomial distribution: probability tensor contains either `inf`, `nan` or element < 0"
    if not (w.sum(-1) > 0).all():
        return "invalid multinomial distribution (sum of probabilities <= 0)"
    return None


def any_negative(x):
    return bool((x < 0).any())
