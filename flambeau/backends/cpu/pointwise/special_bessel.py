"""Bessel, modified Bessel and Airy function kernels."""

import math

import numpy as np

from . import special_tables as T
from .special_common import fill, poly, unary

_EULER = 0.57721566490153286
_FACTORIAL = [math.factorial(k) for k in range(32)]
# power series in x**2 / 4 of I0(x) and 2 I1(x) / x
_I0_SERIES = [1.0 / _FACTORIAL[k] ** 2 for k in range(26)]
_I1_SERIES = [1.0 / (_FACTORIAL[k] * _FACTORIAL[k + 1]) for k in range(26)]
_HARMONIC = [math.fsum(1.0 / j for j in range(1, k + 1)) for k in range(16)]
# the parts of the power series of K0 and K1 that do not multiply the logarithm
_K0_SERIES = [_HARMONIC[k] * _I0_SERIES[k] for k in range(14)]
_K1_SERIES = [(_HARMONIC[k] + _HARMONIC[k + 1] - 2.0 * _EULER) * _I1_SERIES[k]
              for k in range(14)]


# ------------------------------------------------------- first kind, modified
def _modified_first(series, table, odd, scaled):
    @unary
    def kernel(x, single):
        a = np.abs(x)
        out = np.empty_like(x)
        small = a <= 8.0

        def near(v):
            result = poly(series[:16] if single else series, 0.25 * (v * v))
            if odd:
                result *= 0.5 * v
            return result * np.exp(-v) if scaled else result

        def far(v):
            # sqrt(x) exp(-x) I(x) in 1 / x, x >= 8
            result = poly(table, 16.0 / v - 1.0) / np.sqrt(v)
            return result if scaled else _exp(v, single) * result

        fill(out, small, near, a)
        fill(out, ~small, far, a)
        return np.where(x < 0.0, -out, out) if odd else out

    return kernel


def _exp(x, single):
    """exp with the overflow threshold of the kernel's own dtype."""
    result = np.exp(x)
    if single:
        result[x > 88.72283905206835] = np.inf
    return result


# ------------------------------------------------------ second kind, modified
def _k0_near(x):
    quarter = 0.25 * (x * x)
    log = np.log(x) - math.log(2.0) + _EULER
    return poly(_K0_SERIES, quarter) - log * poly(_I0_SERIES[:14], quarter)


def _k1_near(x):
    quarter = 0.25 * (x * x)
    log = np.log(x) - math.log(2.0)
    bracket = log * poly(_I1_SERIES[:14], quarter) - 0.5 * poly(_K1_SERIES, quarter)
    return 1.0 / x + 0.5 * x * bracket


def _modified_second(near, table, scaled):
    def small(v):
        return near(v) * np.exp(v) if scaled else near(v)

    def large(v):
        # sqrt(x) exp(x) K(x) in 1 / x, x >= 2
        result = poly(table, 4.0 / v - 1.0) / np.sqrt(v)
        return result if scaled else np.exp(-v) * result

    return _positive(small, large, 2.0, np.inf)


def _positive(near, far, limit, at_zero):
    """A kernel for positive numbers; NaN for negative ones."""
    @unary
    def kernel(x, single):
        out = np.full_like(x, np.nan)
        fill(out, (x > 0.0) & (x <= limit), near, x)
        fill(out, x > limit, far, x)
        out[x == 0.0] = at_zero
        return out

    return kernel


# ------------------------------------------------------------ oscillating ones
def _hankel(x, p_table, q_table, phase, second):
    """J or Y beyond 5 from the modulus and phase amplitudes P and Q."""
    w = 5.0 / x
    u = 2.0 * (w * w) - 1.0
    p, q = poly(p_table, u), w * poly(q_table, u)
    angle = x - phase
    cosine, sine = np.cos(angle), np.sin(angle)
    amplitude = math.sqrt(2.0 / math.pi) / np.sqrt(x)
    if second:
        return amplitude * (p * sine + q * cosine)
    return amplitude * (p * cosine - q * sine)


def _j0_near(x):
    # J0(x) / (x**2 - r**2) in x**2, x <= 5; r, the first zero, as two doubles
    square = x * x
    factor = ((x - 2.404825557695773) + 1.176691651530894e-16) * (x + 2.404825557695773)
    result = factor * poly(T.J0_SMALL, square * 0.08 - 1.0)
    return np.where(x < 1e-5, 1.0 - 0.25 * square, result)


def _j1_near(x):
    # J1(x) / x / (x**2 - r**2) in x**2, x <= 5
    factor = ((x - 3.8317059702075125) + 1.5269184090088067e-16) * (x + 3.8317059702075125)
    result = x * (factor * poly(T.J1_SMALL, x * x * 0.08 - 1.0))
    return np.where(x < 1e-5, 0.5 * x, result)


