"""The error function, its kin and inverse, and the normal distribution."""

import math

import numpy as np

from . import special_tables as T
from .special_common import BLOCK, fill, flattened, poly, quiet, unary

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2 = math.sqrt(2.0)


def _erf_small(x, single):
    # erf(x) / x in x**2, |x| < 1
    return x * poly(T.ERF_SMALL_F32 if single else T.ERF_SMALL, 2.0 * (x * x) - 1.0)


def _erfcx_positive(x, single):
    # (1 + 2x) erfcx(x) in (x - k) / (x + k), 0 <= x <= inf
    u = 1.0 - 7.5 / (x + 3.75)
    return poly(T.ERFCX_F32 if single else T.ERFCX, u) / (1.0 + 2.0 * x)


def _exp_square(x, sign):
    """exp(sign * x * x) with the rounding error of the square compensated."""
    x = np.clip(x, -1e3, 1e3)
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(sign * (high * high)) * np.exp(sign * ((x - high) * (x + high)))


@unary
def _erf_double(x, single):
    out = np.empty_like(x)
    magnitude = np.abs(x)
    small = magnitude < 1.0
    fill(out, small, lambda v: _erf_small(v, single), x)

    def large(v, a):
        return np.copysign(1.0 - np.exp(-(a * a)) * _erfcx_positive(a, single), v)

    fill(out, ~small, large, x, magnitude)
    return out


def _erf_single(x):
    """erf wholly in float32 (3.5e-7 relative), without any branch."""
    near = np.clip(x, np.float32(-3.94), np.float32(3.94))
    square = near * near
    near *= poly(T.ERF_NUMERATOR, square)
    near /= poly(T.ERF_DENOMINATOR, square)
    # beyond 3.93 the nearest float32 is one, exactly
    np.copyto(near, np.copysign(np.float32(1.0), x), where=np.abs(x) >= 3.93)
    return np.clip(near, np.float32(-1.0), np.float32(1.0))


def erf(x):
    x = np.asarray(x)
    if x.dtype != np.float32:
        return _erf_double(x)
    out, target, (source,) = flattened([x], np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, target.size, BLOCK):
            target[start:start + BLOCK] = _erf_single(source[start:start + BLOCK])
    return out


@unary
def erfc(x, single):
    out = np.empty_like(x)
    small = np.abs(x) < 1.0
    fill(out, small, lambda v: 1.0 - _erf_small(v, single), x)

    def large(v):
        a = np.abs(v)
        gauss = np.exp(-(a * a)) if single else _exp_square(a, -1.0)
        tail = gauss * _erfcx_positive(a, single)
        return np.where(v < 0.0, 2.0 - tail, tail)

    fill(out, ~small, large, x)
    return out


@unary
def erfcx(x, single):
    out = np.empty_like(x)
    negative = x < 0.0
    fill(out, ~negative, lambda v: _erfcx_positive(v, single), x)
    fill(out, negative,
         lambda v: 2.0 * _exp_square(v, 1.0) - _erfcx_positive(-v, single), x)
    return out


_MID_LOW, _MID_HIGH = -0.9 / 3.1, 4.1 / 8.1


def _erfc_inverse_tail(s, single):
    """x > 0 with erfc(x) = exp(-s**2), for s >= 1.1."""
    out = np.empty_like(s)
    far = s > 6.08

    def middle(v):
        # x / s in (s - 2) / (s + 2), 1.1 <= s <= 6.1
        u = ((v - 2.0) / (v + 2.0) - 0.5 * (_MID_LOW + _MID_HIGH))
        u *= 2.0 / (_MID_HIGH - _MID_LOW)
        return v * poly(T.ERFCINV_MID_F32 if single else T.ERFCINV_MID, u)

    def beyond(v):
        # x / s in 1 / s, 6 <= s <= 27.4
        low, high = 1.0 / 27.4, 1.0 / 6.0
        u = (1.0 / v - 0.5 * (low + high)) * (2.0 / (high - low))
        return v * poly(T.ERFCINV_FAR, u)

    fill(out, ~far, middle, s)
    fill(out, far, beyond, s)
    return out


def _erfinv_centre(x, single):
    # erfinv(x) / x in x**2, x**2 <= 1/2
    return x * poly(T.ERFINV_F32 if single else T.ERFINV, 4.0 * (x * x) - 1.0)


@unary
def erfinv(x, single):
    out = np.empty_like(x)
    centre = np.abs(x) <= _SQRT_HALF
    fill(out, centre, lambda v: _erfinv_centre(v, single), x)

    def tail(v):
        s = np.sqrt(-np.log(1.0 - np.abs(v)))
        return np.copysign(_erfc_inverse_tail(s, single), v)

    fill(out, ~centre, tail, x)
    return out


@quiet
def ndtr(x):
    # torch's formula: the lower tail is only resolved absolutely
    return (1 + erf(x * _SQRT_HALF)) * 0.5


@unary
def ndtri(x, single):
    out = np.empty_like(x)
    centre = (x >= 0.1465) & (x <= 0.8535)
    fill(out, centre, lambda v: _SQRT_2 * _erfinv_centre(2.0 * v - 1.0, single), x)

    def tail(v):
        lower = v < 0.5
        s = np.sqrt(-np.log(np.where(lower, v, 1.0 - v)) - math.log(2.0))
        z = _SQRT_2 * _erfc_inverse_tail(s, single)
        return np.where(lower, -z, z)

    fill(out, ~centre, tail, x)
    return out


@unary
def log_ndtr(x, single):
    out = np.empty_like(x)
    t = x * _SQRT_HALF
    low = x < -1.0
    fill(out, low, lambda v: np.log(0.5 * _erfcx_positive(-v, single)) - v * v, t)
    fill(out, ~low, lambda v: np.log1p(-0.5 * erfc.core(v, single)), t)
    return out
