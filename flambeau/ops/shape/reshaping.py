"""Views of another shape: reshape, expand, broadcast, dimensions of one."""

from __future__ import annotations

from typing import Any

from ...autograd.state import state
from ...backends import registry
from ...backends.strides import view_strides
from ...tensors.dtypes import dtype as _dtype
from ...tensors.shapes import as_int, broadcast_shapes, check_dims, infer_shape, numel, shape_of, wrap_dim, wrap_dims
from ...tensors.tensor import Tensor, wrap
from ..core.row import NO_RECORD, Row, _type_word, public
from ..pointwise.convert import _clone, detach
from .views import (
    _alias,
    _expand,
    _reshape_alias,
    _squeeze_all,
    _squeeze_dim,
    _squeeze_dims,
    _sum_to,
    _unsafe_view,
    _unsqueeze,
    _view,
    _view_dtype,
)


@public(toplevel=False, out=False)
def view(self: Tensor, *shape: Any, size: Any = None, dtype: Any = None) -> Tensor:
    """The same elements in another shape (or, given a dtype, the same bytes as another type), without a copy."""
    if size is not None:
        shape = (size,)
    if dtype is not None or (len(shape) == 1 and isinstance(shape[0], _dtype)):
        return view_dtype(self, dtype if dtype is not None else shape[0])
    if not shape:
        raise TypeError("view() received an invalid combination of arguments - got (), but expected a shape or a dtype")
    return _view(self, infer_shape(shape_of(shape), self._array.size))


def view_dtype(self: Tensor, dtype: Any) -> Tensor:
    """The same bytes read as another dtype; the last dimension grows or shrinks with the size of the element."""
    old, new = self.dtype, dtype
    for is_set, what in ((self.is_conj(), "conjugate view tensors"), (self.is_neg(), "tensors with negative bit set")):
        if is_set:
            raise RuntimeError(f"torch.Tensor.view is not supported for {what} when converting to a different dtype.")
    if new is old:
        return _alias(self)
    shape, stride = list(self._array.shape), list(self.stride())
    a, b = old.itemsize, new.itemsize
    words = f"to view {_type_word(old)} as {_type_word(new)} (different element sizes)"
    if a != b:
        if not shape:
            raise RuntimeError(f"self.dim() cannot be 0 {words}")
        if stride[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {words}, but got {stride[-1]}")
        if b < a:
            ratio = a // b
            stride = [s * ratio for s in stride[:-1]] + [1]
            shape[-1] *= ratio
        else:
            ratio = b // a
            if shape[-1] % ratio:
                raise RuntimeError(f"self.size(-1) must be divisible by {ratio} {words}, but got {shape[-1]}")
            if self.storage_offset() % ratio:
                raise RuntimeError(f"self.storage_offset() must be divisible by {ratio} {words}, but got "
                                   f"{self.storage_offset()}")
            for i, s in enumerate(stride[:-1]):
                if s % ratio:
                    raise RuntimeError(f"self.stride({i}) must be divisible by {ratio} {words}, but got {s}")
            stride = [s // ratio for s in stride[:-1]] + [1]
            shape[-1] //= ratio
    made = _view_dtype(self, new.native, tuple(shape), tuple(stride))
    made._counter = detach(self)._counter  # not a differentiable view, but writes to it count
    return made


@public(out=False)
def reshape(input: Tensor, *args: Any, shape: Any = None) -> Tensor:
    """The same elements in another shape: a view where possible, else a copy."""
    args = args if shape is None else (shape,)
    if not args:
        raise TypeError('reshape() missing 1 required positional arguments: "shape"')
    return _reshape(input, infer_shape(shape_of(args), input._array.size))


def _reshape(self: Tensor, shape: tuple[int, ...]) -> Tensor:
    if self.is_contiguous():
        return _view(self, shape)
    strides = view_strides(self._array.shape, self.stride(), shape)
    if strides is not None:
        return _reshape_alias(self, shape, strides)
    return _unsafe_view(_clone(self, "contiguous"), shape)


@public(toplevel=False, out=False)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """A view with the shape of another tensor."""
    return view(self, other._array.shape)


@public(toplevel=False, out=False)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """reshape to the shape of another tensor."""
    return reshape(self, other._array.shape)


@public(out=False)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """One dimension in place of those from start_dim to end_dim."""
    shape = input._array.shape
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return _reshape(input, (1,))
    if start == end:
        return input
    return _reshape(input, shape[:start] + (numel(shape[start:end + 1]),) + shape[end + 1:])


@public(out=False)
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """Several dimensions in place of one; the inverse of flatten."""
    if isinstance(dim, str):
        raise TypeError("unflatten(): argument 'dim' (position 1) must be int, not str")
    dim = wrap_dim(dim, input._array.ndim)
    sizes = shape_of((sizes,))
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    shape = input._array.shape
    if not shape:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    try:
        inner = infer_shape(sizes, shape[dim])
    except RuntimeError as error:
        if "only one dimension" in str(error) or "can be any value" in str(error):
            raise
        raise RuntimeError(f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} "
                           f"({shape[dim]}) in the input tensor") from None
    return _view(input, shape[:dim] + inner + shape[dim + 1:])


@public(out=False)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return _reshape(input.contiguous(), (input._array.size,))


def _expand_args(self: Tensor, size: tuple[Any, ...]) -> tuple[Tensor, tuple[int, ...]]:
    size, shape = shape_of(size), self._array.shape
    extra = len(size) - len(shape)
    if extra < 0:
        raise RuntimeError(f"expand(torch.{self.type().split('.')[-1]}{{{list(shape)}}}, size={list(size)}): the "
                           f"number of sizes provided ({len(size)}) must be greater or equal to the number of "
                           f"dimensions in the tensor ({len(shape)})")
    out = list(size)
    for i in reversed(range(len(size))):  # the last dimension that does not fit is the one that is named
        n, old = size[i], shape[i - extra] if i >= extra else None
        if n == -1:
            if old is None:
                raise RuntimeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing "
                                   f"dimension {i}")
            out[i] = old
        elif n < 0:
            raise RuntimeError(f"expand: sizes must be -1 or not negative, got {list(size)}")
        elif old is not None and old != n and old != 1:
            raise RuntimeError(f"The expanded size of the tensor ({n}) must match the existing size ({old}) at "
                               f"non-singleton dimension {i}.  Target sizes: {list(size)}.  Tensor sizes: {list(shape)}")
    return self, tuple(out)


