"""Inverses, determinants, linear systems, and the LU, Cholesky and LDL factorizations behind them."""

from __future__ import annotations

from typing import Any

from ...autograd.state import NO_GRAD, state
from ...settings import warn_once
from ...tensors import return_types
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, Row, export, public, write_out
from ..pointwise.convert import _clone
from ..pointwise.functions import conj
from ..rules import products
from .common import (
    batch_of,
    check_floating,
    check_info,
    check_matrix,
    check_same,
    check_square,
    diagonal,
    embed,
    linalg,
    matrix_row,
    name_outputs,
    recording,
)
from .matmul import adjoint, matmul, promote, swapped

# ------------------------------------------------------------------------------------------------------- inverse
_inv_ex = matrix_row("linalg_inv_ex", "A", shape=products.factor, constant=(1,), backward=dict(
    A=lambda grad, result0: -matmul(adjoint(result0), matmul(grad, adjoint(result0)))))


@linalg(name="linalg_inv_ex", autocast="float32", out="exact")
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """(inverse, info); info counts the first zero pivot of a singular matrix."""
    check_square(A, "linalg.inv")
    inverse, info = _inv_ex(A)
    if check_errors:
        check_info(info, "linalg.inv_ex")
    return return_types.linalg_inv_ex(inverse, info)


@linalg(name="linalg_inv", autocast="float32", out="exact")
def inv(A: Tensor) -> Tensor:
    """The inverse of a square matrix."""
    check_square(A, "linalg.inv")
    inverse, info = _inv_ex(A)
    check_info(info, "linalg.inv")
    return inverse


@public(autocast="float32")
def inverse(input: Tensor) -> Tensor:
    """The inverse of a square matrix."""
    return inv(input)


# -------------------------------------------------------------------------------------------------- determinants
def _det_grad(grad: Tensor, A: Tensor, value: Tensor, lu: Tensor, pivots: Tensor) -> Tensor:
    """The cofactors, by the very factors that gave det: where pivots are small, their errors cancel."""
    cofactors = _cofactor_lu(lu, pivots, value) if state.mode & NO_GRAD else _cofactor(A)
    return grad.unsqueeze(-1).unsqueeze(-1) * conj(cofactors)


def _cofactor_grad(grad: Tensor, A: Tensor) -> Tensor:
    """conj(det) (<Y, grad> Y - Y grad^T Y), where Y is the inverse of A^H.

    At a singular matrix: the mean of that at two matrices, one on either side of it. det is linear in each singular value, so
    the mean is right where one of them is zero, and off by the square of the distance where more are; so are its derivatives.
    """
    near = A + _steps_aside(A)
    Y = adjoint(_inv_ex(near)[0])
    along = (Y * grad).sum((-2, -1), keepdim=True)
    found = conj(_det(near)[0]).unsqueeze(-1).unsqueeze(-1) * (along * Y - matmul(matmul(Y, swapped(grad)), Y))
    return found.mean(0)


_cofactor = matrix_row("linalg_cofactor", "A", shape=rules.same, backward=dict(A=lambda grad, A: _cofactor_grad(grad, A)))
_cofactor_lu = matrix_row("linalg_cofactor_lu", "LU pivots det", shape=rules.same)
_steps_aside = Row("linalg_steps_aside", "A", batch="one_answer", shape=products.beside)
_det = matrix_row("linalg_det", "A", shape=products.determinant_lu, kernel="linalg_det_lu", constant=(1, 2), backward=dict(
    A=lambda grad, A, result0, result1, result2: _det_grad(grad, A, result0, result1, result2)))
_det_alone = matrix_row("_linalg_det_alone", "A", shape=products.determinant, kernel="linalg_det_lapack")
_slogdet = matrix_row("linalg_slogdet", "A", shape=products.sign_and_size, kernel="linalg_slogdet_lapack", backward=dict(
    A=lambda grads, A, result0: _slogdet_grad(grads, A, result0)))
_BY_FACTORS = 8  # matrices up to this size give their determinant by our own LU, exact for small integers


