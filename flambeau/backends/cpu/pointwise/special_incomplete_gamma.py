"""The regularised incomplete gamma functions."""

import functools
import math

import numpy as np

from .special_common import binary, fill, poly
from .special_erf import erfc
from .special_gamma import _stirling_remainder, lgamma


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
        return np.exp(a * np.log(x) - x - lgamma.core(a + 1.0, False))

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
    exponent = a * np.log(x) - lgamma.core(a + 1.0, False)
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
