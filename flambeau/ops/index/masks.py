"""Elements chosen by a mask: filled, selected, replaced; and where the elements are that are not zero."""

from __future__ import annotations

from typing import Any

from ...tensors import dtypes as _dtypes
from ...tensors.shapes import as_int, broadcast_shapes
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import Row, _type_word, check_overlap, public
from ..pointwise.families import broadcast_error
from ..rules import moves
from ..shape.writing import write_row
from .indexing import number_for

_masked_fill = Row("masked_fill", "self mask value", moves=True, numeric=True, lenient=True, shape=rules.same, backward={
    "self": lambda grad, mask: grad.masked_fill(mask, 0)})
_masked_fill_tensor = Row("masked_fill_tensor", "self mask value", moves=True, kernel="masked_fill", node="MaskedFillBackward1",
                          backward={
    "self": lambda grad, mask: grad.masked_fill(mask, 0),
    "value": lambda grad, mask: grad.masked_fill(mask.logical_not(), 0).sum()})
_masked_select = Row("masked_select", "self mask", moves=True, shape=rules.by_value("masked_select"), backward={
    "self": lambda grad, self_shape, mask: _unselect(grad, self_shape, mask)}, forward="linear")
_masked_scatter = Row("masked_scatter", "self mask source", moves=True, dynamic=True, shape=rules.same, backward={
    "self": lambda grad, mask: grad.masked_fill(mask, 0),
    "source": lambda grad, mask, source_shape: _masked_scatter_backward(grad, mask, source_shape)})
_masked_scatter_backward = Row("masked_scatter_backward", "grad_output mask shape", shape=rules.of_shape(2), backward={
    "grad_output": lambda grad, grad_output_shape, mask: grad.new_zeros(grad_output_shape).masked_scatter(mask, grad)})
_nonzero = Row("nonzero", "self", takes="bifch", batch="dynamic", shape=rules.by_value("nonzero"))
_nonzero_static = Row("nonzero_static", "self size fill_value", takes="bifch", shape=moves.found)


def _unselect(grad: Tensor, shape: Any, mask: Tensor) -> Tensor:
    """Back to the broadcast shape of tensor and mask; the engine sums what was broadcast."""
    return grad.new_zeros(broadcast_shapes(shape, mask.shape)).masked_scatter(mask, grad)


def check_mask(name: str, mask: Any) -> None:
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}(): argument 'mask' must be Tensor, not {type(mask).__name__}")
    if mask.dtype is not _dtypes.bool_:
        shown = mask.dtype.c_word if name == "masked_fill_" else mask.dtype.word
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {shown}")


def _mask_args(self: Tensor, mask: Tensor, value: Any) -> tuple[Any, ...]:
    check_mask("masked_fill_", mask)
    if isinstance(value, Tensor):
        if value.dim():
            raise RuntimeError("masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                               f"{value.dim()} dimension(s).")
        if value.is_complex() and not self.is_complex():
            raise RuntimeError("value cannot be converted to type float without overflow")
        return _masked_fill_tensor, mask, value
    return _masked_fill, mask, number_for(self.dtype, value)


def _broadcast(input: Tensor, mask: Tensor) -> Tensor:
    """The tensor expanded to the shape it has together with the mask."""
    if mask._array.shape == input._array.shape:
        return input
    try:
        shape = broadcast_shapes(input.shape, mask.shape)
    except RuntimeError:
        raise broadcast_error(mask.shape, input.shape) from None
    return input.expand(shape) if shape != tuple(input.shape) else input


def _check_covers(self: Tensor, mask: Tensor) -> None:
    if _broadcast(self, mask) is not self:
        from ...tensors.shapes import broadcast_shapes
        raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast shape "
                           f"{list(broadcast_shapes(self.shape, mask.shape))}")


@public
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """input with value where mask is True."""
    r, *rest = _mask_args(input, mask, value)
    return r(_broadcast(input, mask), *rest)


@public(name="masked_fill_", toplevel=False, out=False)
def masked_fill_(self: Tensor, mask: Tensor, value: Any) -> Tensor:
    r, *rest = _mask_args(self, mask, value)
    _check_covers(self, mask)
    check_overlap(self._array, (mask,))
    return write_row(self, r, tuple(rest))


@public(out="exact apart")
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where mask is True, in one dimension."""
    if mask.dtype is not _dtypes.bool_:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    _broadcast(input, mask)
    return _masked_select(input, mask)


def _scatter_mask(self: Tensor, mask: Tensor, source: Tensor) -> None:
    check_mask("masked_scatter_", mask)
    if source.dtype is not self.dtype:
        raise RuntimeError("masked_scatter: expected self and source to have same dtypes but got "
                           f"{_type_word(self.dtype)} and {_type_word(source.dtype)}")


@public
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """input with the elements of source, in order, where mask is True."""
    _scatter_mask(input, mask, source)
    return _masked_scatter(_broadcast(input, mask), mask, source)


@public(name="masked_scatter_", toplevel=False, out=False)
def masked_scatter_(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    _scatter_mask(self, mask, source)
    _check_covers(self, mask)
    return write_row(self, _masked_scatter, (mask, source))


@public(out="long")
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Positions of the elements that are not zero: one row each, or one tensor per dimension."""
    if as_tuple:
        if input.dim() == 0:
            input = input.unsqueeze(0)
        return _nonzero(input.detach()).unbind(1)
    return _nonzero(input)


@public
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """nonzero with a given number of rows: cut, or padded with fill_value."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be an non-negative integer, but got {size}")
    return _nonzero_static(input, as_int(size), as_int(fill_value))


@public(out=False)
def argwhere(input: Tensor) -> Tensor:
    """Positions of the elements that are not zero, one row each."""
    return _nonzero(input)
