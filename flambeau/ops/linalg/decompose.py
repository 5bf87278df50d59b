"""QR, singular values, eigenvalues, and what is built on them: pseudo-inverse, least squares, rank, condition."""

from __future__ import annotations

from typing import Any

from ...autograd.state import NO_GRAD, mode_bits, state
from ...backends.strides import contiguous_strides
from ...creation.factories import eye, full
from ...settings import warn_once
from ...tensors import return_types
from ...tensors.dtypes import finfo
from ...tensors.tensor import Tensor
from ..core.row import FUNCTIONS, Row, public
from ..pointwise.functions import conj
from ..rules import products
from ..shape.views import relaid
from .common import (
    check_floating,
    check_matrix,
    check_same,
    check_square,
    diagonal,
    embed,
    linalg,
    matrix_row,
    name_outputs,
    recording,
    replay,
)
from .matmul import adjoint, matmul
from .solve import _padded, _solve_triangular, _vector_rhs, inv_ex, solve


# ------------------------------------------------------------------------------------------------------------- QR
def _qr_grad(grads: list[Any], q: Tensor, r: Tensor, mode: str) -> Tensor | None:
    """A wide matrix [A1 A2] is the QR of the square A1, and R2 = Q^H A2 adds its part to Q's gradient."""
    if mode == "r":
        raise RuntimeError("The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
                           "linalg.qr(A, mode='reduced') if you are going to require gradients.")
    m, n = q._array.shape[-2], r._array.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError("The QR decomposition is not differentiable when mode='complete' and nrows > ncols.")
    grad_q, grad_r = grads
    if grad_q is None and grad_r is None:
        return None
    k = min(m, n)
    wide = n > k
    rest = None
    if wide and grad_r is not None:
        rest = grad_r.narrow(-1, k, n - k)
        extra = matmul(q, matmul(r.narrow(-1, k, n - k), adjoint(rest)))
        grad_q = extra if grad_q is None else grad_q + extra
        grad_r = grad_r.narrow(-1, 0, k)
    r1 = r.narrow(-1, 0, k) if wide else r
    inside = 0
    if grad_r is not None:
        inside = matmul(grad_r, adjoint(r1))
    if grad_q is not None:
        inside = inside - matmul(adjoint(q), grad_q)
    inside = inside.triu()
    diag = diagonal(inside)
    sym = inside + adjoint(inside) - embed(diag.real.to(diag.dtype) if diag.is_complex() else diag)
    grad = matmul(q, sym)
    if grad_q is not None:
        grad = grad + grad_q
    grad = _solve_triangular(adjoint(r1), grad, False, False, False)
    if not wide:
        return grad
    return FUNCTIONS["cat"]([grad, matmul(q, rest)], -1) if rest is not None else _padded(grad, -1, n)


_qr = matrix_row("linalg_qr", "A mode", shape=products.orthogonal, backward=dict(
    A=lambda grads, result0, result1, mode: _qr_grad(grads, result0, result1, mode)))


@linalg(name="linalg_qr", autocast="float32", out="exact")
def linalg_qr(A: Tensor, mode: str = "reduced") -> Any:
    """(Q, R): an orthonormal and an upper triangular factor."""
    check_matrix(A, "linalg.qr")
    check_floating(A, "linalg.qr", kernel="geqrf_cpu")
    return return_types.linalg_qr(*_qr(A, mode))


@public(autocast="float32", out="exact")
def qr(input: Tensor, some: bool = True) -> Any:
    """(Q, R); some=False gives a square Q."""
    warn_once("qr", "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\n"
              "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\nQ, R = torch.qr(A, some)\n"
              "should be replaced with\nQ, R = torch.linalg.qr(A, 'reduced' if some else 'complete')")
    check_matrix(input, "linalg.qr")
    check_floating(input, "linalg.qr", kernel="geqrf_cpu")
    return return_types.qr(*_qr(input, "reduced" if some else "complete"))


