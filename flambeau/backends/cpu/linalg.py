"""Dense linear algebra kernels of the CPU backend.

Every kernel takes ``numpy.ndarray`` operands of one common dtype (float32,
float64, complex64 or complex128), batched over the leading dimensions, and
returns freshly allocated arrays of that same precision.  Kernels whose name
ends in ``_ex`` report failures through an int32 ``info`` array laid out like
the batch; ``check_info`` turns such an array into the error PyTorch raises.

NumPy exposes LAPACK only in part (no LU, no LDL, no triangular solve), so the
factorisations it lacks are written here, vectorised over the batch.
"""

import numpy as np


class LinAlgError(RuntimeError):
    """Raised when a factorisation or a solve cannot be completed."""


# --------------------------------------------------------------------------
# helpers
# --------------------------------------------------------------------------

_FAILURES = {
    "svd": "The algorithm failed to converge because the input matrix is ill-conditioned "
           "or has too many repeated singular values (error code: {}).",
    "eig": "The algorithm failed to converge because the input matrix is ill-conditioned "
           "or has too many repeated eigenvalues (error code: {}).",
    "lstsq": "The least squares solution could not be computed because the input matrix "
             "does not have full rank (error code: {}).",
    "inv": "The diagonal element {} is zero, the inversion could not be completed because "
           "the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not "
                "positive-definite (the leading minor of order {} is not positive-definite).",
    "solve": "The solver failed because the input matrix is singular.",
}


def _failure(kind, name, code, element=None):
    where = "" if element is None else f"(Batch element {element}): "
    return LinAlgError(f"{name}: {where}{_FAILURES[kind].format(code)}")


def check_info(info, name):
    """Raise the error PyTorch raises for the first non-zero entry of ``info``.

    ``name`` is the public name used in the message: ``linalg.inv``,
    ``linalg.cholesky``, ``torch.linalg.solve``, ``cholesky_inverse``, ...
    """
    info = np.asarray(info)
    flat = info.reshape(-1)
    if not flat.any():
        return
    i = int(np.flatnonzero(flat)[0])
    code = int(flat[i])
    if "lu_factor" in name:
        raise RuntimeError(
            f"torch.linalg.lu_factor: U[{code},{code}] is zero and using it on lu_solve would "
            "result in a division by zero. If you still want to perform the factorization, "
            "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")
    element = i if info.ndim else None
    for kind in ("inv", "cholesky", "lstsq", "solve", "svd", "eig"):
        if kind in name:
            raise _failure(kind, name, code, element)
    raise LinAlgError(f"{name}: Unknown error code: {code}.")


def _real_dtype(dtype):
    return np.empty(0, dtype).real.dtype


def _complex_dtype(dtype):
    return np.result_type(dtype, np.complex64)


def _h(a):
    """Conjugate transpose of the last two axes (a view when real)."""
    t = a.swapaxes(-1, -2)
    return t.conj() if np.iscomplexobj(a) else t


def _cabs1(a):
    """LAPACK's cheap magnitude: |re| + |im|."""
    if np.iscomplexobj(a):
        return np.abs(a.real) + np.abs(a.imag)
    return np.abs(a)


def _contig(a):
    return np.ascontiguousarray(a)


def _stack(a):
    """Copy of ``a`` with its batch dimensions folded into one."""
    size = 1
    for d in a.shape[:-2]:
        size *= d
    return np.array(a, order="C").reshape((size,) + a.shape[-2:])


def _eye(batch, m, n, dtype):
    out = np.zeros(tuple(batch) + (m, n), dtype)
    k = np.arange(min(m, n))
    out[..., k, k] = 1
    return out


def _diag(a):
    return np.diagonal(a, axis1=-2, axis2=-1)


def _batch(*shapes):
    return np.broadcast_shapes(*shapes)


def _expand(a, batch):
    """Writable C-ordered copy of ``a`` broadcast to batch shape ``batch``."""
    return np.array(np.broadcast_to(a, tuple(batch) + a.shape[-2:]), order="C")


def _finite_matrices(a):
    return np.isfinite(a).all(axis=(-2, -1))


def _is_vector_rhs(a, b):
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])


# --------------------------------------------------------------------------
# triangular systems
# --------------------------------------------------------------------------

