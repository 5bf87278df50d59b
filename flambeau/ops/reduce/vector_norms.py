"""Vector norms: the legacy `norm`, `dist`, `renorm`, and the row under `linalg.vector_norm`."""

from __future__ import annotations

import math
from typing import Any

from ...backends.facts import Fold
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, along, public, row
from ..pointwise.functions import conj
from .reductions import dims_of, keep, one_dim, reduction


def norm_grad(grad: Tensor, x: Tensor, p: float, norm: Tensor, dim: Any, keepdim: bool) -> Tensor | None:
    """The derivative of a p-norm; zero where the norm is (a subgradient)."""
    grad, norm = keep(grad, x.shape, dim, keepdim), keep(norm, x.shape, dim, keepdim)
    if p == 0:
        return x * 0
    if p == 1:
        return x.sgn() * grad
    if p == 2:
        return grad * (x / norm).masked_fill(norm == 0, 0)
    if abs(p) == math.inf:
        size = x.abs()
        hit = (size == norm).logical_or(norm.isnan().logical_and(size.isnan()))
        return x.sgn() * (hit * (grad / hit.sum(dim, True)))
    if p < 1:
        return x.sgn() * x.abs().pow(p - 1).masked_fill(x == 0, 0) * grad * norm.pow(1 - p)
    scale = (grad / norm.pow(p - 1)).masked_fill(norm == 0, 0)
    if p < 2:
        return x.sgn() * x.abs().pow(p - 1) * scale
    return x * x.abs().pow(p - 2) * scale


def _vector_norm_grad(grad, self, ord, result, dim, keepdim):
    return norm_grad(grad, self, ord, result, dim, keepdim)


_FOLDS = {1: Fold("sum", "fabs(a)", axes=2), 2: Fold("sum", "a * a", "root", 2)}
vector_norm_row = along("linalg_vector_norm", "self ord dim keepdim dtype", takes="bifch", shape=rules.norm,
                        kernel="vector_norm", fold=lambda x, order, *rest: _FOLDS.get(order),
                        backward=dict(self=_vector_norm_grad))
_dist = row("dist", "self other p", takes="bifch", safe=True, shape=rules.distance, backward=dict(
    self=lambda grad, self, other, p, result: norm_grad(grad, self - other, p, result, None, False),
    other=lambda grad, self, other, p, result: -norm_grad(grad, self - other, p, result, None, False)))


@public(toplevel=False, method=False, name="vector_norm", out="exact")
def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """(sum |x|^ord)^(1/ord) over dim; ord may be inf, -inf or 0."""
    if isinstance(ord, str):
        raise TypeError("linalg_vector_norm(): argument 'ord' must be Number, not str")
    ord = float(ord)
    _check_floating(x, "linalg.vector_norm")
    check_norm_dtype(x, dtype, "linalg.vector_norm")
    dims = dims_of(dim, x.ndim, "linalg.vector_norm")
    if ord < 0 or ord == math.inf:
        _check_identity(x, dims, ord)
    if dtype is not None and dtype is not x.dtype:
        x = x.to(dtype)
    return vector_norm_row(x, ord, dims, keepdim, None)


def _check_floating(x: Tensor, name: str) -> None:
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"{name}: Expected a floating point or complex tensor as input. Got {x.dtype.word}")


def check_norm_dtype(x: Tensor, dtype: Any, name: str) -> None:
    if dtype is None:
        return
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"{name}: dtype should be floating point or complex. Got {dtype.word}")
    if x.is_complex() != dtype.is_complex:
        raise RuntimeError(f"{name}: dtype should be {'complex' if x.is_complex() else 'real'} for "
                           f"{'complex' if x.is_complex() else 'real'} inputs. Got {dtype.word}")
    if dtype.to_real().rank < x.dtype.to_real().rank:
        raise RuntimeError(f"{name}: the dtype of the input ({x.dtype.word}) should be convertible without "
                           f"narrowing to the specified dtype ({dtype.word})")


def _check_identity(x: Tensor, dims: tuple[int, ...] | None, ord: float) -> None:
    shown = f"{ord:g}"
    if dims is None:
        if not x.numel():
            raise RuntimeError(f"linalg.vector_norm cannot compute the {shown} norm on an empty tensor because the "
                               "operation does not have an identity")
        return
    for d in dims:
        if x.ndim and not x.shape[d]:
            raise RuntimeError(f"linalg.vector_norm cannot compute the {shown} norm on the dimension {d} because this "
                               "dimension is empty and the operation does not have an identity")


@reduction(out="exact")
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The p-norm of all elements or over dim; "fro" is the 2-norm, "nuc" the sum of singular values."""
    if isinstance(p, str):
        if p == "fro" and (dim is None or isinstance(dim, int) or len(dim) <= 2):
            return vector_norm(input, 2, dim, keepdim, dtype=dtype)
        if p == "nuc" or p == "fro":
            from ..linalg.norms import matrix_norm
            return matrix_norm(input, p, tuple(range(input.ndim)) if dim is None else dim, keepdim, dtype=dtype)
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    return vector_norm(input, 2.0 if p is None else p, dim, keepdim, dtype=dtype)


@reduction
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other."""
    if not isinstance(other, Tensor):
        raise TypeError(f"dist(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}")
    _check_floating(input, "dist")
    _check_floating(other, "dist")
    return _dist(input, other, float(p))


def _renorm_grad(grad: Tensor, self: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    others = tuple(d for d in range(self.ndim) if d != dim)
    norm = vector_norm_row(self, p, others, True, None)
    along = (conj(self) * grad).sum(others, keepdim=True)
    if along.is_complex():
        along = FUNCTIONS["real"](along)
    inverse = (norm + 1e-7).reciprocal()
    scaled = maxnorm * inverse * (grad - inverse * norm_grad(along, self, p, norm, others, True))
    return FUNCTIONS["where"](norm > maxnorm, scaled.to(grad.dtype), grad)


_renorm = row("renorm", "self p dim maxnorm", shape=rules.same, backward=dict(self=_renorm_grad))


@reduction(inplace=True, out="exact")
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Scales down the slices along dim whose p-norm exceeds maxnorm."""
    if not p > 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    if input.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {input.ndim} dimensions")
    _check_floating(input, "renorm")
    return _renorm(input, float(p), one_dim(dim, input.ndim, "renorm"), maxnorm)


@public(method=False, out=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one (over all, for dim -1), kept as dimensions of size 1.

    >>> torch.norm_except_dim(torch.tensor([[3.0, 4.0], [0.0, 2.0]]), 2, 0)
    tensor([[5.],
            [2.]])
    """
    if dim == -1:
        return v.norm(pow)
    if dim == 0:
        return v.contiguous().view(v.size(0), -1).norm(pow, 1).view(v.size(0), *[1] * (v.dim() - 1))
    if dim == v.dim() - 1:
        return v.contiguous().view(-1, v.size(-1)).norm(pow, 0).view(*[1] * (v.dim() - 1), v.size(-1))
    return norm_except_dim(v.transpose(0, dim), pow, 0).transpose(0, dim)
