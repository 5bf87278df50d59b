"""Operations along one dimension: index_select, index_add, gather, scatter and their relatives."""

from __future__ import annotations

import functools
from typing import Any

from ...autograd.state import BATCHED, grad_enabled, state
from ...backends import values
from ...creation.factories import arange, empty
from ...settings import warn_once
from ...tensors import dtypes as _dtypes
from ...tensors.shapes import broadcast_shapes, wrap_dim
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import Row, _type_word, check_dtype, check_on_cpu, public
from ..rules import moves
from ..shape.joining import stack
from ..shape.writing import writing
from .indexing import added_rows, number_for


def _filled_sum(grad: Tensor, dim: int, index: Tensor) -> Tensor:
    """The sum of a gradient over what index_fill wrote; a position may be named more than once."""
    if state.mode & BATCHED:
        return (grad * _index_fill(grad.new_zeros(grad.shape), dim, index, 1)).sum()
    return grad.index_select(dim, index.unique()).sum()


# ---------------------------------------------------------------------------------------------------------------- rows
# Where a formula takes a gradient back by position, `grad.new_zeros(shape)` is filled in place: one pass over memory.
_index_select = Row("index_select", "self dim index", moves=True, safe=values.ALONG, shape=moves.selected, forward="linear",
                    backward={
    "self": lambda grad, self_shape, dim, index: _add_back(grad, self_shape, dim, index)})
_index_add = Row("index_add", "self dim index source alpha", moves=True, safe=values.ALONG, apart=True, batch="index_change",
                 shape=rules.same, backward={
    "self": lambda grad: grad,
    "source": lambda grad, dim, index, source_shape, alpha:
        _picked(grad, dim, index, source_shape) * _conj_number(alpha)})
_index_copy = Row("index_copy", "self dim index source", moves=True, apart=True, batch="index_change", shape=rules.same,
                  backward={
    "self": lambda grad, dim, index: grad.index_fill(dim, index, 0),
    "source": lambda grad, dim, index, source_shape: _picked(grad, dim, index, source_shape)})
_index_fill = Row("index_fill", "self dim index value", moves=True, apart=True, lenient=True, batch="index_change",
                  shape=rules.alike, backward={
    "self": lambda grad, dim, index: grad.index_fill(dim, index, 0)})
_index_fill_tensor = Row("index_fill_tensor", "self dim index value", moves=True, kernel="index_fill",
                         node="IndexFillBackward1", backward={
    "self": lambda grad, dim, index: grad.index_fill(dim, index, 0),
    "value": lambda grad, dim, index: _filled_sum(grad, dim, index)})
_gather = Row("gather", "self dim index", safe=values.ALONG, batch="picked_along", shape=rules.first_as(2), forward="linear",
              backward={
    "self": lambda grad, self_shape, dim, index: _scatter_added(grad, dim, index, self_shape)})
_scatter_added = Row("scatter_added", "source dim index shape",
                     safe=values.positions(2, lambda source, dim, at, shape: shape[dim], again=True), shape=rules.of_shape(3),
                     forward="linear", backward={
    "source": lambda grad, dim, index: _gather(grad, dim, index)})
_scatter_src = Row("scatter_src", "self dim index src", safe=values.ALONG, apart=True, shape=rules.same, kernel="scatter",
                   node="ScatterBackward0", backward={
    "self": lambda grad, dim, index: grad.scatter(dim, index, 0),
    "src": lambda grad, dim, index: grad.gather(dim, index)})
_scatter_value = Row("scatter_value", "self dim index value", kernel="scatter", node="ScatterBackward1", backward={
    "self": lambda grad, dim, index: grad.scatter(dim, index, 0)})
_scatter_with = Row("scatter_with", "self dim index src reduce", batch="scatter", shape=rules.same, node="NotImplemented",
                    backward={
    "self": lambda grad, reduce: _only_sums(grad, reduce),
    "src": lambda grad, dim, index, reduce: _only_sums(grad, reduce).gather(dim, index)})
_scatter_add = Row("scatter_add", "self dim index src", safe=values.ALONG, apart=True, batch="scatter", shape=rules.same,
                   backward={
    "self": lambda grad: grad,
    "src": lambda grad, dim, index: grad.gather(dim, index)})
