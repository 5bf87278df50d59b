"""The most frequent views of plain tensors, in about a microsecond.

Each function here stands in front of the general one of ops/views.py and returns None where that one has to do the
work: odd arguments, empty tensors, dimensions of length one, subclasses, modes. For the rest NumPy's own methods give
exactly PyTorch's strides.
"""

from __future__ import annotations

import functools
from typing import Any

from .. import overrides as _overrides
from ..autograd.node import Edge, next_sequence, start_counter
from ..autograd.state import FOLLOWED, NO_GRAD, state
from ..autograd.views import MULTI_OUTPUT, NO_GRAD_VIEW, edge_of
from ..backends import registry
from ..tensor import Size, Tensor
from . import pieces
from . import views as v
from .table import export
from .views import viewable

ndarray = registry.CPU_ARRAY
_new = object.__new__


def fast(name: str, slow: Any, *, toplevel: bool = True) -> Any:
    """Puts a function in front of an exported one; it returns None where it cannot do the work."""
    def decorate(function: Any) -> Any:
        def op(*args, **kwargs):
            mode = state.mode
            if (mode < 2 or mode in FOLLOWED) and not kwargs and args and viewable(args[0]):
                made = function(mode & NO_GRAD, *args)
                if made is not None:
                    return made
            return slow(*args, **kwargs)

        functools.update_wrapper(op, slow)
        _overrides.FRONTS[slow] = op
        export(name, op, toplevel=toplevel)
        return op

    return decorate


@fast("t", v.t)
def _quick_t(mode: int, self: Tensor) -> Tensor | None:
    x = self._array
    return v._t.tensor(mode, x.T, self) if x.ndim == 2 and x.size else None


@fast("transpose", v.transpose)
def _quick_transpose(mode: int, self: Tensor, dim0: int, dim1: int) -> Tensor | None:
    x = self._array
    n = x.ndim
    if dim0.__class__ is int is dim1.__class__ and -n <= dim0 < n and -n <= dim1 < n and x.size:
        return v._transpose.tensor(mode, x.swapaxes(dim0, dim1), self, dim0 % n, dim1 % n)
    return None


@fast("permute", v.permute)
def _quick_permute(mode: int, self: Tensor, *dims: Any) -> Tensor | None:
    x = self._array
    dims = dims[0] if len(dims) == 1 and dims[0].__class__ in (tuple, list) else dims
    n = x.ndim
    if len(dims) != n or not x.size:
        return None
    dims = tuple([d % n if d.__class__ is int and -n <= d < n else n for d in dims])
    return v._permute.tensor(mode, x.transpose(dims), self, dims) if len({*dims, n}) == n + 1 else None


def _quick_shape(x: Any, shape: tuple[Any, ...]) -> Any:
    """The array in another shape, if both are simple enough that this is a view with PyTorch's strides."""
    shape = shape[0] if len(shape) == 1 and shape[0].__class__ is not int else shape
    if shape.__class__ not in _SHAPES or not x.flags.c_contiguous or not x.size or 1 in x.shape:
        return None
    count, unknown = x.size, 0
    for n in shape:
        if n.__class__ is not int:
            return None
        if n == -1:
            unknown += 1
        elif n <= 0 or count % n:
            return None
        else:
            count //= n
    if unknown > 1 or (not unknown and count != 1):
        return None
    return x.reshape(shape)


_SHAPES = (tuple, list, Size)


@fast("view", v.view, toplevel=False)
def _quick_view(mode: int, self: Tensor, *shape: Any) -> Tensor | None:
    made = _quick_shape(self._array, shape) if shape else None
    return None if made is None else v._view.tensor(mode, made, self, None)


@fast("reshape", v.reshape)
def _quick_reshape(mode: int, self: Tensor, *shape: Any) -> Tensor | None:
    made = _quick_shape(self._array, shape) if shape else None
    return None if made is None else v._view.tensor(mode, made, self, None)


@fast("unsqueeze", v.unsqueeze)
def _quick_unsqueeze(mode: int, self: Tensor, dim: int) -> Tensor | None:
    x = self._array
    shape = x.shape
    n = len(shape) + 1
    if dim.__class__ is not int or not -n <= dim < n or not x.flags.c_contiguous or not x.size or 1 in shape:
        return None
    dim %= n
    return v._unsqueeze.tensor(mode, x.reshape(shape[:dim] + (1,) + shape[dim:]), self, dim)


@fast("select", v.select)
def _quick_select(mode: int, self: Tensor, dim: int, index: int) -> Tensor | None:
    x = self._array
    n = x.ndim
    if dim.__class__ is int is index.__class__ and -n <= dim < n and -x.shape[dim] <= index < x.shape[dim] and x.size:
        dim, index = dim % n, index % x.shape[dim]
        return v._select.tensor(mode, x[(*_WHOLE[:dim], index, ...)], self, dim, index)
    return None


