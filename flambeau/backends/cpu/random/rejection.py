"""Draws by acceptance and rejection, one number at a time: Poisson, binomial, gamma, Dirichlet."""

from __future__ import annotations

import math

import numpy as np

from .engine import _cast, _Doubles, _f32, _f64


def poisson(engine, rates):
    """``torch.poisson``: an array of the shape and dtype of ``rates``.

    Products of uniforms below a rate of 10, Hoermann's transformed rejection from there on.
    """
    rates = np.asarray(rates)
    with _Doubles(engine) as uni:
        values = [_poisson_one(uni, lam) for lam in rates.astype(np.float64).ravel().tolist()]
    return _cast(np.array(values, np.float64), rates.dtype).reshape(rates.shape)


def _poisson_one(uni, lam):
    if not lam >= 0:
        raise RuntimeError(f"invalid Poisson rate, expected rate to be non-negative, but got {lam:g}")
    if lam == 0:
        return 0.0
    if lam < 10:
        bound = math.exp(-lam)
        count, prod = 0, uni()
        while prod > bound:
            count += 1
            prod *= uni()
        return float(count)
    root, log_lam = math.sqrt(lam), math.log(lam)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inv_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)
    while True:
        u = uni() - 0.5
        v = uni()
        us = 0.5 - abs(u)
        if us == 0.0:
            continue
        k = math.floor((2 * a / us + b) * u + lam + 0.43)
        if us >= 0.07 and v <= v_r:
            return float(k)
        if k < 0 or (us < 0.013 and v > us):
            continue
        left = math.log(v) + math.log(inv_alpha) - math.log(a / (us * us) + b) if v > 0 else -math.inf
        if left <= -lam + k * log_lam - math.lgamma(k + 1):
            return float(k)


_STIRLING = (
    0.0810614667953272,
    0.0413406959554092,
    0.0276779256849983,
    0.02079067210376509,
    0.0166446911898211,
    0.0138761288230707,
    0.0118967099458917,
    0.0104112652619720,
    0.00925546218271273,
    0.00833056343336287,
)


def _stirling_tail(k):
    """The rest of Stirling's series for log k!."""
    if k <= 9:
        return _STIRLING[int(k)]
    sq = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / sq) / sq) / (k + 1)


def binomial(engine, count, prob):
    """``torch.binomial``: shape by broadcasting, dtype of ``count``.

    Sums of geometric gaps for ``count * p < 10`` (p the smaller of prob and 1 - prob), Hoermann's BTRS
    otherwise.
    """
    count, prob = np.asarray(count), np.asarray(prob)
    dtype = count.dtype
    shape = np.broadcast_shapes(count.shape, prob.shape)
    counts = np.broadcast_to(count, shape).astype(np.float64).ravel().tolist()
    probs = np.broadcast_to(prob, shape).astype(np.float64).ravel().tolist()
    single = dtype == _f32
    out = np.empty(len(counts), np.float64)
    with _Doubles(engine) as uni:
        for i, (n, p) in enumerate(zip(counts, probs)):
            out[i] = _binomial_one(uni, n, p, single)
    return _cast(out, dtype).reshape(shape)


def _binomial_one(uni, n, p, single):
    if n <= 0 or p <= 0:
        return 0.0
    if p >= 1:
        return n
    if math.isnan(p) or math.isnan(n):
        return math.nan
    if p > 0.5:
        q = float(np.float32(1) - np.float32(p)) if single else 1.0 - p
        return n - _binomial_low(uni, n, q)
    return _binomial_low(uni, n, p)


def _binomial_low(uni, n, p):
    if n * p >= 10.0:
        return _binomial_btrs(uni, n, p)
    total, gaps, log_q = 0.0, 0, math.log1p(-p)
    while True:
        u = uni()
        total += math.ceil(math.log(u) / log_q) if u > 0 else math.inf
        if total > n:
            return float(gaps)
        gaps += 1


def _binomial_btrs(uni, n, p):
    dev = math.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * dev
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * dev
    m = math.floor((n + 1) * p)
    while True:
        u = uni() - 0.5
        v = uni()
        us = 0.5 - abs(u)
        if us == 0.0:
            continue
        k = math.floor((2 * a / us + b) * u + c)
        if us >= 0.07 and v <= v_r:
            return float(k)
        if k < 0 or k > n:
            continue
        v = math.log(v * alpha / (a / (us * us) + b)) if v > 0 else -math.inf
        bound = (
            (m + 0.5) * math.log((m + 1) / (r * (n - m + 1)))
            + (n + 1) * math.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * math.log(r * (n - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(n - m)
            - _stirling_tail(k)
            - _stirling_tail(n - k)
        )
        if v <= bound:
            return float(k)


_THIRD = float(np.float32(1) / np.float32(3))
_SQUEEZE = float(np.float32(0.0331))


def _gamma_one(uni, alpha, single):
    """Marsaglia and Tsang's gamma sample, boosted for alpha < 1.

    PyTorch mixes precisions here: constants are float32, and so is what involves alpha alone when the
    dtype is (``single``).
    """
    scale = 1.0
    if alpha < 1.0:
        if alpha == 0.0:
            return 0.0
        power = float(np.float32(1) / np.float32(alpha)) if single else 1.0 / alpha
        scale = math.pow(1.0 - uni(), power)
        alpha = float(np.float32(alpha) + np.float32(1)) if single else alpha + 1.0
    d = float(np.float32(alpha) - np.float32(_THIRD)) if single else alpha - _THIRD
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        y = 0.0
        while y <= 0.0:
            x = uni.normal()
            y = 1.0 + c * x
        v = y * y * y
        u = 1.0 - uni()
        xx = x * x
        if u < 1.0 - _SQUEEZE * xx * xx or math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
            return scale * d * v


def _tiny(dtype):
    """Smallest positive normal number of a float dtype (bfloat16 shares float32's)."""
    return float(np.finfo(_f32 if dtype.name == "bfloat16" else dtype).tiny)


def standard_gamma(engine, alpha):
    """``torch._standard_gamma``: an array of the shape and dtype of ``alpha``, never below the least normal."""
    alpha = np.asarray(alpha)
    single = alpha.dtype != _f64
    with _Doubles(engine) as uni:
        values = np.array([_gamma_one(uni, a, single) for a in alpha.astype(np.float64).ravel().tolist()], np.float64)
    out = _cast(values, alpha.dtype).reshape(alpha.shape)
    return np.maximum(out, alpha.dtype.type(_tiny(alpha.dtype)), out=out)


def dirichlet(engine, alpha):
    """``torch._sample_dirichlet``: float64 gamma samples divided by their sum along the last axis."""
    alpha = np.asarray(alpha)
    dtype = alpha.dtype
    with _Doubles(engine) as uni:
        values = np.array([_gamma_one(uni, a, False) for a in alpha.astype(np.float64).ravel().tolist()], np.float64)
    gamma = values.reshape(alpha.shape)
    out = _cast(gamma / np.cumsum(gamma, axis=-1)[..., -1:], dtype)
    return np.clip(out, dtype.type(_tiny(dtype)), np.nextafter(dtype.type(1), dtype.type(0)))