def _no_derivative(name: str) -> Any:
    raise NotImplementedError(f"the derivative for '{name}' is not implemented.")


_geqrf = matrix_row("geqrf", "self", shape=products.reflectors, backward=dict(self=lambda grads: _no_derivative("geqrf")))


@public(autocast="float32")
def geqrf(input: Tensor) -> Any:
    """(a, tau): R and the Householder vectors of a QR in one matrix, and their factors."""
    check_matrix(input, "torch.geqrf", "input")
    check_floating(input, "torch.geqrf", kernel="geqrf_cpu", always=True)
    return return_types.geqrf(*_geqrf(input))


def _reflectors(a: Tensor, tau: Tensor, c: Tensor, order: range, conjugate: bool) -> Tensor:
    """c after the reflections I - tau v v^H, one after the other, with tensor operations (for the derivatives)."""
    m = c._array.shape[-2]
    for i in order:
        tail = a.narrow(-1, i, 1).narrow(-2, i + 1, m - i - 1)
        one = c.new_ones((*tail._array.shape[:-2], 1, 1))
        parts = [one, tail] if not i else [c.new_zeros((*tail._array.shape[:-2], i, 1)), one, tail]
        v = FUNCTIONS["cat"](parts, -2)
        factor = tau.narrow(-1, i, 1).unsqueeze(-1)
        c = c - (conj(factor) if conjugate else factor) * matmul(v, matmul(adjoint(v), c))
    return c


def _product_replay(a: Tensor, tau: Tensor) -> Tensor:
    start = eye(*a._array.shape[-2:], dtype=a.dtype, device=a.device).expand_as(a)
    return _reflectors(a, tau, start, range(tau._array.shape[-1] - 1, -1, -1), False)


def _apply_replay(a: Tensor, tau: Tensor, c: Tensor, left: bool, transpose: bool) -> Tensor:
    if not left:
        return adjoint(_apply_replay(a, tau, adjoint(c), True, not transpose))
    count = range(tau._array.shape[-1])
    return _reflectors(a, tau, c, count if transpose else count[::-1], transpose)


_householder = matrix_row("linalg_householder_product", "self tau", shape=products.matrix, backward=dict(
    self=lambda grad, self, tau: replay(lambda a: _product_replay(a, tau), (self,), [grad])[0],
    tau=lambda grad, self, tau: replay(lambda t: _product_replay(self, t), (tau,), [grad])[0]))
_ormqr = matrix_row("ormqr", "self input2 input3 left transpose", shape=products.reflected, backward=dict(
    self=lambda grad, self, input2, input3, left, transpose: replay(
        lambda a: _apply_replay(a, input2, input3, left, transpose), (self,), [grad])[0],
    input2=lambda grad, self, input2, input3, left, transpose: replay(
        lambda t: _apply_replay(self, t, input3, left, transpose), (input2,), [grad])[0],
    input3=lambda grad, self, input2, left, transpose: _ormqr(self, input2, grad, left, not transpose)))