def _far(order, second):
    p, q = ((T.BESSEL_P0, T.BESSEL_Q0), (T.BESSEL_P1, T.BESSEL_Q1))[order]
    return lambda x: _hankel(x, p, q, (0.25 + 0.5 * order) * math.pi, second)


def _first_kind(order, near):
    @unary
    def kernel(x, single):
        a = np.abs(x)
        out = np.empty_like(x)
        small = a <= 5.0
        fill(out, small, near, a)
        fill(out, ~small, _far(order, False), a)
        return np.where(np.signbit(x), -out, out) if order else out

    return kernel


def _y0_near(x):
    # Y0(x) - 2/pi log(x) J0(x) in x**2, x <= 5
    regular = poly(T.Y0_SMALL, x * x * 0.08 - 1.0)
    return regular + (2.0 / math.pi) * (np.log(x) * _j0_near(x))


def _y1_near(x):
    # (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x in x**2, x <= 5
    regular = x * poly(T.Y1_SMALL, x * x * 0.08 - 1.0)
    return regular + (2.0 / math.pi) * (np.log(x) * _j1_near(x) - 1.0 / x)


@unary
def spherical_bessel_j0(x, single):
    square = x * x
    series = [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(8)]
    result = np.where(np.abs(x) < 0.5, poly(series, np.minimum(square, 1.0)),
                      np.sin(x) / x)
    result[np.isinf(x)] = 0.0
    return result


# ------------------------------------------------------------------------- Airy
def _airy_positive(x):
    # 2 sqrt(pi) x**(1/4) exp(z) Ai(x) in 1 / z, z = 2/3 x**(3/2), x >= 2
    root = np.sqrt(x)
    z = x * root * (2.0 / 3.0)
    limit = 0.75 / math.sqrt(2.0)
    series = poly(T.AIRY_POS, (2.0 / limit) / z - 1.0)
    return 0.5 / math.sqrt(math.pi) * np.exp(-z) * series / np.sqrt(root)


def _airy_negative(x):
    # as for J and Y: amplitudes P and z Q in 1 / z**2, x <= -4
    x = -x
    root = np.sqrt(x)
    z = x * root * (2.0 / 3.0)
    inverse = 1.0 / z
    u = 2.0 * np.square(inverse * (16.0 / 3.0)) - 1.0
    angle = z - 0.25 * math.pi
    wave = np.cos(angle) * poly(T.AIRY_NEG_P, u)
    wave += np.sin(angle) * inverse * poly(T.AIRY_NEG_Q, u)
    return wave / (math.sqrt(math.pi) * np.sqrt(root))


@unary
def airy_ai(x, single):
    out = np.full_like(x, np.nan)
    fill(out, np.abs(x) <= 2.0, lambda v: poly(T.AIRY_SMALL, 0.5 * v), x)
    fill(out, (x > 2.0) & (x < np.inf), _airy_positive, x)
    fill(out, (x < -2.0) & (x > -4.0), lambda v: poly(T.AIRY_MID, v + 3.0), x)
    fill(out, (x <= -4.0) & (x > -np.inf), _airy_negative, x)
    out[(x > 103.892) & (x < np.inf)] = 0.0
    return out


BESSEL = dict(
    airy_ai=airy_ai,
    spherical_bessel_j0=spherical_bessel_j0,
    bessel_j0=_first_kind(0, _j0_near),
    bessel_j1=_first_kind(1, _j1_near),
    bessel_y0=_positive(_y0_near, _far(0, True), 5.0, -np.inf),
    bessel_y1=_positive(_y1_near, _far(1, True), 5.0, -np.inf),
    i0=_modified_first(_I0_SERIES, T.I0_TAIL, False, False),
    i0e=_modified_first(_I0_SERIES, T.I0_TAIL, False, True),
    i1=_modified_first(_I1_SERIES, T.I1_TAIL, True, False),
    i1e=_modified_first(_I1_SERIES, T.I1_TAIL, True, True),
    modified_bessel_k0=_modified_second(_k0_near, T.K0_TAIL, False),
    modified_bessel_k1=_modified_second(_k1_near, T.K1_TAIL, False),
    scaled_modified_bessel_k0=_modified_second(_k0_near, T.K0_TAIL, True),
    scaled_modified_bessel_k1=_modified_second(_k1_near, T.K1_TAIL, True),
)
BESSEL.update(modified_bessel_i0=BESSEL["i0"], modified_bessel_i1=BESSEL["i1"])
