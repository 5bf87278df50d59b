"""The small operations of linear algebra: matrix_exp, vecdot, tensor equations, Vandermonde matrices."""

from __future__ import annotations

from typing import Any

from ...tensors.shapes import numel, wrap_dim
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, public
from ..pointwise.functions import conj
from . import products as linalg_products
from .common import check_matrix, check_square, linalg, matrix_row
from .matmul import adjoint, matmul
from .solve import inv, solve


def _exp_grad(grad: Tensor, A: Tensor) -> Tensor:
    """exp of the block matrix [[A^H, G], [0, A^H]] holds the derivative in its upper right corner."""
    n = A._array.shape[-1]
    ah = adjoint(A)
    cat = FUNCTIONS["cat"]
    block = cat([cat([ah, grad], -1), cat([ah * 0, ah], -1)], -2)
    return _matrix_exp(block).narrow(-2, 0, n).narrow(-1, n, n)


_matrix_exp = matrix_row("linalg_matrix_exp", "self", shape=rules.same,
                         backward=dict(self=lambda grad, self: _exp_grad(grad, self)))


@linalg(name="linalg_matrix_exp")
def linalg_matrix_exp(A: Tensor) -> Tensor:
    """The exponential of a square matrix."""
    check_matrix(A, "linalg.matrix_exp")
    native = A._array.dtype
    if native.char not in "fdFD" and A.is_floating_point():  # half precision works in float32
        from ...tensors.dtypes import float32
        return _matrix_exp(A.to(float32)).to(A.dtype)
    check_square(A, "linalg.matrix_exp")
    return _matrix_exp(A)


@public(out=False)
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of a square matrix."""
    return linalg_matrix_exp(input)


@linalg(name="linalg_vecdot", autocast="lower", out="exact")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Dot products along a dimension, the first factor conjugated."""
    if x.dtype is not y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {x.dtype.word} and y "
                           f"of type {y.dtype.word} instead")
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. Got {x.dtype}")
    return (conj(x) * y).sum(dim)


@linalg(name="linalg_diagonal")
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonal of each matrix, as a view."""
    return A.diagonal(offset, dim1, dim2)


@linalg(name="linalg_matrix_power")
def linalg_matrix_power(A: Tensor, n: int) -> Tensor:
    """A square matrix multiplied with itself n times."""
    if not hasattr(n, "__index__"):
        raise TypeError(f"linalg_matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}")
    return linalg_products.matrix_power(A, n)


@linalg(name="linalg_matmul")
def linalg_matmul(input: Tensor, other: Tensor) -> Tensor:
    """The same as torch.matmul."""
    return matmul(input, other)


@linalg(name="linalg_tensorinv", autocast="float32")
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of tensordot(A, ., ind)."""
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    shape = A._array.shape
    first, last = shape[:ind], shape[ind:]
    if numel(first) != numel(last):
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), "
                           f"but got {numel(last)} != {numel(first)}.")
    return inv(A.reshape(numel(first), numel(last))).reshape(last + first)


@linalg(name="linalg_tensorsolve", autocast="float32")
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; `dims` of A are moved to its end first."""
    n = A._array.ndim
    if dims is not None:
        moved = [wrap_dim(d, n) for d in ((dims,) if isinstance(dims, int) else dims)]
        A = A.permute([i for i in range(n) if i not in moved] + moved)
    rest = A._array.shape[B._array.ndim:]
    if numel(rest) != B._array.size:
        raise RuntimeError("Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
                           f"prod(self.shape[:other.ndim]), but got {numel(rest)} != {B._array.size}.")
    return solve(A.reshape(B._array.size, numel(rest)), B.reshape(-1)).reshape(rest)


@linalg(name="linalg_vander", out=False)
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 .. N-1 of each element, as the last dimension."""
    if not x._array.ndim:
        x = x.unsqueeze(0)
    n = x._array.shape[-1] if N is None else N
    if n <= 1:
        raise RuntimeError(f"N must be greater than 1, got {n}.")
    if x.dtype.name in ("bool", "float16", "bfloat16"):
        raise RuntimeError(f"linalg.vander supports floating point, complex, and integer tensors, but got {x.dtype}")
    if x.dtype.name in ("uint8", "int8", "int16", "int32"):
        from ...tensors.dtypes import int64
        x = x.to(int64)
    powers = x.unsqueeze(-1).expand(*x._array.shape, n - 1).cumprod(-1)
    return FUNCTIONS["cat"]([x.new_ones((*x._array.shape, 1)), powers], -1)


@public(method=False, out=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The Vandermonde matrix of a vector: its powers, highest first unless increasing."""
    if x._array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x._array.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    made = x.new_ones((x._array.shape[0], n))
    if n > 1:
        if x.dtype.name in ("bool", "uint8", "int8", "int16", "int32"):
            from ...tensors.dtypes import int64
            x, made = x.to(int64), made.to(int64)
        made = FUNCTIONS["cat"]([made.narrow(-1, 0, 1), x.unsqueeze(-1).expand(x._array.shape[0], n - 1).cumprod(-1)],
                                -1)
    return made if increasing else made.flip(-1)
