"""How gamma and beta samples move with their parameters, at a fixed quantile (implicit reparameterisation).

A sample x with cumulative probability F(x; a) follows dx/da = -(dF/da) / pdf. Both incomplete functions are a prefactor
times a series or continued fraction, and the prefactor cancels against the density up to simple terms; what is left is
differentiated by a complex step, which loses no digits. All of it in float64.
"""

from __future__ import annotations

import numpy as np

from ..table import KERNELS, kernel

_STEP = 1e-30  # the imaginary part that carries the derivative
_LARGE_ALPHA = 1000.0  # from here the expansion about the normal quantile is accurate to 1e-7
_TINY = 1e-290


def _digamma(x):
    return KERNELS["digamma"](x)


def _prepared(*arrays):
    """(float64 vectors of one shape, that shape)."""
    wide = np.broadcast_arrays(*[np.asarray(a).astype(np.float64) for a in arrays])
    return [a.ravel() for a in wide], wide[0].shape


def _series(a, x, rounds=4000):
    """The sum of x**n / ((a + 1) ... (a + n)) and its derivative in a."""
    z = a + 1j * _STEP
    term = np.ones_like(z)
    total = np.ones_like(z)
    for n in range(1, rounds):
        term = term * (x / (z + n))
        total += term
        if n % 8 == 0 and not (np.abs(term.real) > 1e-17 * np.abs(total.real)).any():
            break
    return total.real, total.imag / _STEP


def _fraction(first, coefficients, rounds=4000):
    """The continued fraction first + n1 / (d1 + n2 / (d2 + ...)) by Lentz's method, derivative in the complex step."""
    f = first
    c, d = f, np.zeros_like(f)
    for n in range(1, rounds):
        top, bottom = coefficients(n)
        d = bottom + top * d
        d = 1.0 / np.where(d == 0, _TINY, d)
        c = bottom + top / c
        c = np.where(c == 0, _TINY, c)
        change = c * d
        f = f * change
        if n % 8 == 0 and not (np.abs(change.real - 1.0) > 1e-15).any():
            break
    return f


def _gamma_moderate(a, x):
    out = np.empty_like(x)
    low = x < a + 1
    if low.any():
        p, y = a[low], x[low]
        s, ds = _series(p, y)
        out[low] = -(y / p) * (s * (np.log(y) - _digamma(p + 1)) + ds)
    high = ~low
    if high.any():
        p, y = a[high], x[high]
        z = p + 1j * _STEP
        upper = 1.0 / _fraction(y + 1 - z, lambda n: (n * (z - n), y + 2 * n + 1 - z))
        out[high] = y * (upper.real * (np.log(y) - _digamma(p)) + upper.imag / _STEP)
    return out


def _gamma_large(a, x):
    """Cornish and Fisher's expansion x = a + sqrt(a) z + (z**2 - 1) / 3 + (z**3 - 7 z) / (36 sqrt(a))."""
    root = np.sqrt(a)
    z = (x - a) / root
    for _ in range(8):
        value = a + root * z + (z * z - 1) / 3 + (z ** 3 - 7 * z) / (36 * root)
        slope = root + 2 * z / 3 + (3 * z * z - 7) / (36 * root)
        z = z - (value - x) / slope
    return 1 + z / (2 * root) - (z ** 3 - 7 * z) / (72 * a * root)


@kernel
def standard_gamma_grad(alpha, sample):
    """d sample / d alpha of a standard gamma sample."""
    dtype = np.asarray(sample).dtype
    (a, x), shape = _prepared(alpha, sample)
    out = np.full_like(x, np.nan)
    usable = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    large = usable & (a > _LARGE_ALPHA)
    moderate = usable & ~large
    with np.errstate(all="ignore"):
        if moderate.any():
            out[moderate] = _gamma_moderate(a[moderate], x[moderate])
        if large.any():
            out[large] = _gamma_large(a[large], x[large])
    out[x == 0] = 0.0
    return out.reshape(shape).astype(dtype)


def _beta_fraction(a, b, x):
    """The continued fraction of the incomplete beta function I_x(a, b) without its prefactor; a or b is complex."""
    def coefficients(n):
        m, odd = divmod(n, 2)
        if odd:
            return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), 1.0
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), 1.0

    return 1.0 / _fraction(np.ones_like(x) + 0j, coefficients)


def _beta_grad(x, a, b):
    """d x / d a of a sample x of Beta(a, b)."""
    out = np.empty_like(x)
    slope = np.log(x) - _digamma(a) + _digamma(a + b)
    low = x < (a + 1) / (a + b + 2)
    if low.any():
        f = _beta_fraction(a[low] + 1j * _STEP, b[low], x[low])
        out[low] = -(f.real * (slope[low] - 1 / a[low]) + f.imag / _STEP) / a[low]
    high = ~low
    if high.any():
        f = _beta_fraction(b[high], a[high] + 1j * _STEP, 1 - x[high])
        out[high] = (f.real * slope[high] + f.imag / _STEP) / b[high]
    return out * x * (1 - x)


@kernel
def dirichlet_grad(x, alpha, total):
    """d x_i / d alpha_i / (1 - x_i) of a coordinate x_i of a Dirichlet sample, which is Beta(alpha_i, total - alpha_i)."""
    dtype = np.asarray(x).dtype
    (v, a, t), shape = _prepared(x, alpha, total)
    b = t - a
    out = np.full_like(v, np.nan)
    usable = (a > 0) & (b > 0) & (v > 0) & (v < 1) & np.isfinite(t)
    with np.errstate(all="ignore"):
        if usable.any():
            y = v[usable]
            out[usable] = _beta_grad(y, a[usable], b[usable]) / (1 - y)
    out[v == 0] = 0.0
    return out.reshape(shape).astype(dtype)