def _substitute(a, x, lower, unit):
    """Solve ``a @ out = x`` in place on ``x``, reading one triangle of ``a``."""
    n = a.shape[-1]
    if n > 16:
        h = n // 2
        head, tail = x[..., :h, :], x[..., h:, :]
        if lower:
            _substitute(a[..., :h, :h], head, lower, unit)
            tail -= a[..., h:, :h] @ head
            _substitute(a[..., h:, h:], tail, lower, unit)
        else:
            _substitute(a[..., h:, h:], tail, lower, unit)
            head -= a[..., :h, h:] @ tail
            _substitute(a[..., :h, :h], head, lower, unit)
        return
    for i in range(n) if lower else range(n - 1, -1, -1):
        done = slice(0, i) if lower else slice(i + 1, n)
        row = x[..., i:i + 1, :]
        if done.start < done.stop:
            row -= a[..., i:i + 1, done] @ x[..., done, :]
        if not unit:
            row /= a[..., i:i + 1, i:i + 1]


def solve_triangular(a, b, upper, left=True, unitriangular=False):
    """X with ``a X = b`` (or ``X a = b``), ``a`` triangular; batches broadcast."""
    if not left:
        a, b, upper = a.swapaxes(-1, -2), b.swapaxes(-1, -2), not upper
    x = _expand(b, _batch(a.shape[:-2], b.shape[:-2]))
    with np.errstate(all="ignore"):
        _substitute(a, x, not upper, unitriangular)
    return x if left else _contig(x.swapaxes(-1, -2))


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


def cholesky(a, upper=False):
    out, info = cholesky_ex(a, upper)
    check_info(info, "linalg.cholesky")
    return out


def cholesky_solve(b, l, upper=False):
    """Solve ``A X = b`` from the Cholesky factor ``l`` of A."""
    low = _h(l) if upper else l
    x = _expand(b, _batch(l.shape[:-2], b.shape[:-2]))
    with np.errstate(all="ignore"):
        _substitute(low, x, True, False)
        _substitute(_h(low), x, False, False)
    return x


def cholesky_inverse(l, upper=False):
    """Inverse of the matrix whose Cholesky factor is ``l``."""
    n = l.shape[-1]
    if n == 0:
        return np.zeros(l.shape, l.dtype)
    zero = _diag(l) == 0
    check_info(np.where(zero.any(-1), zero.argmax(-1) + 1, 0), "cholesky_inverse")
    low = _h(l) if upper else l
    w = _eye(l.shape[:-2], n, n, l.dtype)
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


def lu_factor(a, pivot=True):
    lu, pivots, info = lu_factor_ex(a, pivot)
    check_info(info, "torch.linalg.lu_factor")
    return lu, pivots


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
    p = l = u = np.empty(0, lu.dtype)
    if unpack_pivots:
        perm = _permutation(pivots, m)
        p = np.zeros(perm.shape + (m,), lu.dtype)
        np.put_along_axis(p, perm[..., None, :], 1, axis=-2)
    if unpack_data:
        l = np.tril(lu[..., :, :k], -1)
        i = np.arange(k)
        l[..., i, i] = 1
        u = np.triu(lu[..., :k, :])
    return p, l, u


def lu_solve(lu, pivots, b, left=True, adjoint=False):
    """Solve ``A X = b`` / ``A^H X = b`` / ``X A = b`` / ``X A^H = b`` from LU."""
    if not left:
        return _contig(_h(lu_solve(lu, pivots, _h(b), True, not adjoint)))
    n = lu.shape[-1]
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
                           "not supported for left=False. In this case linalg.solve is "
                           "equivalent to B / A.squeeze(-1)")
    rhs = b[..., None] if vector else b
    lu, pivots, info = lu_factor_ex(a)
    x = lu_solve(lu, pivots, rhs, left)
    return (x[..., 0] if vector else x), lu, pivots, info


def solve(a, b, left=True):
    x, _, _, info = solve_ex(a, b, left)
    check_info(info, "torch.linalg.solve")
    return x


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


def inv(a):
    out, info = inv_ex(a)
    check_info(info, "linalg.inv")
    return out


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
    if not ok.all():
        raise _failure("eig", "linalg.eigh", 1, int((~ok).argmax()) if a.ndim > 2 else None)
    with np.errstate(all="ignore"):
        try:
            w = np.linalg.eigvalsh(a, UPLO=uplo)
        except np.linalg.LinAlgError:
            raise _failure("eig", "linalg.eigh", a.shape[-1] - 1,
                           0 if a.ndim > 2 else None) from None
    return w


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
                if (s[..., -1] > 10 * k * rcond * s[..., 0]).all():
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


