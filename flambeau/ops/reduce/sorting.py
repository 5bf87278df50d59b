"""Sorting, order statistics, unique elements, searching, counting and differences."""

from __future__ import annotations

from typing import Any

from ...backends import registry
from ...creation.factories import linspace
from ...tensors import dtypes as _dtypes
from ...tensors import return_types
from ...tensors.formats import contiguous_format
from ...tensors.shapes import as_int, wrap_dim
from ...tensors.tensor import Tensor, wrap
from .. import rules
from ..core.row import FUNCTIONS, Row, _type_word, along, check_on_cpu, public
from ..rules import moves


def _unsorted(grad: Tensor, shape: Any, dim: int, indices: Tensor) -> Tensor:
    """The gradient of chosen values at the places they were chosen from."""
    if not shape:
        return grad.reshape(())
    return grad.new_zeros(shape).scatter_(dim, indices, grad)


def _kth_backward(grad: Tensor, shape: Any, dim: int, indices: Tensor, keepdim: bool) -> Tensor:
    if shape and not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return _unsorted(grad, shape, dim, indices)


def _no_derivative(name: str) -> Any:
    def formula(grad):
        raise RuntimeError(f"derivative for {name} is not implemented")
    return {"self": formula}


_sort = along("sort", "self dim descending", safe=True, shape=rules.sorted_with_position, constant=(1,), backward={
    "self": lambda grad, self_shape, dim, result1: _unsorted(grad, self_shape, dim, result1)})
_sort_stable = Row("sort_stable", "self dim descending", kernel="sort", node="SortBackward1", constant=(1,), backward={
    "self": lambda grad, self_shape, dim, result1: _unsorted(grad, self_shape, dim, result1)})
_topk = along("topk", "self k dim largest", safe=True, shape=rules.topk, constant=(1,), backward={
    "self": lambda grad, self_shape, dim, result1: _unsorted(grad, self_shape, dim, result1)})
_kthvalue = along("kthvalue", "self k dim keepdim", shape=rules.kth, constant=(1,), backward={
    "self": lambda grad, self_shape, dim, result1, keepdim: _kth_backward(grad, self_shape, dim, result1, keepdim)})
_unique = Row("unique", "self", batch="dynamic", shape=rules.by_value("unique"),
              node="Unique2Backward0", constant=(1, 2), backward=_no_derivative("_unique2"))
_unique_dim = Row("unique_dim", "self dim", batch="dynamic", shape=rules.by_value("unique"),
                  constant=(1, 2), backward=_no_derivative("unique_dim"))
_unique_consecutive = Row("unique_consecutive", "self", batch="dynamic", shape=rules.by_value("unique_consecutive"),
                          constant=(1, 2), backward=_no_derivative("unique_consecutive"))
_unique_consecutive_dim = Row("unique_consecutive_dim", "self dim", batch="dynamic", shape=rules.by_value("unique_consecutive"),
                              node="UniqueConsecutiveBackward0", constant=(1, 2), backward=_no_derivative("unique_consecutive"))
_searchsorted = Row("searchsorted", "sorted_sequence values right sorter out_int32", safe=True, shape=rules.searched)
_isin = Row("isin", "elements test_elements assume_unique invert", safe=True, shape=moves.is_in)
_bincount = Row("bincount", "self weights minlength", shape=rules.by_value("bincount"))
_histc = Row("histc", "self bins min max", shape=rules.histogram)
_histogramdd = Row("histogramdd", "self edges weight density", takes="F", shape=rules.histogram_of_points)


# -------------------------------------------------------------------------------------------------------------- sorting
def _ordered(name: str, input: Tensor) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if input.is_complex():
        raise RuntimeError(f"{name}: {'topk' if name == 'topk' else 'Sort'} does not support complex dtypes on CPU")


def _flag(name: str, argument: str, value: Any) -> bool:
    if not isinstance(value, (bool, int)) and value is not None:
        raise TypeError(f"{name}(): argument '{argument}' must be bool, not {type(value).__name__}")
    return bool(value)


def _dim(name: str, dim: Any, ndim: int) -> int:
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"{name}(): argument 'dim' must be int, not {type(dim).__name__}")
    return wrap_dim(dim.__index__(), ndim)


@public(out="exact")
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """(values in order along dim, where each came from)."""
    _ordered("sort", input)
    r = _sort if stable is None else _sort_stable
    return return_types.sort(*r(input, _dim("sort", dim, input.dim()), _flag("sort", "descending", descending)))


@public
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The order that sorts along dim."""
    _ordered("argsort", input)
    return _sort(input.detach(), _dim("argsort", dim, input.dim()), _flag("argsort", "descending", descending))[1]


@public(out="exact")
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    _ordered("msort", input)
    return _sort(input, 0, False)[0]


@public(out="exact")
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest (or smallest) elements along dim and where they are."""
    _ordered("topk", input)
    if input.dtype is _dtypes.bool_:
        raise RuntimeError("topk does not support bool dtypes on CPU")
    k, dim = as_int(k), _dim("topk", dim, input.dim())
    if not 0 <= k <= (input.shape[dim] if input.dim() else 1):
        raise RuntimeError(f"selected index k out of range: k is {k}, the dimension has "
                           f"{input.shape[dim] if input.dim() else 1} elements")
    return return_types.topk(*_topk(input, k, dim, bool(largest)))


@public(out="exact apart")
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest element along dim and where it is."""
    if input.is_complex() or input.dtype is _dtypes.bool_:
        raise NotImplementedError(f'"kthvalue_cpu" not implemented for \'{_type_word(input.dtype)}\'')
    k, dim = as_int(k), _dim("kthvalue", dim, input.dim())
    size = input.shape[dim] if input.dim() else 1
    if size == 0:
        raise IndexError(f"kthvalue(): Expected reduction dim {dim} to have non-zero size.")
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {dim}")
    return return_types.kthvalue(*_kthvalue(input, k, dim, bool(keepdim)))


# --------------------------------------------------------------------------------------------------------------- unique
def _parts(found: tuple[Tensor, ...], return_inverse: bool, return_counts: bool) -> Any:
    values, inverse, counts = found
    out = (values, *((inverse,) if return_inverse else ()), *((counts,) if return_counts else ()))
    return out if len(out) > 1 else values


def _check_slices(input: Tensor, dim: int) -> None:
    others = [n for d, n in enumerate(input.shape) if d != dim]
    if 0 in others and input.shape[dim]:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique cannot be applied")


@public(out=False)
def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> Any:
    """The distinct elements (or slices along dim), sorted; on request where they went and how often each came."""
    check_on_cpu("unique" if dim is None else "unique_dim", input, "bif")
    if dim is None:
        return _parts(_unique(input), return_inverse, return_counts)
    dim = wrap_dim(dim, input.dim())
    if input.dim() == 0:
        return _parts(_unique(input), return_inverse, return_counts)
    _check_slices(input, dim)
    return _parts(_unique_dim(input, dim), return_inverse, return_counts)


@public(out=False)
def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False,
                       dim: int | None = None) -> Any:
    """Like unique, but only neighbours that are equal are merged."""
    check_on_cpu("unique" if dim is None else "unique_dim", input, "bif")
    if dim is None or input.dim() == 0:
        return _parts(_unique_consecutive(input), return_inverse, return_counts)
    dim = wrap_dim(dim, input.dim())
    _check_slices(input, dim)
    return _parts(_unique_consecutive_dim(input, dim), return_inverse, return_counts)


# ------------------------------------------------------------------------------------------------------------ searching
def _scalar_like(value: Any, other: Tensor) -> Tensor:
    """A Python number as a zero-dim tensor beside `other` that does not change the dtype of its kind."""
    if isinstance(value, Tensor):
        return value
    dtype = _dtypes.result_type_of(None, other.dtype, _dtypes.of_python(value))
    return wrap(registry.cpu.asarray(value, dtype.native)).to(other.device)


@public(method=False, out="exact")
def searchsorted(sorted_sequence: Tensor, input: Any = None, *, self: Any = None, out_int32: bool = False,
                 right: bool = False, side: str | None = None, sorter: Tensor | None = None) -> Tensor:
    """Where each value would be inserted into its (last-dimension) row of a sorted sequence."""
    values = _scalar_like(input if self is None else self, sorted_sequence)
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites, got side of left while "
                           "right was True")
    check_on_cpu("searchsorted_out_cpu", sorted_sequence, "if")
    _check_search(sorted_sequence, values, isinstance(input, Tensor) or isinstance(self, Tensor), sorter)
    return _searchsorted(sorted_sequence, values, right or side == "right", sorter, bool(out_int32))


def _check_search(edges: Tensor, values: Tensor, is_tensor: bool, sorter: Tensor | None) -> None:
    if edges.dim() == 0:
        raise RuntimeError("torch.searchsorted(): input boundaries tensor dimension should be positive, got 0 dimension")
    if not is_tensor and edges.dim() != 1:
        raise RuntimeError("torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension "
                           f"is 1, but we got boundaries tensor dim({edges.dim()}) and input value's dim(0) numel(1)")
    if edges.dim() != 1 and (edges.dim() != values.dim() or edges.shape[:-1] != values.shape[:-1]):
        raise RuntimeError("torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 "
                           "dimensions of boundaries tensor and input value tensor must match, but we got "
                           f"boundaries tensor {list(edges.shape)} and input value tensor {list(values.shape)}")
    if sorter is None:
        return
    if sorter.shape != edges.shape:
        raise RuntimeError("torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                           f"{list(edges.shape)} and got sorter tensor {list(sorter.shape)}")
    if sorter.dtype is not _dtypes.int64:
        raise RuntimeError("torch.searchsorted(): sorter must be a tensor of long dtype but got dtype "
                           f"{_type_word(sorter.dtype)}")
    if sorter.numel() and not sorter.is_meta and not 0 <= int(sorter.min()) <= int(sorter.max()) < edges.shape[-1]:
        raise RuntimeError("torch.searchsorted(): sorter index out of range")


@public(method=False, out="exact")
def bucketize(input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The number of the interval, between sorted boundaries, that each value falls into."""
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")
    check_on_cpu("searchsorted_out_cpu", boundaries, "if")
    return _searchsorted(boundaries, _scalar_like(input, boundaries), bool(right), None, bool(out_int32))