def _slogdet_grad(grads: list[Any], A: Tensor, sign: Tensor) -> Tensor | None:
    """The sign of a complex determinant turns with the imaginary part of tr(A^-1 dA); a real one stays."""
    grad_sign, values = grads
    if grad_sign is not None and A.is_complex():
        turned = (grad_sign.conj() * sign).imag * -1j
        values = turned if values is None else values + turned
    if values is None:
        return None
    return values.unsqueeze(-1).unsqueeze(-1) * adjoint(_inv_ex(A)[0])


@linalg(name="linalg_det", out="exact")
def linalg_det(A: Tensor) -> Tensor:
    """The determinant."""
    check_square(A, "linalg.det", kernel="lu_cpu")
    if A._array.shape[-1] > _BY_FACTORS and not recording(A):
        return _det_alone(A)
    return _det(A)[0]


@linalg(name="linalg_slogdet", out="exact")
def linalg_slogdet(A: Tensor) -> Any:
    """(sign, log of the absolute value) of the determinant."""
    check_square(A, "linalg.slogdet")
    return return_types.linalg_slogdet(*_slogdet(A))


@public(out=False)
def det(input: Tensor) -> Tensor:
    """The determinant."""
    return linalg_det(input)


@public(out=False)
def slogdet(input: Tensor) -> Any:
    """(sign, log of the absolute value) of the determinant."""
    check_square(input, "linalg.slogdet", kernel="lu_cpu")
    return return_types.slogdet(*_slogdet(input))


@public(out=False)
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; nan where that is negative."""
    check_square(input, "linalg.det", kernel="lu_cpu")
    sign, log = _slogdet(input)
    if input.is_complex():
        return sign.log() + log
    return FUNCTIONS["where"](sign == -1, float("nan"), log)


# ------------------------------------------------------------------------------------------------------- systems
def _vector_rhs(A: Tensor, B: Tensor) -> bool:
    a, b = A._array.shape, B._array.shape
    return len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])


def _solve_rhs_grad(grad: Tensor, A: Tensor, left: bool, vector: bool) -> Tensor:
    return _solve_ex(adjoint(A), grad, left, vector)[0]


def _solve_matrix_grad(grad: Tensor, A: Tensor, x: Tensor, left: bool, vector: bool) -> Tensor:
    g = _solve_rhs_grad(grad, A, left, vector)
    if vector:
        return -(g.unsqueeze(-1) * conj(x).unsqueeze(-2))
    return -(matmul(g, adjoint(x)) if left else matmul(adjoint(x), g))


# The factors are not kept for the backward pass: LAPACK factors again faster than our own substitution would use them.
_solve_ex = matrix_row("_linalg_solve_ex", "A B left vector", shape=products.solution, kernel="linalg_solve_lapack",
                       constant=(1,),
                       node="LinalgSolveExBackward0", backward=dict(
    A=lambda grad, A, result0, left, vector: _solve_matrix_grad(grad, A, result0, left, vector),
    B=lambda grad, A, left, vector: _solve_rhs_grad(grad, A, left, vector)))


def _solve(A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, ...]:
    check_square(A, "linalg.solve")
    check_same(A, B, "linalg.solve")
    vector = _vector_rhs(A, B)
    if vector and not left:
        raise RuntimeError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. "
                           "In this case linalg.solve is equivalent to B / A.squeeze(-1)")
    n = A._array.shape[-1]
    if not vector:
        if B._array.ndim < 2:
            raise RuntimeError("linalg.solve: The input tensor B must have at least 2 dimensions.")
        if B._array.shape[-2 if left else -1] != n:
            raise RuntimeError("linalg.solve: Incompatible shapes of A and B for the equation "
                               f"{'AX = B' if left else 'XA = B'} ({n}x{n} and {B._array.shape[-2]}x{B._array.shape[-1]})")
    elif B._array.shape[-1] != n:
        raise RuntimeError(f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({n}x{n} and "
                           f"{B._array.shape[-1]}x1)")
    return _solve_ex(A, B, left, vector)


@linalg(name="linalg_solve", autocast="float32", out="exact")
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B (or X A = B)."""
    x, info = _solve(A, B, left)
    check_info(info, "torch.linalg.solve")
    return x


