"""Joining, repeating and rearranging: results with memory of their own."""

from __future__ import annotations

import itertools
from typing import Any

from ...backends import registry
from ...backends.strides import format_strides
from ...tensors.shapes import as_int, shape_of, wrap_dim, wrap_dims
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, moving, public, row
from ..layers.layouts import keeping_layout
from ..pointwise.convert import _clone, suggested_format
from ..pointwise.families import promoted
from ..rules import moves
from .memory import resize_out
from .reshaping import _reshape, atleast_1d, atleast_2d, atleast_3d, listed
from .views import _diagonal, _diagonal_args, _expand, _slice, _unbind, _unsqueeze, _view, relaid

ndarray = registry.CPU_ARRAY

# fmt: off
_cat = moving("cat", "tensors* dim dtype format", shape=moves.joined, backward={
    "tensors": lambda grad, tensors_shape, dim, needs: _cut(grad, tensors_shape, dim, needs)})
_stack = moving("stack", "tensors* dim dtype", shape=moves.stacked,
                backward={"tensors": lambda grad, dim: list(_unbind(grad, dim))})
_repeat = moving("repeat", "self repeats", shape=moves.repeated,
                 backward={"self": lambda grad, self_shape, repeats: _unrepeat(grad, self_shape, repeats)})
_roll = moving("roll", "self shifts dims", shape=rules.same,
               backward={"self": lambda grad, shifts, dims: _roll(grad, tuple([-s for s in shifts]), dims)})
_flip = moving("flip", "self dims", shape=rules.alike, backward={"self": lambda grad, dims: _flip(grad, dims)})
_rot90 = moving("rot90", "self k dims", shape=moves.turned, backward={"self": lambda grad, k, dims: _rot90(grad, -k % 4, dims)})
_tril = moving("tril", "self diagonal", batch="trailing", shape=rules.same,
               backward={"self": lambda grad, diagonal: _tril(grad, diagonal)})
_triu = moving("triu", "self diagonal", batch="trailing", shape=rules.same,
               backward={"self": lambda grad, diagonal: _triu(grad, diagonal)})
_diag_embed = moving("diag_embed", "self offset dim1 dim2", batch="diagonal", shape=moves.diagonal, backward={
    "self": lambda grad, offset, dim1, dim2: _diagonal(grad, offset, dim1, dim2)})
_block_diag = moving("block_diag", "tensors* dtype", shape=moves.block_diagonal,
                     backward={"tensors": lambda grad, tensors_shape: _blocks(grad, tensors_shape)})
_constant_pad = moving("constant_pad_nd", "self pad value", batch="trailing", shape=moves.padded, backward={
    "self": lambda grad, pad: constant_pad_nd(grad, [-n for n in pad], 0)})
# fmt: on


def _sequence(name: str, tensors: Any) -> list[Tensor]:
    """The tensors of a list argument, checked."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}")
    return list(tensors)


# -------------------------------------------------------------------------------------------------------- joining
def _cut(grad: Tensor, shapes: Any, dim: int, needs: Any) -> list[Any]:
    """The parts of a gradient that belong to the tensors that were joined."""
    out, start = [], 0
    for shape, wanted in zip(shapes, needs):
        if tuple(shape) == (0,) and len(grad.shape) != 1:  # PyTorch lets empty vectors join anything
            out.append(grad.new_zeros(0))
            continue
        out.append(_slice(grad, dim, start, start + shape[dim], 1) if wanted else None)
        start += shape[dim]
    return out


@public(method=False, aliases=("concat",), autocast="widest", out="joined apart")
def cat(tensors: Any, dim: Any = 0, *, axis: Any = None) -> Tensor:
    """The tensors one after the other along an existing dimension."""
    tensors = _sequence("cat", tensors)
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    dim = as_int(dim if axis is None else axis)
    for i, t in enumerate(tensors):
        if not t._array.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    real = [(i, t) for i, t in enumerate(tensors) if t._array.shape != (0,)]
    first = real[0][1] if real else tensors[0]
    dim = wrap_dim(dim, first._array.ndim) if real else 0  # empty vectors fit anywhere
    expected = first._array.shape
    for i, t in real:
        shape = t._array.shape
        if len(shape) != len(expected):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(expected)} and {len(shape)}")
        for d, (a, b) in enumerate(zip(expected, shape)):
            if a != b and d != dim:
                raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}. Expected size {a} but got "
                                   f"size {b} for tensor number {i} in the list. (It has shape {list(shape)}, the first one "
                                   f"{list(expected)}.)")
    return _cat(tensors, dim, promoted(tensors).native, _common_format(tensors))


def _common_format(tensors: list[Tensor]) -> str:
    """The memory format that all tensors are in: a channels-last one, or contiguous."""
    formats = {suggested_format(t) if t._array.ndim in (4, 5) else "contiguous" for t in tensors}
    return formats.pop() if len(formats) == 1 else "contiguous"


@public(method=False, autocast="widest", out="joined")
def concatenate(tensors: Any, axis: Any = 0, *, dim: Any = None) -> Tensor:
    """cat under NumPy's name."""
    return cat(tensors, axis if dim is None else dim)


