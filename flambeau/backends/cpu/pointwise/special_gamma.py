"""The gamma and zeta families: logarithm, derivatives, Hurwitz' zeta."""

import functools
import math

import numpy as np

from . import special_tables as T
from .special_common import _blocked, binary, fill, poly, quiet, unary

_STIRLING_SCALE = 2.0 * 4.5 * 4.5
_STIRLING_CONSTANT = 0.5 * math.log(2.0 * math.pi) - 0.5


def _stirling_remainder(x, single=False):
    """lgamma(x) - (x - 1/2) log(x) + x - log(2 pi) / 2, for x >= 4.5."""
    t = 1.0 / x
    # times x, in 1 / x**2
    table = T.STIRLING_F32 if single else T.STIRLING
    return t * poly(table, _STIRLING_SCALE * (t * t) - 1.0)


def _lgamma_small(x, single):
    """lgamma on (-0.5, 4.5), reduced to lgamma(2 + z) / z on [-0.5, 0.5]."""
    near = np.rint(x)
    z = x - near
    shift = np.where(near < 2.0, x, x - 1.0)
    shift *= np.where(near == 0.0, x + 1.0, np.where(near == 4.0, x - 2.0, 1.0))
    shift[near == 2.0] = 1.0
    correction = np.log(np.abs(shift))
    result = z * poly(T.LGAMMA_F32 if single else T.LGAMMA, 2.0 * z)
    result += np.where(near < 2.0, -correction, correction)
    return result


def _lgamma_large(x, single):
    result = (x - 0.5) * (np.log(x) - 1.0)
    result += _STIRLING_CONSTANT
    result += _stirling_remainder(x, single)
    return result


def _lgamma_negative(x, single):
    distance = x - np.rint(x)
    sine = np.abs(np.sin(math.pi * distance))
    result = np.log(math.pi / (np.abs(x) * sine)) - lgamma.core(-x, single)
    result[(distance == 0.0) | np.isinf(x)] = np.inf
    return result


@unary
def lgamma(x, single):
    out = x.copy()
    large = x >= 4.5
    negative = x <= -0.5
    fill(out, large, lambda v: _lgamma_large(v, single), x)
    fill(out, negative, lambda v: _lgamma_negative(v, single), x)
    fill(out, (x < 4.5) & ~negative, lambda v: _lgamma_small(v, single), x)
    return out


# the positive root of digamma, as a sum of two doubles
_ROOT_HIGH, _ROOT_LOW = 1.4616321449683622, 9.549995429965697e-17


def _digamma_small(x, single):
    """digamma on (0, 4), reduced to [1, 2] by the recurrence."""
    base = x.copy()
    extra = np.zeros_like(x)
    below, above = x < 1.0, x >= 2.0
    fill(base, below, lambda v: v + 1.0, x)
    fill(extra, below, lambda v: -1.0 / v, x)
    fill(base, above, lambda v: v - 1.0, x)
    fill(extra, above, lambda v: 1.0 / (v - 1.0), x)
    top = x >= 3.0
    fill(base, top, lambda v: v - 2.0, x)
    fill(extra, top, lambda v: 1.0 / (v - 1.0) + 1.0 / (v - 2.0), x)
    # digamma(x) / (x - root) on [1, 2]
    result = poly(T.DIGAMMA_F32 if single else T.DIGAMMA, 2.0 * base - 3.0)
    result *= (base - _ROOT_HIGH) - _ROOT_LOW
    result += extra
    return result


def _digamma_large(x, single):
    t = 1.0 / x
    square = t * t
    # x**2 (log(x) - 1 / (2x) - digamma(x)) in 1 / x**2, x >= 4
    tail = poly(T.DIGAMMA_TAIL_F32 if single else T.DIGAMMA_TAIL, 32.0 * square - 1.0)
    return np.log(x) - 0.5 * t - square * tail


def _digamma_negative(x, single):
    distance = x - np.rint(x)
    result = digamma.core(1.0 - x, single) - math.pi / np.tan(math.pi * distance)
    result[distance == 0.0] = np.nan
    return result