_scatter_reduce = Row("scatter_reduce", "self dim index src reduce include_self", apart=True, batch="scatter", shape=rules.same,
                      backward={
    "self": lambda grad, self, dim, index, src, reduce, include_self, result:
        reduce_backward(grad, self, dim, index, src, reduce, include_self, result)[0](),
    "src": lambda grad, self, dim, index, src, reduce, include_self, result:
        reduce_backward(grad, self, dim, index, src, reduce, include_self, result)[1]()})
_index_reduce = Row("index_reduce", "self dim index source reduce include_self", apart=True, batch="index_change",
                    shape=rules.same, backward={
    "self": lambda grad, self, dim, index, source, reduce, include_self, result:
        reduce_backward(grad, self, dim, _spread(index, dim, source), source, reduce, include_self, result)[0](),
    "source": lambda grad, self, dim, index, source, reduce, include_self, result:
        reduce_backward(grad, self, dim, _spread(index, dim, source), source, reduce, include_self, result)[1]()})


def _add_back(grad: Tensor, shape: Any, dim: int, index: Tensor) -> Tensor:
    if not shape:
        return grad.reshape(())
    if dim == 0:
        return added_rows(grad, index, shape)
    return grad.new_zeros(shape).index_add_(dim, index, grad)


def _picked(grad: Tensor, dim: int, index: Tensor, shape: Any) -> Tensor:
    return grad.index_select(dim, index).reshape(shape)


def _conj_number(value: Any) -> Any:
    return value.conjugate() if value.__class__ is complex else value


def _only_sums(grad: Tensor, reduce: str) -> Tensor:
    if reduce != "add":
        raise NotImplementedError("the derivative for 'scatter' with reduce='multiply' is not implemented; use "
                                  "scatter_reduce(..., reduce='prod')")
    return grad


def _spread(index: Tensor, dim: int, source: Tensor) -> Tensor:
    """A vector of positions as an index of source's shape."""
    if not source.dim():
        return index.reshape(())
    return index.reshape([-1 if d == dim else 1 for d in range(source.dim())]).expand(source.shape)


def reduce_backward(grad: Tensor, self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool,
                    result: Tensor) -> tuple[Any, Any]:
    """The two halves of scatter_reduce's derivative, each as a function that computes it."""
    to_self, to_src = _REDUCTIONS[reduce](grad, self, dim, index, src, include_self, result)
    if include_self:
        return to_self, to_src
    return lambda: to_self().scatter(dim, index, 0), to_src


def _sum_backward(grad, self, dim, index, src, include_self, result):
    return lambda: grad, lambda: grad.gather(dim, index)


def _mean_backward(grad, self, dim, index, src, include_self, result):
    count = grad.new_ones(self.shape) if include_self else grad.new_zeros(self.shape)
    count = count.scatter_add(dim, index, grad.new_ones(src.shape))
    shared = grad / count.masked_fill(count == 0, 1)
    return lambda: shared, lambda: shared.gather(dim, index)


def _extreme_backward(grad, self, dim, index, src, include_self, result):
    """Equal winners share the gradient, the tensor's own value among them."""
    own = (self == result).to(grad.dtype)
    theirs = (src == result.gather(dim, index)).to(grad.dtype)
    shared = grad / own.scatter_add(dim, index, theirs)
    return lambda: own * shared, lambda: theirs * shared.gather(dim, index)


def _prod_backward(grad, self, dim, index, src, include_self, result):
    """The product of the others: by division, except where an element is zero."""
    def to_self():
        safe = self.masked_fill(self == 0, 1)
        others = safe.scatter_reduce(dim, index, src, "prod", include_self=include_self)
        return grad * (others / safe).conj()

    def to_src():
        zero = src == 0
        zeros = grad.new_zeros(self.shape).scatter_add(dim, index, zero.to(grad.dtype)).gather(dim, index)
        alone = zero & (zeros == 1)
        others = self.scatter_reduce(dim, index, src.masked_fill(alone, 1), "prod", include_self=include_self)
        divided = (grad * result.conj()).gather(dim, index) / src.masked_fill(zero, 1).conj()
        made = divided.where(alone.logical_not(), (grad * others.conj()).gather(dim, index))
        if grad_enabled() and (zeros > 1).any():  # several zeros in one place: this formula is not differentiable itself
            from ...autograd.function import DelayedError
            made = DelayedError("scatter_reduce(): Double backward is unsupported for src when >1 zeros in src are scattered "
                                "to the same position in self")(made)
        return made

    return to_self, to_src


