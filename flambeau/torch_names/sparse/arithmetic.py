"""What sparse tensors do with their values: arithmetic, functions that keep zero, dtypes, sums, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensors.tensor import Tensor
from .coo import HANDLERS, SparseTensor, _flat_places, _sparse, _with, handler, make
from .making import to_sparse
from .shapes import _number_list, _transposed


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
        from ..ops.core.row import FUNCTIONS
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
    a._take(made)
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
        return _common_product(a.coalesce(), b.coalesce())
    if isinstance(b, Tensor) and b.ndim:
        return _with(a, a._held_values * _picked(b.expand(a.shape), a))
    return _with(a, a._held_values * b)


def _common_product(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The products at the places that both have."""
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError("mul operands have incompatible numbers of sparse dimensions: "
                           f"{a.sparse_dim()} and {b.sparse_dim()}")
    from ..ops.core.row import FUNCTIONS
    mine, theirs = _flat_places(a._held_indices, a.shape), _flat_places(b._held_indices, b.shape)
    if not mine.numel() or not theirs.numel():
        return make(a._held_indices[:, :0], a._held_values[:0] * b._held_values[:0], a.shape, True)
    at = FUNCTIONS["searchsorted"](theirs, mine).clamp(max=theirs.shape[0] - 1)
    kept = (theirs.index_select(0, at) == mine).nonzero().squeeze(1)
    values = a._held_values.index_select(0, kept) * b._held_values.index_select(0, at.index_select(0, kept))
    return make(a._held_indices.index_select(1, kept), values, a.shape, True)


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
        coalesced = a.coalesce()
        return _with(coalesced, getattr(coalesced._held_values, name)(*args, **kwargs))

    HANDLERS[name] = applied
    _in_place(name + "_", applied)
    return applied


def _keeping_zero() -> list[str]:
    """The functions of one tensor that are 0 at 0."""
    from ..backends.cpu.backend import call, zeros
    from ..ops.core.row import ROWS
    from ..ops.pointwise.families import Pointwise
    from ..tensors.dtypes import float32
    zero = zeros((1,), float32.native)
    made = {r.name: call(r.kernel, (zero,)) for r in ROWS.values() if isinstance(r, Pointwise) and r.args == ("self",)
            and "f" in r.takes and hasattr(Tensor, r.name)}
    return [name for name, value in made.items() if value.__class__ is not tuple and not value.any()]


BY_VALUE = (*_keeping_zero(), "pow", "nan_to_num")
for _name in BY_VALUE:
    _by_value(_name)
HANDLERS["__neg__"] = HANDLERS["neg"]
HANDLERS["__pow__"] = HANDLERS["pow"]
for _name in ("mul", "div"):
    _in_place(_name + "_", HANDLERS[_name])


@handler("zero_")
def _zero_(a: SparseTensor) -> SparseTensor:
    return _replace(a, make(a._held_indices[:, :0], a._held_values[:0], a.shape, True))


@handler("to", "type")
def _to(a: SparseTensor, *args: Any, **kwargs: Any) -> Any:
    return _with(a, a._held_values.to(*args, **kwargs)) if args or kwargs else a


for _name in ("cpu", "cuda"):
    HANDLERS[_name] = lambda a, *args, _name=_name, **kwargs: _with(a, getattr(a._held_values, _name)(*args, **kwargs))


for _name, _type in {"float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16"}.items():
    HANDLERS[_name] = lambda a, memory_format=None, _name=_name: _with(a, getattr(a._held_values, _name)())


@handler("sum")
def _sum(a: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The sum of all, a number; along all sparse dimensions, a dense tensor; along others, a sparse one."""
    if dim is None:
        return a._held_values.sum(dtype=dtype)
    dims = {d % a.ndim for d in ((dim,) if isinstance(dim, int) else dim)}
    n, values = a.sparse_dim(), a._held_values if dtype is None else a._held_values.to(dtype)
    inner = [d - n + 1 for d in dims if d >= n]
    values = values.sum(inner) if inner else values
    left = [d for d in range(n) if d not in dims]
    if not left:
        made = values.sum(0)
    else:
        shape = [size for d, size in enumerate(a.shape) if d not in dims]
        made = make(a._held_indices.index_select(0, _number_list(left)), values, shape, len(left) == n and a._coalesced)
        made = made if len(left) == n else made.coalesce()
    for d in sorted(dims) if keepdim else ():
        made = made.unsqueeze(d)
    return made


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


@handler("any")
def _any(a: SparseTensor) -> Tensor:
    return a.coalesce()._held_values.any()


@handler("sparse_mask")
def _sparse_mask(a: Tensor, mask: Any) -> SparseTensor:
    if not _sparse(mask):
        raise RuntimeError(f"sparse_mask: expected mask to be sparse, got one of layout {mask.layout}")
    _same_shape(a, mask, "sparse_mask")
    return _with(mask, _picked(a.to_dense() if _sparse(a) else a, mask))


@handler("lobpcg")
def _lobpcg(*args: Any, **kwargs: Any) -> Any:
    from ..ops.linalg.lobpcg import lobpcg
    return lobpcg.__wrapped__(*args, **kwargs)  # it only multiplies by the matrix