@linalg(name="linalg_solve_ex", out="exact")
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """solve, reporting singular matrices in `info`."""
    x, info = _solve(A, B, left)
    if check_errors:
        check_info(info, "torch.linalg.solve_ex")
    return return_types.linalg_solve_ex(x, info)


# ------------------------------------------------------------------------------------------------------ triangular
def _triangle(t: Tensor, upper: bool, unit: bool) -> Tensor:
    return t.triu(1 if unit else 0) if upper else t.tril(-1 if unit else 0)


def _triangular_matrix_grad(grad, A, x, upper, left, unit):
    g = _solve_triangular(adjoint(A), grad, not upper, left, unit)
    return _triangle(-(matmul(g, adjoint(x)) if left else matmul(adjoint(x), g)), upper, unit)


_solve_triangular = Row("linalg_solve_triangular", "self B upper left unitriangular", batch=("leading", 2, 2),
                        shape=products.triangular, backward=dict(
    self=lambda grad, self, result, upper, left, unitriangular: _triangular_matrix_grad(
        grad, self, result, upper, left, unitriangular),
    B=lambda grad, self, upper, left, unitriangular: _solve_triangular(adjoint(self), grad, not upper, left, unitriangular)))


@linalg(name="linalg_solve_triangular", out="exact")
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B (or X A = B) for a triangular A; only that triangle is read."""
    check_square(A, "linalg.solve_triangular", kernel="triangular_solve_cpu", always=True)
    check_matrix(B, "linalg.solve_triangular", "B")
    A, B = promote(A, B)
    n, (rows, cols) = A._array.shape[-1], B._array.shape[-2:]
    if n != (rows if left else cols):
        raise RuntimeError("linalg.solve_triangular: Incompatible shapes of A and B for the equation "
                           f"{'AX = B' if left else 'XA = B'} ({n}x{n} and {rows}x{cols})")
    batch_of(A, B)
    return _solve_triangular(A, B, bool(upper), bool(left), bool(unitriangular))


def _by_columns(A: Tensor) -> Tensor:
    """A copy whose matrices are stored column by column."""
    return swapped(_clone(swapped(A), "contiguous"))


@public(autocast="float32", out="exact")
def triangular_solve(input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False,
                     unitriangular: bool = False) -> Any:
    """(X, copy of A) with A X = input for a triangular A (the older form of linalg.solve_triangular)."""
    warn_once("triangular_solve", "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will be "
              "removed in a future PyTorch release.\ntorch.linalg.solve_triangular has its arguments reversed and does not "
              "return a copy of one of the inputs.\nX = torch.triangular_solve(B, A).solution\nshould be replaced with\n"
              "X = torch.linalg.solve_triangular(A, B).")
    check_square(A, "triangular_solve")
    check_matrix(input, "triangular_solve", "b")
    check_same(A, input, "triangular_solve")
    if A._array.shape[-1] != input._array.shape[-2]:
        raise RuntimeError(f"triangular_solve: Incompatible matrix sizes for b and A: A is {list(A.shape)}, "
                           f"b {list(input.shape)}")
    batch = batch_of(A, input)
    matrix = swapped(A) if transpose else A
    x = _solve_triangular(matrix, input, bool(upper) != bool(transpose), True, bool(unitriangular))
    return return_types.triangular_solve(x, _by_columns(A.expand(*batch, *A._array.shape[-2:])))


# ------------------------------------------------------------------------------------------------------- Cholesky
def _cholesky_grad(grad: Tensor, factor: Tensor, upper: bool) -> Tensor:
    """Murray's formula: the Hermitian matrix whose change moves the lower factor by the gradient."""
    low, g = (adjoint(factor), adjoint(grad)) if upper else (factor, grad)
    phi = matmul(adjoint(low), g)
    strict = phi.tril(-1)
    diag = diagonal(phi)
    sym = (strict + adjoint(strict) + embed(diag)) * 0.5
    half = _solve_triangular(adjoint(low), sym, True, True, False)
    return _solve_triangular(low, half, False, False, False)


