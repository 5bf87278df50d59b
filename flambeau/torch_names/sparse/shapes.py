"""What sparse tensors do with their places: transposing, indexing, joining."""

from __future__ import annotations

from typing import Any

from ..tensors.formats import strided
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


@handler("t_", "transpose_")
def _transpose_(a: SparseTensor, dim0: int = 0, dim1: int = 1) -> SparseTensor:
    if a.dense_dim() or a.sparse_dim() > 2:
        raise RuntimeError(f"t_() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {a.sparse_dim()} sparse "
                           f"and {a.dense_dim()} dense dimensions")
    a._take(_transposed(a, dim0, dim1))
    return a


@handler("index_select")
def _index_select(a: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The named slices, in their order: an element is in as many as name its place."""
    from ..tensors.shapes import wrap_dim
    if not a.ndim:
        raise IndexError("index_select() cannot be applied to a 0-dim tensor.")
    dim, n = wrap_dim(dim, a.ndim), a.sparse_dim()
    if index.ndim != 1 or index.dtype.name not in ("int64", "int32"):
        raise IndexError("index_select() argument index must be 1-D long-tensor.")
    if index.numel() and not -a.shape[dim] <= int(index.min()) <= int(index.max()) < a.shape[dim]:
        raise IndexError(f"index_select(): index contains {int(index.max())} that is out of range for tensor of size "
                         f"{list(a.shape)} at dimension {dim}")
    index = index % max(a.shape[dim], 1)
    shape = [index.shape[0] if d == dim else size for d, size in enumerate(a.shape)]
    if dim >= n:
        return make(a._held_indices, a._held_values.index_select(dim - n + 1, index), shape, a._coalesced)
    pairs = (a._held_indices[dim].unsqueeze(0) == index.unsqueeze(1)).nonzero()  # (position in index, element)
    places = a._held_indices.index_select(1, pairs[:, 1])
    places[dim] = pairs[:, 0]
    made = make(places, a._held_values.index_select(0, pairs[:, 1]), shape)
    return made.coalesce() if a._coalesced else made


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
def _cat(tensors: Any, dim: int = 0) -> SparseTensor:
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
def _stack(tensors: Any, dim: int = 0) -> SparseTensor:
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


@handler("zeros_like", "empty_like")
def _zeros_like(a: SparseTensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                pin_memory: bool = False, memory_format: Any = None) -> Any:
    from ..ops.core.row import FUNCTIONS
    if layout is strided:
        return FUNCTIONS["zeros"](tuple(a.shape), dtype=dtype or a.dtype, requires_grad=requires_grad)
    values = a._held_values.detach()[:0].to(dtype or a.dtype)
    return make(a._held_indices[:, :0], values, a.shape, True).requires_grad_(requires_grad)


# -------------------------------------------------------------------------------------------------------- other shapes
@handler("new_zeros", "new_empty")
def _new_zeros(a: SparseTensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False,
               layout: Any = None, pin_memory: bool = False) -> SparseTensor:
    from .making import sparse_coo_tensor
    size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    return sparse_coo_tensor(size, dtype=dtype or a.dtype, device=device or a.device).requires_grad_(requires_grad)


@handler("new")
def _new(a: SparseTensor, *args: Any, device: Any = None) -> SparseTensor:
    from .making import sparse_coo_tensor
    if args and isinstance(args[0], Tensor):
        return sparse_coo_tensor(*args, dtype=a.dtype)
    return _new_zeros(a, *args) if args else sparse_coo_tensor((0,), dtype=a.dtype)


@handler("sparse_resize_")
def _sparse_resize_(a: SparseTensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Another size: of a tensor that has elements, one that has room for them."""
    size = tuple(size)
    if sparse_dim + dense_dim != len(size):
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = "
                           f"{sparse_dim}, dense_dim = {dense_dim}")
    if not a._nnz():
        return _sparse_resize_and_clear_(a, size, sparse_dim, dense_dim)
    n, before = a.sparse_dim(), tuple(a.shape)

    def refuse(what: str, old: Any, new: Any) -> None:
        raise RuntimeError(f"{what} (from {old} to {new}) on a non-empty sparse tensor is not supported.")

    for what, old, new in (("sparse", n, sparse_dim), ("dense", a.dense_dim(), dense_dim)):
        if old != new:
            refuse(f"changing the number of {what} dimensions", old, new)
    for what, old, new in (("sparse", before[:n], size[:n]), ("dense", before[n:], size[n:])):
        if any(m < o for m, o in zip(new, old)):
            refuse(f"shrinking the size of {what} dimensions", list(old), list(new))
    values = a._held_values
    if size[n:] != before[n:]:
        larger = values.new_zeros((values.shape[0], *size[n:]))
        larger[(slice(None), *map(slice, before[n:]))] = values
        values = larger
    a._take(make(a._held_indices, values, size, a._coalesced))
    return a