@linalg(name="linalg_householder_product", autocast="float32")
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the Householder reflections stored in A and tau."""
    check_matrix(A, "torch.linalg.householder_product")
    check_floating(A, "torch.linalg.householder_product")
    m, n, k = *A._array.shape[-2:], tau._array.shape[-1] if tau._array.ndim else 0
    if m < n:
        raise RuntimeError("torch.linalg.householder_product: input.shape[-2] must be greater than or equal to "
                           f"input.shape[-1], got {m} and {n}")
    if n < k:
        raise RuntimeError("torch.linalg.householder_product: input.shape[-1] must be greater than or equal to "
                           f"tau.shape[-1], got {n} and {k}")
    if A._array.ndim - tau._array.ndim != 1 or A._array.shape[:-2] != tau._array.shape[:-1]:
        raise RuntimeError("torch.linalg.householder_product: Expected batch dimensions of tau to be equal to "
                           f"input.shape[:-2], but got {list(tau.shape)}")
    check_same(A, tau, "torch.linalg.householder_product")
    return _householder(A, tau)


@public(also={"input2": "tau"}, autocast="float32")
def orgqr(input: Tensor, tau: Tensor) -> Tensor:
    """The older name of linalg.householder_product."""
    return householder_product(input, tau)


@public(also={"input2": "tau", "input3": "other"}, autocast="float32", out="exact")
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of the implicit Q of geqrf's result with another matrix."""
    for name, t, n in (("input", input, 2), ("other", other, 2), ("tau", tau, 1)):
        if t._array.ndim < n:
            raise RuntimeError(f"torch.ormqr: {name} must have at least {n} dimensions.")
    m = input._array.shape[-2]
    if other._array.shape[-2 if left else -1] < tau._array.shape[-1]:
        raise RuntimeError("torch.ormqr: other.shape[-2] must be greater than or equal to tau.shape[-1]")
    if other._array.shape[-2 if left else -1] != m:
        raise RuntimeError(f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2] ({m})")
    if tau._array.shape[-1] != min(m, input._array.shape[-1]):
        raise RuntimeError("torch.ormqr: tau.shape[-1] must be equal to min(other.shape[-2], input.shape[-1]), got "
                           f"{tau._array.shape[-1]}")
    check_floating(input, "torch.ormqr")
    return _ormqr(input, tau, other, left, transpose)


# ------------------------------------------------------------------------------------------------------------ SVD
def _svd_grad(grads: list[Any], result0: Tensor, result1: Tensor, result2: Tensor) -> Tensor | None:
    """Townsend's formula. Each pair of singular vectors turns by what skew(U^H gU) and skew(V^H gV) say."""
    (gu, gs, gvh), u, s, vh = grads, result0, result1, result2
    if gu is None and gvh is None:
        return None if gs is None else matmul(u.narrow(-1, 0, s._array.shape[-1]) * gs.to(u.dtype).unsqueeze(-2),
                                              vh.narrow(-2, 0, s._array.shape[-1]))
    k, m, n = s._array.shape[-1], u._array.shape[-2], vh._array.shape[-1]
    u, vh = u.narrow(-1, 0, k), vh.narrow(-2, 0, k)
    gu = gu.narrow(-1, 0, k) if gu is not None else None
    gvh = gvh.narrow(-2, 0, k) if gvh is not None else None
    squares = s * s
    gaps = squares.unsqueeze(-2) - squares.unsqueeze(-1) + embed(s * 0 + 1)
    around_u = _skew(matmul(adjoint(u), gu)) if gu is not None else None
    around_v = _skew(matmul(vh, adjoint(gvh))) if gvh is not None else None
    rows, cols = s.unsqueeze(-2), s.unsqueeze(-1)
    if around_u is None:
        inside = cols * (around_v / gaps)
    elif around_v is None:
        inside = (around_u / gaps) * rows
    else:
        inside = (around_u * rows + cols * around_v) / gaps
    if gs is not None:
        inside = inside + embed(gs)
    if u.is_complex():
        turned = [diagonal(around) for around in (around_u, around_v) if around is not None]
        _check_gauge(sum(turned[1:], turned[0]), "svd_backward", "e^{i phi} on U and V")
        if len(turned) == 2:
            inside = inside + embed(turned[0] / (2.0 * s))
    inside = inside.to(u.dtype) if inside.dtype is not u.dtype else inside
    if m > k and gu is not None:
        left = matmul(u, inside)
        scaled_grad = gu / rows
        left = left + scaled_grad - matmul(u, matmul(adjoint(u), scaled_grad))
        grad = matmul(left, vh)
    elif n > k and gvh is not None:
        grad = matmul(u, matmul(inside, vh))
    else:
        grad = matmul(matmul(u, inside), vh)
    if n > k and gvh is not None:
        scaled_grad = gvh / cols
        grad = grad + matmul(u, scaled_grad - matmul(matmul(scaled_grad, adjoint(vh)), vh))
    return grad


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _check_gauge(phase: Tensor, function: str, what: str) -> None:
    """Vectors are defined up to a phase; a loss that depends on it has no gradient. (A forward derivative is no loss's.)"""
    if state.probing:
        return
    with mode_bits(set=NO_GRAD):
        imag = phase.imag
        if not phase.is_meta and bool((imag.abs() > 1e-2).any()):
            raise RuntimeError(f"{function}: The singular vectors or eigenvectors in the complex case are specified up "
                               f"to multiplication by a phase ({what}). The specified loss function depends on this "
                               "quantity, so it is ill-defined.")


