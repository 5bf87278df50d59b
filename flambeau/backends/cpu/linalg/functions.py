"""The matrix exponential, the LDL factorization, and distances between rows."""

import numpy as np

from .base import _batch, _cabs1, _expand, _eye, _stack
from .lu import _pivot_rows

# --------------------------------------------------------------------------
# matrix exponential
# --------------------------------------------------------------------------

_PADE = {
    3: (120., 60., 12., 1.),
    5: (30240., 15120., 3360., 420., 30., 1.),
    7: (17297280., 8648640., 1995840., 277200., 25200., 1512., 56., 1.),
    9: (17643225600., 8821612800., 2075673600., 302702400., 30270240., 2162160.,
        110880., 3960., 90., 1.),
    13: (64764752532480000., 32382376266240000., 7771770303897600., 1187353796428800.,
         129060195264000., 10559470521600., 670442572800., 33522128640., 1323241920.,
         40840800., 960960., 16380., 182., 1.),
}
_PADE_REACH = ((3, 1.495585217958292e-2), (5, 2.539398330063230e-1),
               (7, 9.504178996162932e-1), (9, 2.097847961257068))
_PADE_LIMIT = 5.371920351148152


def _pade(a, degree):
    """Diagonal Pade approximant of exp for a stack of small-norm matrices."""
    c = _PADE[degree]
    eye = _eye((), a.shape[-1], a.shape[-1], a.dtype)
    a2 = a @ a
    if degree == 13:
        a4 = a2 @ a2
        a6 = a4 @ a2
        odd = a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2)
        odd = a @ (odd + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * eye)
        even = a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2)
        even = even + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * eye
    else:
        power = a2
        odd = c[1] * eye + c[3] * a2
        even = c[0] * eye + c[2] * a2
        for i in range(4, degree, 2):
            power = power @ a2
            even = even + c[i] * power
            odd = odd + c[i + 1] * power
        odd = a @ odd
    return np.linalg.solve(even - odd, even + odd)


def matrix_exp(a):
    """exp of each matrix by scaling and squaring (float32 works in float64)."""
    n = a.shape[-1]
    if a.size == 0:
        return np.zeros(a.shape, a.dtype)
    with np.errstate(all="ignore"):
        if n == 1:
            return np.exp(a)
        work = _stack(a).astype(np.result_type(a.dtype, np.float64), copy=False)
        norm = np.abs(work).sum(-2).max(-1)
        ok = np.isfinite(norm)
        if not ok.all():
            work = np.where(ok[:, None, None], work, 0)
            norm = np.where(ok, norm, 0)
        top = norm.max()
        degree = 13
        for d, reach in _PADE_REACH:
            if top <= reach:
                degree = d
                break
        squarings = np.zeros(len(work), np.int64)
        if degree == 13:
            squarings = np.maximum(np.ceil(np.log2(norm / _PADE_LIMIT)), 0)
            squarings = np.where(norm > 0, squarings, 0).astype(np.int64)
            work = work * np.ldexp(1.0, -squarings)[:, None, None]
        out = _pade(work, degree)
        for step in range(int(squarings.max())):
            todo = squarings > step
            if todo.all():
                out = out @ out
            else:
                part = out[todo]
                out[todo] = part @ part
        if not ok.all():
            out[~ok] = np.nan
        return out.astype(a.dtype, copy=False).reshape(a.shape)


# --------------------------------------------------------------------------
# LDL (Bunch-Kaufman)
# --------------------------------------------------------------------------

def _solve_2x2(d1, c, d2, b1, b2, herm):
    """(x, y) of [[d1, c*], [c, d2]] [x, y] = [b1, b2]; c* is c unless ``herm``."""
    cc = np.conj(c) if herm else c
    p, q = d1 / cc, d2 / c
    s, t = b1 / cc, b2 / c
    den = p * q - 1
    return (q * s - t) / den, (p * t - s) / den


def _swap(x, y):
    saved = x.copy()
    x[...] = y
    y[...] = saved


def _ldl_pivot(a, k, magnitude):
    """(row to exchange, 1 or 2 columns at a time) for column k; no row where the column is zero or NaN."""
    alpha, here, colmax, imax = (1 + 17 ** 0.5) / 8, magnitude(k), 0, k
    if k < len(a) - 1:
        below = _cabs1(a[k + 1:, k])
        imax = int(_pivot_rows(below[None])[0])
        colmax = below[imax]
        imax += k + 1
    if not (here > 0 or colmax > 0) or here != here:
        return None, 1
    if here >= alpha * colmax:
        return k, 1
    rowmax = _cabs1(a[imax, k:imax]).max()
    if imax < len(a) - 1:
        rowmax = max(rowmax, _cabs1(a[imax + 1:, imax]).max())
    if here >= alpha * colmax * (colmax / rowmax):
        return k, 1
    return imax, 1 if magnitude(imax) >= alpha * rowmax else 2


def _ldl_exchange(a, k, row, other, conj):
    """Exchanges two rows and columns of what is left of the lower triangle from column k on."""
    _swap(a[other + 1:, row], a[other + 1:, other])
    between = conj(a[other, row + 1:other].copy())
    a[other, row + 1:other] = conj(a[row + 1:other, row])
    a[row + 1:other, row] = between
    a[other, row] = conj(a[other, row])
    a[row, row], a[other, other] = a[other, other], a[row, row]
    if row != k:
        a[k + 1, k], a[other, k] = a[other, k], a[k + 1, k]


