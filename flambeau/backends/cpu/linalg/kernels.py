# ruff: noqa: F401
"""Dense linear algebra kernels of the CPU backend, gathered from their files."""

from .base import LinAlgError, _is_vector_rhs, check_info, solve_triangular
from .functions import cdist, ldl_factor_ex, ldl_solve, matrix_exp
from .lu import (
    cholesky_ex,
    cholesky_inverse,
    cholesky_solve,
    cofactor,
    cofactor_lu,
    det,
    det_lapack,
    det_lu,
    inv_ex,
    lu,
    lu_factor_ex,
    lu_solve,
    lu_unpack,
    slogdet,
    slogdet_lapack,
    solve_ex,
    solve_lapack,
    steps_aside,
)
from .spectra import eig, eigh, eigvals, eigvalsh, geqrf, householder_product, lstsq, ormqr, pinv, qr, svd, svdvals
