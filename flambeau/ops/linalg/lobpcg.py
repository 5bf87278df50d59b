"""A few eigenvalues of a large symmetric matrix by iteration (LOBPCG: locally optimal block preconditioned conjugate gradient).

Each step looks for the best vectors in the span of the current ones, their residuals and the last directions; the matrix is
only ever multiplied, so that it may be sparse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.function import Function
from ...autograd.modes import no_grad
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from ..core.export import FUNCTIONS, public
from .decompose import eigh
from .solve import solve

_EPSILON = {"float32": 1e-6, "float64": 1e-14}


def _product(A: Tensor | None, X: Tensor) -> Tensor:
    return X if A is None else FUNCTIONS["matmul"](A, X)


def _across(X: Tensor, Y: Tensor) -> Tensor:
    return FUNCTIONS["matmul"](X.mH, Y)


def _norm(X: Tensor) -> float:
    return float((X.abs() ** 2).sum().sqrt())


def _orthonormal(S: Tensor, B: Tensor | None, repeats: int, tolerance: float) -> Tensor:
    """A basis of the span of S, orthonormal in the product of B: S (S' B S)^(-1/2), again until it is close enough.
    Directions that are not independent are left out."""
    for _ in range(repeats):
        gram = _across(S, _product(B, S))
        scale = gram.diagonal().real.clamp(min=1e-300).rsqrt()
        values, vectors = eigh(gram * scale.unsqueeze(0) * scale.unsqueeze(1))
        least = float(values.abs().amax()) * tolerance
        kept = (values > least).nonzero().squeeze(1)
        values, vectors = values[kept], vectors[:, kept]
        S = FUNCTIONS["matmul"](S * scale.to(S.dtype), vectors.to(S.dtype)) * values.rsqrt().to(S.dtype)
        off = _across(S, _product(B, S))
        if float((off - FUNCTIONS["eye"](off.shape[0], dtype=off.dtype)).abs().amax()) < tolerance * off.shape[0]:
            break
    return S


class _Worker:
    """The state of one run, which a tracker sees after each step (PyTorch's names)."""

    def __init__(self, A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, iparams: dict[str, int],
                 fparams: dict[str, float], bparams: dict[str, bool], method: str, tracker: Callable | None):
        self.A, self.B, self.X, self.iK, self.method, self.tracker = A, B, X, iK, method, tracker
        self.iparams, self.fparams, self.bparams = iparams, fparams, bparams
        size = _norm(X)
        self.fvars: dict[str, float] = {"X_norm": size, "A_norm": _norm(_product(A, X)) / size,
                                        "B_norm": _norm(_product(B, X)) / size}
        self.ivars = {"istep": 0, "iterations_left": iparams["niter"], "converged_count": 0, "converged_end": 0}
        self.bvars: dict[str, bool] = {}
        self.tvars: dict[str, Tensor] = {}
        self.E, self.R, self.S, self._held = X[:0, 0], X, X[:, :0], 0

    def _basis(self, S: Tensor) -> Tensor:
        repeats = 1 if self.method == "basic" else max(self.iparams["ortho_j_max"], 1)
        return _orthonormal(S, self.B, repeats, self.fparams["ortho_tol"])

    def _best(self, S: Tensor) -> tuple[Tensor, Tensor]:
        """Eigenvalues of the matrix within the span of S, the wanted ones first, and their vectors within it."""
        small = _across(S, _product(self.A, S))
        values, vectors = eigh((small + small.mH) * 0.5)
        return (values.flip(0), vectors.flip(1)) if self.bparams["largest"] else (values, vectors)

    def run(self) -> tuple[Tensor, Tensor]:
        k, n = self.iparams["k"], self.iparams["n"]
        P = self.X[:, :0]
        S = self._basis(self.X)
        while True:
            values, vectors = self._best(S)
            wanted = vectors[:, :n].to(S.dtype)
            self.E, self.X, self.S = values[:n], FUNCTIONS["matmul"](S, wanted), S
            AX, BX = _product(self.A, self.X), _product(self.B, self.X)
            self.R = AX - BX * self.E.to(AX.dtype)
            if self.ivars["istep"]:  # the part of the step that leads out of the old vectors
                P = FUNCTIONS["matmul"](S[:, self._held:], wanted[self._held:])
            self._look(k)
            if self.tracker is not None and self.ivars["istep"]:
                self.tracker(self)
            if self.ivars["converged_count"] >= k or not self.ivars["iterations_left"]:
                return self.E[:k], self.X[:, :k]
            W = _product(self.iK, self.R[:, self.ivars["converged_count"]:])
            self._held = self.X.shape[1]
            rest = FUNCTIONS["cat"]([W, P], 1)
            for _ in range(2):  # orthogonal to the vectors, so that these stay what they are
                rest = rest - FUNCTIONS["matmul"](self.X, _across(self.X, _product(self.B, rest)))
            S = FUNCTIONS["cat"]([self.X, self._basis(rest)], 1)
            self.ivars["istep"] += 1
            self.ivars["iterations_left"] -= 1

    def _look(self, k: int) -> None:
        """How many of the first vectors have converged."""
        sizes = (self.X.abs() ** 2).sum(0).sqrt()
        scale = self.fvars["A_norm"] + self.E.abs() * self.fvars["B_norm"]
        self.tvars["rerr"] = (self.R.abs() ** 2).sum(0).sqrt() / (sizes * scale)
        count = 0
        for error in self.tvars["rerr"].tolist():
            if not error < self.fparams["tol"]:
                break
            count += 1
        self.ivars["converged_count"], self.ivars["converged_end"] = count, count


class _Differentiated(Function):
    """The forward pass is the iteration; the derivative of a simple eigenvalue d with vector v needs nothing else: v v' for d,
    and for v the solution u of (A - d) u = g orthogonal to v."""

    @staticmethod
    def forward(ctx, A, options):
        D, U = _solve(A, **options)
        ctx.save_for_backward(A, D, U)
        ctx.general = options["B"] is not None
        return D, U

    @staticmethod
    def backward(ctx, D_grad, U_grad):
        A, D, U = ctx.saved_tensors
        for wrong, what in ((A.is_sparse, "sparse input"), (A.is_complex(), "complex input"),
                            (ctx.general, "backward with B != I")):
            if wrong:
                raise ValueError(f"lobpcg.backward does not support {what} yet. Note that lobpcg.forward does though.")
        n, k = U.shape[-2:]
        total = FUNCTIONS["matmul"](U * D_grad.unsqueeze(-2), U.mT) if D_grad is not None else FUNCTIONS["zeros_like"](A)
        if U_grad is not None:
            eye = FUNCTIONS["eye"](n, dtype=A.dtype)
            for i in range(k):
                v, g = U[..., i:i + 1], U_grad[..., i:i + 1]
                corner = FUNCTIONS["zeros_like"](v[..., :1, :])
                bordered = FUNCTIONS["cat"]([FUNCTIONS["cat"]([A - D[..., i, None, None] * eye, v], -1),
                                             FUNCTIONS["cat"]([v.mT, corner], -1)], -2)
                u = solve(bordered, FUNCTIONS["cat"]([g, corner], -2))[..., :n, :]
                total = total - FUNCTIONS["matmul"](u, v.mT)
        return (total + total.mT) * 0.5, None


def _solve(A: Tensor, k: int, B: Tensor | None, X: Tensor | None, n: int, iK: Tensor | None, niter: int, tol: float,
           largest: bool, method: str, tracker: Any, iparams: dict, fparams: dict, bparams: dict) -> tuple[Tensor, Tensor]:
    m = A.shape[-1]
    batch = A.shape[:-2]
    if X is None:
        X = FUNCTIONS["randn"](*batch, m, n, dtype=A.dtype, device=A.device)
    elif tuple(X.shape[-2:]) != (m, n):
        raise AssertionError(f"X must have shape (*, {m}, {n}), got {tuple(X.shape)}")
    settings = ({"m": m, "n": n, "k": k, "niter": niter, **iparams}, {"tol": tol, **fparams}, {"largest": largest, **bparams})
    if not batch:
        return _Worker(A, B, X, iK, *settings, method, tracker).run()
    flat = [None if t is None else t.reshape(-1, *t.shape[-2:]) for t in (A, B, X, iK)]
    made = [_Worker(*[None if t is None else t[i] for t in flat], *settings, method, tracker).run()
            for i in range(flat[0].shape[0])]
    D, U = (FUNCTIONS["stack"]([one[j] for one in made]) for j in (0, 1))
    return D.reshape(*batch, k), U.reshape(*batch, m, k)


@public(method=False, out=False)
def lobpcg(A: Tensor, k: int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: int | None = None,
           iK: Tensor | None = None, niter: int | None = None, tol: float | None = None, largest: bool | None = None,
           method: str | None = None, tracker: Callable | None = None, ortho_iparams: dict[str, int] | None = None,
           ortho_fparams: dict[str, float] | None = None, ortho_bparams: dict[str, bool] | None = None,
           ) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) eigenvalues (*, k) and vectors (*, m, k) of A x = E B x, for symmetric A (*, m, m), dense or
    sparse, and positive definite B.

    X: where to begin (*, m, n); iK: a preconditioner; niter: at most so many steps, tol: until residuals are that small;
    method: "ortho" or, with one orthogonalization a step, "basic"; tracker: called with the state after each step.

    >>> values, vectors = torch.lobpcg(torch.diag(torch.arange(1.0, 13.0).double()), k=2)
    >>> values.round(decimals=4)
    tensor([12., 11.], dtype=torch.float64)
    """
    if A.ndim < 2 or A.shape[-2] != A.shape[-1]:
        raise AssertionError(f"A must be square, got shape {tuple(A.shape)}")
    m = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if m < 3 * n:
        raise ValueError(f"LOBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number "
                         f"of requested eigenpairs (={n})")
    real = A.dtype.to_real() if A.dtype.is_complex else A.dtype
    tiny = _EPSILON.get(real.name, _EPSILON["float32"])
    iparams = {"ortho_i_max": 3, "ortho_j_max": 3, **{f"ortho_{key}": v for key, v in (ortho_iparams or {}).items()}}
    fparams = {"ortho_tol": tiny, "ortho_tol_drop": tiny, "ortho_tol_replace": tiny,
               **{f"ortho_{key}": v for key, v in (ortho_fparams or {}).items()}}
    bparams = {"ortho_use_drop": False, **{f"ortho_{key}": v for key, v in (ortho_bparams or {}).items()}}
    options = dict(k=k, B=B, X=X, n=n, iK=iK, niter=1000 if niter is None else niter,
                   tol=(1.5e-8 if real is _dtypes.float64 else 3.5e-4) if tol is None else tol,
                   largest=True if largest is None else largest, method="ortho" if method is None else method,
                   tracker=tracker, iparams=iparams, fparams=fparams, bparams=bparams)
    if A.requires_grad or (B is not None and B.requires_grad):
        return _Differentiated.apply((A + A.mT) * 0.5, options)
    with no_grad():
        return _solve(A, **options)
