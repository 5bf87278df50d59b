"""Shape rules of products of matrices, decompositions, solvers and Fourier transforms."""

from __future__ import annotations

from typing import Any

from ...backends.strides import contiguous_strides, ordered_strides
from ...tensors.shapes import broadcast_shapes
from . import INT32, INT64, UINT8, Made, columns, complex_of, like, promoted, real, strides, with_dim


# ----------------------------------------------------------------------------------------------------------- products
def product(a: Any, b: Any) -> Made:
    """mm, bmm, mv and dot."""
    shape = a.shape[:-1] if b.ndim == 1 else (*a.shape[:-1], b.shape[-1])
    return Made(shape, a.dtype)


def added(self: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Made:
    """beta * self + alpha * (a @ b)."""
    return product(a, b)


def added_batch(self: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Made:
    return Made((a.shape[1], b.shape[2]), a.dtype)


def added_outer(self: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Made:
    shape, dtype = (a.size, b.size), promoted(self, a)
    return like(self, dtype) if self.shape == shape else Made(shape, dtype)


def affine(bias: Any, x: Any, w: Any) -> Made:
    """linear."""
    return Made((*x.shape[:-1], w.shape[0]), x.dtype)


def by_few_bits(x: Any, weight: Any, *rest: Any) -> Made:
    """A product with the rows of a quantized weight."""
    return Made((*x.shape[:-1], weight.shape[0]), x.dtype)


def nibbles(weight: Any) -> Made:
    return Made((weight.shape[0], weight.shape[1] // 2), UINT8)


def grouped(a: Any, b: Any, ends: Any) -> Made:
    if ends is None:
        return product(a, b)
    return Made((ends.size,) * (a.ndim == b.ndim) + (a.shape[-2], b.shape[-1]), a.dtype)


def trace(x: Any) -> Made:
    return Made((), INT64 if x.dtype.kind in "iub" else x.dtype)


def distances(x: Any, y: Any, p: float, mode: int) -> Made:
    """cdist."""
    return Made((*broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-2]), x.dtype)


# ----------------------------------------------------------------------------------------------------- decompositions
def by_columns(shape: Any, dtype: Any) -> Made:
    return Made(tuple(shape), dtype, columns(shape))


def matrix(a: Any, *rest: Any) -> Made:
    """As a, column by column."""
    return by_columns(a.shape, a.dtype)


def factor(a: Any, *rest: Any) -> list[Made]:
    """A factor and, per matrix, how it went (cholesky_ex, inv_ex)."""
    return [matrix(a), Made(a.shape[:-2], INT32)]


def pivoted(a: Any, *rest: Any) -> list[Made]:
    """LU or LDL, pivots, and how it went."""
    return [matrix(a), Made((*a.shape[:-2], min(a.shape[-2:])), INT32), Made(a.shape[:-2], INT32)]


def unpacked(lu: Any, pivots: Any, data: bool = True, permutation: bool = True) -> list[Made]:
    *batch, m, n = lu.shape
    k, none = min(m, n), Made((0,), lu.dtype)
    return [Made((*batch, m, m), lu.dtype) if permutation else none, Made((*batch, m, k), lu.dtype) if data else none,
            Made((*batch, k, n), lu.dtype) if data else none]


def lu(a: Any, pivot: bool) -> list[Made]:
    """P, L and U."""
    return unpacked(a, None, True, pivot)


def orthogonal(a: Any, mode: str) -> list[Made]:
    """qr: Q is empty with mode "r"."""
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    return [Made((0,), a.dtype) if mode == "r" else by_columns((*batch, m, k), a.dtype),
            by_columns((*batch, k, n), a.dtype)]


def reflectors(a: Any) -> list[Made]:
    """geqrf."""
    return [matrix(a), Made((*a.shape[:-2], min(a.shape[-2:])), a.dtype)]


def reflected(a: Any, tau: Any, c: Any, *rest: Any) -> Made:
    """ormqr."""
    return matrix(c)


def singular(a: Any, full: bool = True) -> list[Made]:
    *batch, m, n = a.shape
    k = min(m, n)
    return [by_columns((*batch, m, m if full else k), a.dtype), Made((*batch, k), real(a.dtype)),
            Made((*batch, n if full else k, n), a.dtype)]


def singular_values(a: Any) -> Made:
    return Made((*a.shape[:-2], min(a.shape[-2:])), real(a.dtype))


def real_eigenvalues(a: Any, *rest: Any) -> Made:
    return Made(a.shape[:-1], real(a.dtype))


def symmetric(a: Any, *rest: Any) -> list[Made]:
    """eigh."""
    return [real_eigenvalues(a), matrix(a)]


def eigenvalues(a: Any) -> Made:
    return Made(a.shape[:-1], complex_of(a.dtype))


def eigen(a: Any) -> list[Made]:
    return [eigenvalues(a), Made(a.shape, complex_of(a.dtype))]


def determinant(a: Any) -> Made:
    return Made(a.shape[:-2], a.dtype)


def determinant_lu(a: Any) -> list[Made]:
    return [determinant(a), *pivoted(a)[:2]]


def sign_and_size(a: Any) -> list[Made]:
    """slogdet."""
    return [determinant(a), Made(a.shape[:-2], real(a.dtype))]


def beside(a: Any) -> Made:
    """steps_aside: two matrices for each."""
    return Made((2, *a.shape), a.dtype)


def pseudo_inverse(a: Any, *rest: Any) -> Made:
    *batch, m, n = a.shape
    return Made((*batch, n, m), a.dtype)


# ------------------------------------------------------------------------------------------------------------- solvers
def _batch(*arrays: Any) -> tuple[int, ...]:
    return broadcast_shapes(*[a.shape[:-2] for a in arrays])


def solution(a: Any, b: Any, left: bool, vector: bool) -> list[Made]:
    """linalg.solve: column by column (row by row from the right)."""
    if vector:
        x = by_columns((*broadcast_shapes(a.shape[:-2], b.shape[:-1]), b.shape[-1]), a.dtype)
    else:
        shape = (*_batch(a, b), *b.shape[-2:])
        x = by_columns(shape, a.dtype) if left else Made(shape, a.dtype)
    return [x, Made(a.shape[:-2], INT32)]


def triangular(a: Any, b: Any, upper: bool, left: bool = True, unit: bool = False) -> Made:
    return by_columns((*_batch(a, b), *b.shape[-2:]), a.dtype)


def from_cholesky(b: Any, a: Any, upper: bool) -> Made:
    return by_columns((*_batch(a, b), *b.shape[-2:]), b.dtype)


def from_lu(lu: Any, pivots: Any, b: Any, left: bool = True, adjoint: bool = False) -> Made:
    shape = (*_batch(lu, b), *b.shape[-2:])
    return by_columns(shape, lu.dtype) if left else Made(shape, lu.dtype)


def from_ldl(ld: Any, pivots: Any, b: Any, hermitian: bool) -> Made:
    return by_columns((*_batch(ld, b), *b.shape[-2:]), ld.dtype)


def least_squares(a: Any, b: Any, rcond: Any = None, driver: Any = "gelsy") -> list[Made]:
    """The solution, residuals, rank, singular values; empty are those that a driver does not tell.

    Whether there are residuals is a matter of the rank; without values the matrices count as of full rank.
    """
    *batch, m, n = a.shape
    vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])
    right = (*b.shape, 1) if vector else b.shape
    both = broadcast_shapes(tuple(batch), right[:-2])
    x = Made((*both, n), a.dtype) if vector else by_columns((*both, n, right[-1]), a.dtype)
    told = m > n and driver not in ("gelsy", None)
    return [x, Made((*both, right[-1]) if told else (0,), real(a.dtype)),
            Made((0,) if driver == "gels" else tuple(batch), INT64),
            Made((*batch, min(m, n)) if driver in ("gelsd", "gelss") else (0,), real(a.dtype))]


# --------------------------------------------------------------------------------------------------- Fourier transforms
def transform(x: Any, dims: Any, *rest: Any) -> Made:
    """Complex to complex."""
    return Made(x.shape, complex_of(x.dtype), _in_steps(x.shape, strides(x), dims))


def from_real(x: Any, dims: Any, normalization: Any, onesided: bool) -> Made:
    last, stride = dims[-1], strides(x)
    shape = with_dim(x.shape, last, x.shape[last] // 2 + 1) if onesided else x.shape
    if _at_once(dims):
        stride = _step(shape, stride, dims)
    else:
        stride = _in_steps(shape, _step(shape, stride, (last,)), dims[:-1])
    return Made(shape, complex_of(x.dtype), stride)


def to_real(x: Any, dims: Any, normalization: Any, size: int) -> Made:
    last = dims[-1]
    shape = with_dim(x.shape, last, size)
    if _at_once(dims):  # on a contiguous copy
        stride = _step(shape, contiguous_strides(x.shape), dims)
    else:
        stride = _step(shape, _in_steps(x.shape, strides(x), dims[:-1]), (last,))
    return Made(shape, real(x.dtype), stride)


def _at_once(dims: Any) -> bool:
    """Whether PyTorch takes all dimensions of a real transform together; else the last one goes by itself."""
    return len(dims) <= 3 and tuple(dims[:2]) != (0, 1)


def _in_steps(shape: Any, stride: Any, dims: Any) -> Any:
    """PyTorch transforms three dimensions at a time, those of the smallest strides first."""
    left = list(dims)
    while left:
        left.sort(key=lambda d: -stride[d])
        left, some = left[:-3], left[-3:]
        stride = _step(shape, stride, some)
    return stride


def _step(shape: Any, stride: Any, dims: Any) -> Any:
    """A step's result: the transformed dimensions innermost, the others as they lay."""
    others = sorted([d for d in range(len(shape)) if d not in dims], key=lambda d: -stride[d])
    return ordered_strides(shape, (*others, *dims))