_cholesky_ex = matrix_row("linalg_cholesky_ex", "self upper", shape=products.factor, constant=(1,), backward=dict(
    self=lambda grad, result0, upper: _cholesky_grad(grad, result0, upper)))


@linalg(name="linalg_cholesky_ex", autocast="float32", out="exact")
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """(L, info) of a Hermitian positive-definite matrix."""
    check_square(input, "linalg.cholesky", kernel="cholesky_cpu")
    factor, info = _cholesky_ex(input, upper)
    if check_errors:
        check_info(info, "linalg.cholesky_ex")
    return return_types.linalg_cholesky_ex(factor, info)


@linalg(name="linalg_cholesky", autocast="float32", out="exact")
def linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """L with A = L L^H (or the upper factor)."""
    check_square(A, "linalg.cholesky", kernel="cholesky_cpu")
    factor, info = _cholesky_ex(A, upper)
    check_info(info, "linalg.cholesky")
    return factor


@public(autocast="float32")
def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """L with input = L L^H (or the upper factor)."""
    warn_once("cholesky", "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future "
              "PyTorch release.\nL = torch.cholesky(A)\nshould be replaced with\nL = torch.linalg.cholesky(A)\nand\n"
              "U = torch.cholesky(A, upper=True)\nshould be replaced with\nU = torch.linalg.cholesky(A).mH\nThis transform "
              "will produce equivalent results for all valid (symmetric positive definite) inputs.")
    check_square(input, "cholesky", kernel="cholesky_cpu", always=True)
    factor, info = _cholesky_ex(input, upper)
    check_info(info, "cholesky")
    return factor


def _cholesky_inverse_grad(grad: Tensor, factor: Tensor, inverse: Tensor, upper: bool) -> Tensor:
    common = -matmul(inverse, matmul(grad + adjoint(grad), inverse))
    return matmul(factor, common) if upper else matmul(common, factor)


_cholesky_inverse = matrix_row("cholesky_inverse", "self upper", shape=products.matrix, backward=dict(
    self=lambda grad, self, result, upper: _cholesky_inverse_grad(grad, self, result, upper)))


@public(autocast="float32")
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix whose Cholesky factor is given."""
    check_square(L, "cholesky_inverse", kernel="cholesky_inverse_out_cpu", always=True)
    return _cholesky_inverse(L, upper)


def _cholesky_solve_factor_grad(grad: Tensor, factor: Tensor, x: Tensor, upper: bool) -> Tensor:
    common = matmul(_cholesky_solve(grad, factor, upper), adjoint(x))
    common = common + adjoint(common)
    return -(matmul(factor, common) if upper else matmul(common, factor))


_cholesky_solve = Row("cholesky_solve", "self input2 upper", batch=("leading", 2, 2), shape=products.from_cholesky,
                      backward=dict(
    self=lambda grad, input2, upper: _cholesky_solve(grad, input2, upper),
    input2=lambda grad, input2, result, upper: _cholesky_solve_factor_grad(grad, input2, result, upper)))


@public(also={"input": "B", "self": "B", "input2": "L"}, autocast="float32")
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, from the Cholesky factor of A."""
    check_matrix(B, "cholesky_solve", "B")
    check_square(L, "cholesky_solve")
    check_same(L, B, "cholesky_solve")
    if B._array.shape[-2] != L._array.shape[-1]:
        raise RuntimeError(f"cholesky_solve: Incompatible matrix sizes: each A matrix is {L._array.shape[-1]} by "
                           f"{L._array.shape[-1]} but each b matrix is {B._array.shape[-2]} by {B._array.shape[-1]}")
    batch_of(B, L)
    return _cholesky_solve(B, L, upper)