@public(method=False, autocast="widest", out="joined apart")
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """The tensors, all of one shape, side by side along a new dimension."""
    tensors = _sequence("stack", tensors)
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    shape = tensors[0]._array.shape
    for i, t in enumerate(tensors):
        if t._array.shape != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and "
                               f"{list(t.shape)} at entry {i}")
    dim = wrap_dim(dim, len(shape) + 1)
    made = _stack(tensors, dim, promoted(tensors).native)
    fmt = _common_format(tensors)
    if fmt == "contiguous" or dim == len(shape):
        return made
    joined = format_strides(rules.with_dim(shape, dim, shape[dim] * len(tensors)), fmt)  # as if cat, then divided anew
    return relaid(made, (*joined[:dim], shape[dim] * joined[dim], *joined[dim:]))


@public(method=False, out="joined")
def hstack(tensors: Any) -> Tensor:
    """cat along the second dimension (the first for vectors)."""
    tensors = atleast_1d(_filled("hstack", tensors))
    return cat(tensors, 0 if tensors[0].dim() == 1 else 1)


@public(method=False, aliases=("row_stack",), out="joined")
def vstack(tensors: Any) -> Tensor:
    """cat along the first dimension; vectors become rows."""
    return cat(atleast_2d(_filled("vstack", tensors)), 0)


@public(method=False, out="joined")
def dstack(tensors: Any) -> Tensor:
    """cat along the third dimension."""
    return cat(atleast_3d(_filled("dstack", tensors)), 2)


@public(method=False, out="joined")
def column_stack(tensors: Any) -> Tensor:
    """cat along the second dimension; vectors become columns."""
    tensors = _filled("column_stack", tensors)
    return cat([_reshape(t, (t.numel(), 1)) if t.dim() < 2 else t for t in tensors], 1)


def _filled(name: str, tensors: Any) -> list[Tensor]:
    tensors = _sequence(name, tensors)
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return tensors


@public(method=False, out=False)
def block_diag(*tensors: Any) -> Tensor:
    """The tensors as blocks along the diagonal of a matrix of zeros."""
    tensors = _sequence("block_diag", listed(tensors))
    for i, t in enumerate(tensors):
        if t._array.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                               f"{t._array.ndim} dimensions")
    if not tensors:
        from ...creation.factories import empty
        return empty(1, 0)
    return _block_diag(tensors, promoted(tensors).native)


def _blocks(grad: Tensor, shapes: Any) -> list[Tensor]:
    out, row_at, column_at = [], 0, 0
    for shape in shapes:
        height, width = ((1, 1) if not shape else (1, shape[0]) if len(shape) == 1 else shape)
        piece = grad.narrow(0, row_at, height).narrow(1, column_at, width)
        out.append(_reshape(piece, tuple(shape)))
        row_at, column_at = row_at + height, column_at + width
    return out


# ------------------------------------------------------------------------------------------------------- repeating
def _unrepeat(grad: Tensor, shape: Any, repeats: Any) -> Tensor:
    """Adds up the repetitions."""
    extra = len(repeats) - len(shape)
    shape = (1,) * extra + tuple(shape)
    if 0 in repeats:
        return grad.new_zeros(shape[extra:])
    apart = tuple(itertools.chain.from_iterable(zip(repeats, shape)))
    counts = tuple(i for i in range(0, len(apart), 2) if apart[i] != 1)
    summed = _reshape(grad, apart)
    if counts:
        summed = summed.sum(counts, keepdim=True)
    return _reshape(summed, shape[extra:])


