"""Orthogonal factors and spectra: QR, singular values, eigenvalues, least squares, pseudo-inverse."""

import numpy as np

from .base import (
    LinAlgError,
    _batch,
    _complex_dtype,
    _contig,
    _diag,
    _expand,
    _eye,
    _failure,
    _finite_matrices,
    _h,
    _is_vector_rhs,
    _real_dtype,
    check_info,
    solve_triangular,
)

# --------------------------------------------------------------------------
# QR and Householder reflectors
# --------------------------------------------------------------------------

def geqrf(a):
    """(packed, tau): R in the upper triangle, reflector tails below it."""
    m, n = a.shape[-2:]
    k = min(m, n)
    if a.size == 0:
        return np.zeros(a.shape, a.dtype), np.zeros(a.shape[:-2] + (k,), a.dtype)
    with np.errstate(all="ignore"):
        packed, tau = np.linalg.qr(a, mode="raw")
    return (np.array(packed.swapaxes(-1, -2), dtype=a.dtype, order="C"), np.array(tau, dtype=a.dtype))


def qr(a, mode="reduced"):
    """(Q, R) for mode ``reduced``, ``complete`` or ``r`` (Q empty)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    m, n = a.shape[-2:]
    k = min(m, n)
    batch = a.shape[:-2]
    if a.size == 0:
        cols = m if mode == "complete" else k
        q = np.empty(0, a.dtype) if mode == "r" else _eye(batch, m, cols, a.dtype)
        return q, np.zeros(batch + (cols, n), a.dtype)
    with np.errstate(all="ignore"):
        if mode == "r":
            return np.empty(0, a.dtype), np.linalg.qr(a, mode="r").astype(a.dtype, copy=False)
        q, r = np.linalg.qr(a, mode=mode)
    return q.astype(a.dtype, copy=False), r.astype(a.dtype, copy=False)


def _apply_reflectors(a, tau, c, adjoint):
    """Q @ c (or Q^H @ c) in place, Q the product of ``a``'s reflectors.

    Reflectors are grouped in blocks I - V T V^H so that the work is matmuls.
    """
    m, k = c.shape[-2], tau.shape[-1]
    width = 32
    starts = range(0, k, width)
    for j0 in starts if adjoint else reversed(starts):
        j1 = min(j0 + width, k)
        w = j1 - j0
        v = np.tril(a[..., j0:m, j0:j1], -1)
        i = np.arange(min(w, m - j0))
        v[..., i, i] = 1
        vh = _h(v)
        gram = vh @ v
        t = np.zeros(gram.shape, c.dtype)
        for s in range(w):
            ts = tau[..., j0 + s, None]
            t[..., s, s] = ts[..., 0]
            if s:
                t[..., :s, s] = -ts * (t[..., :s, :s] @ gram[..., :s, s, None])[..., 0]
        block = c[..., j0:, :]
        block -= v @ ((_h(t) if adjoint else t) @ (vh @ block))


def householder_product(a, tau):
    """First ``n`` columns of the product of the k reflectors stored in ``a``."""
    batch = _batch(a.shape[:-2], tau.shape[:-1])
    out = _eye(batch, a.shape[-2], a.shape[-1], a.dtype)
    if out.size:
        with np.errstate(all="ignore"):
            _apply_reflectors(a, tau, out, False)
    return out


def ormqr(a, tau, c, left=True, transpose=False):
    """Product of the implicit Q (or Q^H when ``transpose``) with ``c``."""
    src = c if left else _h(c)
    out = _expand(src, _batch(a.shape[:-2], tau.shape[:-1], c.shape[:-2]))
    if out.size:
        with np.errstate(all="ignore"):
            _apply_reflectors(a, tau, out, transpose if left else not transpose)
    return out if left else _contig(_h(out))


# --------------------------------------------------------------------------
# singular values, eigenvalues
# --------------------------------------------------------------------------

def _svd_call(a, **options):
    """numpy's svd; NaN raises as in PyTorch, an infinite matrix yields NaN."""
    ok = _finite_matrices(a)
    every = ok.all()
    if not every:
        nan = np.isnan(a).any(axis=(-2, -1))
        if nan.any():
            where = f"(Batch element {int(nan.argmax())}): " if a.ndim > 2 else ""
            raise LinAlgError(f"linalg.svd: {where}The algorithm failed to converge because "
                              "the input matrix contained non-finite values.")
        a = np.where(ok[..., None, None], a, 0)
    with np.errstate(all="ignore"):
        try:
            out = np.linalg.svd(a, **options)
        except np.linalg.LinAlgError:
            raise _failure("svd", "linalg.svd", min(a.shape[-2:]) - 1,
                           0 if a.ndim > 2 else None) from None
        out = list(out) if isinstance(out, tuple) else [out]
        if not every:
            for part in out:
                part[~ok] = np.nan
    return out


def _by_columns(a):
    """Matrices stored column by column, as LAPACK has them."""
    return np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)


