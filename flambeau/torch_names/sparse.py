"""Sparse tensors in coordinate form: the places of some elements (or rows) and their values; all others are zero.

They are what `Embedding(sparse=True)` gives as gradients, and enough for programs that build one by hand and multiply
it with dense matrices. A SparseTensor keeps its numbers in two ordinary tensors; what operations do with it is the
table `HANDLERS`, which they reach through `__torch_function__`. An operation that is not there says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .backends.cpu.sparse import placeholder
from .ops.core import overrides as _overrides
from .tensors.formats import sparse_coo
from .tensors.tensor import Size, Tensor

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["SparseTensor", "mm", "sum", "addmm"]
_new = object.__new__
HANDLERS: dict[str, Callable] = {}


class SparseTensor(Tensor):
    """A tensor of layout sparse_coo. `_array` has its shape and dtype but no memory of that size."""

    _plain = False
    is_sparse = True

    @property
    def layout(self) -> Any:
        return sparse_coo

    @property
    def requires_grad(self) -> bool:
        return self._held_values.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held_values.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._held_values.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self) -> Any:
        return self._held_values.grad_fn

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        handler = HANDLERS.get(name)
        if handler is None:
            raise NotImplementedError(f"{name}: not implemented for sparse tensors in flambeau; to_dense() makes an "
                                      "ordinary tensor")
        return handler(*args, **(kwargs or {}))

    # ------------------------------------------------------------------------------------------------- what it holds
    def sparse_dim(self) -> int:
        return self._held_indices._array.shape[0]

    def dense_dim(self) -> int:
        return self._held_values._array.ndim - 1

    def _nnz(self) -> int:
        return self._held_values._array.shape[0]

    def _indices(self) -> Tensor:
        return self._held_indices

    def _values(self) -> Tensor:
        return self._held_values

    def is_coalesced(self) -> bool:
        return self._coalesced

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self._coalesced = coalesced
        return self

    def indices(self) -> Tensor:
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._held_indices

    def values(self) -> Tensor:
        if not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._held_values

    def coalesce(self) -> SparseTensor:
        """Sorted places without repetitions; values of one place are added."""
        if self._coalesced:
            return self
        indices, values = self._held_indices, self._held_values
        if values._array.shape[0] < 2:
            return make(indices, values, self.shape, True)
        flat = _flat_places(indices, self.shape)
        if values.requires_grad:
            places, where = flat.unique(return_inverse=True)
            total = values.new_zeros((places._array.shape[0], *values._array.shape[1:])).index_add(0, where, values)
        else:
            from .ops.index.embedding import coalesced_rows
            places, total = coalesced_rows(flat, values, math.prod(self.shape[:self.sparse_dim()]))
        return make(_spread_places(places, tuple(self.shape[:self.sparse_dim()])), total, self.shape, True)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """An ordinary tensor; gradients flow to the values."""
        n = self.sparse_dim()
        shape, values = tuple(self.shape), self._held_values
        count = 1
        for size in shape[:n]:
            count *= size
        rows = values.new_zeros((count, *shape[n:]))
        made = rows.index_add(0, _flat_places(self._held_indices, shape), values).reshape(shape)
        return made if dtype is None else made.to(dtype)

    def to_sparse(self, *args: Any, **kwargs: Any) -> SparseTensor:
        return self

    to_sparse_coo = to_sparse

    def detach(self) -> SparseTensor:
        return make(self._held_indices, self._held_values.detach(), self.shape, self._coalesced)

    @property
    def data(self) -> SparseTensor:
        return self.detach()

    @data.setter
    def data(self, other: SparseTensor) -> None:
        self._take(other)

    def _take(self, other: SparseTensor) -> None:
        """Becomes what the other one is."""
        self._held_indices, self._held_values = other._held_indices, other._held_values
        self._coalesced = other._coalesced

    def detach_(self) -> SparseTensor:
        self._held_values = self._held_values.detach()
        return self

    def clone(self, *, memory_format: Any = None) -> SparseTensor:
        return make(self._held_indices.clone(), self._held_values.clone(), self.shape, self._coalesced)

    @property
    def mT(self) -> SparseTensor:
        return _transposed(self, -2, -1)

    @property
    def T(self) -> SparseTensor:
        return _permute(self, *range(self.ndim - 1, -1, -1))

    @property
    def mH(self) -> SparseTensor:
        turned = self.mT
        return _with(turned, turned._held_values.conj())

    @property
    def H(self) -> SparseTensor:
        return self.mH

    def numpy(self, **kwargs: Any) -> Any:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        pad = "\n       "
        indices, values = [f"tensor([], size={_tuple(t)})" if not t.numel() else repr(t.detach())
                           for t in (self._held_indices, self._held_values)]
        indices, values = indices.replace("\n", "\n" + " " * 15), values.replace("\n", "\n" + " " * 14)
        more = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        from .tensors.dtypes import get_default_dtype
        if self.dtype not in (get_default_dtype(),) and self.dtype.name not in ("int64", "bool", "complex64"):
            more.append(f"dtype={self.dtype}")
        more.append("layout=torch.sparse_coo")
        if self.requires_grad:
            more.append(f"grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else "requires_grad=True")
        return f"tensor(indices={indices},{pad}values={values},{pad}{', '.join(more)})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (self._held_indices, self._held_values, tuple(self.shape), self._coalesced)

    def __deepcopy__(self, memo: Any) -> SparseTensor:
        return self.clone().detach()


def _tuple(t: Tensor) -> tuple[int, ...]:
    return tuple(t.shape)


def _flat_places(indices: Tensor, shape: Any) -> Tensor:
    """One number per place, over the sparse dimensions."""
    n = indices._array.shape[0]
    if n == 1:
        return indices.select(0, 0)
    if n == 0:
        return indices.new_zeros(indices._array.shape[1])
    flat = indices.select(0, 0)
    for d in range(1, n):
        flat = flat * shape[d] + indices.select(0, d)
    return flat


def _spread_places(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    from .ops.core.row import FUNCTIONS
    if len(shape) == 1:
        return flat.unsqueeze(0)
    parts = []
    for size in reversed(shape):
        parts.append(flat % max(size, 1))
        flat = flat.div(max(size, 1), rounding_mode="floor")
    return FUNCTIONS["stack"](parts[::-1], 0)


def make(indices: Tensor, values: Tensor, shape: Any, coalesced: bool = False) -> SparseTensor:
    """A sparse tensor over given places and values, which are not checked."""
    _overrides.activate()
    t = _new(SparseTensor)
    t._array = placeholder(tuple(shape), values._array.dtype)
    t._node = t._counter = None
    t._held_indices, t._held_values, t._coalesced = indices, values, coalesced
    return t


def of_rows(rows: Tensor, values: Tensor, shape: tuple[int, ...]) -> SparseTensor:
    """A matrix with some rows given: what the gradient of an embedding is."""
    return make(rows.unsqueeze(0), values, shape)


# ---------------------------------------------------------------------------------------------------- what one can do
def handler(*names: str) -> Callable:
    def enter(function: Callable) -> Callable:
        for n in names:
            HANDLERS[n] = function
        return function

    return enter


def _sparse(x: Any) -> bool:
    return isinstance(x, SparseTensor)


def _with(x: SparseTensor, values: Tensor) -> SparseTensor:
    return make(x._held_indices, values, x.shape, x._coalesced)


def _same_shape(a: Tensor, b: Tensor, name: str) -> None:
    if a.shape != b.shape:
        raise RuntimeError(f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != "
                           f"{list(b.shape)}")


def _add_into(dense: Tensor, sparse: SparseTensor, alpha: Any) -> Tensor:
    """dense += alpha * sparse, touching only the rows that sparse has."""
    n = sparse.sparse_dim()
    target = dense if n == 1 else dense.view(-1, *dense.shape[n:])
    target.index_add_(0, _flat_places(sparse._held_indices, sparse.shape), sparse._held_values.to(dense.dtype),
                      alpha=alpha)
    return dense


@handler("add", "__add__", "__radd__")
def _add(a: Any, b: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    if _sparse(a) and _sparse(b):
        _same_shape(a, b, "add")
        from .ops.core.row import FUNCTIONS
        if a.sparse_dim() != b.sparse_dim():
            raise RuntimeError("add: expected both sparse tensors to have the same number of sparse dimensions, got "
                               f"{a.sparse_dim()} and {b.sparse_dim()}")
        second = b._held_values if alpha == 1 else b._held_values * alpha
        cat = FUNCTIONS["cat"]
        return make(cat([a._held_indices, b._held_indices], 1), cat([a._held_values, second], 0), a.shape)
    if _sparse(a):
        if isinstance(b, Tensor) and b.ndim and alpha == 1:  # the engine adds in any order
            return _add(b, a)
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    _same_shape(a, b, "add")
    return _add_into(a.clone(), b, alpha)


@handler("add_", "__iadd__")
def _add_(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if not _sparse(a):
        _same_shape(a, b, "add_")
        return _add_into(a, b, alpha)
    if not _sparse(b):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return _replace(a, _add(a, b, alpha=alpha))


def _replace(a: SparseTensor, made: SparseTensor) -> SparseTensor:
    a._held_indices, a._held_values, a._coalesced = made._held_indices, made._held_values, made._coalesced
    a._array = made._array
    return a


@handler("sub", "__sub__", "__rsub__")
def _sub(a: Any, b: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    return _add(a, b, alpha=-alpha)


@handler("sub_", "__isub__")
def _sub_(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _add_(a, b, alpha=-alpha)


@handler("mul", "__mul__", "__rmul__", "multiply")
def _mul(a: Any, b: Any, *, out: Any = None) -> Any:
    if not _sparse(a):
        a, b = b, a
    if _sparse(b):
        _same_shape(a, b, "mul")
        return to_sparse(a.to_dense() * b.to_dense(), a.sparse_dim())
    if isinstance(b, Tensor) and b.ndim:
        _same_shape(a, b, "mul")
        return _with(a, a._held_values * _picked(b, a))
    return _with(a, a._held_values * b)


def _picked(dense: Tensor, sparse: SparseTensor) -> Tensor:
    """The elements of a dense tensor at the places of a sparse one."""
    n = sparse.sparse_dim()
    flat = dense if n == 1 else dense.reshape(-1, *dense.shape[n:])
    return flat.index_select(0, _flat_places(sparse._held_indices, sparse.shape))


@handler("div", "__truediv__", "divide", "true_divide")
def _div(a: Any, b: Any, *, rounding_mode: Any = None, out: Any = None) -> Any:
    if not _sparse(a) or _sparse(b) or (isinstance(b, Tensor) and b.ndim):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    return _with(a, a._held_values / b)


def _in_place(name: str, function: Callable) -> None:
    def changed(a: Any, *args: Any, **kwargs: Any) -> Any:
        if not _sparse(a):
            raise RuntimeError(f"{name}: the result of a dense and a sparse tensor is sparse and cannot be written "
                               "into the dense one")
        return _replace(a, function(a, *args, **kwargs))

    HANDLERS[name] = changed


def _by_value(name: str) -> Callable:
    """An operation that keeps zeros zero: on the values alone (added up first)."""
    def applied(a: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        whole = a.coalesce()
        return _with(whole, getattr(whole._held_values, name)(*args, **kwargs))

    HANDLERS[name] = applied
    _in_place(name + "_", applied)
    return applied


def _keeping_zero() -> list[str]:
    """The functions of one tensor that are 0 at 0."""
    from .backends.cpu.backend import call, zeros
    from .ops.core.row import ROWS
    from .ops.pointwise.families import Pointwise
    from .tensors.dtypes import float32
    zero = zeros((1,), float32.native)
    return [r.name for r in ROWS.values() if isinstance(r, Pointwise) and r.args == ("self",) and r.kind != "bool"
            and "f" in r.takes and hasattr(Tensor, r.name + "_") and not call(r.kernel, (zero,)).any()]


for _name in (*_keeping_zero(), "pow", "nan_to_num"):
    _by_value(_name)
HANDLERS["__neg__"] = HANDLERS["neg"]
HANDLERS["__pow__"] = HANDLERS["pow"]
for _name in ("mul", "div"):
    _in_place(_name + "_", HANDLERS[_name])


@handler("zero_")
def _zero_(a: SparseTensor) -> SparseTensor:
    return _replace(a, make(a._held_indices[:, :0], a._held_values[:0], a.shape, True))


@handler("to", "float", "double", "half", "bfloat16", "type", "cpu")
def _to(a: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    return _with(a, a._held_values.to(*args, **kwargs)) if args or kwargs else a


for _name, _type in {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}.items():
    HANDLERS[_name] = lambda a, memory_format=None, _name=_name: _with(a, getattr(a._held_values, _name)())


@handler("t", "transpose")
def _transposed(a: SparseTensor, dim0: int = 0, dim1: int = 1) -> SparseTensor:
    n = a.sparse_dim()
    dim0, dim1 = dim0 % a.ndim, dim1 % a.ndim
    if dim0 >= n or dim1 >= n:
        raise NotImplementedError("transpose of a sparse tensor: only its sparse dimensions can be exchanged")
    order, shape = list(range(n)), list(a.shape)
    order[dim0], order[dim1] = dim1, dim0
    shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
    from .creation.factories import tensor
    return make(a._held_indices.index_select(0, tensor(order)), a._held_values, shape, dim0 == dim1 and a._coalesced)


@handler("index_select")
def _index_select(a: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    return to_sparse(a.to_dense().index_select(dim, index), a.sparse_dim())


@handler("select", "__getitem__")
def _get_item(a: SparseTensor, index: Any, *rest: Any) -> Any:
    return a.to_dense()[index] if not rest else a.to_dense().select(index, *rest)


@handler("sum")
def _sum(a: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return a._held_values.sum(dtype=dtype) if dim is None else a.to_dense().sum(dim, keepdim, dtype=dtype)


@handler("norm", "linalg_vector_norm", "vector_norm")
def _norm(a: SparseTensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    return a.coalesce()._held_values.norm(2 if p in ("fro", None) else p)


@handler("mm", "matmul", "spmm", "__matmul__", "mv", "bmm", "dsmm", "hsmm", "smm")
def _product(a: Any, b: Any, *, out: Any = None) -> Any:
    if not _sparse(a):  # (b.T @ a.T).T
        return _product(_transposed(b), a.t()).t()
    if a.ndim == 3 and a.sparse_dim() == 3 and not _sparse(b) and b.ndim == 3:
        return _batched_product(a, b)
    if a.ndim != 2 or a.sparse_dim() != 2:
        raise NotImplementedError("matrix product: the sparse tensor must be a matrix with two sparse dimensions, got "
                                  f"shape {list(a.shape)} with {a.sparse_dim()}")
    if _sparse(b):
        return to_sparse(_product(a, b.to_dense()), 2)
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
                           f"{'x'.join(map(str, b.shape))})")
    rows, columns = a._held_indices.select(0, 0), a._held_indices.select(0, 1)
    values = a._held_values if b.ndim == 1 else a._held_values.unsqueeze(-1)
    terms = b.index_select(0, columns) * values
    return terms.new_zeros((a.shape[0], *b.shape[1:])).index_add(0, rows, terms)


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
    return input * beta + _product(mat1, mat2) * alpha


# -------------------------------------------------------------------------------------------------------------- shape
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
    from .creation.factories import tensor
    return tensor(values)


@handler("unsqueeze")
def _unsqueeze(a: SparseTensor, dim: int) -> SparseTensor:
    from .ops.core.row import FUNCTIONS
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
    from .ops.core.row import FUNCTIONS
    first = tensors[0]
    dim = dim % first.ndim
    if not all(_sparse(t) and t.sparse_dim() == first.sparse_dim() for t in tensors):
        raise RuntimeError("Concatenating sparse tensors, but a dense tensor, or one with another number of sparse "
                           "dimensions, was found")
    if dim >= first.sparse_dim():
        raise NotImplementedError("cat of sparse tensors along a dense dimension is not implemented in flambeau")
    pieces, start = [], 0
    for t in tensors:
        shift = t._held_indices.new_zeros((t.sparse_dim(), 1))
        shift[dim] = start
        pieces.append(t._held_indices + shift)
        start += t.shape[dim]
    cat = FUNCTIONS["cat"]
    shape = (*first.shape[:dim], start, *first.shape[dim + 1:])
    return make(cat(pieces, 1), cat([t._held_values for t in tensors], 0), shape)


@handler("stack")
def _stack(tensors: Any, dim: int = 0, *, out: Any = None) -> SparseTensor:
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


@handler("any")
def _any(a: SparseTensor) -> Tensor:
    return a.coalesce()._held_values.any()


@handler("sparse_mask")
def _sparse_mask(a: Tensor, mask: Any) -> SparseTensor:
    if not _sparse(mask):
        raise RuntimeError(f"sparse_mask: expected mask to be sparse, got one of layout {mask.layout}")
    _same_shape(a, mask, "sparse_mask")
    return _with(mask, _picked(a.to_dense() if _sparse(a) else a, mask))


@handler("zeros_like", "empty_like")
def _zeros_like(a: SparseTensor, **kwargs: Any) -> SparseTensor:
    return make(a._held_indices[:, :0], a._held_values.detach()[:0], a.shape, True)


@handler("is_same_size")
def _is_same_size(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(b.shape)


@handler("isnan", "isinf", "isfinite")
def _refuse_tests(a: SparseTensor) -> Any:
    raise NotImplementedError("isnan and its kin of a sparse tensor: use coalesce().values()")


HANDLERS.update(clone=SparseTensor.clone, detach=SparseTensor.detach, to_dense=SparseTensor.to_dense)


# -------------------------------------------------------------------------------------------------- making them
def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> SparseTensor:
    """A sparse tensor with values at indices (dimensions x places); called with a size alone, one of zeros."""
    from .creation.factories import as_tensor, empty, tensor
    from .tensors.dtypes import int64
    if values is None:  # sparse_coo_tensor(size)
        if (indices is None) is (size is None):
            raise TypeError("sparse_coo_tensor() received an invalid combination of arguments: expected (indices, values, "
                            "size) or (size)")
        size = tuple(indices if size is None else size)
        places = empty((len(size), 0), dtype=int64)
        return make(places, empty((0,), dtype=dtype, device=device), size, True)
    i = as_tensor(indices)
    i = i.to(int64) if i.dtype is not int64 else i.detach()
    v = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    if dtype is not None:
        v = v.to(dtype)
    if i.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(i.shape)}")
    if not v.ndim:
        v = v.expand(i.shape[1])
    if v.shape[0] != i.shape[1]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {i.shape[1]}, nnz from "
                           f"values: {v.shape[0]}")
    if size is None:
        size = (*((i.max(1)[0] + 1).tolist() if i.shape[1] else [0] * i.shape[0]), *v.shape[1:])
    size = tuple(int(n) for n in size)
    _check(i, v, size)
    if requires_grad:
        v = v.detach().requires_grad_()
    return make(i, v, Size(size), bool(is_coalesced))


def _check(i: Tensor, v: Tensor, size: tuple[int, ...]) -> None:
    n = i.shape[0]
    if n + v.ndim - 1 != len(size):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({n}) + dense_dim ({v.ndim - 1}), but got "
                           f"{len(size)}")
    if tuple(v.shape[1:]) != size[n:]:
        raise RuntimeError(f"values has incorrect size, expected {[v.shape[0], *size[n:]]}, got {list(v.shape)}")
    if not i.numel():
        return
    for d, (low, high) in enumerate(zip(i.min(1)[0].tolist(), i.max(1)[0].tolist())):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if high >= size[d]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index "
                               f"{high}")


def to_sparse(dense: Tensor, sparse_dim: int | None = None, **options: Any) -> SparseTensor:
    """The places of a dense tensor that are not zero; with sparse_dim only over the first dimensions."""
    if options.get("layout") not in (None, sparse_coo) or options.get("blocksize") is not None:
        raise NotImplementedError("to_sparse: flambeau has the layout sparse_coo only")
    n = dense.ndim if sparse_dim is None else sparse_dim
    if not 0 < n <= max(dense.ndim, 1):
        raise RuntimeError(f"sparse_dim argument must be in >={1} and <= {dense.ndim}, got {n}")
    mask = dense.detach() != 0
    for _ in range(dense.ndim - n):
        mask = mask.any(-1)
    places = mask.nonzero().t().contiguous()
    flat = dense.reshape(-1, *dense.shape[n:])
    return make(places, flat.index_select(0, _flat_places(places, dense.shape)), dense.shape, True)


# ------------------------------------------------------------------------------------------- torch.sparse.<name>
def mm(mat1: Any, mat2: Any) -> Any:
    """The product of a sparse and a dense (or sparse) matrix."""
    return _product(mat1, mat2)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of a sparse tensor: of all its values, or along dimensions (then dense)."""
    return _sum(input, dim, dtype=dtype)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """beta * mat + alpha * mat1 @ mat2."""
    return _addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def _legacy(dtype_name: str) -> Callable:
    def construct(indices: Any, values: Any = None, size: Any = None) -> SparseTensor:
        from .tensors import dtypes
        kind = getattr(dtypes, dtype_name)
        return sparse_coo_tensor(indices, values, size, dtype=kind)

    return construct