_svd = matrix_row("linalg_svd", "A full_matrices", shape=products.singular, backward=dict(A=_svd_grad))
_svdvals = matrix_row("_linalg_svdvals", "A", shape=products.singular_values, kernel="linalg_svdvals")


@linalg(name="linalg_svd", autocast="float32", out="exact")
def linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """(U, S, Vh): A = U diag(S) Vh."""
    check_matrix(A, "linalg.svd")
    check_floating(A, "linalg.svd", kernel="linalg_svd_cpu")
    _no_driver(driver, "linalg.svd")
    return return_types.linalg_svd(*_svd(A, bool(full_matrices)))


def _no_driver(driver: Any, function: str) -> None:
    if driver is not None:
        raise RuntimeError(f"torch.{function}: keyword argument `driver=` is only supported on CUDA inputs with "
                           "cuSOLVER backend.")


@linalg(name="linalg_svdvals", autocast="float32", out="exact")
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, largest first."""
    check_matrix(A, "linalg.svdvals")
    check_floating(A, "linalg.svd", kernel="linalg_svd_cpu")
    _no_driver(driver, "linalg.svdvals")
    return _svd(A, False)[1] if recording(A) else _svdvals(A)


@public(autocast="float32", out="exact")
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """(U, S, V): the older form of linalg.svd; V is not transposed."""
    check_matrix(input, "linalg.svd")
    check_floating(input, "linalg.svd", kernel="linalg_svd_cpu")
    if not compute_uv:
        m, n = input._array.shape[-2:]
        batch = input._array.shape[:-2]
        return return_types.svd(input.new_zeros((*batch, m, m)), svdvals(input), input.new_zeros((*batch, n, n)))
    u, s, vh = _svd(input, not some)
    return return_types.svd(u, s, vh.mH)


# ----------------------------------------------------------------------------------------------------- eigenvalues
def _eigh_grad(grads: list[Any], result0: Tensor, result1: Tensor) -> Tensor | None:
    (gl, gv), values, vectors = grads, result0, result1
    if gv is None:
        return None if gl is None else matmul(vectors * gl.to(vectors.dtype).unsqueeze(-2), adjoint(vectors))
    inside = matmul(adjoint(vectors), gv)
    if vectors.is_complex():
        _check_gauge(diagonal(inside), "linalg_eigh_backward", "e^{i phi}")
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1) + embed(values * 0 + 1)
    inside = inside / gaps
    inside = inside - embed(diagonal(inside))
    if gl is not None:
        inside = inside + embed(gl)
    return matmul(vectors, matmul(inside.to(vectors.dtype), adjoint(vectors)))


def _eig_grad(grads: list[Any], result0: Tensor, result1: Tensor) -> Tensor | None:
    """Eigenvectors have unit length: the part of their gradient along themselves is taken out."""
    (gl, gv), values, vectors = grads, result0, result1
    vh = adjoint(vectors)
    if gv is None:
        return None if gl is None else solve(vh, gl.unsqueeze(-1) * vh)
    around = matmul(vh, gv)
    diag = diagonal(around)
    _check_gauge(diag, "linalg_eig_backward", "e^{i phi}")
    around = around - matmul(vh, vectors * diag.real.to(vectors.dtype).unsqueeze(-2))
    gaps = (values.unsqueeze(-2) - values.unsqueeze(-1)).conj() + embed(values * 0 + 1)
    inside = around / gaps
    inside = inside - embed(diagonal(inside))
    if gl is not None:
        inside = inside + embed(gl)
    return solve(vh, matmul(inside, vh))


_eigh = matrix_row("linalg_eigh", "A UPLO", shape=products.symmetric, backward=dict(A=_eigh_grad))
_eigvalsh = matrix_row("_linalg_eigvalsh", "A UPLO", shape=products.real_eigenvalues, kernel="linalg_eigvalsh")
_eig = matrix_row("linalg_eig", "self", shape=products.eigen, backward=dict(self=_eig_grad))
_eigvals = matrix_row("_linalg_eigvals", "self", shape=products.eigenvalues, kernel="linalg_eigvals")


def _uplo(value: str) -> str:
    if not isinstance(value, str) or len(value) != 1 or value.upper() not in "UL":
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {value}")
    return value.upper()


@linalg(name="linalg_eigh", autocast="float32", out="exact")
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """(eigenvalues, eigenvectors) of a Hermitian matrix, of which one triangle is read."""
    check_square(A, "linalg.eigh", kernel="linalg_eigh_cpu", always=True)
    return return_types.linalg_eigh(*_eigh(A, _uplo(UPLO)))


@linalg(name="linalg_eigvalsh", autocast="float32", out="exact")
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of a Hermitian matrix, smallest first."""
    check_square(A, "linalg.eigvalsh", kernel="linalg_eigh_cpu", always=True)
    return _eigh(A, _uplo(UPLO))[0] if recording(A) else _eigvalsh(A, _uplo(UPLO))