_WHOLE = (slice(None),) * 64


@fast("narrow", v.narrow)
def _quick_narrow(mode: int, self: Tensor, dim: int, start: int, length: int) -> Tensor | None:
    x = self._array
    n = x.ndim
    if dim.__class__ is int is start.__class__ and length.__class__ is int and -n <= dim < n and length > 0 and (
            0 <= start <= x.shape[dim] - length and x.size):
        dim %= n
        made = x[(*_WHOLE[:dim], slice(start, start + length))]
        return v._slice.tensor(mode, made, self, dim, start, start + length, 1)
    return None


@fast("expand", v.expand, toplevel=False)
def _quick_expand(mode: int, self: Tensor, *size: Any) -> Tensor | None:
    x = self._array
    size = size[0] if len(size) == 1 and size[0].__class__ is not int else size
    if size.__class__ not in _SHAPES or not x.flags.c_contiguous or not x.size:
        return None
    shape, strides = x.shape, x.strides
    extra = len(size) - len(shape)
    if extra < 0:
        return None
    steps = [0] * len(size)
    for i, n in enumerate(size):
        if n.__class__ is not int or n < 1 or (n == 1 and i < extra):
            return None
        if i >= extra:
            old = shape[i - extra]
            if old == n:
                steps[i] = strides[i - extra]
            elif old != 1:
                return None
    made = ndarray(tuple(size), x.dtype, x, 0, steps)
    return v._expand.tensor(mode, made if type(x) is ndarray else made.view(type(x)), self, None)


@fast("flatten", v.flatten)
def _quick_flatten(mode: int, self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor | None:
    x = self._array
    shape, n = x.shape, x.ndim
    if not (x.flags.c_contiguous and x.size and n > 1 and -n <= start_dim < n and -n <= end_dim < n) or 1 in shape:
        return None
    first, last = start_dim % n, end_dim % n
    if first >= last:
        return None
    return v._view.tensor(mode, x.reshape((*shape[:first], -1, *shape[last + 1:])), self, None)


@fast("squeeze", v.squeeze)
def _quick_squeeze(mode: int, self: Tensor, dim: Any = None) -> Tensor | None:
    x = self._array
    n = x.ndim
    if dim is None and x.size and n:
        return v._squeeze_all.tensor(mode, x.squeeze(), self, None)
    if dim.__class__ is int and x.size and -n <= dim < n:
        made = x.squeeze(dim) if x.shape[dim] == 1 else x.view()
        return v._squeeze_dim.tensor(mode, made, self, (dim % n,))
    return None


# --------------------------------------------------------------------------------------------------- several at a time
def _cut(self: Tensor, size: int, dim: int, mode: int) -> tuple[Tensor, ...]:
    """Pieces of `size` along a dimension: what `Row.tensor` does, with one node for all of them."""
    x = self._array
    whole = x.shape[dim]
    before = _WHOLE[:dim]
    arrays = [x[(*before, slice(at, at + size))] for at in range(0, whole, size)]
    counter = self._counter
    if counter is None:
        counter = start_counter(self)
    root = self._base
    base = self if root is None else root
    node = None
    edge = None if mode else self._node if root is None else edge_of(self)
    if edge is not None:
        node = _new(v._split.node)
        node.next = (edge, *v._split.blanks)
        node.sequence = next_sequence()
        node.outputs = [(a.shape, a.dtype) for a in arrays]
        node.saved = x.shape, size, dim
    creation = NO_GRAD_VIEW if mode else MULTI_OUTPUT
    views = []
    for nr, array in enumerate(arrays):
        view = _new(Tensor)
        view._array, view._counter, view._base, view._creation = array, counter, base, creation
        view._node = None if node is None else Edge(node, nr)
        if counter.value:
            view._seen = counter.value
        views.append(view)
    return tuple(views)


@fast("split", pieces.split)
def _quick_split(mode: int, self: Tensor, size: Any, dim: int = 0) -> tuple[Tensor, ...] | None:
    x = self._array
    n = x.ndim
    if size.__class__ is int is dim.__class__ and size > 0 and -n <= dim < n and x.size:
        return _cut(self, size, dim % n, mode)
    return None


@fast("chunk", pieces.chunk)
def _quick_chunk(mode: int, self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...] | None:
    x = self._array
    n = x.ndim
    if chunks.__class__ is int is dim.__class__ and chunks > 0 and -n <= dim < n and x.size:
        return _cut(self, -(-x.shape[dim] // chunks), dim % n, mode)
    return None