# ------------------------------------------------------------------------------------------------------------- LU
def _plu_grad(grad_l: Tensor | None, grad_u: Tensor | None, permutation: Tensor, low: Tensor,
              up: Tensor) -> Tensor | None:
    """The gradient of A = P L U for square, wide and tall matrices.

    Wide: U = [U1 U2]; tall: L = [L1; L2]. The square part moves as phi says, the rest follows it.
    """
    if grad_l is None and grad_u is None:
        return None
    m, n = low._array.shape[-2], up._array.shape[-1]
    k = min(m, n)
    grad_l = low * 0 if grad_l is None else grad_l
    grad_u = up * 0 if grad_u is None else grad_u
    l1, u1 = low.narrow(-2, 0, k), up.narrow(-1, 0, k)
    below = matmul(adjoint(l1), grad_l.narrow(-2, 0, k))
    above = matmul(grad_u.narrow(-1, 0, k), adjoint(u1))
    if n > k:
        rest = grad_u.narrow(-1, k, n - k)
        below = below - matmul(rest, adjoint(up.narrow(-1, k, n - k)))
    if m > k:
        rest = grad_l.narrow(-2, k, m - k)
        above = above - matmul(adjoint(low.narrow(-2, k, m - k)), rest)
    phi = below.tril(-1) + above.triu()
    phi = _solve_triangular(adjoint(u1), phi, False, False, False)
    if n > k:
        phi = FUNCTIONS["cat"]([phi, rest], -1)
    phi = _solve_triangular(adjoint(l1), phi, True, True, True)
    if m > k:
        tail = _solve_triangular(adjoint(u1), rest, False, False, False)
        phi = FUNCTIONS["cat"]([phi, tail], -2)
    return matmul(permutation, phi)


def _lu_factor_grad(grad: Tensor, lu: Tensor, pivots: Tensor) -> Tensor | None:
    permutation, low, up = _lu_unpack(lu, pivots, True, True)
    k = low._array.shape[-1]
    return _plu_grad(grad.narrow(-1, 0, k).tril(-1), grad.narrow(-2, 0, k).triu(), permutation, low, up)


def _unpack_grad(grads: list[Any], shape: tuple[int, ...]) -> Tensor | None:
    """L's part below the diagonal and U's on and above it, back in one matrix."""
    grad_l, grad_u = grads[1], grads[2]
    m, n = shape[-2:]
    both = None
    if grad_l is not None:
        both = _padded(grad_l.tril(-1), -1, n)
    if grad_u is not None:
        upper = _padded(grad_u.triu(), -2, m)
        both = upper if both is None else both + upper
    return both


def _padded(t: Tensor, dim: int, size: int) -> Tensor:
    missing = size - t._array.shape[dim]
    if not missing:
        return t
    shape = list(t._array.shape)
    shape[dim] = missing
    return FUNCTIONS["cat"]([t, t.new_zeros(shape)], dim)


_lu_factor = matrix_row("linalg_lu_factor_ex", "A pivot", shape=products.pivoted, constant=(1, 2), backward=dict(
    A=lambda grad, result0, result1: _lu_factor_grad(grad, result0, result1)))
_lu_unpack = matrix_row("lu_unpack", "LU_data LU_pivots unpack_data unpack_pivots", shape=products.unpacked,
                        constant=(0,), backward=dict(
    LU_data=lambda grads, LU_data_shape: _unpack_grad(grads, LU_data_shape)))
_lu = matrix_row("linalg_lu", "A pivot", shape=products.lu, constant=(0,), backward=dict(
    A=lambda grads, result0, result1, result2: _plu_grad(grads[1], grads[2], result0, result1, result2)))


@linalg(name="linalg_lu_factor_ex", out="exact")
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """(LU, pivots, info): both factors in one matrix."""
    check_matrix(A, "linalg.lu_factor")
    check_floating(A, "linalg.lu_factor", kernel="lu_cpu", always=True)
    made = _lu_factor(A, pivot)
    if check_errors:
        check_info(made[2], "torch.linalg.lu_factor_ex")
    return return_types.linalg_lu_factor_ex(*made)