_REDUCTIONS = {"sum": _sum_backward, "mean": _mean_backward, "amax": _extreme_backward, "amin": _extreme_backward,
               "prod": _prod_backward}


# ------------------------------------------------------------------------------------------------ a vector of positions
_COMBINES = {"amax": "bif", "amin": "bif", "mean": "ifc"}  # which dtypes a reduction has a kernel for


def _vector(name: str, index: Any, types: str = "int32/int64") -> None:
    if not isinstance(index, Tensor):
        raise TypeError(f"{name}(): argument 'index' (position 3) must be Tensor, not {type(index).__name__}")
    if index.dim() > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.dim()} with type: "
                         f"{_type_word(index.dtype)} and size: {list(index.shape)}")
    if index.dtype not in (_dtypes.int64, _dtypes.int32) or (types == "int64" and index.dtype is not _dtypes.int64):
        raise (IndexError if types == "int64" else RuntimeError)(f"{name}(): Expected dtype {types} for index but "
                                                                 f"got: {_type_word(index.dtype)}")


@public(out="exact apart")
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of one dimension that index names, in its order."""
    dim = wrap_dim(dim, input.dim())
    _vector("index_select", index, "int32 or int64")
    if input.dim() == 0 and index.numel() != 1:
        raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)")
    return _index_select(input, dim, index)


def _slices_match(name: str, self: Tensor, dim: int, index: Tensor, source: Tensor, lenient: bool = False) -> None:
    """source holds one slice of self per position; lenient: a zero-dim tensor may stand for one of a single element."""
    if source.dtype is not self.dtype:
        mine, theirs = _type_word(self.dtype), _type_word(source.dtype)
        if name == "index_add_":
            raise RuntimeError(f"index_add_(): self ({mine}) and source ({theirs}) must have the same scalar type")
        raise RuntimeError(f"{name}(): self and source expected to have the same dtype, but got (self) {mine} and "
                           f"(source) {theirs}")
    count = source.shape[dim] if source.dim() else 1
    differ = source.dim() != self.dim() and not (lenient and 0 in (source.dim(), self.dim()))
    if differ or (self.dim() and _others(self, dim) != _others(source, dim)):
        raise RuntimeError(f"source tensor shape must match self tensor shape, excluding the specified dimension. Got "
                           f"self.shape = {list(self.shape)} source.shape = {list(source.shape)}")
    if index.numel() != count:
        raise RuntimeError(f"{name}(): Number of indices ({index.numel()}) should be equal to source.size(dim): "
                           f"({count}), for dim: {dim}")


def _others(t: Tensor, dim: int) -> list[int]:
    return [n for d, n in enumerate(t.shape) if d != dim]


@writing(out="exact")
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    """input with alpha * source's slices added at the positions of index along dim."""
    dim = wrap_dim(dim, input.dim())
    _vector("index_add_", index)
    _slices_match("index_add_", input, dim, index, source)
    if isinstance(alpha, Tensor):
        alpha = alpha.item()
    if isinstance(alpha, int) and input._array.dtype.kind == "u":
        alpha %= 1 << 8 * input._array.itemsize  # numbers wrap around, as the sums do
    return _index_add, dim, index, source, alpha


@writing(autocast="widest", out="exact")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    """input with the slices at the positions of index along dim replaced by source's."""
    dim = wrap_dim(dim, input.dim())
    if isinstance(index, Tensor) and index.dim() > 1:
        raise IndexError(f"index_copy_(): Index should have dimension 1 or 0 (got {index.dim()})")
    if isinstance(index, Tensor) and index.dtype is not _dtypes.int64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {_type_word(index.dtype)}")
    _vector("index_copy_", index)
    if source.dim() == 0 and index.numel() != 1:
        raise IndexError(f"index_copy_(): When source is scalar, index should have one element (got {index.numel()})")
    if source.dim() and input.dim() and source.dim() != input.dim():
        raise IndexError("index_copy_(): When source and destination are not scalars, their dimensionality must match. "
                         f"Source dimensionality ({source.dim()}), destination dimensionality ({input.dim()})")
    if source.dim() and source.shape[dim] != index.numel():
        raise IndexError(f"index_copy_(): Number of indices ({index.numel()}) should be equal to source.size(dim) "
                         f"({source.shape[dim]})")
    _slices_match("index_copy_", input, dim, index, source, lenient=True)
    return _index_copy, dim, index, source


