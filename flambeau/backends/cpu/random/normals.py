"""Normally distributed draws: PyTorch's vector kernel for float32, its scalar ones for the rest (see draws.py)."""

from __future__ import annotations

import math

import numpy as np

from ...dtypes import COMPLEX, PARTS
from ..parallel import split
from .engine import (
    _CHUNK,
    _TWO_PI,
    _cast,
    _Doubles,
    _f32,
    _f64,
    _fma32,
    _fma64,
    _libm,
    _shape,
    _sincos,
    _u53,
)


def _fma_to(y, b, c, wide):
    """y(float32) = y * b + c rounded once; ``b`` and the scratch ``wide`` are float64, where y * b is exact."""
    np.multiply(y, b, wide)
    np.add(wide, c, y, casting="same_kind")


_LOG_POLY = tuple(
    np.asarray(np.float32(c), np.float64)  # numbers as arrays: a Python number costs a small call twice the time
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
_SIN_POLY = tuple(np.asarray(np.float32(c), np.float64) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_COS_POLY = tuple(
    np.asarray(np.float32(c), np.float64) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
)


_ROOT_HALF = 0x3F3504F3  # the bits of sqrt(1/2) in float32


def _log_f32(x, wide):
    """Cephes' logf of positive normal float32, with the polynomial in fused multiply-adds."""
    bits = x.view(np.int32) - np.int32(_ROOT_HALF)
    e = (bits >> 23).astype(np.float32)
    bits &= 0x7FFFFF
    bits += _ROOT_HALF
    m = bits.view(np.float32)  # x = m * 2**e with m of [sqrt(1/2), sqrt(2))
    m -= np.float32(1)
    m64 = m.astype(np.float64)
    z = m * m
    np.multiply(m64, _LOG_POLY[0], wide)
    wide += _LOG_POLY[1]
    y = wide.astype(np.float32)
    for c in _LOG_POLY[2:]:
        _fma_to(y, m64, c, wide)
    y *= m
    _fma_to(y, z.astype(np.float64), e * np.float32(-2.12194440e-4), wide)
    z *= np.float32(0.5)
    y -= z
    y += m
    e *= np.float32(0.693359375)
    y += e
    return y


_FOUR_OVER_PI = np.float32(1.27323954473516)
_PIO4_HI = np.float32(0.78515625)
_PIO4_MID = np.float32(2.4187564849853515625e-4)
_PIO4_LO = float(np.float32(3.77489497744594108e-8))


def _sincos_f32(x, wide):
    """Cephes' sinf and cosf of float32 in [0, 2 pi], with fused multiply-adds; (sin, cos). Overwrites x."""
    j = (x * _FOUR_OVER_PI).astype(np.int32)
    j += 1
    j &= -2  # the even multiple of pi / 4 nearest to x: 0 to 8
    jf = j.astype(np.float32)
    x -= jf * _PIO4_HI  # these two products have few enough bits to be exact
    x -= jf * _PIO4_MID
    np.multiply(jf, -_PIO4_LO, wide, dtype=np.float64)
    wide += x
    np.copyto(x, wide, "same_kind")
    z = x * x
    z64 = z.astype(np.float64)
    np.multiply(z64, _COS_POLY[0], wide)
    wide += _COS_POLY[1]
    c = wide.astype(np.float32)
    _fma_to(c, z64, _COS_POLY[2], wide)
    c *= z
    _fma_to(c, z64, -0.5 * z64, wide)
    c += np.float32(1)
    np.multiply(z64, _SIN_POLY[0], wide)
    wide += _SIN_POLY[1]
    s = wide.astype(np.float32)
    _fma_to(s, z64, _SIN_POLY[2], wide)
    s *= z
    np.copyto(z64, x)
    _fma_to(s, z64, z64, wide)
    # In the odd quadrants sine and cosine change places; then the signs. All on the bits.
    sin, cos = s.view(np.int32), c.view(np.int32)
    j <<= 29
    swap = j << 1
    swap >>= 31
    swap &= sin ^ cos
    sin ^= swap
    cos ^= swap
    j &= _SIGN
    sin ^= j
    swap = (jf.astype(np.int32) + 2) << 29
    swap &= _SIGN
    cos ^= swap
    return s, c


_SIGN = np.int32(-0x80000000)
_HALF_BLOCK = np.dtype("V32")  # eight 32-bit numbers moved as one


def _blocks_f32(engine, mean, std, out):
    """Box-Muller over blocks of 16, some thousand at a time; a long draw is shared among the cores."""
    raw = engine.draw32(out.size)

    def work(start, stop):
        for i in range(start * 16, stop * 16, _CHUNK):
            j = min(i + _CHUNK, stop * 16)
            _box_muller_f32(raw[i:j], mean, std, out[i:j])

    if out.size >= 2 * _CHUNK:
        split(out.size // 16, work)
    else:
        work(0, out.size // 16)


def _box_muller_f32(raw, mean, std, out):
    """The first 8 draws of a block of 16 make radii, the other 8 angles."""
    raw = raw.view(_HALF_BLOCK)
    k1 = raw[0::2].copy().view(np.int32)
    k2 = raw[1::2].copy().view(np.int32)
    k1 &= 0xFFFFFF
    k2 &= 0xFFFFFF
    np.subtract(1 << 24, k1, k1)
    radius = k1.astype(np.float32)
    radius *= np.float32(2.0**-24)
    wide = np.empty(k1.size, np.float64)
    radius = _log_f32(radius, wide)
    radius *= np.float32(-2)
    np.sqrt(radius, radius)
    theta = k2.astype(np.float32)
    theta *= np.float32(_TWO_PI * 2.0**-24)
    sin, cos = _sincos_f32(theta, wide)
    cos *= radius
    sin *= radius
    out = out.view(_HALF_BLOCK)
    out[0::2] = _fma32(cos, std, mean).view(_HALF_BLOCK)
    out[1::2] = _fma32(sin, std, mean).view(_HALF_BLOCK)


def _blocks_f64(engine, mean, std, out):
    u = _u53(engine, out.size).reshape(-1, 2, 8)
    out = out.reshape(-1, 2, 8)
    radius = np.sqrt(-2.0 * _libm(math.log, 1.0 - u[:, 0]))
    sin, cos = _sincos(u[:, 1] * _TWO_PI)
    out[:, 0] = _fma64(radius * cos, std, mean)
    out[:, 1] = _fma64(radius * sin, std, mean)


def _scalar_normals(engine, n):
    """``n`` standard normals in float64 by the scalar method, cached value first."""
    if n < 32:
        with _Doubles(engine) as uni:
            return np.array([uni.normal() for _ in range(n)], np.float64)
    out = np.empty(n, np.float64)
    start = 0
    if engine.next_normal is not None:
        out[0] = engine.next_normal
        engine.next_normal = None
        start = 1
    pairs = (n - start + 1) // 2
    u = _u53(engine, 2 * pairs).reshape(-1, 2)
    radius = np.sqrt(-2.0 * _libm(math.log1p, -u[:, 1]))
    sin, cos = _sincos(u[:, 0] * _TWO_PI)
    both = np.empty((pairs, 2), np.float64)
    np.multiply(radius, cos, out=both[:, 0])
    np.multiply(radius, sin, out=both[:, 1])
    both = both.reshape(-1)
    out[start:] = both[: n - start]
    if (n - start) & 1:
        engine.next_normal = float(both[-1])
    return out


def normal(engine, shape, dtype=np.float32, mean=0.0, std=1.0, contiguous=True):
    """``tensor.normal_(mean, std)`` and, with an array ``mean`` or ``std``, ``torch.normal``.

    Contiguous outputs of 16 elements or more are made in blocks of 16 (uniforms in the output dtype's
    arithmetic; when the size is no multiple of 16, the last 16 are drawn anew). Everything else,
    that is fewer than 16 elements or ``contiguous=False`` (a tensor that is not contiguous, whatever
    its size), takes the scalar float64 path, which leaves the second value of an odd last pair in the
    engine. Complex dtypes fill (real, imag) pairs with ``std / sqrt(2)``.
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    mean_array = isinstance(mean, np.ndarray)
    std_array = isinstance(std, np.ndarray)
    if mean_array or std_array:
        if std_array:
            out = normal(engine, shape, dtype, 0.0, 1.0, contiguous)
            out *= std
        else:
            out = normal(engine, shape, dtype, 0.0, std, contiguous)
        out += mean if mean_array else dtype.type(mean)
        return out
    mean, std = float(mean), float(std)
    if dtype.kind in COMPLEX:
        part = PARTS[dtype]
        return normal(engine, 2 * n, part, mean, std / math.sqrt(2.0), contiguous).view(dtype).reshape(shape)
    if n < 16 or not contiguous:
        out = _fma64(_scalar_normals(engine, n), std, mean)
        return _cast(out, dtype).reshape(shape)
    if dtype == _f64:
        out, words, blocks = np.empty(n, np.float64), 2, _blocks_f64
    else:
        out, words, blocks = np.empty(n, np.float32), 1, _blocks_f32
    in_blocks = n & ~15
    step = _CHUNK if blocks is _blocks_f64 else 256 * _CHUNK
    for i in range(0, in_blocks, step):
        k = min(step, in_blocks - i)
        blocks(engine, mean, std, out[i : i + k])
    if in_blocks < n:
        if dtype == _f32 or dtype == _f64:
            engine.draw32(words * (n - in_blocks))
        blocks(engine, mean, std, out[n - 16 :])
    return out.astype(dtype, copy=False).reshape(shape)


def randn(engine, shape, dtype=np.float32, contiguous=True):
    return normal(engine, shape, dtype, 0.0, 1.0, contiguous)


def log_normal(engine, shape, dtype=np.float32, mean=1.0, std=2.0):
    """``tensor.log_normal_``: the exponential of scalar-path normals, whatever the size."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    out = _fma64(_scalar_normals(engine, n), float(std), float(mean))
    with np.errstate(over="ignore"):
        out = _libm(_exp, out) if dtype == _f64 else np.exp(out)
        return _cast(out, dtype).reshape(shape)


def _exp(x):
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf
