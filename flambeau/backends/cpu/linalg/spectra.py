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
    return (np.array(packed.swapaxes(-1, -2), dtype=a.dtype, order="C"),
            np.array(tau, dtype=a.dtype))


def qr(a, mode="reduced"):
    """(Q, R) for mode ``reduced``, ``complete`` or ``r`` (Q empty)."""
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' "
            "(default), 'r', or 'complete'")
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
    return u, s, vh


def svdvals(a):
    if a.size == 0:
        return np.zeros(a.shape[:-2] + (min(a.shape[-2:]),), _real_dtype(a.dtype))
    return _svd_call(a, compute_uv=False)[0]


def _triangle_finite(a, uplo):
    return _finite_matrices(np.tril(a) if uplo == "L" else np.triu(a))


def eigh(a, uplo="L"):
    """(eigenvalues ascending, eigenvectors); non-finite matrices give NaN."""
    uplo = uplo.upper()
    if a.size == 0:
        return np.zeros(a.shape[:-1], _real_dtype(a.dtype)), np.zeros(a.shape, a.dtype)
    ok = _triangle_finite(a, uplo)
    every = ok.all()
    src = a if every else np.where(ok[..., None, None], a, 0)
    with np.errstate(all="ignore"):
        try:
            w, v = np.linalg.eigh(src, UPLO=uplo)
        except np.linalg.LinAlgError:
            raise _failure("eig", "linalg.eigh", a.shape[-1] - 1,
                           0 if a.ndim > 2 else None) from None
    if not every:
        w = np.where(ok[..., None], w, np.nan).astype(w.dtype)
        v = np.where(ok[..., None, None], v, np.nan).astype(v.dtype)
    return w, v


def eigvalsh(a, uplo="L"):
    uplo = uplo.upper()
    if a.size == 0:
        return np.zeros(a.shape[:-1], _real_dtype(a.dtype))
    ok = _triangle_finite(a, uplo)
    every = ok.all()
    src = a if every else np.where(ok[..., None, None], a, 0)
    with np.errstate(all="ignore"):
        try:
            w = np.linalg.eigvalsh(src, UPLO=uplo)
        except np.linalg.LinAlgError:
            raise _failure("eig", "linalg.eigh", a.shape[-1] - 1,
                           0 if a.ndim > 2 else None) from None
    return w if every else np.where(ok[..., None], w, np.nan).astype(w.dtype)


def _eig_input(a, name):
    if not np.isfinite(a).all():
        raise RuntimeError(f"torch.{name}: input tensor should not contain infs or NaNs.")


def eig(a):
    """(eigenvalues, right eigenvectors), always complex."""
    dtype = _complex_dtype(a.dtype)
    if a.size == 0:
        return np.zeros(a.shape[:-1], dtype), np.zeros(a.shape, dtype)
    _eig_input(a, "linalg.eig")
    with np.errstate(all="ignore"):
        try:
            w, v = np.linalg.eig(a)
        except np.linalg.LinAlgError:
            raise _failure("eig", "linalg.eig", a.shape[-1] - 1,
                           0 if a.ndim > 2 else None) from None
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False)


def eigvals(a):
    dtype = _complex_dtype(a.dtype)
    if a.size == 0:
        return np.zeros(a.shape[:-1], dtype)
    _eig_input(a, "linalg.eigvals")
    with np.errstate(all="ignore"):
        try:
            w = np.linalg.eigvals(a)
        except np.linalg.LinAlgError:
            raise _failure("eig", "linalg.eigvals", a.shape[-1] - 1,
                           0 if a.ndim > 2 else None) from None
    return w.astype(dtype, copy=False)


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


def lstsq(a, b, rcond=None, driver="gelsy"):
    """(solution, residuals, rank, singular_values) as torch.linalg.lstsq on CPU.

    Results a driver does not define are empty.  ``b`` may be a batch of
    vectors; rank and singular values have ``a``'s batch shape.
    """
    if driver is None:
        driver = "gelsy"
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of "
                           "(gels, gelsy, gelsd, gelss)")
    vector = _is_vector_rhs(a, b)
    if vector:
        b = b[..., None]
    m, n = a.shape[-2:]
    k = min(m, n)
    real = _real_dtype(a.dtype)
    eps = float(np.finfo(real).eps)
    abatch = a.shape[:-2]
    batch = _batch(abatch, b.shape[:-2])
    nrhs = b.shape[-1]
    if rcond is None:
        rcond = eps * max(m, n)
    elif rcond < 0:
        rcond = eps
    x = np.zeros(batch + (n, nrhs), a.dtype)
    residuals = np.empty(0, real)
    rank = np.empty(0, np.int64)
    values = np.empty(0, real)
    if driver != "gels":
        rank = np.zeros(abatch, np.int64)
    if driver in ("gelsd", "gelss"):
        values = np.zeros(abatch + (k,), real)

    if k and a.size and not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise LinAlgError("torch.linalg.lstsq: the input contains non-finite values.")
    with np.errstate(all="ignore"):
        if a.size == 0:
            pass
        elif driver == "gels":
            x = _full_rank_lstsq(a, b, nrhs > 0)
        elif driver == "gelsy":
            if nrhs and x.size:
                s = svdvals(a)
                if (s[..., -1] > 10 * rcond * s[..., 0]).all():
                    rank[...] = k
                    x = _full_rank_lstsq(a, b, False)
                else:
                    af = np.broadcast_to(a, batch + (m, n))
                    bf = np.broadcast_to(b, batch + (m, nrhs))
                    ranks = np.zeros(batch, np.int64)
                    for at in np.ndindex(*batch):
                        x[at], ranks[at] = _pivoted_lstsq(af[at], bf[at], rcond)
                    pick = tuple(slice(0, d) for d in abatch)
                    lead = (0,) * (len(batch) - len(abatch))
                    rank = np.array(ranks[lead + pick]).reshape(abatch)
        else:
            u, values, vh = svd(a, False)
            cut = np.maximum(values[..., :1] * rcond, np.finfo(real).tiny)
            keep = values > cut
            rank = np.asarray(keep.sum(-1), np.int64)
            scale = np.where(keep, 1 / np.where(keep, values, 1), 0).astype(real)
            x = _h(vh) @ (scale[..., None] * (_h(u) @ b))
            values = values.astype(real, copy=False)
        if m > n and (driver == "gels" or (driver != "gelsy" and (rank == n).all())):
            if n == 0 and driver == "gels":
                residuals = np.zeros(batch + (nrhs,), real)
            else:
                gap = b - a @ x
                if np.iscomplexobj(gap):
                    residuals = (gap.real ** 2 + gap.imag ** 2).sum(-2)
                else:
                    residuals = (gap ** 2).sum(-2)
                if nrhs == 0 and not batch:
                    residuals = np.empty(0, real)
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
