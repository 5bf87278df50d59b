"""Batching rules: linear algebra, whose kernels take any number of leading dimensions, and Fourier transforms."""

from __future__ import annotations

from typing import Any

from .arrays import Level
from .table import batched, rule, run, ups, whole

_ARRAYS = "strides"
_DIMS = {"linalg_ldl_solve": (2, 1, 2), "linalg_lu_solve": (2, 1, 2), "cholesky_solve": (2, 2),
         "linalg_solve_triangular": (2, 2), "cdist": (2, 2), "linalg_pinv": (2, 0, 0)}  # of matrices, vectors and numbers


@rule("""linalg_solve_triangular linalg_cholesky_ex linalg_lu_factor_ex linalg_lu_solve linalg_solve_ex linalg_inv_ex linalg_det
         linalg_slogdet linalg_qr linalg_svd linalg_svdvals linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals linalg_lstsq
         linalg_matrix_exp linalg_ldl_factor_ex linalg_ldl_solve linalg_householder_product linalg_lu linalg_det_lu
         linalg_cofactor linalg_cofactor_lu linalg_pinv linalg_solve_lapack linalg_slogdet_lapack linalg_det_lapack
         cholesky_solve cholesky_inverse lu_unpack geqrf ormqr cdist""")
def leading(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    arrays = [whole(a, level) if hasattr(a, _ARRAYS) else a for a in args]
    own = _DIMS.get(kernel)
    if own is not None:  # examples' leading dimensions are broadcast: all must have as many
        lead = max([a.ndim - n for a, n in zip(arrays, own) if hasattr(a, _ARRAYS)])
        for k, n in enumerate(own):
            a = arrays[k]
            if hasattr(a, _ARRAYS):
                arrays[k] = a.reshape((level.size, *(1,) * (lead + n - a.ndim), *a.shape[1:]))
    made = run(kernel, *arrays)
    if made.__class__ in (tuple, list):  # what was not asked for is empty
        made = tuple([m if m.size or m.ndim != 1 else m.reshape((level.size, 0)) for m in made])
    return batched(made, level)


@rule("linalg_steps_aside")
def plain(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """A question about matrices, with one answer for all of them."""
    return run(kernel, *[whole(a, level) if hasattr(a, _ARRAYS) else a for a in args])


@rule("fft_c2c fft_r2c fft_c2r")
def fourier(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims, *rest = args
    return batched(run(kernel, x.whole, ups(dims, x.ndim), *rest), level)