@linalg(name="linalg_lu_factor", out="exact")
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """(LU, pivots)."""
    made = lu_factor_ex(A, pivot=pivot)
    check_info(made[2], "torch.linalg.lu_factor")
    return return_types.linalg_lu_factor(*made[:2])


@linalg(name="linalg_lu", out="exact")
def linalg_lu(A: Tensor, *, pivot: bool = True) -> Any:
    """(P, L, U) with A = P L U."""
    check_matrix(A, "linalg.lu")
    check_floating(A, "linalg.lu", kernel="lu_cpu", always=True)
    return return_types.linalg_lu(*_lu(A, pivot))


@public(out=False)
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """(LU, pivots) or, with get_infos, (LU, pivots, infos): the older form of linalg.lu_factor."""
    warn_once("lu", "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be "
              "removed in a future PyTorch release.\nLU, pivots = torch.lu(A, compute_pivots)\nshould be replaced with\n"
              "LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\nand\n"
              "LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\nshould be replaced with\n"
              "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)")
    made = lu_factor_ex(A, pivot=pivot)
    made = return_types.structure("_lu_with_info", "LU pivots info")(*made) if get_infos else tuple(made[:2])
    if out is None:
        return made
    return write_out("lu", out, made, (), {})


@public(method=False, out="exact")
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    """(P, L, U) of lu_factor's result.

    >>> LU, pivots = torch.linalg.lu_factor(torch.tensor([[0.0, 2.0], [4.0, 0.0]]))
    >>> P, L, U = torch.lu_unpack(LU, pivots)
    >>> P @ L @ U
    tensor([[0., 2.],
            [4., 0.]])
    """
    check_matrix(LU_data, "torch.lu_unpack", "LU_data")
    if LU_pivots.dtype.name != "int32" and unpack_pivots:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype. "
                           "Note: this "
                           f"function is intended to be used with the output produced by torch.linalg.lu_factor; got "
                           f"{LU_pivots.dtype}")
    return return_types.lu_unpack(*_lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots))


def _lu_solve_factor_grad(grad: Tensor, lu: Tensor, pivots: Tensor, x: Tensor, left: bool, adj: bool) -> Tensor:
    """By way of the gradient of A = P L U (see the four equations A X, A^H X, X A, X A^H = B)."""
    r = _lu_solve(lu, pivots, grad, left, not adj)
    if left:
        inner = matmul(x, adjoint(r)) if adj else matmul(r, adjoint(x))
    else:
        inner = matmul(adjoint(r), x) if adj else matmul(adjoint(x), r)
    permutation, low, up = _lu_unpack(lu, pivots, True, True)
    inner = -matmul(swapped(permutation), inner)
    return matmul(inner, adjoint(up)).tril(-1) + matmul(adjoint(low), inner).triu()


_lu_solve = Row("linalg_lu_solve", "LU pivots B left adjoint", batch=("leading", 2, 1, 2), shape=products.from_lu,
                backward=dict(
    LU=lambda grad, LU, pivots, result, left, adjoint: _lu_solve_factor_grad(grad, LU, pivots, result, left, adjoint),
    B=lambda grad, LU, pivots, left, adjoint: _lu_solve(LU, pivots, grad, left, not adjoint)))


@linalg(name="linalg_lu_solve", out="exact")
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A X = B (X A = B, or with A^H), from lu_factor's result for A."""
    check_square(LU, "torch.linalg.lu_solve", "LU")
    check_matrix(B, "torch.linalg.lu_solve", "B")
    check_same(LU, B, "linalg.lu_solve")
    if pivots.dtype.name != "int32":
        raise RuntimeError(f"linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32, got {pivots.dtype}")
    n, (rows, cols) = LU._array.shape[-1], B._array.shape[-2:]
    if n != (rows if left else cols):
        raise RuntimeError("linalg.lu_solve: Incompatible shapes of A and B for the equation "
                           f"{'AX = B' if left else 'XA = B'} ({n}x{n} and {rows}x{cols})")
    if pivots._array.shape != LU._array.shape[:-1]:
        raise RuntimeError("linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix. "
                           f"Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape "
                           f"{list(pivots.shape)}")
    return _lu_solve(LU, pivots, B, bool(left), bool(adjoint))