@linalg(name="linalg_eig", autocast="float32")
def eig(A: Tensor) -> Any:
    """(eigenvalues, eigenvectors) of a square matrix; always complex."""
    check_square(A, "linalg.eig", kernel="linalg_eig_out_cpu")
    return return_types.linalg_eig(*_eig(A))


@linalg(name="linalg_eigvals", autocast="float32")
def eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of a square matrix; always complex."""
    check_square(A, "linalg.eigvals", kernel="linalg_eig_out_cpu")
    return _eig(A)[0] if recording(A) else _eigvals(A)


# ------------------------------------------------------------------------------------- pseudo-inverse, least squares
def _tolerances(A: Tensor, atol: Any, rtol: Any, function: str) -> tuple[Tensor, Tensor]:
    """Both as real tensors; the default is a multiple of the type's precision, or 0 when atol is given."""
    real = A.dtype.to_real()
    given = atol is not None
    for name, value in (("atol", atol), ("rtol", rtol)):
        if isinstance(value, Tensor) and value.is_complex():
            raise RuntimeError(f"torch.{function}: {name} tensor of complex type is not supported. Got {value.dtype.word}")

    def tensor(value):
        return value.detach().to(real) if isinstance(value, Tensor) else full((), float(value), dtype=real)

    if rtol is None:
        default = finfo(real).eps * max(A._array.shape[-2:])
        if isinstance(atol, Tensor):
            rtol = FUNCTIONS["where"](atol > 0, 0.0, default)
        else:
            rtol = 0.0 if given and atol > 0 else default
    return tensor(0.0 if atol is None else atol), tensor(rtol)


def _pinv_grad(grad: Tensor, pinv_: Tensor, A: Tensor) -> Tensor:
    """Golub and Pereyra's formula, in the order that keeps the intermediate products small."""
    gradh, ph = adjoint(grad), adjoint(pinv_)
    if A._array.shape[-2] <= A._array.shape[-1]:
        k = matmul(gradh, pinv_)
        kph = matmul(k, ph)
        return (-adjoint(matmul(pinv_, k)) + kph - matmul(matmul(A, pinv_), kph)
                + matmul(matmul(ph, pinv_), gradh - matmul(k, A)))
    k = matmul(pinv_, gradh)
    phk = matmul(ph, k)
    return (-adjoint(matmul(k, pinv_)) + matmul(matmul(gradh - matmul(A, k), pinv_), ph)
            + phk - matmul(matmul(phk, pinv_), A))


