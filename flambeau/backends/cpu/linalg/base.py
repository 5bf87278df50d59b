"""What the linear algebra kernels of the CPU backend share: errors, shapes, triangular systems.

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
    """Raised when a factorisation or a solve cannot be completed.

    >>> torch.linalg.inv(torch.zeros(2, 2))
    Traceback (most recent call last):
        ...
    flambeau.linalg.LinAlgError: linalg.inv: The diagonal element 1 is zero, the...
    """

    __module__ = f"{__name__.partition('.')[0]}.linalg"  # where users find it


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
    "inv": "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
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