def svd(a, full_matrices=True):
    """(U, S, Vh)."""
    m, n = a.shape[-2:]
    k = min(m, n)
    batch = a.shape[:-2]
    if a.size == 0:
        return (_eye(batch, m, m if full_matrices else k, a.dtype),
                np.zeros(batch + (k,), _real_dtype(a.dtype)),
                _eye(batch, n if full_matrices else k, n, a.dtype))
    u, s, vh = _svd_call(a, full_matrices=full_matrices)
    return _by_columns(u), s, _by_columns(vh)


def svdvals(a):
    if a.size == 0:
        return np.zeros(a.shape[:-2] + (min(a.shape[-2:]),), _real_dtype(a.dtype))
    return _svd_call(a, compute_uv=False)[0]


def _eigen(function, a, name, **options):
    """One of numpy's functions for eigenvalues, with PyTorch's error."""
    with np.errstate(all="ignore"):
        try:
            return function(a, **options)
        except np.linalg.LinAlgError:
            raise _failure("eig", name, a.shape[-1] - 1, 0 if a.ndim > 2 else None) from None


def _hermitian(function, a, uplo):
    """(what a function gives for finite matrices, zeros in the place of others; those others, None if there are none)."""
    uplo = uplo.upper()
    ok = _finite_matrices(np.tril(a) if uplo == "L" else np.triu(a))
    if ok.all():
        return _eigen(function, a, "linalg.eigh", UPLO=uplo), None
    return _eigen(function, np.where(ok[..., None, None], a, 0), "linalg.eigh", UPLO=uplo), ~ok


def eigh(a, uplo="L"):
    """(eigenvalues ascending, eigenvectors); non-finite matrices give NaN."""
    if a.size == 0:
        return np.zeros(a.shape[:-1], _real_dtype(a.dtype)), np.zeros(a.shape, a.dtype)
    (values, vectors), others = _hermitian(np.linalg.eigh, a, uplo)
    if others is not None:
        values[others], vectors[others] = np.nan, np.nan
    return values, vectors


def eigvalsh(a, uplo="L"):
    if a.size == 0:
        return np.zeros(a.shape[:-1], _real_dtype(a.dtype))
    values, others = _hermitian(np.linalg.eigvalsh, a, uplo)
    if others is not None:
        values[others] = np.nan
    return values


def _general(function, a, name):
    if not np.isfinite(a).all():
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")
    return _eigen(function, a, name)


def eig(a):
    """(eigenvalues, right eigenvectors), always complex."""
    dtype = _complex_dtype(a.dtype)
    if a.size == 0:
        return np.zeros(a.shape[:-1], dtype), np.zeros(a.shape, dtype)
    values, vectors = [part.astype(dtype, copy=False) for part in _general(np.linalg.eig, a, "linalg.eig")]
    return values, _by_columns(vectors)


def eigvals(a):
    dtype = _complex_dtype(a.dtype)
    if a.size == 0:
        return np.zeros(a.shape[:-1], dtype)
    return _general(np.linalg.eigvals, a, "linalg.eigvals").astype(dtype, copy=False)


# --------------------------------------------------------------------------
# least squares
# --------------------------------------------------------------------------

def _full_rank_lstsq(a, b, check):
    """Least-squares or minimum-norm solution through QR, full rank assumed."""
    m, n = a.shape[-2:]
    tall = m >= n
    q, r = qr(a if tall else _h(a))
    zero = _diag(r) == 0
    if check and zero.any():
        info = np.where(zero.any(-1), zero.argmax(-1) + 1, 0)
        check_info(info, "torch.linalg.lstsq")
    if tall:
        return solve_triangular(r, _h(q) @ b, True)
    return q @ solve_triangular(_h(r), b, False)


def _pivoted_lstsq(a, b, rcond):
    """(solution, rank) of one system: pivoted QR, then an orthogonal completion."""
    m, n = a.shape
    r, qb = a.copy(), b.copy()
    order = np.arange(n)
    k = min(m, n)
    for j in range(k):
        p = j + int((np.abs(r[j:, j:]) ** 2).sum(0).argmax())
        if p != j:
            r[:, [j, p]] = r[:, [p, j]]
            order[[j, p]] = order[[p, j]]
        v = r[j:, j].copy()
        norm = np.sqrt((np.abs(v) ** 2).sum())
        if norm == 0:
            continue
        head = v[0]
        phase = head / np.abs(head) if head != 0 else 1
        v[0] = head + phase * norm
        v /= np.sqrt((np.abs(v) ** 2).sum())
        r[j:, j:] -= 2 * np.outer(v, v.conj() @ r[j:, j:])
        qb[j:] -= 2 * np.outer(v, v.conj() @ qb[j:])
        r[j + 1:, j] = 0
    x = np.zeros((n, b.shape[1]), a.dtype)
    if k == 0 or r[0, 0] == 0:
        return x, 0
    low, high = 1, k                       # the test is monotone in the size
    while low < high:
        mid = (low + high + 1) // 2
        s = np.linalg.svd(r[:mid, :mid], compute_uv=False)
        if s[-1] >= rcond * s[0] and s[-1] > 0:
            low = mid
        else:
            high = mid - 1
    rank = low
    lead = r[:rank]
    if rank < n:
        q2, r2 = np.linalg.qr(_h(lead))
        y = q2 @ solve_triangular(_h(r2), qb[:rank], False)
    else:
        y = solve_triangular(lead[:, :rank], qb[:rank], True)
    x[order] = y
    return x, rank