_pinv = Row("linalg_pinv", "self atol rtol hermitian", batch=("leading", 2, 0, 0), shape=products.pseudo_inverse, backward=dict(
    self=lambda grad, result, self: _pinv_grad(grad, result, self)))


def _one_of(function: str, old: str, given: Any, atol: Any, rtol: Any) -> None:
    """Tolerances are said in the old way or in the new one."""
    if given is not None and (atol is not None or rtol is not None):
        raise TypeError(f"{function}() received an invalid combination of arguments: {old} and atol or rtol")


@linalg(name="linalg_pinv")
def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The pseudo-inverse; singular values up to max(atol, rtol * largest) count as zero."""
    _one_of("linalg_pinv", "rcond", rcond, atol, rtol)
    check_matrix(A, "linalg.pinv")
    check_floating(A, "linalg.pinv")
    if hermitian:
        check_square(A, "linalg.pinv")
    if rcond is not None and rtol is None:
        rtol = rcond
    return _pinv(A, *_tolerances(A, atol, rtol, "linalg.pinv"), hermitian)


@public(out=False, autocast="float32")
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse with a relative cutoff for small singular values."""
    return pinv(input, rcond)


def _lstsq_replay(A: Tensor, B: Tensor, vector: bool, residuals: bool) -> tuple[Tensor, ...]:
    b = B.unsqueeze(-1) if vector else B
    x = matmul(pinv(A), b)
    rest = None
    if residuals:
        gap = matmul(A, x) - b
        rest = (gap * conj(gap)).real.sum(-2) if gap.is_complex() else (gap * gap).sum(-2)
    return x.squeeze(-1) if vector else x, rest


def _lstsq_grads(grads: list[Any], A: Tensor, B: Tensor, which: int) -> Tensor | None:
    """Of the solution and of the residuals, which only some drivers give."""
    vector = _vector_rhs(A, B)
    if grads[0] is None and grads[1] is None:
        return None
    want = grads[1] is not None and grads[1]._array.size > 0
    inputs = (A, B)

    def function(t):
        return _lstsq_replay(*(t if i == which else x for i, x in enumerate(inputs)), vector, want)

    return replay(function, (inputs[which],), [grads[0], grads[1] if want else None])[0]


_lstsq = matrix_row("linalg_lstsq", "self b rcond driver", shape=products.least_squares, constant=(2, 3), backward=dict(
    self=lambda grads, self, b: _lstsq_grads(grads, self, b, 0), b=lambda grads, self, b: _lstsq_grads(grads, self, b, 1)))


@linalg(name="linalg_lstsq", autocast="float32")
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """(solution, residuals, rank, singular_values) of min ||A X - B||; what a driver does not give is empty."""
    check_floating(A, "torch.linalg.lstsq")
    if A._array.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if B._array.ndim < 1:
        raise RuntimeError("torch.linalg.lstsq: other must have at least 1 dimension.")
    if not 0 <= A._array.ndim - B._array.ndim <= 1:
        raise RuntimeError("torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - "
                           f"other.dim()) <= 1, got {A._array.ndim} and {B._array.ndim}")
    if driver is not None and driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    vector = _vector_rhs(A, B)
    rows = B._array.shape[-1] if vector else B._array.shape[-2]
    if rows != A._array.shape[-2]:
        raise RuntimeError(f"torch.linalg.lstsq: input.size(-2) should match other.size({-1 if vector else -2}), got "
                           f"{A._array.shape[-2]} and {rows}")
    check_same(A, B, "torch.linalg.lstsq")
    if rcond is not None:
        rcond = float(rcond)
    made = _lstsq(A, B, rcond, driver)
    (m, n), columns = A._array.shape[-2:], B._array.shape[-1]
    if m > n and not vector and made[0]._array.size:  # in LAPACK the solution is the upper part of B's columns
        relaid(made[0], (*[m * s for s in contiguous_strides((*made[0].shape[:-2], columns))[:-1]], 1, m))
    return return_types.linalg_lstsq(*made)


