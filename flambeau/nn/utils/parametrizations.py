"""Ready-made parametrizations: orthogonal, weight_norm, spectral_norm."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from ... import allclose, cat, eye, finfo, geqrf, matrix_exp, randn, zeros_like
from ...autograd.modes import no_grad
from ...tensors.tensor import Tensor
from ..module import Module
from . import parametrize
from .spectral_norm import unit
from .weight_norm import norm_except_dim, scaled_to

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
M = TypeVar("M", bound=Module)


def _tensor_of(module: Module, name: str) -> Tensor:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# --------------------------------------------------------------------------------------------------------- orthogonal
class _OrthMaps(Enum):
    matrix_exp = "matrix_exp"
    cayley = "cayley"
    householder = "householder"


def _is_orthogonal(q: Tensor, eps: float | None = None) -> bool:
    n, k = q.size(-2), q.size(-1)
    identity = eye(k, dtype=q.dtype, device=q.device)
    eps = 10.0 * n * finfo(q.dtype).eps if eps is None else eps
    return allclose(q.mH @ q, identity, atol=eps)


def _make_orthogonal(a: Tensor) -> Tensor:
    """The orthogonal factor of a matrix (batch), chosen so that its triangular factor has a positive diagonal."""
    from ...linalg import householder_product
    x, tau = geqrf(a)
    return householder_product(x, tau) * x.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """From any matrix to an orthogonal one. With a `base` (trivialization) the map starts there."""

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True):
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        transposed = x.size(-2) < x.size(-1)
        x = x.mT if transposed else x
        q = self._householder(x) if self.orthogonal_map is _OrthMaps.householder else self._from_skew(x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    def _from_skew(self, x: Tensor) -> Tensor:
        """exp(A) or the Cayley transform of A, where A is the skew-symmetric matrix of x's lower triangle."""
        from ...linalg import solve
        n, k = x.size(-2), x.size(-1)
        a = x.tril()
        if n != k:
            a = cat([a, a.new_zeros(n, n - k).expand(*a.shape[:-2], -1, -1)], dim=-1)
        a = a - a.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = matrix_exp(a)
        else:
            identity = eye(n, dtype=a.dtype, device=a.device)
            q = solve(identity.add(a, alpha=-0.5), identity.add(a, alpha=0.5))
        return q[..., :k] if n != k else q

    @staticmethod
    def _householder(x: Tensor) -> Tensor:
        from ...linalg import householder_product
        a = x.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (a * a).sum(dim=-2))
        # The diagonal of x holds the signs that make the map reach both halves of the orthogonal group.
        return householder_product(a, tau) * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    @no_grad()
    def right_inverse(self, q: Tensor) -> Tensor:
        if q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                             f"{q.shape}.")
        given = q
        transposed = q.size(-2) < q.size(-1)
        q = q.mT if transposed else q
        if not hasattr(self, "base"):
            return self._without_base(q, transposed)
        n, k = q.size(-2), q.size(-1)
        if n == k:
            q = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        else:
            rest = randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            q = _make_orthogonal(cat([q, rest], dim=-1))
        self.base = q
        start = zeros_like(given)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start

    def _without_base(self, q: Tensor, transposed: bool) -> Tensor:
        if self.orthogonal_map is not _OrthMaps.householder:
            raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley "
                                      "parametrizations when use_trivialization=False.")
        a, tau = geqrf(q)
        diagonal = a.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[tau == 0.0] *= -1  # LAPACK left this reflection out; ours is always made
        return a.mT if transposed else a


def orthogonal(module: M, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> M:
    """Keeps a matrix (or batch of matrices) orthogonal; orthogonal_map: "matrix_exp", "cayley" or "householder"."""
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    chosen = getattr(_OrthMaps, orthogonal_map, None)
    if chosen is None:
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: '
                         f"{orthogonal_map}")
    layer = _Orthogonal(weight, chosen, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, layer, unsafe=True)
    return module


# -------------------------------------------------------------------------------------------------------- weight norm
class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled_to(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Learns a tensor's length (along `dim`; None: as a whole) and its direction separately."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def read_old_names(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{name}.original1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(read_old_names)
    return module


# ------------------------------------------------------------------------------------------------------ spectral norm
class _SpectralNorm(Module):
    """Divides by the largest singular value, which power iteration follows while training."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            height, width = matrix.size()
            u = unit(matrix.new_empty(height).normal_(0, 1), eps)
            v = unit(matrix.new_empty(width).normal_(0, 1), eps)
            self.register_buffer("_u", u)
            self.register_buffer("_v", v)
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    @no_grad()
    def _power_method(self, matrix: Tensor, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):
            self._u.copy_(unit(matrix.mv(self._v), self.eps))
            self._v.copy_(unit(matrix.mH.mv(self._u), self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return unit(weight, self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Copies: backward needs them as they are now, and the next step changes them in place.
        u, v = self._u.clone(), self._v.clone()
        return weight / u.vdot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> M:
    """Keeps a tensor's largest singular value at one."""
    weight = _tensor_of(module, name)
    if dim is None:
        dim = 1 if type(module).__name__.removeprefix("Parametrized") in _TRANSPOSED else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


_TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")  # their outputs are dimension 1 of the weight
