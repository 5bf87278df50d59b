"""Special functions: error function, gamma and zeta families, elementary ones.

Bessel and Airy functions live in ``special_bessel``, orthogonal polynomials in
``special_polynomials``; both are re-exported here, so this module holds every
special function kernel under the last part of its torch name.
"""

import functools
import math

import numpy as np

from ..parallel import early
from ..table import add
from . import special_tables as T
from .special_bessel import *  # noqa: F403
from .special_bessel import __all__ as _bessel_names
from .special_common import BLOCK, _blocked, binary, fill, flattened, poly, quiet, unary
from .special_polynomials import *  # noqa: F403
from .special_polynomials import __all__ as _polynomial_names

__all__ = _bessel_names + _polynomial_names + [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "expit", "gammainc",
    "gammaincc", "gammaln", "igamma", "igammac", "lgamma", "log_ndtr",
    "log_sigmoid", "logit", "ndtr", "ndtri", "polygamma", "psi", "sigmoid", "sinc",
    "xlog1py", "xlogy", "zeta",
]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2 = math.sqrt(2.0)


# --------------------------------------------------------------- error function
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


# ---------------------------------------------------------------- gamma family
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
    result = np.log(math.pi / (np.abs(x) * sine)) - _lgamma(-x, single)
    result[(distance == 0.0) | np.isinf(x)] = np.inf
    return result


def _lgamma(x, single):
    out = x.copy()
    large = x >= 4.5
    negative = x <= -0.5
    fill(out, large, lambda v: _lgamma_large(v, single), x)
    fill(out, negative, lambda v: _lgamma_negative(v, single), x)
    fill(out, (x < 4.5) & ~negative, lambda v: _lgamma_small(v, single), x)
    return out


@unary
def lgamma(x, single):
    return _lgamma(x, single)


gammaln = lgamma

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
    result = _digamma(1.0 - x, single) - math.pi / np.tan(math.pi * distance)
    result[distance == 0.0] = np.nan
    return result


def _digamma(x, single):
    out = x.copy()
    fill(out, x >= 4.0, lambda v: _digamma_large(v, single), x)
    fill(out, (x > 0.0) & (x < 4.0), lambda v: _digamma_small(v, single), x)
    fill(out, x < 0.0, lambda v: _digamma_negative(v, single), x)
    fill(out, x == 0.0, lambda v: np.copysign(np.inf, -v), x)
    return out


@unary
def digamma(x, single):
    return _digamma(x, single)


psi = digamma


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

    whole = q == np.floor(q)
    fill(out, valid & (q < 0.0) & ~whole & (s == np.floor(s)), negative, s, q)
    out[(q <= 0.0) & whole & ~(s < 1.0)] = np.inf
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


# ------------------------------------------------- regularised incomplete gamma
def _log1p_minus(m):
    """log(1 + m) - m without cancellation near zero."""
    out = np.log1p(m) - m

    def series(v):
        y = v / (2.0 + v)
        square = y * y
        coefficients = [1.0 / (2 * k + 3) for k in range(18)]
        return 2.0 * square * (y * poly(coefficients, square) - 1.0 / (1.0 - y))

    fill(out, np.abs(m) <= 0.5, series, m)
    return out


def _gamma_factor(a, x):
    """x**a exp(-x) / gamma(a + 1)."""
    out = np.empty_like(a)

    def large(a, x):
        scaled = a * _log1p_minus((x - a) / a) - _stirling_remainder(a)
        return np.exp(scaled) / np.sqrt(2.0 * math.pi * a)

    def small(a, x):
        return np.exp(a * np.log(x) - x - _lgamma(a + 1.0, False))

    big = a >= 10.0
    fill(out, big, large, a, x)
    fill(out, ~big, small, a, x)
    return out


def _gamma_series(a, x):
    """P(a, x) by its power series, for x not much above a."""
    term = np.ones_like(a)
    total = np.ones_like(a)
    denominator = a.copy()
    for _ in range(2000):
        denominator += 1.0
        term *= x / denominator
        total += term
        if not np.any(term > 1e-17 * total):
            break
    return total * _gamma_factor(a, x)


def _gamma_fraction(a, x):
    """Q(a, x) by its continued fraction (modified Lentz), for x above a."""
    tiny = 1e-300
    b = x + 1.0 - a
    b[b == 0.0] = tiny
    c = np.full_like(a, 1.0 / tiny)
    d = 1.0 / b
    total = d.copy()
    for i in range(1, 2000):
        numerator = i * (a - i)
        b = b + 2.0
        d = numerator * d + b
        d[d == 0.0] = tiny
        d = 1.0 / d
        c = b + numerator / c
        c[c == 0.0] = tiny
        step = c * d
        total *= step
        if not np.any(np.abs(step - 1.0) > 2e-16):
            break
    return total * a * _gamma_factor(a, x)


def _gamma_upper_series(a, x):
    """Q(a, x) for small x and a, without forming 1 - P."""
    term = np.ones_like(a)
    total = np.zeros_like(a)
    for n in range(1, 40):
        term *= -x / n
        total += term / (a + n)
    exponent = a * np.log(x) - _lgamma(a + 1.0, False)
    return -np.expm1(exponent) - a * np.exp(exponent) * total


