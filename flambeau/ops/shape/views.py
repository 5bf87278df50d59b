"""Views, other shapes and strides over the same memory: the rows of all of them, and those that show a part.

Those of another shape are in reshaping.py, those with dimensions in another order in ordering.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backends import registry
from ...backends.facts import Fold
from ...backends.geometry import RUNS
from ...creation.factories import zeros
from ...creation.like import zeros_like
from ...tensors.parameter import Parameter
from ...tensors.shapes import as_int, shape_of, wrap_dim
from ...tensors.tensor import Tensor, wrap
from .. import rules
from ..core.row import moving, public, row
from ..rules import moves

ndarray = registry.CPU_ARRAY


def _geometry(x: Tensor) -> tuple[Any, Any, int]:
    return tuple(x._array.shape), x.stride(), x.storage_offset()


# -------------------------------------------------------------------------------------------------------- the rows
# fmt: off
_restore = row("restore", "self source target counted", shape=moves.restored, node="AsStridedBackwardBackward0",
               backward={"self": lambda grad, source, target, counted: _restore(grad, target, source, counted)})
_select_backward = moving("select_backward", "grad_output shape dim index", batch="placed", shape=rules.of_shape(1),
                          backward={"grad_output": lambda grad, dim, index: _select(grad, dim, index)})
_slice_backward = moving("slice_backward", "grad_output shape dim start end step", batch="placed", shape=rules.of_shape(1),
                         backward={"grad_output": lambda grad, dim, start, end, step: _slice(grad, dim, start, end, step)})
_diagonal_backward = moving("diagonal_backward", "grad_output shape offset dim1 dim2", shape=rules.of_shape(1),
                            backward={"grad_output": lambda grad, offset, dim1, dim2: _diagonal(grad, offset, dim1, dim2)})
_unfold_backward = moving("unfold_backward", "grad_in shape dim size step", batch="placed", shape=rules.of_shape(1),
                          backward={"grad_in": lambda grad, dim, size, step: _unfold(grad, dim, size, step)})

_as_strided = row("as_strided", "self size stride storage_offset geometry", view=True, backward={
    "self": lambda grad, size, stride, storage_offset, geometry:
        _restore(grad, (size, stride, storage_offset), geometry, geometry)})
_alias = row("alias", "self", batch="trailing", view=True, backward={"self": lambda grad: grad})
_view = row("view", "self size", view=True, backward={"self": lambda grad, self_shape: grad.reshape(self_shape)})
_reshape_alias = row("reshape_alias", "self size stride", kernel="view", view=True,
                     backward={"self": lambda grad, self_shape: grad.reshape(self_shape)})
_unsafe_view = row("unsafe_view", "self size", moves=True, kernel="view",
                   backward={"self": lambda grad, self_shape: grad.reshape(self_shape)})
_expand = row("expand", "self size", view=True,
              backward={"self": lambda grad, self_shape: grad.sum_to_size(self_shape)})
_permute = row("permute", "self dims", view=True, backward={"self": lambda grad, dims: grad.permute(_inverse(dims))})
_transpose = row("transpose", "self dim0 dim1", view=True,
                 backward={"self": lambda grad, dim0, dim1: grad.transpose(dim0, dim1)})
_t = row("t", "self", view=True, backward={"self": lambda grad: grad.t()})
_select = row("select", "self dim index", batch="first_dim", view=True, backward={
    "self": lambda grad, self_shape, dim, index: _select_backward(grad, tuple(self_shape), dim, index)})
_slice = row("slice", "self dim start end step", batch="first_dim", view=True, backward={
    "self": lambda grad, self_shape, dim, start, end, step:
        _slice_backward(grad, tuple(self_shape), dim, start, end, step)})
_unfold = row("unfold", "self dimension size step", view=True, backward={
    "self": lambda grad, self_shape, dimension, size, step:
        _unfold_backward(grad, tuple(self_shape), dimension, size, step)})
_diagonal = row("diagonal", "self offset dim1 dim2", view=True, backward={
    "self": lambda grad, self_shape, offset, dim1, dim2:
        _diagonal_backward(grad, tuple(self_shape), offset, dim1, dim2)})
_squeeze_all = row("squeeze", "self dims", view=True,
                   backward={"self": lambda grad, self_shape: grad.reshape(self_shape)})
_squeeze_dim = row("squeeze_dim", "self dim", kernel="squeeze", view=True, node="SqueezeBackward1",
                   backward={"self": lambda grad, self_shape, dim: grad.reshape(self_shape)})
_squeeze_dims = row("squeeze_dims", "self dim", kernel="squeeze", view=True, node="SqueezeBackward2",
                    backward={"self": lambda grad, self_shape, dim: grad.reshape(self_shape)})
_unsqueeze = row("unsqueeze", "self dim", batch="first_dim", view=True,
                 backward={"self": lambda grad, dim: _squeeze_dim(grad, (dim,))})
_split = row("split", "self split_size dim", view=True, backward={
    "self": lambda grads, self_shape, split_size, dim: _joined(grads, self_shape, split_size, dim)})
_split_with_sizes = row("split_with_sizes", "self split_sizes dim", batch="split", view=True, backward={
    "self": lambda grads, self_shape, split_sizes, dim: _joined(grads, self_shape, split_sizes, dim)})
_unbind = row("unbind", "self dim", batch="first_dim", view=True, backward={"self": lambda grads, dim: _stacked(grads, dim)})
_sum_to = row("sum_to", "self dim shape", fold=Fold("sum"), shape=rules.of_shape(2), kernel="sum_to_size", node="SumBackward1",
              backward={"self": lambda grad, self_shape, dim: _spread(grad, self_shape, dim)})
clone_strided = moving("clone_strided", "self stride", shape=moves.strided,
                       node="CloneBackward0", backward={"self": lambda grad: grad})
_view_dtype = row("view_dtype", "self dtype shape stride", moves=True, shape=RUNS)
# fmt: on


def relaid(made: Tensor, stride: Any) -> Tensor:
    """An operation's fresh result, moved into memory of other strides; its history stays as it is."""
    made._array = clone_strided(wrap(made._array), tuple(stride))._array
    return made