@handler("sparse_resize_and_clear_")
def _sparse_resize_and_clear_(a: SparseTensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    indices = a._held_indices.new_zeros((sparse_dim, 0))
    a._take(make(indices, a._held_values.detach().new_zeros((0, *tuple(size)[sparse_dim:])), tuple(size), True))
    return a


@handler("resize_as_", "resize_as_sparse_")
def _resize_as_(a: SparseTensor, other: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    return _sparse_resize_(a, other.shape, other.sparse_dim(), other.dense_dim())


@handler("unbind", "__iter__")
def _unbind(a: SparseTensor, dim: int = 0) -> Any:
    return tuple(_select(a, dim, i) for i in range(a.shape[dim]))


@handler("_sparse_broadcast_to")
def _broadcast_to(a: SparseTensor, size: Any) -> SparseTensor:
    """Repeated along dimensions of length one, and along new ones before the first."""
    from ..ops.core.row import FUNCTIONS
    size, n = tuple(size), a.sparse_dim()
    lead = len(size) - a.ndim
    for d, (old, new) in enumerate(zip(a.shape, size[lead:])):
        if old not in (1, new):
            raise RuntimeError(f"The input's length {old} at dimension {d} does not broadcast over the requested shape of "
                               f"length {new} at dimension {d + lead}")
    places, values = a._held_indices, a._held_values
    if any(old != new for old, new in zip(a.shape[n:], size[lead + n:])):
        values = values.expand(values.shape[0], *size[lead + n:])
    repeated = [d for d in range(lead + n) if d < lead or a.shape[d - lead] != size[d]]
    many = FUNCTIONS["stack"]([t.reshape(-1) for t in FUNCTIONS["meshgrid"](
        *[FUNCTIONS["arange"](size[d]) for d in repeated], indexing="ij")]) if repeated else places.new_zeros((0, 1))
    nnz = values.shape[0]
    rows = [many[repeated.index(d)].unsqueeze(1).expand(-1, nnz).reshape(-1) if d in repeated else
            places[d - lead].repeat(many.shape[1]) for d in range(lead + n)]
    values = values.repeat(many.shape[1], *[1] * (values.ndim - 1))
    made = make(FUNCTIONS["stack"](rows), values, size)
    return made.coalesce() if a._coalesced else made


@handler("item", "__float__", "__int__")
def _item(a: SparseTensor) -> Any:
    if a.numel() != 1:
        raise RuntimeError(f"a Tensor with {a.numel()} elements cannot be converted to Scalar")
    return a.to_dense().item()


@handler("is_nonzero", "__bool__")
def _is_nonzero(a: SparseTensor) -> bool:
    if a.numel() != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'more than one value' if a.numel() else 'no values'} is ambiguous")
    return bool(a.to_dense().item())


def _refused(message: str, *names: str) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(message)

    for name in names:
        HANDLERS[name] = refuse


_refused("reshape is not implemented for sparse tensors", "reshape", "flatten", "ravel", "view_as", "reshape_as", "unflatten")
_refused("expand is unsupported for Sparse tensors", "expand", "expand_as", "broadcast_to")
_refused("Cannot access data pointer of Tensor that doesn't have storage", "tolist")
_refused("unsupported memory format option Contiguous", "contiguous")


@handler("is_same_size")
def _is_same_size(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(b.shape)


@handler("copy_")
def _copy_(a: Any, source: Any, non_blocking: bool = False) -> Any:
    if not _sparse(a) or not _sparse(source):
        raise RuntimeError("copy_() between dense and sparse Tensors is not implemented! Found self type = "
                           f"{a.layout} and src type = {source.layout}")
    _sparse_resize_(a, source.shape, source.sparse_dim(), source.dense_dim())
    a._take(source.to(a.dtype).clone())
    return a


HANDLERS.update(clone=SparseTensor.clone, detach=SparseTensor.detach, to_dense=SparseTensor.to_dense)
