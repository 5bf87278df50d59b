"""`flambeau.linalg`: linear algebra under PyTorch's names."""

from .backends.cpu.linalg.kernels import LinAlgError
from .ops.core import examples as _examples
from .ops.linalg.decompose import (
    cond,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    householder_product,
    lstsq,
    matrix_rank,
    pinv,
    svdvals,
)
from .ops.linalg.decompose import linalg_qr as qr
from .ops.linalg.decompose import linalg_svd as svd
from .ops.linalg.misc import diagonal, tensorinv, tensorsolve, vecdot
from .ops.linalg.misc import linalg_matmul as matmul
from .ops.linalg.misc import linalg_matrix_exp as matrix_exp
from .ops.linalg.misc import linalg_matrix_power as matrix_power
from .ops.linalg.misc import linalg_vander as vander
from .ops.linalg.norms import matrix_norm, norm
from .ops.linalg.products import linalg_cross as cross
from .ops.linalg.products import multi_dot
from .ops.linalg.solve import (
    cholesky_ex,
    inv,
    inv_ex,
    ldl_factor,
    ldl_factor_ex,
    ldl_solve,
    lu_factor,
    lu_factor_ex,
    solve,
    solve_ex,
    solve_triangular,
)
from .ops.linalg.solve import linalg_cholesky as cholesky
from .ops.linalg.solve import linalg_det as det
from .ops.linalg.solve import linalg_lu as lu
from .ops.linalg.solve import linalg_lu_solve as lu_solve
from .ops.linalg.solve import linalg_slogdet as slogdet
from .ops.reduce.vector_norms import vector_norm

__all__ = ["LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
           "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq",
           "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power",
           "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd",
           "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm"]

_examples.attach_module("linalg", globals())
