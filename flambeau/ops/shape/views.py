"""Views: other shapes and strides over the same memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.state import state
from ...backends import registry
from ...backends.facts import Fold
from ...backends.geometry import RUNS
from ...backends.strides import view_strides
from ...tensors.dtypes import dtype as _dtype
from ...tensors.parameter import Parameter
from ...tensors.shapes import as_int, broadcast_shapes, infer_shape, numel, shape_of, wrap_dim, wrap_dims
from ...tensors.tensor import Tensor, wrap
from .. import rules
from ..core.row import NO_RECORD, Row, _type_word, moving, public, row
from ..pointwise.convert import _clone
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
_unsafe_view = row("unsafe_view", "self size", kernel="view",
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
_view_dtype = row("view_dtype", "self dtype shape stride", shape=RUNS)
# fmt: on


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
    from ...creation.factories import zeros
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
    from ...creation.factories import zeros_like
    from .joining import stack
    known = next(g for g in grads if g is not None)
    return stack([zeros_like(known) if g is None else g for g in grads], dim)


def plain(self: Any) -> bool:
    """Whether a view of this tensor can be made without asking anybody: the thread's mode is checked by the caller."""
    kind = self.__class__
    return (kind is Tensor or kind is Parameter) and type(self._array) is ndarray and self._view_fn is None and (
        not self._inference)


def viewable(self: Any) -> bool:
    """`plain`, in a call that is followed as well: its arrays give views as plain ones do."""
    kind = self.__class__
    return (kind is Tensor or kind is Parameter) and type(self._array) in _WINDOWS and self._view_fn is None and (
        not self._inference)


_WINDOWS = registry.WINDOWS


# ------------------------------------------------------------------------------------------------ shape of a view
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
    from ..pointwise.convert import detach
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
    for i, n in enumerate(size):
        old = shape[i - extra] if i >= extra else None
        if n == -1:
            if old is None:
                raise RuntimeError(f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing "
                                   f"dimension {i}")
            out[i] = old
        elif n < 0:
            raise RuntimeError(f"expand: sizes must be -1 or not negative, got {list(size)}")
        elif old is not None and old != n and old != 1:
            raise RuntimeError(f"The expanded size of the tensor ({n}) must match the existing size ({old}) at "
                               f"non-singleton dimension {i}.  Target sizes: {list(size)}.  Tensor sizes: "
                               f"{list(shape)}")
    return self, tuple(out)


@public(toplevel=False, out=False)
def expand(self: Tensor, *sizes: Any, size: Any = None, implicit: bool = False) -> Tensor:
    """A view in which dimensions of length one are repeated without taking memory."""
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
    if state.mode == 1 and extra > 0 and full[extra:] == shape and plain(self):  # the engine's most frequent case
        return wrap(_sum_to.cpu(self._array, _FIRST[:extra], shape))
    if extra < 0 or any(a != b and a != 1 for a, b in zip(shape, full[extra:])):
        raise RuntimeError(f"size {{{list(shape)}}} is not expandable to size {{{list(full)}}}.")
    dims = tuple(i for i, n in enumerate(full) if i < extra or (shape[i - extra] == 1 and n != 1))
    if not dims:
        return self
    if state.mode & NO_RECORD or not extra:
        return _sum_to(self, dims, shape)
    return _view(_sum_to(self, dims, (1,) * extra + shape), shape)


# -------------------------------------------------------------------------------------------- order of dimensions
def _permute_args(self: Tensor, dims: tuple[Any, ...]) -> tuple[Tensor, tuple[int, ...]]:
    dims, ndim = shape_of(dims), self._array.ndim
    if len(dims) != ndim:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                           f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}")
    dims = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(dims)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return self, dims


@public(out=False)
def permute(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """The dimensions in another order."""
    if not args and dims is None:
        raise TypeError('permute() missing 1 required positional arguments: "dims"')
    return _permute(*_permute_args(input, args if dims is None else (dims,)))


def _transpose_args(self: Tensor, dim0: int, dim1: int) -> tuple[Tensor, int, int]:
    ndim = self._array.ndim
    return self, wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)


@public(out=False)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    return _transpose(*_transpose_args(input, dim0, dim1))


@public(out=False)
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """transpose under NumPy's name."""
    return transpose(input, axis0, axis1)


@public(out=False)
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """transpose under another name."""
    return transpose(input, dim0, dim1)