def _inverse(dims: Sequence[int]) -> tuple[int, ...]:
    out = [0] * len(dims)
    for i, d in enumerate(dims):
        out[d] = i
    return tuple(out)


def _spread(grad: Tensor, shape: Any, dim: Any) -> Tensor:
    """A summed-away gradient back at full shape."""
    kept = tuple(1 if i in dim else n for i, n in enumerate(shape))
    return grad.reshape(kept).expand(shape)


def _joined(grads: list[Any], shape: Any, sizes: Any, dim: int) -> Tensor:
    """The gradient of a tensor that was split; pieces without gradient count as zeros."""
    from .joining import cat
    known = next(g for g in grads if g is not None)
    if not isinstance(sizes, (tuple, list)):
        total = shape[dim]
        sizes = [min(sizes, total - at) for at in range(0, total, sizes)] if sizes else [total]
    parts = []
    for g, n in zip(grads, sizes):
        if g is None:
            g = zeros(*shape[:dim], n, *shape[dim + 1:], dtype=known.dtype, device=known.device)
        parts.append(g)
    return parts[0] if len(parts) == 1 else cat(parts, dim)


def _stacked(grads: list[Any], dim: int) -> Tensor:
    from .joining import stack
    known = next(g for g in grads if g is not None)
    return stack([zeros_like(known) if g is None else g for g in grads], dim)


def viewable(self: Any) -> bool:
    """Whether a view of this tensor can be made without asking anybody: the thread's mode is checked by the caller."""
    kind = self.__class__
    return (kind is Tensor or kind is Parameter) and type(self._array) in _WINDOWS and self._view_fn is None and (
        not self._inference)


_WINDOWS = registry.WINDOWS


# ----------------------------------------------------------------------------------------------------------- parts
def _as_strided_args(self: Tensor, size: Any, stride: Any, storage_offset: int | None) -> tuple[Any, ...]:
    size, stride = shape_of((size,)), shape_of((stride,))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(size)}, stride {list(stride)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(size)}")
    here = self.storage_offset()  # also where it is not needed: what the window shows depends on it, and a capture hears of it
    offset = here if storage_offset is None else as_int(storage_offset)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    return self, size, stride, offset, _geometry(self) if self.requires_grad else None


@public(out=False)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the tensor's memory with explicit sizes, strides and offset."""
    return _as_strided(*_as_strided_args(input, size, stride, storage_offset))


def _select_args(self: Tensor, dim: int, index: Any) -> tuple[Tensor, int, int]:
    shape = self._array.shape
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim, index = wrap_dim(dim, len(shape)), as_int(index)
    if not -shape[dim] <= index < shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(shape)} at dimension {dim}")
    return self, dim, index + shape[dim] if index < 0 else index


@public(out=False)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One entry along a dimension, which disappears."""
    return _select(*_select_args(input, dim, index))


def _slice_args(self: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> tuple[Any, ...]:
    shape = self._array.shape
    if not shape:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, len(shape))
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    start, end, _ = slice(start, end).indices(shape[dim])
    return self, dim, start, max(end, start), step


def _narrow_args(self: Tensor, dim: int, start: Any, length: int) -> tuple[Any, ...]:
    shape = self._array.shape
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor) and (start.ndim or start.is_floating_point() or start.is_complex()
                                      or start._array.dtype.kind == "b"):
        raise RuntimeError(f"narrow(): start must be an 0-dim integral Tensor. Got {start.ndim} dims of {start.dtype}.")
    dim, start = wrap_dim(dim, len(shape)), as_int(start)
    n = shape[dim]
    if length < 0:
        raise RuntimeError(f"narrow(): length must be non-negative. Got {length}.")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    start += n if start < 0 else 0
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return self, dim, start, start + length, 1


@public(out=False)
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` entries along a dimension, from `start` on."""
    return _slice(*_narrow_args(input, dim, start, length))


def _unfold_args(self: Tensor, dimension: int, size: int, step: int) -> tuple[Any, ...]:
    shape = self._array.shape
    dimension = wrap_dim(dimension, len(shape))
    longest = shape[dimension] if shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > longest:
        raise RuntimeError(f"maximum size for tensor at dimension {dimension} is {longest} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return self, dimension, size, step


@public(toplevel=False, out=False)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """All windows of `size` entries along a dimension, `step` apart, in a new last dimension."""
    return _unfold(*_unfold_args(self, dimension, size, step))


def _diagonal_args(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> tuple[Any, ...]:
    ndim = self._array.ndim
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return self, as_int(offset), first, second


@public(out=False)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two dimensions, as a new last dimension."""
    return _diagonal(*_diagonal_args(input, offset, dim1, dim2))


__all__ = ["as_strided", "diagonal", "narrow", "select", "unfold"]
