"""Cholesky and LU factorizations and what follows from them: systems, inverses, determinants."""

import numpy as np

from .base import (
    _batch,
    _cabs1,
    _contig,
    _diag,
    _expand,
    _eye,
    _finite_matrices,
    _h,
    _is_vector_rhs,
    _real_dtype,
    _stack,
    _substitute,
    check_info,
)

# --------------------------------------------------------------------------
# Cholesky
# --------------------------------------------------------------------------

def _cholesky_one(a):
    """Column-by-column factor of one Hermitian matrix (lower), with info.

    On failure the columns from the failing one on keep the input's values.
    """
    a = np.tril(a)
    for j in range(a.shape[0]):
        row = a[j, :j]
        pivot = a[j, j].real - np.vdot(row, row).real
        if not pivot > 0:
            a[j, j] = pivot
            return a, j + 1
        pivot = np.sqrt(pivot)
        a[j, j] = pivot
        a[j + 1:, j] = (a[j + 1:, j] - a[j + 1:, :j] @ row.conj()) / pivot
    return a, 0


def cholesky_ex(a, upper=False):
    """(factor, info): lower L of ``a = L L^H``, or upper U of ``a = U^H U``."""
    src = _h(a) if upper else a
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size == 0:
        return np.zeros(a.shape, a.dtype), info
    with np.errstate(all="ignore"):
        if np.iscomplexobj(a):
            src = np.array(src)
            k = np.arange(a.shape[-1])
            src.imag[..., k, k] = 0
        try:
            out = np.linalg.cholesky(src)
            bad = not np.isfinite(_diag(out)).all()
        except np.linalg.LinAlgError:
            bad = True
        if bad:
            flat = _stack(src)
            out = np.empty_like(flat)
            codes = np.zeros(len(flat), np.int32)
            for i, matrix in enumerate(flat):
                try:
                    out[i] = np.linalg.cholesky(matrix)
                    retry = not np.isfinite(_diag(out[i])).all()
                except np.linalg.LinAlgError:
                    retry = True
                if retry:
                    out[i], codes[i] = _cholesky_one(matrix)
            out = out.reshape(a.shape)
            info = codes.reshape(info.shape)
    return (_contig(_h(out)) if upper else out), info


def cholesky_solve(b, factor, upper=False):
    """Solve ``A X = b`` from the Cholesky factor of A."""
    low = _h(factor) if upper else factor
    x = _expand(b, _batch(factor.shape[:-2], b.shape[:-2]))
    with np.errstate(all="ignore"):
        _substitute(low, x, True, False)
        _substitute(_h(low), x, False, False)
    return x


def cholesky_inverse(factor, upper=False):
    """Inverse of the matrix whose Cholesky factor is given."""
    n = factor.shape[-1]
    if n == 0:
        return np.zeros(factor.shape, factor.dtype)
    zero = _diag(factor) == 0
    check_info(np.where(zero.any(-1), zero.argmax(-1) + 1, 0), "cholesky_inverse")
    low = _h(factor) if upper else factor
    w = _eye(factor.shape[:-2], n, n, factor.dtype)
    with np.errstate(all="ignore"):
        _substitute(low, w, True, False)
        return _h(w) @ w


# --------------------------------------------------------------------------
# LU
# --------------------------------------------------------------------------

def _pivot_rows(mag):
    """Index of the first maximum of each row, NaN losing every comparison."""
    nan = np.isnan(mag)
    if nan.any():
        p = np.where(nan, -1, mag).argmax(-1)
        p[nan[:, 0]] = 0
        return p
    return mag.argmax(-1)


