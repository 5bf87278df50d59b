"""Other forms of the view operations: `*_copy` (a fresh tensor), `*_scatter` (a view written into a copy of its base)
and the in-place forms that change a tensor's own geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd.views import check_inplace, reshaped
from ...backends.facts import BATCHING
from ...backends.strides import view_strides
from ...creation.like import zeros_like
from ...tensors.formats import contiguous_format
from ...tensors.shapes import infer_shape, shape_of, wrap_dim
from ...tensors.tensor import Tensor
from ..core import overrides as _overrides
from ..core.row import Row, alias_of, moving, public
from ..rules import moves
from . import ordering, reshaping
from . import views as v
from .splitting import _sizes_args, _split_args


# -------------------------------------------------------------------------------------------------------- copies
def _copies(r: Row) -> Row:
    return Row(f"{r.name}_copy", " ".join(r.args), kernel=f"{r.kernel}_copy", backward=r.backward,
               shape=moves.viewed_copy(r.kernel), batch=BATCHING.get(r.kernel, r.kernel), safe=True, moves=True,
               forward="linear", node=f"{r.node.__name__}_copy")


def _copy_form(name: str, original: Row, prepare: Callable, out: str | bool = "exact") -> None:
    copies = _copies(original)

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return copies(*prepare(input, *args, **kwargs))

    function.__doc__ = f"{name} as a copy: the same values in memory of their own."
    public(function, name=f"{name}_copy", method=False, out=out)


def _some_dim(self: Tensor, dim: int) -> int:
    if not self._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, self._array.ndim)


_copy_form("as_strided", v._as_strided, lambda self, size, stride, storage_offset=None:
           v._as_strided_args(self, size, stride, storage_offset))
_copy_form("alias", v._alias, lambda self: (self,))
_copy_form("expand", v._expand, lambda self, size, implicit=False: reshaping._expand_args(self, (size,)))
_copy_form("permute", v._permute, lambda self, dims: ordering._permute_args(self, (dims,)))
_copy_form("transpose", v._transpose, ordering._transpose_args)
_copy_form("t", v._t, ordering._t_args)
_copy_form("select", v._select, v._select_args, out=True)
_copy_form("slice", v._slice, v._slice_args, out=True)
_copy_form("unfold", v._unfold, v._unfold_args)
_copy_form("diagonal", v._diagonal, v._diagonal_args)
_copy_form("unsqueeze", v._unsqueeze, reshaping._unsqueeze_args)
_copy_form("split", v._split, lambda self, split_size, dim=0: _split_args(self, split_size, dim), out=True)
_copy_form("split_with_sizes", v._split_with_sizes,
           lambda self, split_sizes, dim=0: _sizes_args(self, split_sizes, dim))
_copy_form("unbind", v._unbind, lambda self, dim=0: (self, _some_dim(self, dim)))

_squeeze_copies = {r.name: _copies(r) for r in (v._squeeze_all, v._squeeze_dim, v._squeeze_dims)}
_view_copies = _copies(v._view)
_narrow_copies = moving("narrow_copy", "self dim start length", batch="first_dim", shape=moves.narrowed, backward={
    "self": lambda grad, self_shape, dim, start, length:
        v._slice_backward(grad, tuple(self_shape), dim, start, start + length, 1)})


@public(method=False, out="exact")
def squeeze_copy(input: Tensor, dim: Any = None) -> Tensor:
    """squeeze as a copy."""
    r, dims = reshaping._squeeze_row(input, dim)
    return _squeeze_copies[r.name](input, dims)


@public(method=False, out="exact")
def view_copy(input: Tensor, size: Any = None, dtype: Any = None) -> Tensor:
    """view as a copy."""
    if dtype is not None or not hasattr(size, "__iter__"):
        return reshaping.view(input, dtype if dtype is not None else size).clone()
    size = infer_shape(shape_of((size,)), input._array.size)
    if view_strides(input.shape, input.stride(), size) is None:
        return input.reshape(size)  # a copy for want of a view
    return _view_copies(input, size)


@public(out="exact")
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """narrow as a copy."""
    if 0 < input.ndim <= dim:
        raise RuntimeError("Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false. (dim is "
                           f"{dim}, the tensor has {input.ndim} dimensions)")
    if input.ndim and length < 0:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({input.shape[dim]}).")
    _, dim, start, end, _ = v._narrow_args(input, dim, start, length)
    return _narrow_copies(input, dim, start, end - start)


@public(method=False)
def detach_copy(input: Tensor) -> Tensor:
    """detach as a copy."""
    return input.detach().clone()


# ------------------------------------------------------------------------------------------------------- scatters
# fmt: off
_select_scatter = moving("select_scatter", "self src dim index", batch="scattered", shape=moves.kept, backward={
    "self": lambda grad, dim, index: _select_scatter(grad, _blank(v._select(grad, dim, index)), dim, index),
    "src": lambda grad, dim, index: v._select(grad, dim, index)})
_slice_scatter = moving("slice_scatter", "self src dim start end step", batch="scattered", shape=moves.kept, backward={
    "self": lambda grad, dim, start, end, step:
        _slice_scatter(grad, _blank(v._slice(grad, dim, start, end, step)), dim, start, end, step),
    "src": lambda grad, dim, start, end, step: v._slice(grad, dim, start, end, step)})
_diagonal_scatter = moving("diagonal_scatter", "self src offset dim1 dim2", shape=moves.kept, backward={
    "self": lambda grad, offset, dim1, dim2:
        _diagonal_scatter(grad, _blank(v._diagonal(grad, offset, dim1, dim2)), offset, dim1, dim2),
    "src": lambda grad, offset, dim1, dim2: v._diagonal(grad, offset, dim1, dim2)})
_as_strided_scatter = moving("as_strided_scatter", "self src size stride storage_offset", shape=moves.kept, backward={
    "self": lambda grad, size, stride, storage_offset:
        as_strided_scatter(grad.contiguous(), _blank(v.as_strided(grad.contiguous(), size, stride, storage_offset)),
                           size, stride, storage_offset),
    "src": lambda grad, size, stride, storage_offset: v.as_strided(grad.contiguous(), size, stride, storage_offset)})
# fmt: on


def _blank(like: Tensor) -> Tensor:
    return zeros_like(like)


def _check_src(src: Tensor, shape: tuple[int, ...]) -> None:
    if not isinstance(src, Tensor):
        raise TypeError(f"argument 'src' must be Tensor, not {type(src).__name__}")
    if src._array.shape != tuple(shape):
        raise RuntimeError(f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
                           f"slice size = {list(shape)}")


@public
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of input with src in place of one entry along a dimension."""
    _, dim, index = v._select_args(input, dim, index)
    shape = input._array.shape
    _check_src(src, shape[:dim] + shape[dim + 1:])
    return _select_scatter(input, src, dim, index)


