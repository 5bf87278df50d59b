"""Distances and similarities of vectors."""

from __future__ import annotations

from ...autograd.modes import no_grad
from ...creation.factories import triu_indices
from ...ops.core.row import check_on_cpu, public
from ...ops.pointwise.families import broadcast_error
from ...ops.reduce.vector_norms import vector_norm
from ...tensors import dtypes as _dtypes
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor

__all__ = ["cosine_similarity", "pairwise_distance", "pdist"]


@public(method=False, out=False)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along dim; lengths are taken to be at least eps."""
    common = _dtypes.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {common.word}")
    try:
        shape = broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    except RuntimeError:
        raise broadcast_error(tuple(x1.shape), tuple(x2.shape)) from None
    a, b = x1.to(common).expand(shape), x2.to(common).expand(shape)
    return (_unit(a, dim, eps) * _unit(b, dim, eps)).sum(dim)


def _unit(x: Tensor, dim: int, eps: float) -> Tensor:
    length = vector_norm(x, 2, dim, True).clone()
    with no_grad():  # the limit takes no part in the derivative
        length.clamp_(min=eps)
    return x / length


@public(method=False, out=False)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@public(method=False, out=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of rows, (0, 1), (0, 2) ... (n - 2, n - 1)."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D")
    if not input.is_floating_point():
        raise RuntimeError(f"pdist only supports floating-point dtypes, got: {input.dtype}")
    check_on_cpu("pdist", input, "F")
    if p < 0:
        raise RuntimeError(f"pdist only supports non-negative p values, got: {p}")
    n = input.shape[0]
    if n < 2:
        return input.new_zeros((0,)) + input.sum() * 0 if input.requires_grad else input.new_zeros((0,))
    first, second = triu_indices(n, n, 1, device=input.device).unbind(0)
    return vector_norm(input.index_select(0, first) - input.index_select(0, second), p, -1)
