"""What sparse tensors do with their values: arithmetic, functions that keep zero, dtypes, sums, matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensors.dtypes import promote_types
from ..tensors.tensor import Tensor
from .coo import HANDLERS, SparseTensor, _flat_places, _sparse, _with, handler, make
from .shapes import _number_list


def _same_shape(a: Tensor, b: Tensor, name: str) -> None:
    if a.shape != b.shape:
        raise RuntimeError(f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}")


def _add_into(dense: Tensor, sparse: SparseTensor, alpha: Any) -> Tensor:
    """dense += alpha * sparse, touching only the rows that sparse has."""
    n = sparse.sparse_dim()
    target = dense if n == 1 else dense.view(-1, *dense.shape[n:])
    target.index_add_(0, _flat_places(sparse._held_indices, sparse.shape), sparse._held_values.to(dense.dtype), alpha=alpha)
    return dense


@handler("add", "__add__", "__radd__")
def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if _sparse(a) and _sparse(b):
        _same_shape(a, b, "add")
        from ..ops.core.row import FUNCTIONS
        if a.sparse_dim() != b.sparse_dim():
            raise RuntimeError("add: expected both sparse tensors to have the same number of sparse dimensions, got "
                               f"{a.sparse_dim()} and {b.sparse_dim()}")
        second = b._held_values if alpha == 1 else b._held_values * alpha
        if a._held_indices is b._held_indices:
            return make(a._held_indices, a._held_values + second, a.shape, a._coalesced and b._coalesced)
        cat = FUNCTIONS["cat"]
        kind = promote_types(a.dtype, b.dtype)
        made = make(cat([a._held_indices, b._held_indices], 1), cat([a._held_values.to(kind), second.to(kind)], 0), a.shape)
        return made.coalesce() if a._coalesced and b._coalesced else made
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
    a._written(made)
    return a


@handler("sub", "__sub__", "__rsub__")
def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _add(a, b, alpha=-alpha)


@handler("sub_", "__isub__")
def _sub_(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _add_(a, b, alpha=-alpha)


@handler("mul", "__mul__", "__rmul__", "multiply")
def _mul(a: Any, b: Any) -> Any:
    if not _sparse(a) or (_sparse(b) and not a.ndim):
        a, b = b, a
    if _sparse(b) and not b.ndim:
        b = b.to_dense()
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
def _div(a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
    if not _sparse(a) or _sparse(b) or (isinstance(b, Tensor) and b.ndim):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    a = a if rounding_mode is None else a.coalesce()  # what is rounded is the sum
    return _with(a, a._held_values.div(b, rounding_mode=rounding_mode))


@handler("floor_divide", "__floordiv__")
def _floor_divide(a: Any, b: Any) -> Any:
    return _div(a, b, rounding_mode="floor")


def _in_place(name: str, function: Callable) -> None:
    def changed(a: Any, *args: Any, **kwargs: Any) -> Any:
        if not _sparse(a):
            raise RuntimeError(f"{name}: the result of a dense and a sparse tensor is sparse and cannot be written "
                               "into the dense one")
        return _replace(a, function(a, *args, **kwargs))

    HANDLERS[name] = changed


def _of(values: Tensor, name: str, *args: Any, **kwargs: Any) -> Tensor:
    """values.name(...), which may be an attribute."""
    made = getattr(values, name)
    return made if isinstance(made, Tensor) else made(*args, **kwargs)


def _same_or_with(a: SparseTensor, values: Tensor) -> SparseTensor:
    return a if values is a._held_values else _with(a, values)


def _by_value(name: str) -> Callable:
    """An operation that keeps zeros zero: on the values alone (added up first)."""
    def applied(a: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        if kwargs.pop("inplace", False):  # nn.functional.relu
            return HANDLERS[name + "_"](a, *args, **kwargs)
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


# of a sum the sum of: values need not be added up first
LINEAR = ("neg", "negative", "positive", "conj", "real", "imag", "resolve_conj", "resolve_neg", "conj_physical")
CONVERSIONS = "float double half bfloat16 int long short char byte bool cfloat cdouble cpu cuda".split()
BY_VALUE = (*(name for name in _keeping_zero() if name not in LINEAR), "pow", "nan_to_num", "isposinf", "isneginf",
            "sgn", "round")
for _name in BY_VALUE:
    _by_value(_name)
for _name in (*LINEAR, *CONVERSIONS):
    HANDLERS[_name] = lambda a, *args, _name=_name, **kwargs: _same_or_with(a, _of(a._held_values, _name, *args, **kwargs))
for _name in ("neg", "negative", "conj_physical"):
    _in_place(_name + "_", HANDLERS[_name])
for _name, _dunder in {"neg": "__neg__", "pow": "__pow__", "positive": "__pos__", "abs": "__abs__"}.items():
    HANDLERS[_dunder] = HANDLERS[_name]
HANDLERS["pow_scalar"] = HANDLERS["pow"]
for _name in ("mul", "div", "floor_divide"):
    _in_place(_name + "_", HANDLERS[_name])
for _name in ("mul", "truediv", "floordiv"):
    _in_place(f"__i{_name}__", HANDLERS[f"__{_name}__"])


@handler("zero_")
def _zero_(a: SparseTensor) -> SparseTensor:
    return _replace(a, make(a._held_indices[:, :0], a._held_values[:0], a.shape, True))


@handler("to")
def _to(a: Any, *args: Any, **kwargs: Any) -> Any:
    if not _sparse(a):  # dense.to(sparse): its dtype and device
        return a.to(*(x._held_values if _sparse(x) else x for x in args), **kwargs)
    made = a._held_values.to(*(x._held_values if _sparse(x) else x for x in args), **kwargs)
    return a if made is a._held_values else _with(a, made)


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


@handler("any")
def _any(a: SparseTensor) -> Tensor:
    return a.coalesce()._held_values.any()


@handler("sparse_mask")
def _sparse_mask(a: Tensor, mask: Any) -> SparseTensor:
    if not _sparse(mask):
        raise RuntimeError(f"sparse_mask: expected mask to be sparse, got one of layout {mask.layout}")
    _same_shape(a, mask, "sparse_mask")
    return _with(mask, _picked(a.to_dense() if _sparse(a) else a, mask))