@public(out="exact")
def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
                  step: int = 1) -> Tensor:
    """A copy of input with src in place of a slice."""
    _, dim, start, end, step = v._slice_args(input, dim, start, end, step)
    shape = input._array.shape
    _check_src(src, shape[:dim] + (max(0, (end - start + step - 1) // step),) + shape[dim + 1:])
    return _slice_scatter(input, src, dim, start, end, step)


@public
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy of input with src in place of a diagonal."""
    args = v._diagonal_args(input, offset, dim1, dim2)
    _check_src(src, v._diagonal(input.detach(), *args[1:])._array.shape)
    return _diagonal_scatter(input, src, *args[1:])


@public
def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy of input's memory with src written at the given geometry.

    The gradient of input is zero where src was written (PyTorch 2.13 returns the opposite part, which is wrong).
    """
    if any([n > 1 and not s for n, s in zip(input.shape, input.stride())]):  # one place in memory for several elements
        input = input.clone(memory_format=contiguous_format)
    _, size, stride, offset, _ = v._as_strided_args(input, size, stride, storage_offset)
    v._as_strided(*v._as_strided_args(input.detach(), size, stride, offset))  # checks the bounds
    _check_src(src, size)
    return _as_strided_scatter(input, src, size, stride, offset)


# ----------------------------------------------------------------------------------------- in-place view operations
def _in_place(r: Row, node: str) -> Row:
    return Row(f"{r.name}_{node}", " ".join(r.args), kernel=r.kernel, backward=r.backward, node=node, view=True)


def _inplace_form(name: str, prepare: Callable, *aliases: str) -> None:
    def function(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _overrides.active:
            done, value = _overrides.dispatch(function, (self, *args), kwargs)
            if done:
                return value
        r, *rest = prepare(self, *args, **kwargs)
        check_inplace(self)
        return reshaped(self, r(alias_of(self), *rest))

    function.__doc__ = f"In-place form of {name}: changes the tensor's own shape and strides, not its memory."
    for n in (name, *aliases):
        function.__name__ = f"{n}_"
        setattr(Tensor, f"{n}_", function)


_transpose_in_place = _in_place(v._transpose, "TransposeBackward1")
_t_in_place = _in_place(v._t, "TBackward1")
_unsqueeze_in_place = _in_place(v._unsqueeze, "UnsqueezeBackward1")
_as_strided_in_place = _in_place(v._as_strided, "AsStridedBackward1")
_squeezes_in_place = {r.name: _in_place(r, f"SqueezeBackward{i + 3}")
                      for i, r in enumerate((v._squeeze_all, v._squeeze_dim, v._squeeze_dims))}


def _squeeze_prepared(self: Tensor, dim: Any = None, *more: int) -> tuple[Any, ...]:
    r, dims = reshaping._squeeze_row(self, (dim, *more) if more else dim)
    return _squeezes_in_place[r.name], dims


_inplace_form("transpose", lambda self, dim0, dim1: (_transpose_in_place, *ordering._transpose_args(self, dim0, dim1)[1:]),
              "swapdims")
_inplace_form("swapaxes", lambda self, axis0, axis1: (_transpose_in_place, *ordering._transpose_args(self, axis0, axis1)[1:]))
_inplace_form("t", lambda self: (_t_in_place, *ordering._t_args(self)[1:]))
_inplace_form("squeeze", _squeeze_prepared)
_inplace_form("unsqueeze", lambda self, dim: (_unsqueeze_in_place, *reshaping._unsqueeze_args(self, dim)[1:]))
_inplace_form("as_strided", lambda self, size, stride, storage_offset=None:
              (_as_strided_in_place, *v._as_strided_args(self, size, stride, storage_offset)[1:]))


@public(method=False, out=False, name="as_strided_")
def _as_strided_function(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """Gives the tensor another geometry over its memory, in place."""
    return input.as_strided_(size, stride, storage_offset)
