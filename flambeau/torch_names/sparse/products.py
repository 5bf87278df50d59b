"""Matrix products of sparse tensors: dense results, and sparse ones (smm, sspaddmm, hspmm)."""

from __future__ import annotations

from typing import Any

from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from .coo import SparseTensor, _sparse, _spread_places, handler, make
from .making import to_sparse
from .shapes import _transposed


@handler("mm", "matmul", "spmm", "__matmul__", "__rmatmul__", "mv", "bmm", "dsmm")
def _product(a: Any, b: Any) -> Any:
    if not _sparse(a):  # (b.T @ a.T).T
        return _product(_transposed(b), a.t()).t()
    if a.ndim == 3 and a.sparse_dim() == 3 and not _sparse(b) and b.ndim == 3:
        return _batched_product(a, b)
    if a.ndim != 2 or a.sparse_dim() != 2:
        raise NotImplementedError("matrix product: the sparse tensor must be a matrix with two sparse dimensions, got "
                                  f"shape {list(a.shape)} with {a.sparse_dim()}")
    _check_inner(a, b)
    if _sparse(b):
        return to_sparse(_product(a, b.to_dense()), 2)
    rows, terms = _terms(a, b)
    return terms.new_zeros((a.shape[0], *b.shape[1:])).index_add(0, rows, terms)


def _check_inner(a: Any, b: Any) -> None:
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
                           f"{'x'.join(map(str, b.shape))})")


def _terms(a: SparseTensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """What each element of a sparse matrix contributes to a product, and to which row."""
    rows, columns = a._held_indices.unbind(0)
    values = a._held_values if b.ndim == 1 else a._held_values.unsqueeze(-1)
    return rows, b.index_select(0, columns) * values


def _batched_product(a: SparseTensor, b: Tensor) -> Tensor:
    """A stack of sparse matrices times a stack of dense ones: one sparse matrix with the blocks on its diagonal."""
    count, rows, columns = a.shape
    if b.shape[0] != count or b.shape[1] != columns:
        raise RuntimeError(f"bmm: expected matrices of shape {[count, columns, 'any']}, got {list(b.shape)}")
    block, row, column = a._held_indices.unbind(0)
    terms = b.reshape(-1, b.shape[2]).index_select(0, block * columns + column) * a._held_values.unsqueeze(-1)
    return terms.new_zeros((count * rows, b.shape[2])).index_add(0, block * rows + row, terms).view(count, rows, -1)


@handler("addmm")
def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if _sparse(input):
        if not _sparse(mat2):
            raise RuntimeError("addmm_sparse_dense: expected strided result tensor, got tensor with layout Sparse")
        return input * beta + _product(mat1, mat2) * alpha
    made = _product(mat1, mat2)
    made = (made.to_dense() if _sparse(made) else made) * alpha
    return made + (input * beta if beta else 0)


@handler("addmm_")
def _addmm_(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    made = _addmm(input, mat1, mat2, beta=beta, alpha=alpha)
    return input.copy_(made)


@handler("hspmm", "hsmm")
def _rows_product(mat1: Any, mat2: Any) -> SparseTensor:
    """The product with a dense matrix, of which only the rows exist that the sparse one has elements in."""
    if not _sparse(mat1) or mat1.sparse_dim() != 2 or mat1.dense_dim():
        raise RuntimeError(f"hspmm: Argument #2: matrices expected, got {mat1.ndim}D tensor")
    if _sparse(mat2) or mat2.ndim != 2:
        raise RuntimeError(f"hspmm: Argument #3: matrices expected, got {mat2.ndim}D tensor")
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"hspmm: Argument #3: Expected dim 0 size {mat1.shape[1]}, got {mat2.shape[0]}")
    rows, terms = _terms(mat1.coalesce(), mat2)
    kept, where = rows.unique(return_inverse=True)
    values = terms.new_zeros((kept.shape[0], mat2.shape[1])).index_add(0, where, terms)
    return make(kept.unsqueeze(0), values, (mat1.shape[0], mat2.shape[1]))


@handler("sspaddmm", "saddmm")
def _sparse_sum_of_product(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> SparseTensor:
    """beta * input + alpha * mat1 @ mat2 as a sparse tensor: input's elements, then the rows that the product has."""
    if not _sparse(input) or not _sparse(mat1):
        raise RuntimeError("sspaddmm: Argument #1: sparse tensors expected")
    product = _rows_product(mat1, mat2)
    if tuple(input.shape) != tuple(product.shape):
        raise RuntimeError(f"sspaddmm: Argument #1: Expected size {list(product.shape)}, got {list(input.shape)}")
    width = product.shape[1]
    places = product._held_indices.select(0, 0).unsqueeze(1) * width + FUNCTIONS["arange"](width)
    of_product = _spread_places(places.reshape(-1), tuple(product.shape))
    indices = FUNCTIONS["cat"]([input._held_indices, of_product], 1)
    values = FUNCTIONS["cat"]([input._held_values * beta, product._held_values.reshape(-1) * alpha], 0)
    return make(indices, values, product.shape)


@handler("smm")
def _sparse_product(input: Any, mat2: Any) -> SparseTensor:
    empty = make(input._held_indices[:, :0], input._held_values[:0], (input.shape[0], mat2.shape[-1]))
    return _sparse_sum_of_product(empty, input, mat2)


@handler("linear")
def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
    made = _product(input.reshape(-1, input.shape[-1]), _transposed(weight) if _sparse(weight) else weight.t())
    made = made.view(*input.shape[:-1], weight.shape[0])
    return made if bias is None else made + bias


@handler("lobpcg")
def _lobpcg(*args: Any, **kwargs: Any) -> Any:
    from ..ops.linalg.lobpcg import lobpcg
    return lobpcg.__wrapped__(*args, **kwargs)  # it only multiplies by the matrix