def _ldl_one(a, herm):
    """Bunch-Kaufman factor of one matrix, lower triangle, in place."""
    n = a.shape[0]
    pivots = np.empty(n, np.int32)
    info = k = 0
    conj = np.conj if herm else (lambda z: z)

    def magnitude(i):
        return abs(a[i, i].real) if herm else _cabs1(a[i, i])

    while k < n:
        found, step = _ldl_pivot(a, k, magnitude)
        kp, row, rest = k if found is None else found, k + step - 1, k + step
        if found is None:
            info = info or k + 1
        elif kp != row:
            _ldl_exchange(a, k, row, kp, conj)
        if herm:
            for i in (k, row, kp):
                a[i, i] = a[i, i].real
        if found is not None and rest < n:
            w = a[rest:, k:rest].copy()
            if step == 1:
                a[rest:, k:rest] = w / a[k, k]
            else:  # rows l of L solve l D = w, i.e. D^T l^T = w^T
                a[rest:, k], a[rest:, k + 1] = _solve_2x2(a[k, k], conj(a[k + 1, k]), a[k + 1, k + 1], w[:, 0], w[:, 1], herm)
            a[rest:, rest:] -= a[rest:, k:rest] @ conj(w).T
            if herm:
                i = np.arange(rest, n)
                a[i, i] = a[i, i].real
        pivots[k:rest] = kp + 1 if step == 1 else -(kp + 1)
        k = rest
    return pivots, info


def ldl_factor_ex(a, hermitian=False):
    """(LD, pivots, info) of a symmetric or Hermitian matrix, LAPACK's packing."""
    herm = bool(hermitian) and np.iscomplexobj(a)
    batch, n = a.shape[:-2], a.shape[-1]
    flat = np.tril(_stack(a))
    pivots = np.zeros((len(flat), n), np.int32)
    info = np.zeros(len(flat), np.int32)
    with np.errstate(all="ignore"):
        for i in range(len(flat)):
            pivots[i], info[i] = _ldl_one(flat[i], herm)
    return (np.tril(flat).reshape(a.shape), pivots.reshape(batch + (n,)), info.reshape(batch))


def _ldl_solve_one(ld, pivots, b, herm):
    n = ld.shape[0]
    conj = np.conj if herm else (lambda z: z)
    k = 0
    while k < n:
        p = int(pivots[k])
        step = 1 if p > 0 else 2
        row, kp = k + step - 1, abs(p) - 1
        if kp != row:
            b[[row, kp]] = b[[kp, row]]
        rest = k + step
        b[rest:] -= ld[rest:, k:rest] @ b[k:rest]
        if step == 1:
            b[k] /= ld[k, k]
        else:
            b[k], b[k + 1] = _solve_2x2(ld[k, k], ld[k + 1, k], ld[k + 1, k + 1],
                                        b[k].copy(), b[k + 1].copy(), herm)
        k = rest
    k = n
    while k > 0:
        p = int(pivots[k - 1])
        step = 1 if p > 0 else 2
        b[k - step:k] -= conj(ld[k:, k - step:k]).T @ b[k:]
        row, kp = k - 1, abs(p) - 1
        if kp != row:
            b[[row, kp]] = b[[kp, row]]
        k -= step


def ldl_solve(ld, pivots, b, hermitian=False):
    """Solve ``A X = b`` from ``ldl_factor``'s output; batches broadcast."""
    herm = bool(hermitian) and np.iscomplexobj(ld)
    batch = _batch(ld.shape[:-2], pivots.shape[:-1], b.shape[:-2])
    x = _expand(b, batch)
    factors = np.broadcast_to(ld, batch + ld.shape[-2:])
    order = np.broadcast_to(pivots, batch + pivots.shape[-1:])
    with np.errstate(all="ignore"):
        for at in np.ndindex(*batch):
            _ldl_solve_one(factors[at], order[at], x[at], herm)
    return x


# --------------------------------------------------------------------------
# pairwise distances
# --------------------------------------------------------------------------

_CDIST_CHUNK = 1 << 20


def cdist(x1, x2, p=2.0, compute_mode=0):
    """p-norm distances between the rows of ``x1`` (..., P, M) and ``x2`` (..., R, M).

    ``compute_mode``: 0 picks the matmul form of p = 2 when either row count is
    above 25, 1 always uses it for p = 2, 2 never does.
    """
    p = float(p)
    batch = _batch(x1.shape[:-2], x2.shape[:-2])
    rows, cols, width = x1.shape[-2], x2.shape[-2], x1.shape[-1]
    out = np.zeros(batch + (rows, cols), x1.dtype)
    if out.size == 0 or width == 0:
        return out
    with np.errstate(all="ignore"):
        if p == 2 and (compute_mode == 1 or
                       (compute_mode == 0 and (rows > 25 or cols > 25))):
            n1 = (x1 * x1).sum(-1, keepdims=True)
            n2 = (x2 * x2).sum(-1, keepdims=True)
            lhs = np.concatenate([-2 * x1, n1, np.ones_like(n1)], -1)
            rhs = np.concatenate([x2, np.ones_like(n2), n2], -1)
            square = lhs @ rhs.swapaxes(-1, -2)
            return np.sqrt(np.maximum(square, 0))
        per_row = max(1, out.size // rows * width)
        block = max(1, _CDIST_CHUNK // per_row)
        for i in range(0, rows, block):
            gap = x1[..., i:i + block, None, :] - x2[..., None, :, :]
            np.abs(gap, out=gap)
            if p == 0:
                part = np.minimum(np.ceil(gap), 1).sum(-1)
            elif p == 1:
                part = gap.sum(-1)
            elif p == 2:
                part = np.sqrt((gap * gap).sum(-1))
            elif p == np.inf:
                part = np.fmax(np.fmax.reduce(gap, axis=-1), 0)  # 0 where all are nan
            else:
                part = (gap ** x1.dtype.type(p)).sum(-1) ** x1.dtype.type(1 / p)
            out[..., i:i + block, :] = part
    return out