def _ldl_one(a, herm):
    """Bunch-Kaufman factor of one matrix, lower triangle, in place."""
    n = a.shape[0]
    pivots = np.empty(n, np.int32)
    info = 0
    alpha = (1 + 17 ** 0.5) / 8
    conj = np.conj if herm else (lambda z: z)

    def mag_diag(i):
        return abs(a[i, i].real) if herm else _cabs1(a[i, i])

    k = 0
    while k < n:
        step, kp = 1, k
        here = mag_diag(k)
        colmax = 0
        if k < n - 1:
            below = _cabs1(a[k + 1:, k])
            imax = int(_pivot_rows(below[None])[0])
            colmax = below[imax]
            imax += k + 1
        if not (here > 0 or colmax > 0) or here != here:
            info = info or k + 1
            if herm:
                a[k, k] = a[k, k].real
        else:
            if here < alpha * colmax:
                rowmax = _cabs1(a[imax, k:imax]).max()
                if imax < n - 1:
                    rowmax = max(rowmax, _cabs1(a[imax + 1:, imax]).max())
                if here >= alpha * colmax * (colmax / rowmax):
                    pass
                elif mag_diag(imax) >= alpha * rowmax:
                    kp = imax
                else:
                    kp, step = imax, 2
            kk = k + step - 1
            if kp != kk:
                _swap(a[kp + 1:, kk], a[kp + 1:, kp])
                between = conj(a[kp, kk + 1:kp].copy())
                a[kp, kk + 1:kp] = conj(a[kk + 1:kp, kk])
                a[kk + 1:kp, kk] = between
                if herm:
                    a[kp, kk] = np.conj(a[kp, kk])
                a[kk, kk], a[kp, kp] = a[kp, kp], a[kk, kk]
                if step == 2:
                    a[k + 1, k], a[kp, k] = a[kp, k], a[k + 1, k]
            if herm:
                for i in (k, kk, kp):
                    a[i, i] = a[i, i].real
            rest = k + step
            if rest < n:
                w = a[rest:, k:rest].copy()
                if step == 1:
                    a[rest:, k:rest] = w / a[k, k]
                else:
                    # rows l of L solve l D = w, i.e. D^T l^T = w^T
                    c = a[k + 1, k]
                    x, y = _solve_2x2(a[k, k], conj(c), a[k + 1, k + 1], w[:, 0], w[:, 1], herm)
                    a[rest:, k] = x
                    a[rest:, k + 1] = y
                a[rest:, rest:] -= a[rest:, k:rest] @ conj(w).T
                if herm:
                    i = np.arange(rest, n)
                    a[i, i] = a[i, i].real
        pivots[k:k + step] = kp + 1 if step == 1 else -(kp + 1)
        k += step
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
    return (np.tril(flat).reshape(a.shape), pivots.reshape(batch + (n,)),
            info.reshape(batch))


def ldl_factor(a, hermitian=False):
    ld, pivots, info = ldl_factor_ex(a, hermitian)
    check_info(info, "torch.linalg.ldl_factor")
    return ld, pivots


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
                part = np.fmax.reduce(gap, axis=-1, initial=0)
            else:
                part = (gap ** x1.dtype.type(p)).sum(-1) ** x1.dtype.type(1 / p)
            out[..., i:i + block, :] = part
    return out


# --------------------------------------------------------------------------
# what the derivatives ask for
# --------------------------------------------------------------------------

def det_lu(a):
    """(det, LU, pivots); a real matrix is factored transposed, as in ``det``."""
    lu, pivots, _ = lu_factor_ex(a if np.iscomplexobj(a) else a.swapaxes(-1, -2))
    with np.errstate(all="ignore"):
        value = np.prod(_diag(lu), axis=-1) * _parity(pivots).astype(a.dtype)
    return np.asarray(value, a.dtype), lu, pivots


def slogdet_lu(a):
    """(sign, logabsdet, LU, pivots), factored as in ``det_lu``."""
    lu, pivots, _ = lu_factor_ex(a if np.iscomplexobj(a) else a.swapaxes(-1, -2))
    d, parity = _diag(lu), _parity(pivots).astype(a.dtype)
    with np.errstate(all="ignore"):
        mag = np.abs(d)
        if np.iscomplexobj(a):
            unit = np.where(mag == 0, 0, d / np.where(mag == 0, 1, mag))
        else:
            unit = np.where(np.isnan(d), 0, np.sign(d)).astype(d.dtype)
        sign = np.asarray(np.prod(unit, axis=-1) * parity, a.dtype)
        return sign, np.asarray(np.log(mag).sum(-1), mag.dtype), lu, pivots


def lu(a, pivot=True):
    """(P, L, U)."""
    factors, pivots, _ = lu_factor_ex(a, pivot)
    return lu_unpack(factors, pivots)


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