@public(method=False, out="exact")
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False,
         element: Any = None, test_element: Any = None) -> Tensor:
    """Whether each element is among test_elements."""
    elements = element if elements is None else elements
    test_elements = test_element if test_elements is None else test_elements
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): elements or test_elements must be a Tensor, got "
                        f"({type(elements).__name__}, {type(test_elements).__name__})")
    elements = elements if isinstance(elements, Tensor) else _scalar_like(elements, test_elements)
    test_elements = _scalar_like(test_elements, elements)
    for t in (elements, test_elements):
        if t.dtype is _dtypes.bool_ or t.is_complex():
            raise RuntimeError(f"Unsupported input type encountered for isin(): {_type_word(t.dtype)}")
    return _isin(elements, test_elements, bool(assume_unique), bool(invert))


# ------------------------------------------------------------------------------------------------------------- counting
@public
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer comes, or the sum of its weights."""
    if input.dtype.is_floating_point or input.is_complex() or input.dtype is _dtypes.bool_:
        raise NotImplementedError(f'"bincount_cpu" not implemented for \'{_type_word(input.dtype)}\'')
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.dim() != 1 or (input.numel() and not input.is_meta and int(input.min()) < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and (weights.dim() != 1 or weights.numel() != input.numel()):
        raise RuntimeError("weights should be 1-d and have the same length as input")
    return _bincount(input, None if weights is None else weights.detach(), as_int(minlength))


@public(out="exact")
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Counts in equal bins between min and max (of the data if both are equal)."""
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f'"histogram_cpu" not implemented for \'{_type_word(input.dtype)}\'')
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    if min > max:
        raise RuntimeError("torch.histc: max must be larger than min")
    return _histc(input.detach(), as_int(bins), float(min), float(max))