def _lu_inplace(a):
    """Right-looking blocked LU with partial pivoting over a (N, m, n) stack."""
    size, m, n = a.shape
    k = min(m, n)
    pivots = np.empty((size, k), np.int32)
    info = np.zeros(size, np.int32)
    width = 32 if k > 48 else max(k, 1)
    for j0 in range(0, k, width):
        j1 = min(j0 + width, k)
        for j in range(j0, j1):
            p = _pivot_rows(_cabs1(a[:, j:, j]))
            pivots[:, j] = p + (j + 1)
            moved = np.flatnonzero(p)
            if moved.size:
                rows = p[moved] + j
                saved = a[moved, j]
                a[moved, j] = a[moved, rows]
                a[moved, rows] = saved
            pivot = a[:, j, j]
            zero = pivot == 0
            if zero.any():
                info[zero & (info == 0)] = j + 1
                pivot = np.where(zero, pivot.dtype.type(1), pivot)
            if j + 1 < m:
                a[:, j + 1:, j] /= pivot[:, None]
                if j + 1 < j1:
                    a[:, j + 1:, j + 1:j1] -= a[:, j + 1:, j, None] * a[:, j, None, j + 1:j1]
        if j1 < n:
            top = a[:, j0:j1, j1:]
            _substitute(a[:, j0:j1, j0:j1], top, True, True)
            if j1 < m:
                a[:, j1:, j1:] -= a[:, j1:, j0:j1] @ top
    return pivots, info