def _t_args(self: Tensor) -> tuple[Tensor]:
    if self._array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {self._array.ndim}D")
    return (self,)


@public(out=False)
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and numbers stay as they are."""
    return _t(*_t_args(input))


def _warn_dims(name: str, self: Tensor, instead: str) -> None:
    if self._array.ndim == 0:
        import warnings
        warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors. This function is the identity in these cases.",
                      UserWarning, stacklevel=3)
    elif self._array.ndim > 2:
        import warnings
        warnings.warn(f"The use of `x.{name}` on tensors of dimension other than 0 or 2 is deprecated and it will "
                      f"throw an error in a future release. Consider `x.{instead}` to transpose batches of matrices or "
                      "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.",
                      UserWarning, stacklevel=3)


def _T(self: Tensor) -> Tensor:
    """All dimensions in reverse order."""
    _warn_dims("T", self, "mT")
    return _permute(self, tuple(range(self._array.ndim))[::-1])


def _matrix(self: Tensor, name: str) -> Tensor:
    if self._array.ndim < 2:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got "
                           f"{self._array.ndim}-D tensor.")
    return _transpose(self, self._array.ndim - 2, self._array.ndim - 1)


def _mT(self: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    if self._array.ndim == 0:
        _warn_zero("mT")
        return self
    return _matrix(self, "mT")


def _warn_zero(name: str) -> None:
    import warnings
    warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors. This function is the identity in these cases.",
                  UserWarning, stacklevel=3)


def _H(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    if self._array.ndim == 0:
        _warn_zero("H")
        return self.conj() if self.is_complex() else self
    if self._array.ndim != 2:
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self._array.ndim}-D tensor. "
                           "For batches of matrices, consider using tensor.mH")
    return _mH(self)


def _mH(self: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated."""
    if self._array.ndim == 0:
        _warn_zero("mH")
        return self.conj() if self.is_complex() else self
    made = _matrix(self, "mH")
    return made.conj() if made.is_complex() else made


@public(out=False)
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    if input._array.ndim == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return _mH(input)


Tensor.T, Tensor.mT, Tensor.H, Tensor.mH = property(_T), property(_mT), property(_H), property(_mH)


@public(out=False, aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Moves dimensions to other places; the rest keep their order."""
    ndim = input._array.ndim
    source = (source,) if isinstance(source, int) else tuple(source)
    destination = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain the "
                           f"same number of dims as destination ({list(destination)} dims)")
    source, destination = _distinct(source, ndim, "source"), _distinct(destination, ndim, "destination")
    if not ndim:
        return _alias(input)
    order: list[int] = [-1] * ndim
    for s, d in zip(source, destination):
        order[d] = s
    rest = iter([i for i in range(ndim) if i not in source])
    return _permute(input, tuple([next(rest) if d < 0 else d for d in order]))


def _distinct(dims: tuple[int, ...], ndim: int, what: str) -> tuple[int, ...]:
    out = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(out)) != len(out):
        raise RuntimeError(f"movedim: repeated dim in `{what}` ({list(dims)})")
    return out


# ---------------------------------------------------------------------------------------------- dimensions of one
def _squeeze_row(self: Tensor, dim: Any) -> tuple[Row, tuple[Any, ...]]:
    ndim = self._array.ndim
    if dim is None:
        return _squeeze_all, tuple(range(ndim))
    if isinstance(dim, int):
        return _squeeze_dim, (wrap_dim(dim, ndim),)
    return _squeeze_dims, wrap_dims(shape_of((dim,)), ndim)


@public(out=False)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without dimensions of length one: all of them, or those named."""
    r, dims = _squeeze_row(input, dim)
    return r(input, dims)


def _unsqueeze_args(self: Tensor, dim: int) -> tuple[Tensor, int]:
    return self, wrap_dim(as_int(dim), self._array.ndim + 1)


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


# ---------------------------------------------------------------------------------------------------------- pieces
def _as_strided_args(self: Tensor, size: Any, stride: Any, storage_offset: int | None) -> tuple[Any, ...]:
    size, stride = shape_of((size,)), shape_of((stride,))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: size {list(size)}, stride {list(stride)}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}")
    if any(n < 0 for n in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(size)}")
    offset = self.storage_offset() if storage_offset is None else as_int(storage_offset)
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


__all__ = ["view", "reshape", "expand", "permute", "transpose", "select", "narrow", "as_strided", "squeeze",
           "unsqueeze", "broadcast_tensors", "sum_to", "flatten"]