@public(autocast="float32", out="exact")
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """X with A X = b, from lu_factor's result for A.

    >>> LU, pivots = torch.linalg.lu_factor(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> torch.lu_solve(torch.tensor([[2.0], [2.0]]), LU, pivots)
    tensor([[1.0000],
            [0.5000]])
    """
    warn_once("lu_solve", "torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will be removed in a future "
              "PyTorch release.\nNote that torch.linalg.lu_solve has its arguments reversed.\n"
              "X = torch.lu_solve(B, LU, pivots)\nshould be replaced with\nX = torch.linalg.lu_solve(LU, pivots, B)")
    return linalg_lu_solve(LU_data, LU_pivots, b)


# ------------------------------------------------------------------------------------------------------------ LDL
_ldl_factor = matrix_row("linalg_ldl_factor_ex", "self hermitian", shape=products.pivoted)
_ldl_solve = Row("linalg_ldl_solve", "LD pivots B hermitian", batch=("leading", 2, 1, 2), shape=products.from_ldl)


@linalg(name="linalg_ldl_factor_ex", out="exact")
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """(LD, pivots, info) of a symmetric or Hermitian matrix.

    >>> LD, pivots, info = torch.linalg.ldl_factor_ex(torch.tensor([[2.0, 1.0], [1.0, 3.0]]))
    >>> LD
    tensor([[2.0000, 0.0000],
            [0.5000, 2.5000]])
    """
    check_square(A, "torch.linalg.ldl_factor_ex", kernel="ldl_factor_kernel_cpu")
    made = _ldl_factor(A, hermitian)
    if check_errors:
        check_info(made[2], "torch.linalg.ldl_factor_ex")
    return return_types.linalg_ldl_factor_ex(*made)


@linalg(name="linalg_ldl_factor", out="exact")
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """(LD, pivots) of a symmetric or Hermitian matrix."""
    made = ldl_factor_ex(A, hermitian=hermitian)
    check_info(made[2], "torch.linalg.ldl_factor")
    return return_types.linalg_ldl_factor(*made[:2])


@linalg(name="linalg_ldl_solve", out="exact")
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A X = B, from ldl_factor's result for A.

    >>> LD, pivots = torch.linalg.ldl_factor(torch.tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> torch.linalg.ldl_solve(LD, pivots, torch.tensor([[2.0], [2.0]]))
    tensor([[1.0000],
            [0.5000]])
    """
    check_square(LD, "torch.linalg.ldl_solve", "LD")
    if B._array.ndim < 2:
        raise RuntimeError("torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has "
                           f"{B._array.ndim} dimensions instead")
    if B._array.shape[-2] != LD._array.shape[-1]:
        n, (rows, columns) = LD.shape[-1], B.shape[-2:]
        raise RuntimeError(f"Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is {n} by {n} but each b "
                           f"matrix is {rows} by {columns}")
    check_same(LD, B, "torch.linalg.ldl_solve")
    if pivots.dtype.is_floating_point or pivots.dtype.is_complex or pivots.dtype.name == "bool":
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected pivots to be integers. Got {pivots.dtype.word}")
    return _ldl_solve(LD, pivots, B, hermitian)


export("_lu_with_info", lambda A, pivot=True, check_errors=True: lu_factor_ex(A, pivot=pivot, check_errors=check_errors))

for _row, _names in ((_inv_ex, "inverse"), (_det, "result LU pivots"), (_slogdet, "signdet"),
                     (_solve_ex, "result"), (_cholesky_ex, "L"), (_lu_factor, "LU pivots"), (_lu, "P L U")):
    name_outputs(_row, _names)
