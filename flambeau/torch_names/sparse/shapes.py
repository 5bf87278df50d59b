"""What sparse tensors do with their places: transposing, indexing, joining."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from .coo import HANDLERS, SparseTensor, _sparse, handler, make


@handler("t", "transpose")
def _transposed(a: SparseTensor, dim0: int = 0, dim1: int = 1) -> SparseTensor:
    n = a.sparse_dim()
    dim0, dim1 = dim0 % a.ndim, dim1 % a.ndim
    if dim0 >= n or dim1 >= n:
        raise NotImplementedError("transpose of a sparse tensor: only its sparse dimensions can be exchanged")
    order, shape = list(range(n)), list(a.shape)
    order[dim0], order[dim1] = dim1, dim0
    shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
    from ..creation.factories import tensor
    return make(a._held_indices.index_select(0, tensor(order)), a._held_values, shape, dim0 == dim1 and a._coalesced)


@handler("index_select")
def _index_select(a: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The named slices, in their order: an element is in as many as name its place."""
    dim, n = dim % a.ndim, a.sparse_dim()
    a = a.coalesce()
    shape = [index.shape[0] if d == dim else size for d, size in enumerate(a.shape)]
    if dim >= n:
        return make(a._held_indices, a._held_values.index_select(dim - n + 1, index), shape, True)
    pairs = (a._held_indices[dim].unsqueeze(0) == index.unsqueeze(1)).nonzero()  # (position in index, element)
    places = a._held_indices.index_select(1, pairs[:, 1])
    places[dim] = pairs[:, 0]
    return make(places, a._held_values.index_select(0, pairs[:, 1]), shape).coalesce()


@handler("select")
def _select(a: SparseTensor, dim: int, index: int) -> Any:
    dim, n = dim % a.ndim, a.sparse_dim()
    size = a.shape[dim]
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(a.shape)} at dimension {dim}")
    index %= size
    shape = [s for d, s in enumerate(a.shape) if d != dim]
    if dim >= n:
        return make(a._held_indices, a._held_values.select(dim - n + 1, index), shape, a._coalesced)
    kept = (a._held_indices[dim] == index).nonzero().squeeze(1)
    values = a._held_values.index_select(0, kept)
    if n == 1:
        return values.sum(0)
    others = _number_list([d for d in range(n) if d != dim])
    return make(a._held_indices.index_select(0, others).index_select(1, kept), values, shape, a._coalesced)


@handler("__getitem__")
def _get_item(a: SparseTensor, index: Any) -> Any:
    made, dim = a, 0
    for i in index if isinstance(index, tuple) else (index,):
        if isinstance(i, int) and not isinstance(i, bool):
            made = made.select(dim, i)
        elif isinstance(i, Tensor) and i.ndim == 1 and i.dtype.name in ("int64", "int32"):
            made, dim = made.index_select(dim, i), dim + 1
        elif i == slice(None):
            dim += 1
        else:
            raise NotImplementedError("a sparse tensor takes numbers and one-dimensional tensors of them as indices; "
                                      "to_dense() takes all")
    return made


@handler("narrow_copy")
def _narrow_copy(a: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    dim, n = dim % a.ndim, a.sparse_dim()
    size = a.shape[dim]
    start += size * (start < 0)
    if length < 0 or start + length > size:
        raise RuntimeError(f"Invalid start or length. start: {start}, length: {length}, size: {size}")
    shape = [length if d == dim else s for d, s in enumerate(a.shape)]
    if dim >= n:
        return make(a._held_indices, a._held_values.narrow_copy(dim - n + 1, start, length), shape, a._coalesced)
    at = a._held_indices[dim]
    kept = ((at >= start) & (at < start + length)).nonzero().squeeze(1)
    places = a._held_indices.index_select(1, kept)
    places[dim] -= start
    return make(places, a._held_values.index_select(0, kept), shape, a._coalesced)


@handler("permute")
def _permute(a: SparseTensor, *dims: Any) -> SparseTensor:
    order = [d % a.ndim for d in (dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)]
    n = a.sparse_dim()
    if sorted(order) != list(range(a.ndim)):
        raise RuntimeError(f"permute(sparse_coo): expected each of {a.ndim} dimensions once, got {list(dims)}")
    if any(d >= n for d in order[:n]):
        raise RuntimeError("permute(sparse_coo): a sparse and a dense dimension cannot change places")
    indices = a._held_indices.index_select(0, _number_list(order[:n]))
    values = a._held_values.permute(0, *[d - n + 1 for d in order[n:]])
    return make(indices, values, [a.shape[d] for d in order], a._coalesced and order[:n] == list(range(n)))


def _number_list(values: list[int]) -> Tensor:
    from ..creation.factories import tensor
    return tensor(values)


@handler("unsqueeze")
def _unsqueeze(a: SparseTensor, dim: int) -> SparseTensor:
    from ..ops.core.row import FUNCTIONS
    if not -a.ndim - 1 <= dim <= a.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-a.ndim - 1}, {a.ndim}], but got {dim})")
    dim, n = dim % (a.ndim + 1), a.sparse_dim()
    shape = (*a.shape[:dim], 1, *a.shape[dim:])
    if dim > n:
        return make(a._held_indices, a._held_values.unsqueeze(dim - n + 1), shape, a._coalesced)
    row = a._held_indices.new_zeros((1, a._nnz()))
    indices = FUNCTIONS["cat"]([a._held_indices[:dim], row, a._held_indices[dim:]], 0)
    return make(indices, a._held_values, shape, a._coalesced)


@handler("cat", "concat", "concatenate")
def _cat(tensors: Any, dim: int = 0, *, out: Any = None) -> SparseTensor:
    from ..ops.core.row import FUNCTIONS
    first = tensors[0]
    dim = dim % first.ndim
    if not all(_sparse(t) and t.sparse_dim() == first.sparse_dim() for t in tensors):
        raise RuntimeError("Concatenating sparse tensors, but a dense tensor, or one with another number of sparse "
                           "dimensions, was found")
    if dim >= first.sparse_dim():
        raise NotImplementedError("cat of sparse tensors along a dense dimension is not implemented in flambeau")
    shifted, start = [], 0
    for t in tensors:
        shift = t._held_indices.new_zeros((t.sparse_dim(), 1))
        shift[dim] = start
        shifted.append(t._held_indices + shift)
        start += t.shape[dim]
    cat = FUNCTIONS["cat"]
    shape = (*first.shape[:dim], start, *first.shape[dim + 1:])
    return make(cat(shifted, 1), cat([t._held_values for t in tensors], 0), shape)


@handler("stack")
def _stack(tensors: Any, dim: int = 0, *, out: Any = None) -> SparseTensor:
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


@handler("zeros_like", "empty_like")
def _zeros_like(a: SparseTensor, **kwargs: Any) -> SparseTensor:
    return make(a._held_indices[:, :0], a._held_values.detach()[:0], a.shape, True)


@handler("is_same_size")
def _is_same_size(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(b.shape)


@handler("copy_")
def _copy_(a: Any, source: Any, non_blocking: bool = False) -> Any:
    if not _sparse(a) or not _sparse(source):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = "
                           f"{a.layout} and src type = {source.layout}")
    a._take(source.to(a.dtype).clone())
    return a


HANDLERS.update(clone=SparseTensor.clone, detach=SparseTensor.detach, to_dense=SparseTensor.to_dense)