@writing
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    """input with value in the slices that index names along dim."""
    dim = wrap_dim(dim, input.dim())
    if isinstance(index, Tensor) and index.dim() > 1:
        raise RuntimeError(f"Index has to be a vector/scalar, got {index.dim()} dimensions")
    _vector("index_fill_", index, "int64")
    if isinstance(value, Tensor):
        if value.dim():
            raise RuntimeError("index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                               f"{value.dim()} dimension(s).")
        if value.is_complex() and not input.is_complex():
            raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
        return _index_fill_tensor, dim, index, value
    return _index_fill, dim, index, number_for(input.dtype, value)


@writing(out="exact")
def index_reduce(input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
                 include_self: bool = True) -> Any:
    """input with source's slices combined into those at the positions of index: prod, mean, amax or amin."""
    dim = wrap_dim(dim, input.dim())
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    check_on_cpu("index_func_", input, "if")
    _vector("index_reduce_", index)
    _slices_match("index_reduce_", input, dim, index, source)
    return _index_reduce, dim, index, source, reduce, bool(include_self)


# ---------------------------------------------------------------------------------------- a position for every element
def _positions(name: str, self: Tensor, dim: int, index: Any) -> int:
    if not isinstance(index, Tensor):
        raise TypeError(f"{name}(): argument 'index' (position 3) must be Tensor, not {type(index).__name__}")
    dim = wrap_dim(dim, self.dim())
    if index._array.dtype.char not in "lqi" and index.numel():
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index")
    return dim


@public(out="exact apart")
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Element [i, j] of the result is input[index[i, j], j] (for dim 0)."""
    dim = _positions("gather", input, dim, index)
    mine, theirs = index._array.shape, input._array.shape
    if index._array.size:
        if max(len(mine), 1) != max(len(theirs), 1):
            raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
        for d, n in enumerate(mine):
            if d != dim and n > (theirs[d] if theirs else 1):
                raise RuntimeError(f"Size does not match at dimension {d} expected index {list(index.shape)} to be "
                                   f"no larger than self {list(input.shape)} apart from dimension {dim}")
    if sparse_grad and input.requires_grad:
        return _sparse_gather().apply(input, dim, index)
    return _gather(input, dim, index)


@functools.cache
def _sparse_gather() -> Any:
    """gather as a Function whose gradient is a sparse tensor."""
    from ...autograd.function import Function

    class Gather(Function):
        @staticmethod
        def forward(ctx: Any, input: Tensor, dim: int, index: Tensor) -> Tensor:
            ctx.save_for_backward(index)
            ctx.dim, ctx.shape = dim, tuple(input.shape)
            return _gather(input, dim, index)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            index, = ctx.saved_tensors
            return _sparse_places(grad, ctx.shape, ctx.dim, index), None, None

    return Gather


def _sparse_places(grad: Tensor, shape: tuple[int, ...], dim: int, index: Tensor) -> Tensor:
    """A sparse tensor of this shape with the elements of grad at the places that gather took them from."""
    from ...sparse import sparse_coo_tensor
    if not shape:
        return sparse_coo_tensor(empty((0, grad.numel()), dtype=index.dtype), grad.reshape(-1), shape)
    if not grad.dim():
        return sparse_coo_tensor(index.reshape(1, 1), grad.reshape(1), shape)
    places = [index if d == dim else arange(n).reshape([-1 if e == d else 1 for e in range(index.dim())]).expand(index.shape)
              for d, n in enumerate(index.shape)]
    return sparse_coo_tensor(stack([p.reshape(-1) for p in places]), grad.reshape(-1), shape)


def _fit_source(name: str, self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """src cut to the shape of index, after the checks."""
    if src.dtype is not self.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
    if not index.numel():
        return src[tuple(slice(n) for n in index.shape)] if src.dim() == index.dim() else src.new_zeros(index.shape)
    if max(index.dim(), 1) != max(src.dim(), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    _inside(self, dim, index, src)
    if not index.dim():
        return src.reshape(-1).narrow(0, 0, 1).reshape(())
    if src.shape != index.shape:
        src = src.reshape(index.shape) if src.numel() == 1 else src[tuple(slice(n) for n in index.shape)]
    return src


def _inside(self: Tensor, dim: int, index: Tensor, src: Tensor | None = None) -> None:
    mine = index._array.shape
    if not index._array.size:
        return
    target, source = self._array.shape or (1,), (src._array.shape or (1,)) if src is not None else mine
    if len(mine or (1,)) != len(target):
        raise RuntimeError("Index tensor must have the same number of dimensions as self tensor")
    for d, n in enumerate(mine):
        if (d != dim and n > target[d]) or n > source[d]:
            tail = f" and to be no larger size than src {list(src.shape)}" if src is not None else ""
            raise RuntimeError(f"Expected index {list(mine)} to be no larger than self {list(self.shape)} apart from "
                               f"dimension {dim}{tail}")


@writing(out="exact")
def scatter(input: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None,
            reduce: str | None = None) -> Any:
    """input with src (or one value) written at the positions of index along dim."""
    dim = _positions("scatter", input, dim, index)
    given = value if src is None else src
    if given is None:
        raise TypeError("scatter() missing 1 required positional argument: 'src' or 'value'")
    if isinstance(given, Tensor):
        given = _fit_source("scatter", input, dim, index, given)
    else:
        _inside(input, dim, index)
        given = number_for(input.dtype, given)
    if reduce is not None:
        if isinstance(given, Tensor):
            warn_once("scatter_reduce", "The reduce argument of torch.scatter with Tensor src is deprecated and will be "
                      "removed in a future PyTorch release. Use torch.scatter_reduce instead for more reduction options.")
        if reduce not in ("add", "multiply"):
            raise RuntimeError("reduce argument must be either add or multiply.")
        return _scatter_with, dim, index, given, reduce
    return (_scatter_src if isinstance(given, Tensor) else _scatter_value), dim, index, given


@writing(out="exact")
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """input with src added at the positions of index along dim."""
    dim = _positions("scatter_add", input, dim, index)
    return _scatter_add, dim, index, _fit_source("scatter_add", input, dim, index, src)


@writing(out="exact")
def scatter_reduce(input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *,
                   include_self: bool = True) -> Any:
    """input with src combined into it at the positions of index: sum, prod, mean, amax or amin."""
    dim = _positions("scatter_reduce", input, dim, index)
    if reduce not in _REDUCTIONS:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    check_dtype(f"scatter_gather_tensor_cpu_reduce_{reduce}", input.dtype, _COMBINES.get(reduce, "bifc"))
    src = _fit_source("scatter_reduce", input, dim, index, src)
    return _scatter_reduce, dim, index, src, reduce, bool(include_self)


@public(out="exact")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """gather with broadcasting; without dim, from the flattened tensor."""
    if indices.dtype is not _dtypes.int64:
        raise RuntimeError(f"torch.take_along_dim(): dtype of indices should be Long but got {_type_word(indices.dtype)}")
    if dim is None:
        return gather(input.reshape(-1), 0, _from_front(indices, input.numel()).reshape(-1))
    if input.dim() != indices.dim():
        raise RuntimeError("torch.take_along_dim(): input and indices should have the same number of dimensions, but "
                           f"got {input.dim()} dimensions for input, and {indices.dim()} dimensions for indices")
    dim = wrap_dim(dim, input.dim())
    mine, theirs = list(input.shape), list(indices.shape)
    if input.dim():
        mine[dim] = theirs[dim] = 1
    common = list(broadcast_shapes(mine, theirs))
    if input.dim():
        common[dim] = input.shape[dim]
        wide = input.expand(common)
        common[dim] = indices.shape[dim]
        return gather(wide, dim, _from_front(indices, input.shape[dim]).expand(common))
    return gather(input, dim, _from_front(indices, 1))


def _from_front(indices: Tensor, size: int) -> Tensor:
    """Positions that count from the end as positions from the front."""
    if not state.mode & BATCHED and (not indices.numel() or indices.is_meta or int(indices.min()) >= 0):
        return indices
    return (indices + size).where(indices < 0, indices)