@functools.cache
def _temme_coefficients(orders=14, powers=19):
    """d[k][n] of the uniform expansion for large a (DLMF 8.12.10 to 8.12.13)."""
    count = powers + 2 * orders
    from fractions import Fraction
    alpha = [Fraction(0), Fraction(1), Fraction(1, 3)]
    for n in range(3, count + 3):
        inner = sum(j * alpha[j] * alpha[n - j + 1] for j in range(2, n))
        alpha.append((alpha[n - 1] - inner) / (n + 1))
    first = [Fraction(-1, 3)] + [(n + 2) * alpha[n + 2] for n in range(1, count)]
    rows = [first]
    for _ in range(1, orders):
        last = rows[-1]
        rows.append([(n + 2) * last[n + 2] - last[1] * first[n]
                     for n in range(len(last) - 2)])
    return [[float(v) for v in row[:powers]] for row in rows]


def _gamma_uniform(a, x, upper):
    """P or Q for large a and x close to a."""
    half_square = -_log1p_minus((x - a) / a)
    eta = np.copysign(np.sqrt(2.0 * half_square), x - a)
    total = np.zeros_like(a)
    for row in reversed(_temme_coefficients()):
        total /= a
        total += poly(row, eta)
    rest = total * np.exp(-a * half_square) / np.sqrt(2.0 * math.pi * a)
    argument = eta * np.sqrt(0.5 * a)
    if upper:
        return 0.5 * erfc.core(argument, False) + rest
    return 0.5 * erfc.core(-argument, False) - rest


def _gamma_regular(a, x, upper):
    """P or Q for finite positive a and x."""
    out = np.empty_like(a)
    uniform = (a > 20.0) & (np.abs(x - a) < 0.3 * a)
    fraction = ~uniform & (x > 1.1) & (x >= a)
    if upper:
        limit = np.where(x <= 0.5, -0.4 / np.log(x), 1.1 * x)
        direct = (x <= 1.1) & (a <= limit)
        series = ~(uniform | fraction | direct)
        fill(out, direct, _gamma_upper_series, a, x)
        fill(out, fraction, _gamma_fraction, a, x)
        fill(out, series, lambda a, x: 1.0 - _gamma_series(a, x), a, x)
    else:
        fill(out, fraction, lambda a, x: 1.0 - _gamma_fraction(a, x), a, x)
        fill(out, ~(uniform | fraction), _gamma_series, a, x)
    fill(out, uniform, lambda a, x: _gamma_uniform(a, x, upper), a, x)
    return out


def _gamma_incomplete(a, x, upper):
    zero, one = (1.0, 0.0) if upper else (0.0, 1.0)
    out = np.full_like(a, np.nan)
    regular = (a > 0.0) & (x > 0.0) & (a < np.inf) & (x < np.inf)
    fill(out, regular, lambda a, x: _gamma_regular(a, x, upper), a, x)
    out[x == np.inf] = one
    out[a == np.inf] = zero
    out[(a == np.inf) & (x == np.inf)] = np.nan
    out[x == 0.0] = zero
    origin = a == 0.0
    out[origin] = np.where(x > 0.0, one, np.nan)[origin]
    out[(x < 0.0) | (a < 0.0)] = np.nan
    return out


@binary
def gammainc(a, x, single):
    return _gamma_incomplete(a, x, False)


@binary
def gammaincc(a, x, single):
    return _gamma_incomplete(a, x, True)


igamma = gammainc
igammac = gammaincc


# ------------------------------------------------------------------- elementary
@quiet
def entr(x):
    result = -x * np.log(x)
    result = np.where(x == 0, x.dtype.type(0), result)
    return np.where(x < 0, x.dtype.type(-np.inf), result)


def _x_times_log(x, y, log):
    result = np.where(x == 0, np.zeros_like(x), x * log)
    return np.where(np.isnan(y), y, result)


@quiet
def xlogy(x, y):
    return _x_times_log(x, y, np.log(y))


@quiet
def xlog1py(x, y):
    return _x_times_log(x, y, np.log1p(y))


@quiet
def sinc(x):
    product = x * x.dtype.type(math.pi)
    one = np.ones_like(x)
    zero = x == 0
    return np.where(zero, one, np.sin(product) / np.where(zero, one, product))


@quiet
def logit(x, eps=None):
    if eps is not None:
        low = x.dtype.type(eps)
        high = x.dtype.type(1) - low
        x = np.where(x < low, low, np.where(x > high, high, x))
    return np.log(x / (1 - x))


@quiet
def expit(x):
    return 1 / (1 + np.exp(-x))


sigmoid = expit


@quiet
def log_sigmoid(x):
    return np.minimum(x, x.dtype.type(0)) - np.log1p(np.exp(-np.abs(x)))


@quiet
def mvlgamma(x, p):
    out = (p * (p - 1) / 4) * math.log(math.pi) + lgamma(x)
    for j in range(1, p):
        out = out + lgamma(x - x.dtype.type(j / 2))
    return out


# The kernels of sigmoid for complex numbers and of other families are elsewhere.
add(mvlgamma=mvlgamma, **{name: globals()[name] for name in __all__ if name != "sigmoid"})
add(**{f.__name__: early(f) for f in (erf, erfc, ndtr, lgamma, xlogy, xlog1py, entr, sinc)})  # those with a C expression