@public(toplevel=False, out=False)
def expand(self: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """A view in which dimensions of length one are repeated without taking memory."""
    if not sizes and size is None:
        raise TypeError('expand() missing 1 required positional arguments: "size"')
    return _expand(*_expand_args(self, sizes if size is None else (size,)))


@public(toplevel=False, out=False)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """expand to the shape of another tensor."""
    return _expand(*_expand_args(self, (other._array.shape,)))


@public(out=False)
def broadcast_to(input: Tensor, size: Any, *more: int) -> Tensor:
    """A view of the given shape, by broadcasting."""
    return _expand(*_expand_args(input, (size, *more)))


def listed(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """f(a, b) and f([a, b]) alike."""
    return tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors


@public(method=False, out=False)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """The tensors, each expanded to their common shape."""
    tensors = listed(tensors)
    try:
        shape = broadcast_shapes(*[t._array.shape for t in tensors])
    except RuntimeError:
        from ..pointwise.families import broadcast_error
        raise broadcast_error(*[t._array.shape for t in tensors]) from None
    return tuple([t if t._array.shape == shape else _expand(t, shape) for t in tensors])


@public(toplevel=False, out=False)
def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """The sum over whatever dimensions broadcasting from `size` to self would have added."""
    shape = shape_of(size)
    if self._array.dtype.kind in "biu" and (self._array.shape != shape or not shape):
        self = self.long()
    return sum_to(self, shape)


_FIRST = tuple(range(64))


def sum_to(self: Tensor, shape: tuple[int, ...]) -> Tensor:
    full = self._array.shape
    shape = tuple(shape)
    extra = len(full) - len(shape)
    if state.mode == 1 and extra > 0 and full[extra:] == shape and type(self._array) is registry.CPU_ARRAY and (
            self.__class__ is Tensor):
        # the engine's most frequent case
        return wrap(_sum_to.cpu(self._array, _FIRST[:extra], shape))
    if extra < 0 or any(a != b and a != 1 for a, b in zip(shape, full[extra:])):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(full)}}}.")
    dims = tuple(i for i, n in enumerate(full) if i < extra or (shape[i - extra] == 1 and n != 1))
    if not dims:
        return self
    if state.mode & NO_RECORD or not extra:
        return _sum_to(self, dims, shape)
    return _view(_sum_to(self, dims, (1,) * extra + shape), shape)


# ---------------------------------------------------------------------------------------------- dimensions of one
def _squeeze_row(self: Tensor, dim: Any) -> tuple[Row, tuple[Any, ...]]:
    ndim = self._array.ndim
    if dim is None:
        return _squeeze_all, tuple(range(ndim))
    if isinstance(dim, int):
        return _squeeze_dim, (wrap_dim(dim, ndim),)
    return _squeeze_dims, wrap_dims(shape_of((dim,)), ndim)


@public(out=False)
def squeeze(input: Tensor, dim: Any = None, *more: int) -> Tensor:
    """Without dimensions of length one: all of them, or those named, x.squeeze(1, 2) or x.squeeze((1, 2))."""
    r, dims = _squeeze_row(input, (dim, *more) if more else dim)
    return r(input, dims)


def _unsqueeze_args(self: Tensor, dim: int) -> tuple[Tensor, int]:
    ndim = self._array.ndim + 1
    check_dims(ndim)
    return self, wrap_dim(as_int(dim), ndim)


@public(out=False)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of length one inserted before `dim`."""
    return _unsqueeze(*_unsqueeze_args(input, dim))


def _atleast(ndim: int, name: str, grow: Any) -> Any:
    def function(*tensors: Any) -> Any:
        tensors = tensors[0] if len(tensors) == 1 else tensors
        if isinstance(tensors, Tensor):
            return grow(tensors)
        return tuple([grow(x) for x in tensors])

    function.__doc__ = f"Each tensor with at least {ndim} dimension(s)."
    return public(function, name=name, method=False, out=False)


def _grow2(x: Tensor) -> Tensor:
    return reshape(x, (1, 1)) if x.dim() == 0 else unsqueeze(x, 0) if x.dim() == 1 else x


def _grow3(x: Tensor) -> Tensor:
    if x.dim() == 0:
        return reshape(x, (1, 1, 1))
    return unsqueeze(unsqueeze(x, 0), -1) if x.dim() == 1 else unsqueeze(x, -1) if x.dim() == 2 else x


atleast_1d = _atleast(1, "atleast_1d", lambda x: reshape(x, (1,)) if x.dim() == 0 else x)
atleast_2d = _atleast(2, "atleast_2d", _grow2)
atleast_3d = _atleast(3, "atleast_3d", _grow3)


__all__ = ["broadcast_tensors", "expand", "flatten", "reshape", "squeeze", "sum_to", "unsqueeze", "view"]
