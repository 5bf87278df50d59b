"""Norms of matrices; those of vectors are in norms.py."""

from __future__ import annotations

from typing import Any

from ...tensors.shapes import wrap_dim
from ...tensors.tensor import Tensor
from ..core.row import public
from ..reduce.vector_norms import vector_norm
from .common import check_floating, check_matrix, linalg
from .decompose import svdvals

_INF = float("inf")


def _largest(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """amax of numbers that are not negative: 0 for none."""
    return x.amax(dim, keepdim=keepdim) if x._array.shape[dim] else x.sum(dim, keepdim=keepdim)


@linalg(name="linalg_matrix_norm", out="exact")
def matrix_norm(A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *,
                dtype: Any = None) -> Tensor:
    """The norm of matrices: 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2."""
    if not isinstance(ord, (str, int, float)):
        raise TypeError(f"linalg.matrix_norm(): argument 'ord' must be a number or str, not {type(ord).__name__}")
    check_matrix(A, "linalg.matrix_norm")
    check_floating(A, "linalg.matrix_norm", low_precision=ord not in ("nuc", 2, -2))
    dims = [wrap_dim(d, A._array.ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dim) if not isinstance(dim, int) else dim}")
    if dims[0] == dims[1]:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if isinstance(ord, str):
        if ord not in ("fro", "nuc"):
            raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
        if ord == "fro":
            return vector_norm(A, 2, dims, keepdim, dtype=dtype)
    elif abs(ord) not in (1, 2, _INF):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    if dtype is not None:
        A = A.to(dtype)
    if ord in ("nuc", 2, -2):
        values = svdvals(A.permute([i for i in range(A._array.ndim) if i not in dims] + dims))
        made = values.sum(-1) if ord == "nuc" else _largest(values, -1) if ord == 2 else values.amin(-1)
        if keepdim:
            for d in sorted(dims):
                made = made.unsqueeze(d)
        return made
    rows, cols = dims
    if abs(ord) == 1:
        rows, cols = cols, rows
    sums = vector_norm(A, 1.0, cols, keepdim=True)
    made = _largest(sums, rows, True) if ord > 0 else sums.amin(rows, keepdim=True)
    if not keepdim:
        made = made.squeeze(dims)
    return made


@linalg(name="linalg_norm", out="exact")
def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A vector's or a matrix's norm, by the number of dims."""
    if dim is not None and not isinstance(dim, int):
        dim = list(dim)
        if len(dim) not in (1, 2):
            if ord is not None:
                raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {dim}")
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None and A._array.ndim not in (1, 2):
        raise RuntimeError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
                           f"{A._array.ndim}D.")
    count = A._array.ndim if dim is None else 1 if isinstance(dim, int) else len(dim)
    if isinstance(ord, str) or count == 2:
        if dim is None:
            dim = (0, 1) if A._array.ndim == 2 else (-2, -1)
        if isinstance(dim, int) or len(dim) != 2 or A._array.ndim < 2:
            raise RuntimeError(f"linalg.norm: order {ord!r} can only be used with a matrix (two dims)")
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


@public(method=False)
def frobenius_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares over one or two dims."""
    return vector_norm(input, 2, dim or None, keepdim)


@public(method=False)
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values."""
    return matrix_norm(input, "nuc", dim, keepdim)