# ------------------------------------------------------------------------------------------------- rank, condition
@linalg(name="linalg_matrix_rank", autocast="float32")
def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The number of singular values above max(atol, rtol * largest)."""
    check_matrix(A, "linalg.matrix_rank")
    check_floating(A, "linalg.matrix_rank", kernel="linalg_svd_cpu")
    _one_of("linalg_matrix_rank", "tol", tol, atol, rtol)
    if tol is not None:
        atol, rtol = tol, 0.0
    with mode_bits(set=NO_GRAD):
        low, relative = _tolerances(A, atol, rtol, "linalg.matrix_rank")
        size = eigvalsh(A).abs() if hermitian else svdvals(A)
        if not size._array.size:
            batch = A._array.shape[:-2]
            from ...creation.factories import zeros
            from ...tensors.dtypes import int64
            return zeros(batch, dtype=int64, device=A.device)
        cut = FUNCTIONS["maximum"](low, relative * size.amax(-1)).unsqueeze(-1)
        return (size > cut).sum(-1)


@linalg(name="linalg_cond", autocast="float32")
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number in the norm p: how much the inverse enlarges errors."""
    from .norms import matrix_norm
    check_matrix(A, "linalg.cond")
    check_floating(A, "linalg.cond", kernel="linalg_svd_cpu")
    if p is None or p in (2, -2):
        s = svdvals(A)
        if not s._array.shape[-1]:
            return s.new_zeros(A._array.shape[:-2])
        first, last = s.narrow(-1, 0, 1), s.narrow(-1, s._array.shape[-1] - 1, 1)
        return ((last / first) if p == -2 else (first / last)).squeeze(-1)
    if p not in ("fro", "nuc", 1, -1, float("inf"), float("-inf")):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}")
    if not A._array.size:
        return A.new_zeros(A._array.shape[:-2], dtype=A.dtype.to_real())
    check_square(A, "linalg.cond", kernel="linalg_svd_cpu")
    inverse, info = inv_ex(A)
    singular = info != 0
    inverse = inverse.masked_fill(singular.unsqueeze(-1).unsqueeze(-1), 0.0)
    return (matrix_norm(A, p) * matrix_norm(inverse, p)).masked_fill(singular, float("inf"))


# --------------------------------------------------------------------------------------------------- low-rank forms
def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """An approximate basis of A's columns from q random combinations, refined by niter power iterations."""
    basis = linalg_qr(matmul(A, FUNCTIONS["randn"](A._array.shape[-1], q, dtype=A.dtype, device=A.device))).Q
    for _ in range(niter):
        basis = linalg_qr(matmul(A, linalg_qr(matmul(adjoint(A), basis)).Q)).Q
    return basis


@public(method=False, out=False)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> tuple[Tensor, ...]:
    """(U, S, V): an approximate SVD of rank q of A - M, by random projection."""
    check_matrix(A, "svd_lowrank")
    q = 6 if q is None else q
    if M is not None:
        A = A - M
    m, n = A._array.shape[-2:]
    if m < n:
        v, s, u = _lowrank(A.mH, q, niter)
        return u, s, v
    return _lowrank(A, q, niter)


def _lowrank(A: Tensor, q: int, niter: int) -> tuple[Tensor, ...]:
    basis = _basis(A, q, niter)
    u, s, vh = linalg_svd(matmul(adjoint(basis), A), full_matrices=False)
    return matmul(basis, u), s, vh.mH


@public(method=False, out=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, ...]:
    """(U, S, V): approximate principal components of the rows of A."""
    check_matrix(A, "pca_lowrank")
    m, n = A._array.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if not niter >= 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


for _row, _names in ((_qr, "Q R"), (_svd, "U S Vh"), (_eigh, "eigenvalues eigenvectors"),
                     (_eig, "eigenvalues eigenvectors")):
    name_outputs(_row, _names)