FloatTensor, DoubleTensor, LongTensor, IntTensor = map(_legacy, ("float32", "float64", "int64", "int32"))


class check_sparse_tensor_invariants:
    """Whether sparse tensors are checked when they are made: here they always are; the switch is remembered."""

    _on = False

    def __init__(self, enable: bool = True):
        self.wanted, self.before = enable, None

    @staticmethod
    def is_enabled() -> bool:
        return check_sparse_tensor_invariants._on

    @staticmethod
    def enable() -> None:
        check_sparse_tensor_invariants._on = True

    @staticmethod
    def disable() -> None:
        check_sparse_tensor_invariants._on = False

    def __enter__(self) -> None:
        if self.before is not None:
            raise RuntimeError("This context manager instance is already activated. Use a different context manager "
                               "instance.")
        self.before = self.is_enabled()
        check_sparse_tensor_invariants._on = self.wanted

    def __exit__(self, *exc: Any) -> None:
        check_sparse_tensor_invariants._on, self.before = self.before, None

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.wanted):
                return function(*args, **kwargs)

        return inside


def __getattr__(name: str) -> Any:
    if name in ("softmax", "log_softmax", "spsolve", "sampled_addmm", "spdiags", "to_sparse_semi_structured",
                "SparseSemiStructuredTensor", "as_sparse_gradcheck"):
        from .missing import refusal
        return refusal(f"sparse.{name}", "this sparse operation is not implemented")
    raise AttributeError(f"module 'flambeau.sparse' has no attribute '{name}'")