def lu_factor_ex(a, pivot=True):
    """(LU, pivots, info); pivots are int32 and 1-based as in LAPACK."""
    if not pivot:
        raise RuntimeError(
            "linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    flat = _stack(a)
    batch, k = a.shape[:-2], min(a.shape[-2:])
    with np.errstate(all="ignore"):
        pivots, info = _lu_inplace(flat)
    return flat.reshape(a.shape), pivots.reshape(batch + (k,)), info.reshape(batch)


def _permutation(pivots, m):
    """Row order ``perm`` with ``(P^T B)[i] = B[perm[i]]`` for LAPACK pivots."""
    batch, k = pivots.shape[:-1], pivots.shape[-1]
    piv = pivots.reshape(-1, k) if k else np.zeros((int(np.prod(batch)), 0), np.int32)
    perm = np.tile(np.arange(m), (len(piv), 1))
    rows = np.arange(len(piv))
    for j in range(k):
        q = piv[:, j] - 1
        saved = perm[:, j].copy()
        perm[:, j] = perm[rows, q]
        perm[rows, q] = saved
    return perm.reshape(batch + (m,))


def lu_unpack(lu, pivots, unpack_data=True, unpack_pivots=True):
    """(P, L, U) with ``A = P L U``; a part not asked for comes back empty."""
    m, n = lu.shape[-2:]
    k = min(m, n)
    p = low = up = np.empty(0, lu.dtype)
    if unpack_pivots:
        if pivots.size and not (1 <= pivots.min() and pivots.max() <= m):
            raise RuntimeError("pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                               f"Did you properly pass the result of lu_factor? Got {pivots.min()} to {pivots.max()}, {m} rows")
        perm = _permutation(pivots, m)
        p = np.zeros(perm.shape + (m,), lu.dtype)
        np.put_along_axis(p, perm[..., None, :], 1, axis=-2)
    if unpack_data:
        low = np.tril(lu[..., :, :k], -1)
        i = np.arange(k)
        low[..., i, i] = 1
        up = np.triu(lu[..., :k, :])
    return p, low, up


def lu_solve(lu, pivots, b, left=True, adjoint=False):
    """Solve ``A X = b`` / ``A^H X = b`` / ``X A = b`` / ``X A^H = b`` from LU."""
    if not left:
        return _contig(_h(lu_solve(lu, pivots, _h(b), True, not adjoint)))
    n = lu.shape[-1]
    for wrong, words in ((pivots < 1, "greater or equal to 1"), (pivots > n, "smaller or equal to LU.size(-2)")):
        if wrong.any():
            raise RuntimeError(f"Pivots given to lu_solve must all be {words}. Did you properly pass the result of lu_factor?")
    x = _expand(b, _batch(lu.shape[:-2], pivots.shape[:-1], b.shape[:-2]))
    perm = _permutation(pivots, n)[..., None]
    perm = np.broadcast_to(perm, x.shape[:-2] + (n, 1))
    with np.errstate(all="ignore"):
        if not adjoint:
            x = np.take_along_axis(x, perm, axis=-2)
            _substitute(lu, x, True, True)
            _substitute(lu, x, False, False)
            return x
        upper = _h(lu)
        _substitute(upper, x, True, False)
        _substitute(upper, x, False, True)
        out = np.empty_like(x)
        np.put_along_axis(out, perm, x, axis=-2)
        return out


def solve_ex(a, b, left=True, vector=None):
    """(X, LU, pivots, info); ``b`` may be a vector as torch.linalg.solve reads it."""
    if vector is None:
        vector = _is_vector_rhs(a, b)
    if vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is "
                           "not supported for left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)")
    rhs = b[..., None] if vector else b
    lu, pivots, info = lu_factor_ex(a)
    x = lu_solve(lu, pivots, rhs, left)
    return (x[..., 0] if vector else x), lu, pivots, info


def inv_ex(a):
    """(inverse, info)."""
    info = np.zeros(a.shape[:-2], np.int32)
    if a.size == 0:
        return np.zeros(a.shape, a.dtype), info
    with np.errstate(all="ignore"):
        try:
            return np.linalg.inv(a), info
        except np.linalg.LinAlgError:
            pass
    n = a.shape[-1]
    lu, pivots, info = lu_factor_ex(a)
    return lu_solve(lu, pivots, _eye((), n, n, a.dtype)), info


def _parity(pivots):
    swaps = (pivots != np.arange(1, pivots.shape[-1] + 1)).sum(-1)
    return 1 - 2 * (swaps % 2)


def _lu_for_det(a):
    # PyTorch factors the transpose of a real matrix here; the rounding follows.
    lu, pivots, _ = lu_factor_ex(a if np.iscomplexobj(a) else a.swapaxes(-1, -2))
    return _diag(lu), _parity(pivots).astype(a.dtype)


def det(a):
    d, parity = _lu_for_det(a)
    with np.errstate(all="ignore"):
        return np.asarray(np.prod(d, axis=-1) * parity, a.dtype)


def slogdet(a):
    """(sign, logabsdet); the logarithm is real."""
    d, parity = _lu_for_det(a)
    with np.errstate(all="ignore"):
        mag = np.abs(d)
        if np.iscomplexobj(a):
            unit = np.where(mag == 0, 0, d / np.where(mag == 0, 1, mag))
        else:
            unit = np.where(np.isnan(d), 0, np.sign(d)).astype(d.dtype)
        sign = np.asarray(np.prod(unit, axis=-1) * parity, a.dtype)
        return sign, np.asarray(np.log(mag).sum(-1), mag.dtype)


# --------------------------------------------------------------------------
# what the derivatives ask for
# --------------------------------------------------------------------------

def det_lu(a):
    """(det, LU, pivots); a real matrix is factored transposed, as in ``det``."""
    lu, pivots, _ = lu_factor_ex(a if np.iscomplexobj(a) else a.swapaxes(-1, -2))
    with np.errstate(all="ignore"):
        value = np.prod(_diag(lu), axis=-1) * _parity(pivots).astype(a.dtype)
    return np.asarray(value, a.dtype), lu, pivots


def _adjugate_of_triangle(u):
    """The adjugates of upper triangular matrices, (N, n, n), without a division: pivots may be zero.

    Entry (i, j) is the pivots before i, those after j, and between them what u @ adj(u) = det(u) I asks for.
    """
    n = u.shape[-1]
    pivots = _diag(u)
    between = np.zeros_like(u)
    for i in range(n - 1, -1, -1):
        between[:, i, i] = 1
        products = np.cumprod(pivots[:, i + 1:n - 1], -1)
        row = u[:, i, i + 1:].copy()
        row[:, 1:] *= products
        between[:, i, i + 1:] = -(row[:, None] @ between[:, i + 1:, i + 1:])[:, 0]
    ones = np.ones((len(u), 1), u.dtype)
    before = np.cumprod(np.concatenate([ones, pivots[:, :-1]], -1), -1)
    after = np.cumprod(np.concatenate([ones, pivots[:, :0:-1]], -1), -1)[:, ::-1]
    return before[:, :, None] * between * after[:, None]


def cofactor_lu(lu, pivots, value):
    """The cofactors of matrices that ``det_lu`` factored: det times the inverse, or other ways where det is (next to) zero."""
    n = lu.shape[-1]
    with np.errstate(all="ignore"):
        adjugate = lu_solve(lu, pivots, value[..., None, None] * _eye((), n, n, lu.dtype))
        small = np.abs(value) < np.finfo(lu.dtype).tiny
        if small.any():
            factors, piv = lu[small], pivots[small]
            rest = np.take_along_axis(_eye(factors.shape[:1], n, n, lu.dtype), _permutation(piv, n)[..., None], axis=-2)
            _substitute(factors, rest, True, True)
            rest *= _parity(piv).astype(lu.dtype)[..., None, None]
            adjugate[small] = _adjugate_of_triangle(np.triu(factors)) @ rest
    return _contig(adjugate.swapaxes(-1, -2)) if np.iscomplexobj(lu) else adjugate


def cofactor(a):
    """The matrix of cofactors: the derivative of det."""
    value, factors, pivots = det_lu(a)
    return cofactor_lu(factors, pivots, value)


def steps_aside(a):
    """(2, *a.shape): steps that lead from a singular matrix to regular ones on either side; zero for a regular one."""
    step = np.zeros_like(a)
    some = _finite_matrices(a)
    if a.size and some.any():
        u, s, vh = np.linalg.svd(a[some])
        step[some] = (u * _step_lengths(s)[..., None, :]) @ vh
    return np.stack([step, -step])


def _step_lengths(s):
    """How far singular values move: one small one past the next larger, several zeros a little way towards it."""
    eps, largest = np.finfo(s.dtype).eps, s[..., :1]
    nothing = s.shape[-1] * eps * largest
    small = s <= nothing
    small[..., -1:] |= s[..., -1:] < np.sqrt(eps) * largest
    larger = np.where(small, np.inf, s).min(-1, keepdims=True)
    larger[np.isinf(larger)] = 1
    several = np.maximum(eps**0.25 * larger, 4 * nothing)
    return np.where(small, np.where(small.sum(-1, keepdims=True) > 1, several, 2 * larger), 0).astype(s.dtype)


def lu(a, pivot=True):
    """(P, L, U)."""
    factors, pivots, _ = lu_factor_ex(a, pivot)
    return lu_unpack(factors, pivots)


# --------------------------------------------------------------------------
# the same by NumPy's LAPACK, for what needs no factors afterwards
# --------------------------------------------------------------------------

def solve_lapack(a, b, left, vector):
    """(X, info); some ten times faster than ``solve_ex``, which takes over for singular matrices."""
    rhs = b[..., None] if vector else b
    try:
        with np.errstate(all="ignore"):
            if left:
                x = np.linalg.solve(a, rhs)
            else:
                x = _contig(np.linalg.solve(a.swapaxes(-1, -2), rhs.swapaxes(-1, -2)).swapaxes(-1, -2))
    except np.linalg.LinAlgError:
        x, _, _, info = solve_ex(a, b, left, vector)
        return x, info
    return (x[..., 0] if vector else x), np.zeros(a.shape[:-2], np.int32)


def slogdet_lapack(a):
    """(sign, logabsdet); nan has the sign 0, as in PyTorch."""
    with np.errstate(all="ignore"):
        sign, size = np.linalg.slogdet(a)
    if not np.iscomplexobj(a):
        sign = np.where(np.isnan(sign), 0, sign)
    return np.asarray(sign, a.dtype), np.asarray(size, _real_dtype(a.dtype))


def det_lapack(a):
    """det by way of its logarithm; single precision goes through double, so nothing is lost."""
    wide = a.astype(np.result_type(a.dtype, np.float64), copy=False)
    with np.errstate(all="ignore"):
        sign, size = np.linalg.slogdet(wide)
        return np.asarray(sign * np.exp(size), a.dtype)