@public(toplevel=False, out=False)
def repeat(self: Tensor, *args: Any, repeats: Any = None) -> Tensor:
    """The tensor repeated along each dimension."""
    counts = shape_of(args if repeats is None else (repeats,))
    if not args and repeats is None:
        raise TypeError('repeat() missing 1 required positional arguments: "repeats"')
    if len(counts) < self._array.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of "
                           f"tensor: got {len(counts)} and {self._array.ndim}")
    if any(n < 0 for n in counts):
        raise RuntimeError(f"Trying to create tensor with negative dimension: repeats are {list(counts)}")
    return _repeat(self, counts)


@public(out=False)
def tile(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """repeat in which missing counts stand for 1."""
    counts = shape_of(args if dims is None else (dims,))
    return repeat(input, (1,) * (input._array.ndim - len(counts)) + counts)


@public(out=False)
def repeat_interleave(input: Tensor, repeats: Any = None, dim: int | None = None, *,
                      output_size: int | None = None) -> Tensor:
    """Each entry along a dimension repeated in place, by one count or one count per entry."""
    if repeats is None:
        return _interleaved_indices(input, output_size)
    if dim is None:
        input, dim = _reshape(input, (input._array.size,)), 0
    dim = wrap_dim(dim, input._array.ndim)
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError(f"Repeats must be non-negative, got {repeats}")
        shape = input._array.shape or (1,)
        wide = _expand(_unsqueeze(_reshape(input, shape), dim + 1), (*shape[:dim + 1], repeats, *shape[dim + 1:]))
        return _view(_clone(wide, "contiguous"), (*shape[:dim], shape[dim] * repeats, *shape[dim + 1:]))
    if not isinstance(repeats, Tensor):
        from ...creation.factories import tensor
        repeats = tensor(repeats)
    length = input._array.shape[dim] if input._array.ndim else 1
    if repeats.numel() == 1:
        repeats = _expand(_reshape(repeats, (1,)), (length,))
    if repeats.dim() > 1 or repeats.numel() != length:
        raise RuntimeError("repeats must have the same size as input along dim, but got repeats.size(0) = "
                           f"{repeats.numel()} and input.size({dim}) = {length}")
    return input.index_select(dim, _interleaved_indices(repeats, output_size))


_interleave = row("interleave", "repeats", shape=rules.by_value("repeat_interleave"))


def _interleaved_indices(repeats: Tensor, output_size: int | None) -> Tensor:
    if repeats.dim() != 1 and repeats.numel() != 1:
        raise RuntimeError(f"repeat_interleave only accept 1D vector as repeat, got {repeats.dim()} dimensions")
    if repeats.dtype.name not in ("int64", "int32"):
        raise NotImplementedError(f"\"repeat_interleave_cpu\" not implemented for '{repeats.dtype.word}': "
                                  "expected int64 or int32")
    if repeats.is_meta and output_size is not None:
        return repeats.new_empty((output_size,))
    made = _interleave(repeats)
    if output_size is not None and made.numel() != output_size:
        raise RuntimeError(f"allocated size does not match required size: output_size={output_size}, needed {made.numel()}")
    return made


# --------------------------------------------------------------------------------------------------- rearranging
@public(out=False)
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Entries moved along dimensions; what leaves at the end comes back at the start."""
    shifts = shape_of((shifts,)) if not isinstance(shifts, int) else (shifts,)
    dims = () if dims is None else (dims,) if isinstance(dims, int) else shape_of((dims,))
    if not shifts:
        raise RuntimeError("`shifts` required")
    if not dims and len(shifts) == 1:
        return _roll(input, shifts, dims)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if not input._array.ndim:
        raise IndexError(f"Dimension specified as {dims[0]} but tensor has no dimensions")
    return _roll(input, shifts, tuple([wrap_dim(d, input._array.ndim) for d in dims]))


@public(out=False)
def flip(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """The entries of some dimensions in reverse order."""
    if not args and dims is None:
        raise TypeError('flip() missing 1 required positional arguments: "dims"')
    return _flip(input, wrap_dims(shape_of(args if dims is None else (dims,)), input._array.ndim))


@public(out=False)
def fliplr(input: Tensor) -> Tensor:
    """flip along the second dimension."""
    if input._array.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return _flip(input, (1,))


@public(out=False)
def flipud(input: Tensor) -> Tensor:
    """flip along the first dimension."""
    if input._array.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return _flip(input, (0,))


@public(out=False)
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Rotated by 90 degrees k times, from the first of two dimensions towards the second."""
    dims, ndim = shape_of((dims,)), input._array.ndim
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {ndim}")
    first, second = [wrap_dim(d, ndim) for d in dims]
    if first == second:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    return _rot90(input, k % 4, (first, second))


def _triangle(name: str, r: Any) -> Any:
    def function(input: Tensor, diagonal: int = 0) -> Tensor:
        if input._array.ndim < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions")
        return r(input, as_int(diagonal))

    function.__doc__ = f"The {'lower' if name == 'tril' else 'upper'} triangle of matrices; the rest becomes zero."
    return public(function, name=name, inplace=True, out="exact")


tril, triu = _triangle("tril", _tril), _triangle("triu", _triu)


@public(out=False)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices of zeros with the last dimension on a diagonal."""
    ndim = input._array.ndim + 1
    first, second = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    if not input._array.ndim:
        raise IndexError("Dimension out of range: diag_embed needs at least one dimension, got a zero-dim tensor")
    return _diag_embed(input, as_int(offset), first, second)


@public(out="exact")
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix that has a vector on its diagonal."""
    ndim = input._array.ndim
    if ndim == 1:
        return diag_embed(input, diagonal)
    if ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {ndim}D")
    _diagonal_args(input, diagonal)
    return FUNCTIONS["diagonal_copy"](input, diagonal)


@public(out=False)
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix that has all elements on its diagonal."""
    return diag_embed(_reshape(input, (input._array.size,)), offset)


@public(method=True, out=False)
def constant_pad_nd(input: Tensor, pad: Any, value: Any = 0) -> Tensor:
    """Grown by `value` (or cut, where negative) at both ends of the last dimensions, last one first."""
    pad, shape = shape_of((pad,)), input._array.shape
    if len(pad) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2 (got {len(pad)})")
    if len(pad) > 2 * len(shape):
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got padding "
                           f"length {len(pad)} and input of dimension {len(shape)}")
    for i in range(len(pad) // 2):
        size = shape[-1 - i] + pad[2 * i] + pad[2 * i + 1]
        if size < 0:
            raise RuntimeError(f"The input size {shape[-1 - i]}, plus negative padding {pad[2 * i]} and "
                               f"{pad[2 * i + 1]} resulted in a negative output size, which is invalid. Check "
                               f"dimension {len(shape) - 1 - i} of your input.")
    if len(shape) < 4 or input._array.flags.c_contiguous:
        return _constant_pad(input, pad, value)
    return keeping_layout(_constant_pad, input, pad, value)


# ------------------------------------------------------------------------------------------------ grids of values
@public(method=False, out=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """The coordinates of a grid: each vector spread over all other dimensions."""
    tensors = _sequence("meshgrid", listed(tensors))
    if indexing is None:
        import warnings
        warnings.warn("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
                      UserWarning, stacklevel=2)
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in tensors:
        if t.dim() > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got shape {list(t.shape)}")
        if t.dtype is not tensors[0].dtype:
            raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    swap = indexing == "xy" and len(tensors) >= 2
    if swap:
        tensors[:2] = tensors[1::-1]
    shape = tuple(t.numel() for t in tensors)
    apart = [(1,) * i + (shape[i],) + (1,) * (len(shape) - 1 - i) for i in range(len(shape))]
    grids = [_expand(_view(t, alone), shape) for t, alone in zip(tensors, apart)]
    if swap:
        grids[:2] = grids[1::-1]
    return tuple(grids)


@public(method=False, out=False)
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element of each vector, one per row."""
    tensors = _sequence("cartesian_prod", listed(tensors))
    for t in tensors:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([_reshape(g, (g.numel(),)) for g in meshgrid(*tensors, indexing="ij")], 1)


_combination_indices = row("combination_indices", "self r repeated", moves=True, shape=moves.combinations)


@public(out=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All ways to pick r elements of a vector, one per row."""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty(0)
    columns = _combination_indices(input.detach(), r, with_replacement)
    return stack([input.index_select(0, column) for column in _unbind(columns, 0)], 1)


__all__ = ["cat", "stack", "repeat", "tile", "flip", "roll", "resize_out", "meshgrid", "diag", "tril", "triu"]
