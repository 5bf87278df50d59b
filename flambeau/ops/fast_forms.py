"""The most frequent reductions and choices of plain tensors, in a microsecond or two.

Each function here stands in front of the general one, which is four to eight times slower on a small tensor because it
takes any argument under any name. It does the plain case itself (a real floating CPU tensor, nothing special going on)
and passes every other call on as it came.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import overrides as _overrides
from .. import return_types
from ..autograd.node import next_sequence
from ..autograd.state import state
from ..autograd.views import edge_of
from ..backends import registry
from ..backends.cpu import reductions as kernels
from ..backends.cpu.pointwise import where as _where_kernel
from ..backends.cpu.scans import cumsum as _cumsum_kernel
from ..backends.cpu.scans import log_softmax as _log_softmax_kernel
from ..backends.cpu.scans import softmax as _softmax_kernel
from ..backends.cpu.table import KERNELS
from ..parameter import Parameter
from ..tensor import Tensor
from . import arithmetic, comparison, convert, indexing, scans, scatter, shape, vector_norms
from . import reductions as slow
from .pointwise import where_row
from .table import LARGE, _nothing_to_free, constant, export

_new = object.__new__
ndarray = registry.CPU_ARRAY
_clamp_kernel, _clamp_within = KERNELS["clamp"], KERNELS["clamp_within"]
_concatenate, _flip_kernel = KERNELS["concatenate"], KERNELS["flip"]
_gather_kernel, _fill_kernel = KERNELS["gather"], KERNELS["masked_fill"]


def plain(input: Any) -> bool:
    """A float32 or float64 CPU tensor that is not empty; the caller has looked at the mode."""
    kind = input.__class__
    if kind is Tensor or kind is Parameter:
        x = input._array
        return type(x) is ndarray and x.dtype.char in "fd" and x.size > 0
    return False


def windowed(input: Any) -> bool:
    """`plain` in a call that is followed."""
    kind = input.__class__
    if kind is Tensor or kind is Parameter:
        x = input._array
        return type(x) in registry.WINDOWS and x.dtype.char in "fd" and x.size > 0
    return False


def in_front(of: Any, *, method: bool = True, aliases: tuple[str, ...] = ()) -> Any:
    """Exports a function in place of a general one, under its name and with its text."""
    def decorate(function: Any) -> Any:
        functools.update_wrapper(function, of)
        inner = of
        while inner is not None:  # `of` may itself stand in front of another
            _overrides.FRONTS[inner] = function
            inner = getattr(inner, "__wrapped__", None)
        export(of.__name__, function, method=method, aliases=aliases)
        return function

    return decorate


# --------------------------------------------------------------------------------------------------- arithmetic
def _of_two(general: Any, row: Any, aliases: tuple[str, ...] = ()) -> None:
    """add, sub and div of two tensors, or of a tensor and a number, without their options."""
    core = row.call

    @in_front(general, aliases=aliases)
    def operation(*args, **kwargs):
        if len(args) == 2 and not kwargs and state.mode < 2 and args[0].__class__ in _OURS and args[1].__class__ in _TAKEN:
            return core(*args)
        return general(*args, **kwargs)

    _overrides.FRONTS[row] = operation  # what `x + y` is called where classes have their own say


_OURS = frozenset((Tensor, Parameter))
_TAKEN = frozenset((Tensor, Parameter, int, float))
_of_two(arithmetic.add, arithmetic._add)
_of_two(arithmetic.sub, arithmetic._sub, ("subtract",))
_of_two(arithmetic.div, arithmetic._div, ("divide",))


# --------------------------------------------------------------------------------------------------- reductions
@in_front(slow.mean)
def mean(*args, **kwargs):
    mode = state.mode
    count = len(args)
    if mode < 2 and 0 < count < 3 and plain(args[0]):
        input, dim, keepdim = args[0], args[1] if count == 2 else None, False
        if kwargs:
            keepdim = kwargs.get("keepdim", False)
            if len(kwargs) != ("keepdim" in kwargs):
                return slow.mean(*args, **kwargs)
        x = input._array
        if dim is None:
            if keepdim is False:
                return slow._mean.tensor(mode, kernels.mean_all(x), input, None, False, None)
        elif dim.__class__ is int and -x.ndim <= dim < x.ndim and keepdim.__class__ is bool:
            dim %= x.ndim
            return slow._mean_dim.tensor(mode, kernels.mean_one(x, dim, keepdim), input, (dim,), keepdim, None)
    return slow.mean(*args, **kwargs)


def _extreme(general: Any, whole: Any, kernel: Any, along: Any, pair: type) -> None:
    @in_front(general)
    def extreme(*args, **kwargs):
        mode = state.mode
        if mode < 2 and not kwargs and args and plain(args[0]):
            input = args[0]
            x = input._array
            if len(args) == 1:
                if x.flags.c_contiguous and x.size < LARGE:
                    return whole.tensor(mode, kernel(x), input)
            elif len(args) == 2 and args[1].__class__ is int:
                dim = args[1]
                if -x.ndim <= dim < x.ndim:
                    dim %= x.ndim
                    values, indices = along.cpu(x, dim)
                    values, indices = _bare(values), _bare(indices)
                    if mode == 0:
                        along.record((input, dim, False), (values, indices))
                    return pair(values, indices)
        return general(*args, **kwargs)


def _bare(array: Any) -> Tensor:
    t = _new(Tensor)
    t._array = array
    t._node = t._counter = None
    return t


_extreme(slow.max_, slow._max_all, kernels.max_all, slow._max_dim, return_types.max)
_extreme(slow.min_, slow._min_all, kernels.min_all, slow._min_dim, return_types.min)


def _along_dim(general: Any, r: Any) -> None:
    """amax and amin over one dimension."""
    @in_front(general)
    def extreme(*args, **kwargs):
        mode = state.mode
        if mode < 2 and len(args) == 2 and not kwargs and plain(args[0]) and args[1].__class__ is int:
            input, dim = args
            n = input._array.ndim
            if -n <= dim < n:
                dims = (dim % n,)
                return r.tensor(mode, registry.cpu.asarray(r.cpu(input._array, dims)), input, dims, False)
        return general(*args, **kwargs)


@in_front(shape.flip)
def flip(*args, **kwargs):
    mode = state.mode
    if mode < 2 and len(args) == 2 and not kwargs and args[1].__class__ is int and plain(args[0]):
        input, dim = args
        n = input._array.ndim
        if -n <= dim < n:
            dims = (dim % n,)
            return shape._flip.tensor(mode, _flip_kernel(input._array, dims), input, dims)
    return shape.flip(*args, **kwargs)


_along_dim(slow.amax, slow._amax)
_along_dim(slow.amin, slow._amin)


def _arg_extreme(general: Any, pick: Any) -> None:
    @in_front(general)
    def arg_extreme(*args, **kwargs):
        if state.mode < 2 and not kwargs and args and plain(args[0]):
            x = args[0]._array
            if x.size < LARGE:
                if len(args) == 1:
                    return _bare(registry.cpu.asarray(pick(x)))
                if len(args) == 2 and args[1].__class__ is int and -x.ndim <= args[1] < x.ndim:
                    return _bare(registry.cpu.asarray(pick(x, args[1])))
        return general(*args, **kwargs)


_arg_extreme(slow.argmax, ndarray.argmax)
_arg_extreme(slow.argmin, ndarray.argmin)


def _along(general: Any, r: Any, kernel: Any) -> Any:
    """cumsum, softmax, log_softmax: one dimension, the same shape."""
    @in_front(general)
    def along(*args, **kwargs):
        mode = state.mode
        if mode < 2 and args and plain(args[0]) and ((len(args) == 2 and not kwargs) or (
                len(args) == 1 and len(kwargs) == 1 and "dim" in kwargs)):
            input = args[0]
            dim = args[1] if len(args) == 2 else kwargs["dim"]
            n = input._array.ndim
            if dim.__class__ is int and -n <= dim < n:
                dim %= n
                return r.tensor(mode, kernel(input._array, dim), input, dim, None)
        return general(*args, **kwargs)

    return along


cumsum = _along(scans.cumsum, scans._cumsum, _cumsum_kernel)
softmax = _along(scans.softmax, scans._softmax, _softmax_kernel)
log_softmax = _along(scans.log_softmax, scans._log_softmax, _log_softmax_kernel)


# ------------------------------------------------------------------------------------------------------- choices
@in_front(comparison.clamp, aliases=("clip",))
def clamp(*args, **kwargs):
    mode = state.mode
    if mode < 2 and len(args) == 3 and not kwargs and plain(args[0]):
        input, low, high = args
        if low.__class__ in _REAL and high.__class__ in _REAL and low == low and high == high:
            x = input._array
            native = x.dtype
            if x.size < LARGE:
                made = _clamp_kernel(x, constant(low, native), constant(high, native))
            else:
                made = _clamp_within(x, low, high)
            return comparison._clamp_numbers.tensor(mode, made, input, low, high)
    return comparison.clamp(*args, **kwargs)


_REAL = frozenset((int, float))


@in_front(comparison.where, method=False)
def where(*args, **kwargs):
    mode = state.mode
    if mode < 2 and len(args) == 3 and not kwargs and args[0].__class__ is Tensor and plain(args[1]) and plain(args[2]):
        condition, input, other = args
        c, x, y = condition._array, input._array, other._array
        if c.dtype.char == "?" and x.dtype is y.dtype and type(c) is ndarray and c.shape == x.shape == y.shape and c.ndim:
            return where_row.tensor(mode, _where_kernel(c, x, y), *args)
    return comparison.where(*args, **kwargs)


@in_front(indexing.masked_fill)
def masked_fill(*args, **kwargs):
    mode = state.mode
    if mode < 2 and len(args) == 3 and not kwargs and args[1].__class__ is Tensor and args[2].__class__ in _REAL and (
            plain(args[0])):
        input, mask, value = args
        x, where = input._array, mask._array
        if where.dtype.char == "?" and where.shape == x.shape and type(where) is ndarray and abs(value) < _WITHIN:
            return indexing._masked_fill.tensor(mode, _fill_kernel(x, where, value), *args)
    return indexing.masked_fill(*args, **kwargs)


_WITHIN = 3e38  # in either dtype


@in_front(scatter.gather)
def gather(*args, **kwargs):
    mode = state.mode
    if mode < 2 and len(args) == 3 and not kwargs and args[1].__class__ is int and args[2].__class__ is Tensor and (
            plain(args[0])):
        input, dim, index = args
        x, at = input._array, index._array
        n = x.ndim
        if -n <= dim < n == at.ndim and at.dtype.char == "l" and type(at) is ndarray and at.size:
            dim %= n
            if all([d == dim or b <= a for d, (a, b) in enumerate(zip(x.shape, at.shape))]):
                return scatter._gather.tensor(mode, _gather_kernel(x, dim, at), input, dim, index)
    return scatter.gather(*args, **kwargs)


@in_front(vector_norms.norm)
def norm(*args, **kwargs):
    """The 2-norm of all elements."""
    mode = state.mode
    if mode < 2 and not kwargs and args and plain(args[0]) and (len(args) == 1 or (len(args) == 2 and args[1] == 2)):
        input = args[0]
        x = input._array
        if x.size < kernels.SMALL and x.flags.c_contiguous:
            return vector_norms.vector_norm_row.tensor(mode, kernels.small_norm(x), input, 2.0, None, False, None)
    return vector_norms.norm(*args, **kwargs)


@in_front(convert.clone)
def clone(*args, **kwargs):
    mode = state.mode
    if mode < 2 and len(args) == 1 and not kwargs and plain(args[0]):
        x = args[0]._array
        if x.size < LARGE and x.flags.c_contiguous and 1 not in x.shape:  # whose strides may differ
            return convert._clone.tensor(mode, x.copy(), args[0], None)
    return convert.clone(*args, **kwargs)


# ------------------------------------------------------------------------------------------------------- joining
def _record_list(r: Any, tensors: Any, dim: int, made: Tensor) -> None:
    """What `Row.record` does for a list of tensors and a dimension, without a look at every argument."""
    edges = [t._node if t._counter is None else edge_of(t) for t in tensors]
    if not any([e is not None for e in edges]):
        return
    made._node = n = _new(r.node)
    n.next = (*edges, *r.blanks)
    n.spans = {0: len(edges)}
    n.sequence = next_sequence()
    n.shape, n.dtype = made._array.shape, made._array.dtype
    values = {"dim": dim, "tensors_shape": tuple([t.shape for t in tensors]),
              "needs": tuple([e is not None for e in n.next])}
    n.saved = tuple([values[slot] for slot in r.slots])
    n.release = _nothing_to_free


def _joined(general: Any, r: Any, new_dim: int, aliases: tuple[str, ...] = ()) -> None:
    """cat and stack of small plain tensors of one shape and dtype."""
    @in_front(general, method=False, aliases=aliases)
    def joined(*args, **kwargs):
        mode = state.mode
        if mode < 2 and args and not kwargs and args[0].__class__ in (list, tuple) and args[0] and plain(args[0][0]):
            tensors, dim = args[0], 0 if len(args) == 1 else args[1]
            first = tensors[0]._array
            n = first.ndim + new_dim
            if len(args) < 3 and dim.__class__ is int and 0 < n < 4 and -n <= dim < n and first.ndim and (
                    first.size * len(tensors) < LARGE):
                native, size = first.dtype, first.shape
                arrays, tracked = [], False
                for t in tensors:
                    if t.__class__ is not Tensor and t.__class__ is not Parameter:
                        return general(*args)
                    x = t._array
                    if type(x) is not ndarray or x.dtype is not native or x.shape != size or not x.flags.c_contiguous:
                        return general(*args)
                    if t._node is not None or t._counter is not None:
                        tracked = True
                    arrays.append(x)
                dim %= n
                if new_dim:
                    array = _concatenate(arrays).reshape((len(arrays), *size)) if not dim else r.cpu(arrays, dim, native)
                else:
                    array = _concatenate(arrays, dim)
                made = _bare(array)
                if mode == 0 and tracked:
                    _record_list(r, tensors, dim, made)
                return made
        return general(*args, **kwargs)


_joined(shape.cat, shape._cat, 0, ("concat",))
_joined(shape.stack, shape._stack, 1)

__all__ = ["clamp", "cumsum", "log_softmax", "mean", "softmax", "where"]
