"""The standard's extension for linear algebra; arrays of more than two dimensions are stacks of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau

from ..tensors.tensor import Tensor
from .dtypes import DType, same_dtype
from .reductions import Axes, _fold, sum

_lib = flambeau.linalg
__all__ = ["cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
           "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
           "trace", "vecdot", "vector_norm"]


def _of_matrix(name: str, words: str) -> Any:
    function = getattr(_lib, name)

    def call(x: Tensor, /) -> Any:
        return function(x)
    call.__name__, call.__qualname__, call.__doc__ = name, name, words
    return call


det = _of_matrix("det", "The determinant of each matrix.")
eigh = _of_matrix("eigh", "Eigenvalues and eigenvectors of each symmetric or Hermitian matrix.")
eigvalsh = _of_matrix("eigvalsh", "The eigenvalues of each symmetric or Hermitian matrix.")
inv = _of_matrix("inv", "The inverse of each matrix.")
slogdet = _of_matrix("slogdet", "Sign and logarithm of the absolute value of each matrix's determinant.")
svdvals = _of_matrix("svdvals", "The singular values of each matrix.")


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product; arrays of one dimension are vectors."""
    return flambeau.matmul(*same_dtype(x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """Each matrix transposed."""
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose needs at least two dimensions, not {x.ndim}")
    return x.mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over the last axes of x1 and the first of x2, or over those given."""
    return flambeau.tensordot(*same_dtype(x1, x2), dims=axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis, x1 conjugated."""
    x1, x2 = flambeau.broadcast_tensors(*(x.movedim(axis, -1) for x in same_dtype(x1, x2)))
    if x1.is_floating_point() or x1.is_complex():
        return _lib.vecdot(x1, x2)
    return sum(x1 * x2, axis=-1, dtype=x1.dtype)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of each element of one vector with each of another."""
    return flambeau.outer(*same_dtype(x1, x2))


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors with three elements along an axis."""
    x1, x2 = same_dtype(x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross: axis {axis} must have size 3 in both arrays, not {x1.shape[axis]} and {x2.shape[axis]}")
    return _lib.cross(*flambeau.broadcast_tensors(x1, x2), dim=axis)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular matrix whose product with its own (conjugate) transpose is x."""
    return _lib.cholesky(x, upper=upper)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of each matrix."""
    return flambeau.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sum of a diagonal of each matrix."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of each matrix."""
    return _lib.matrix_norm(x, "fro" if ord is None else ord, keepdim=keepdims)


def vector_norm(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """A norm of the vectors along the axes."""
    return _fold(x, axis, keepdims, lambda x, axes, keep: _lib.vector_norm(x, ord, axes, keep))


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Each matrix multiplied n times with itself; its inverse for a negative n."""
    return _lib.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """How many singular values are larger than rtol times the largest."""
    return _lib.matrix_rank(x, rtol=rtol)


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverse of each matrix; singular values up to rtol times the largest count as 0."""
    return _lib.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """Q, with orthonormal columns, and R, upper triangular, whose product each matrix is."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: mode must be 'reduced' or 'complete', not {mode!r}")
    return _lib.qr(x, mode)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution x of x1 x = x2, where x2 is one vector or a stack of matrices."""
    x1, x2 = same_dtype(x1, x2)
    if x2.ndim == 1:
        return _lib.solve(x1, x2.unsqueeze(-1).expand(*x1.shape[:-1], 1)).squeeze(-1)
    stack = flambeau.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])  # equal ones: PyTorch takes some x2 for stacks of vectors
    return _lib.solve(x1.expand(*stack, *x1.shape[-2:]), x2.expand(*stack, *x2.shape[-2:]))


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """U, S and Vh of each matrix's singular value decomposition."""
    return _lib.svd(x, full_matrices)
