"""Orthogonal polynomial kernels, ``f(x, n)`` with ``n`` an array of degrees.

The degrees are truncated to integers; a negative degree gives 0.  As in torch
the recurrences run in the dtype of the inputs, so that they overflow at the
same degree, and the Chebyshev families switch to their trigonometric form for
higher degrees inside the interval of orthogonality.
"""

import functools

import numpy as np

from .special_common import quiet


def _prepare(x, n):
    """Flat x and integer degrees, and the array to fill; bad degrees are -1."""
    x, n = np.broadcast_arrays(x, n)
    out = np.zeros(x.shape, np.result_type(x, n))
    x = x.astype(out.dtype).reshape(-1)
    n = n.reshape(-1)
    usable = np.abs(n) < 9.2e18
    degree = np.where(usable, np.trunc(np.where(usable, n, 0)), -1).astype(np.int64)
    return x, degree, out, out.reshape(-1)


def _recur(x, degree, flat, todo, first, step):
    """Fill ``flat[todo]`` from p0 = 1, p1 = first(x), p[k+1] = step(x, k, p1, p0)."""
    flat[todo & (degree == 0)] = 1
    index = np.flatnonzero(todo & (degree >= 1))
    if index.size == 0:
        return
    index = index[np.argsort(degree[index], kind="stable")]
    degree, x = degree[index], x[index]
    previous, current = np.ones_like(x), first(x)
    k = 1
    while True:
        done = np.searchsorted(degree, k, side="right")
        if done:
            flat[index[:done]] = current[:done]
            index, degree, x = index[done:], degree[done:], x[done:]
            previous, current = previous[done:], current[done:]
        if index.size == 0:
            return
        if np.all(np.isnan(current)):
            flat[index] = np.nan
            return
        previous, current = current, step(x, k, current, previous)
        k += 1


def _chebyshev(first, trigonometric, plus, minus, shifted, x, n):
    """One of the four kinds; ``plus`` and ``minus`` give |value| at +1 and -1."""
    raw, degree, out, flat = _prepare(x, n)
    y = raw + raw - 1 if shifted else raw
    todo = degree >= 0
    parity = np.where(degree % 2 == 0, 1, -1)
    at_plus = todo & (raw == 1)
    at_minus = todo & (raw == (0 if shifted else -1))
    flat[at_plus] = plus(degree[at_plus])
    flat[at_minus] = (parity * minus(degree))[at_minus]
    todo &= ~(at_plus | at_minus)
    inside = todo & (degree > (6 if trigonometric is _kind_t else 8)) & (np.abs(y) < 1)
    if inside.any():
        angle = np.arccos(y[inside].astype(np.float64))
        flat[inside] = trigonometric(degree[inside], angle)
    _recur(y, degree, flat, todo & ~inside, first, lambda v, k, p, q: (v + v) * p - q)
    return out


def _kind_t(n, angle):
    return np.cos(n * angle)


def _kind_u(n, angle):
    return np.sin((n + 1) * angle) / np.sin(angle)


def _kind_v(n, angle):
    return np.cos((n + 0.5) * angle) / np.cos(0.5 * angle)


def _kind_w(n, angle):
    return np.sin((n + 0.5) * angle) / np.sin(0.5 * angle)


def _one(n):
    return np.ones_like(n)


def _successor(n):
    return n + 1


def _odd(n):
    return n + n + 1


_KINDS = {
    "t": (lambda y: y, _kind_t, _one, _one),
    "u": (lambda y: y + y, _kind_u, _successor, _successor),
    "v": (lambda y: y + y - 1, _kind_v, _one, _odd),
    "w": (lambda y: y + y + 1, _kind_w, _odd, _one),
}


def _from_recurrence(first, step, x, n):
    x, degree, out, flat = _prepare(x, n)
    _recur(x, degree, flat, degree >= 0, first, step)
    return out


def _laguerre(x, n):
    x, degree, out, flat = _prepare(x, n)
    todo = degree >= 0
    flat[todo & (x == 0)] = 1
    _recur(x, degree, flat, todo & (x != 0), lambda v: 1 - v,
           lambda v, k, p, q: (((k + k) + (1 - v)) * p - k * q) / (k + 1))
    return out


def _legendre(x, n):
    x, degree, out, flat = _prepare(x, n)
    todo = degree >= 0
    edge = todo & (np.abs(x) == 1)
    flat[edge] = np.where((x > 0) | (degree % 2 == 0), 1, -1)[edge]
    _recur(x, degree, flat, todo & ~edge, lambda v: v,
           lambda v, k, p, q: ((k + k + 1) * v * p - k * q) / (k + 1))
    return out


POLYNOMIALS = {f"{prefix}chebyshev_polynomial_{kind}": quiet(functools.partial(_chebyshev, *row, prefix == "shifted_"))
               for kind, row in _KINDS.items() for prefix in ("", "shifted_")}
POLYNOMIALS.update(
    hermite_polynomial_h=quiet(functools.partial(
        _from_recurrence, lambda v: v + v, lambda v, k, p, q: (v + v) * p - (2 * k) * q)),
    hermite_polynomial_he=quiet(functools.partial(_from_recurrence, lambda v: v, lambda v, k, p, q: v * p - k * q)),
    laguerre_polynomial_l=quiet(_laguerre),
    legendre_polynomial_p=quiet(_legendre),
)