def _by_rank(a, b, rcond, batch):
    """(solution, rank) by pivoted QR, where not all matrices have full rank."""
    x, ranks = np.zeros(batch + (a.shape[-1], b.shape[-1]), a.dtype), np.zeros(batch, np.int64)
    if not x.size:
        return x, np.zeros(a.shape[:-2], np.int64)
    s = svdvals(a)
    if (s[..., -1] > 10 * rcond * s[..., 0]).all():
        return _full_rank_lstsq(a, b, False), np.full(a.shape[:-2], s.shape[-1])
    every_a, every_b = [np.broadcast_to(v, batch + v.shape[-2:]) for v in (a, b)]
    for at in np.ndindex(*batch):
        x[at], ranks[at] = _pivoted_lstsq(every_a[at], every_b[at], rcond)
    first = (0,) * (len(batch) - a.ndim + 2) + tuple(slice(0, d) for d in a.shape[:-2])
    return x, np.array(ranks[first]).reshape(a.shape[:-2])


def _by_singular_values(a, b, rcond):
    """(solution, rank, singular values)."""
    u, values, vh = svd(a, False)
    keep = values > np.maximum(values[..., :1] * rcond, np.finfo(values.dtype).tiny)
    scale = np.where(keep, 1 / np.where(keep, values, 1), 0).astype(values.dtype)
    return _h(vh) @ (scale[..., None] * (_h(u) @ b)), np.asarray(keep.sum(-1), np.int64), values


def lstsq(a, b, rcond=None, driver="gelsy"):
    """(solution, residuals, rank, singular_values) as torch.linalg.lstsq on CPU.

    Results a driver does not define are empty.  ``b`` may be a batch of
    vectors; rank and singular values have ``a``'s batch shape.
    """
    driver = driver or "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    vector = _is_vector_rhs(a, b)
    b = b[..., None] if vector else b
    (m, n), real = a.shape[-2:], _real_dtype(a.dtype)
    batch = _batch(a.shape[:-2], b.shape[:-2])
    if rcond is None or rcond < 0:
        rcond = float(np.finfo(real).eps) * (max(m, n) if rcond is None else 1)
    x = np.zeros(batch + (n, b.shape[-1]), a.dtype)
    residuals = np.empty(0, real)
    values = np.zeros(a.shape[:-2] + (min(m, n),) if driver in ("gelsd", "gelss") else 0, real)
    rank = np.zeros(0 if driver == "gels" else a.shape[:-2], np.int64)
    if a.size and not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise LinAlgError("torch.linalg.lstsq: the input contains non-finite values.")
    with np.errstate(all="ignore"):
        if a.size and driver == "gels":
            x = _full_rank_lstsq(a, b, b.shape[-1] > 0)
        elif a.size and driver == "gelsy":
            x, rank = _by_rank(a, b, rcond, batch)
        elif a.size:
            x, rank, values = _by_singular_values(a, b, rcond)
        if m > n and (driver == "gels" or (driver != "gelsy" and (rank == n).all())) and (b.shape[-1] or batch):
            gap = b - a @ x if n or driver != "gels" else np.zeros_like(b)
            residuals = (gap.real ** 2 + gap.imag ** 2).sum(-2)
    return (_contig(x[..., 0]) if vector else x), residuals, rank, values


# --------------------------------------------------------------------------
# pseudo-inverse
# --------------------------------------------------------------------------

def pinv(a, atol, rtol, hermitian):
    """Pseudo-inverse; singular values up to max(atol, rtol * largest) count as zero."""
    m, n = a.shape[-2:]
    if a.size == 0:
        return np.zeros(a.shape[:-2] + (n, m), a.dtype)
    if hermitian:
        values, vectors = eigh(a)
        size = np.abs(values)
        left, right = vectors, _h(vectors)
    else:
        u, values, vh = svd(a, False)
        size, left, right = values, _h(vh), _h(u)
    cut = np.maximum(atol[..., None], rtol[..., None] * size.max(-1, keepdims=True)).astype(size.dtype)
    keep = size > cut
    with np.errstate(all="ignore"):
        inverse = np.where(keep, 1 / np.where(keep, values, 1), 0).astype(values.dtype)
    return (left * inverse[..., None, :]) @ right