def _linear_edges(name: str, column: Tensor, bins: int, bounds: Any) -> Tensor:
    """bins + 1 equally spaced edges over the given range, or over that of the data."""
    if bins <= 0:
        raise RuntimeError(f"{name}(): bins must be > 0, but got {bins} for dimension 0")
    if bounds is None:
        low, high = (float(column.min()), float(column.max())) if column.numel() else (0.0, 1.0)
    else:
        low, high = float(bounds[0]), float(bounds[1])
    if not (-float("inf") < low < float("inf") and -float("inf") < high < float("inf")):
        raise RuntimeError(f"{name}(): dimension 0's range [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError(f"{name}(): min should not exceed max, but got min {low:g} max {high:g} for dimension 0")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, dtype=column.dtype, device=column.device)


def _check_histogram(name: str, input: Tensor, weight: Tensor | None, shape: Any) -> None:
    if not input.dtype.is_floating_point:
        raise NotImplementedError(f'"{name}_cpu" not implemented for \'{_type_word(input.dtype)}\'')
    if weight is not None:
        if weight.dtype is not input.dtype:
            raise RuntimeError(f"torch.{name}(): if weight tensor is provided, it should have the same dtype as input")
        if tuple(weight.shape) != tuple(shape):
            raise RuntimeError(f"torch.{name}(): if weight tensor is provided it should have the same shape as the "
                               f"input tensor excluding its innermost dimension, got {list(weight.shape)} for {list(shape)}")


def _flat(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.detach().reshape(-1)


@public(out="exact")
def histogram(input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None,
              density: bool = False) -> Any:
    """(counts or densities, bin edges) of all elements; bins is a number or the edges themselves."""
    _check_histogram("histogram", input, weight, input.shape)
    flat = input.detach().reshape(-1)
    if isinstance(bins, Tensor):
        if bins.dim() != 1 or bins.numel() < 1:
            raise RuntimeError("torch.histogramdd(): bins tensor should have one dimension and at least one element")
        edges = bins.detach().clone(memory_format=contiguous_format)
    else:
        edges = _linear_edges("torch.histogram", flat, as_int(bins), range)
    counts = _histogramdd(flat.reshape(-1, 1), [edges], _flat(weight), density)
    return return_types.histogram(counts, edges)


@public(method=False, out=False)
def histogramdd(input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None,
                density: bool = False) -> Any:
    """(counts, edges per dimension) of points whose coordinates are the last dimension.

    >>> points = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]])
    >>> counts, edges = torch.histogramdd(points, bins=[2, 2])
    >>> counts
    tensor([[0., 1.],
            [1., 1.]])
    """
    if input.dim() < 2:
        raise RuntimeError(f"torch.histogramdd(): input tensor should have at least 2 dimensions, but got {input.dim()}")
    _check_histogram("histogramdd", input, weight, input.shape[:-1])
    n = input.shape[-1]
    points = input.detach().reshape(-1, n)
    bins = [bins] * n if isinstance(bins, (int, Tensor)) else list(bins)
    if len(bins) != n:
        raise RuntimeError("histogramdd: The size of bins must be equal to the innermost dimension of the input."
                           f" (expected {n}, but got {len(bins)})")
    if range is not None and len(range) != 2 * n:
        raise RuntimeError(f"torch.histogramdd(): for a {n}-dimensional histogram range should have {2 * n} "
                           f"elements, but got {len(range)}")
    edges = []
    for d, b in enumerate(bins):
        bounds = None if range is None else range[2 * d:2 * d + 2]
        if not isinstance(b, Tensor):
            b = _linear_edges("torch.histogramdd", points.select(1, d), as_int(b), bounds)
        edges.append(b.detach())
    counts = _histogramdd(points, edges, _flat(weight), density)
    return return_types.histogramdd(counts, tuple(edges))


# ---------------------------------------------------------------------------------------------------------- differences
@public(out="exact")
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
         append: Tensor | None = None) -> Tensor:
    """The n-th difference of neighbours along dim."""
    if input.dim() == 0:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    dim = wrap_dim(dim, input.dim())
    for other in (prepend, append):
        if other is None:
            continue
        if other.dim() != input.dim():
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        for d, (size, given) in enumerate(zip(input.shape, other.shape)):
            if d != dim and size != given:
                raise RuntimeError("diff expects the shape of tensor to prepend or append to match that of input except "
                                   f"along the differencing dimension; input.size({d}) = {size}, but got "
                                   f"tensor.size({d}) = {given}")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return input.clone()
    parts = [p for p in (prepend, input, append) if p is not None]
    if len(parts) > 1:
        input = FUNCTIONS["cat"](parts, dim)
    for _ in range(min(n, input.shape[dim])):
        size = input.shape[dim]
        later, earlier = input.narrow(dim, 1, max(size - 1, 0)), input.narrow(dim, 0, max(size - 1, 0))
        input = later.logical_xor(earlier) if input.dtype is _dtypes.bool_ else later - earlier
    return input