@unary
def digamma(x, single):
    out = x.copy()
    fill(out, x >= 4.0, lambda v: _digamma_large(v, single), x)
    fill(out, (x > 0.0) & (x < 4.0), lambda v: _digamma_small(v, single), x)
    fill(out, x < 0.0, lambda v: _digamma_negative(v, single), x)
    fill(out, x == 0.0, lambda v: np.copysign(np.inf, -v), x)
    return out


# ------------------------------------------------------------------ zeta family
@functools.cache
def _euler_maclaurin():
    """B_2j / (2j)! for j = 1..12, from the recurrence of Bernoulli numbers."""
    from fractions import Fraction
    numbers = [Fraction(1)]
    for m in range(1, 25):
        total = sum(math.comb(m + 1, k) * numbers[k] for k in range(m))
        numbers.append(-total / (m + 1))
    return [float(numbers[2 * j] / math.factorial(2 * j)) for j in range(1, 13)]


def _hurwitz(s, q):
    """zeta(s, q) for s > 1 and q > 0 by the Euler-Maclaurin formula."""
    head = np.power(q, -s)
    for k in range(1, 10):
        head += np.power(q + k, -s)
    end = q + 10.0
    power = np.power(end, -s)
    tail = power * (end / (s - 1.0) + 0.5)
    term = power * s / end
    square = 1.0 / (end * end)
    for j, c in enumerate(_euler_maclaurin()):
        tail += c * term
        term = term * ((s + (2 * j + 1)) * (s + (2 * j + 2))) * square
    tail[(power == 0.0) & (head > 0.0)] = 0.0
    return head + tail


def _zeta(s, q):
    out = np.full_like(s, np.nan)
    valid = s > 1.0
    fill(out, valid & (q > 0.0) & (q < np.inf), _hurwitz, s, q)

    def negative(e, v):
        # the terms with q + k < 0, then the ones with q + k > 0
        sign = np.where(np.fmod(e, 2.0) == 1.0, -1.0, 1.0)
        excess = _hurwitz(e, 1.0 - v)
        excess[np.isnan(excess)] = 0.0
        below = _hurwitz(e, np.ceil(v) - v) - excess
        return sign * below + _hurwitz(e, v - np.floor(v))

    integral = q == np.floor(q)
    fill(out, valid & (q < 0.0) & ~integral & (s == np.floor(s)), negative, s, q)
    out[(q <= 0.0) & integral & ~(s < 1.0)] = np.inf
    out[s == 1.0] = np.inf
    return out


@binary
def zeta(x, q, single):
    return _zeta(x, q)


def _trigamma(x, single):
    out = x.copy()

    def direct(v):
        return _hurwitz(np.full_like(v, 2.0), v)

    def reflected(v):
        sine = np.sin(math.pi * (v - np.rint(v)))
        # at the poles torch keeps the rounding error of sin(pi x)
        if single:
            v32 = v.astype(np.float32)
            rounded = np.sin(np.float32(math.pi) * v32).astype(np.float64)
        else:
            rounded = np.sin(math.pi * v)
        sine = np.where(v == np.rint(v), rounded, sine)
        return np.square(math.pi / sine) - direct(1.0 - v)

    fill(out, x >= 0.5, direct, x)
    fill(out, x < 0.5, reflected, x)
    out[x == np.inf] = 0.0
    return out


def _polygamma(x, single, n):
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    result = _zeta(np.full_like(x, n + 1.0), x)
    result *= factorial if n % 2 else -factorial
    return result


def polygamma(n, x):
    """The ``n``-th derivative of digamma; ``n`` is a non-negative int."""
    x = np.asarray(x)
    if n == 0:
        return digamma(x)
    if n == 1:
        return _blocked(_trigamma, [x], x.dtype)
    return _blocked(_polygamma, [x], x.dtype, int(n))


@quiet
def mvlgamma(x, p):
    out = (p * (p - 1) / 4) * math.log(math.pi) + lgamma(x)
    for j in range(1, p):
        out = out + lgamma(x - x.dtype.type(j / 2))
    return out
