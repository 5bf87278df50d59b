"""Cutting a tensor into several views: split, chunk, unbind and their relatives."""

from __future__ import annotations

import itertools
from typing import Any

from ...tensors.shapes import as_int, shape_of, wrap_dim
from ...tensors.tensor import Tensor
from ..core.row import public, row
from .views import _joined, _slice, _split, _split_with_sizes, _unbind

# Pieces without a tie to their origin: they may be changed in place, at the caller's own risk.
_unsafe_split = row("unsafe_split", "self split_size dim", kernel="split", moves=True, backward={
    "self": lambda grads, self_shape, split_size, dim: _joined(grads, self_shape, split_size, dim)})
_unsafe_split_with_sizes = row("unsafe_split_with_sizes", "self split_sizes dim", kernel="split_with_sizes", moves=True,
                               backward={
    "self": lambda grads, self_shape, split_sizes, dim: _joined(grads, self_shape, split_sizes, dim)})


def _check_dim(name: str, x: Tensor, dim: int) -> int:
    if not x._array.ndim:
        raise RuntimeError(f"{name} expects at least a 1-dimensional tensor")
    return wrap_dim(as_int(dim), x._array.ndim)


def _split_args(x: Tensor, size: int, dim: int) -> tuple[Tensor, int, int]:
    dim, size = _check_dim("split", x, dim), as_int(size)
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    length = x._array.shape[dim]
    if not size and length:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {length}")
    return x, size, dim


def _sizes_args(x: Tensor, sizes: Any, dim: int) -> tuple[Tensor, tuple[int, ...], int]:
    dim = _check_dim("split_with_sizes", x, dim)
    sizes = shape_of((sizes,))
    length = x._array.shape[dim]
    if any(n < 0 for n in sizes):
        raise RuntimeError("split_with_sizes expects split_sizes have only non-negative entries, but got "
                           f"split_sizes={list(sizes)}")
    if sum(sizes) != length:
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {length} (input tensor's size at "
                           f"dimension {dim}), but got split_sizes={list(sizes)}")
    return x, sizes, dim


@public(out=False)
def split(tensor: Tensor, split_size_or_sections: Any = None, dim: int = 0, *,
          split_size: Any = None) -> tuple[Tensor, ...]:
    """Pieces of the given size (the last may be shorter), or of the given sizes."""
    sizes = split_size_or_sections if split_size is None else split_size
    if isinstance(sizes, int) or (isinstance(sizes, Tensor) and not sizes._array.ndim):
        return _split(*_split_args(tensor, sizes, dim))
    return _split_with_sizes(*_sizes_args(tensor, sizes, dim))


@public(out=False)
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of the given sizes."""
    return _split_with_sizes(*_sizes_args(input, split_sizes, dim))


def _without_bits(x: Tensor) -> Tensor:
    return x.resolve_conj().resolve_neg()


@public(method=True, out=False)
def unsafe_split(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """split whose results autograd does not treat as views."""
    return _unsafe_split(*_split_args(_without_bits(input), split_size, dim))


@public(out=False)
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """split_with_sizes whose results autograd does not treat as views.

    >>> torch.unsafe_split_with_sizes(torch.arange(3), [1, 2])
    (tensor([0]), tensor([1, 2]))
    """
    return _unsafe_split_with_sizes(*_sizes_args(_without_bits(input), split_sizes, dim))


def _chunked(x: Tensor, chunks: int, dim: int, by_size: Any, by_sizes: Any) -> tuple[Tensor, ...]:
    dim = _check_dim("chunk", x, dim)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    length = x._array.shape[dim]
    size = (length + chunks - 1) // chunks
    if not size:  # an empty dimension still gives as many pieces as asked for
        return by_sizes(x, (0,) * chunks, dim)
    return by_size(x, size, dim)


@public(out=False)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size (the last may be shorter)."""
    return _chunked(input, chunks, dim, _split, _split_with_sizes)


@public(out=False)
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """chunk whose results autograd does not treat as views."""
    return _chunked(_without_bits(input), chunks, dim, _unsafe_split, _unsafe_split_with_sizes)


@public(out=False)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All entries along a dimension, which disappears."""
    if not input._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return _unbind(input, wrap_dim(dim, input._array.ndim))


@public(out=False)
def tensor_split(input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, indices: Any = None,
                 sections: Any = None) -> tuple[Tensor, ...]:
    """A number of nearly equal pieces, or pieces cut at the given indices."""
    if not input._array.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = wrap_dim(dim, input._array.ndim)
    where = next((v for v in (indices_or_sections, indices, sections) if v is not None), None)
    if isinstance(where, Tensor):
        if where.dtype.name != "int64":
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to have dtype of long, but got "
                               f"{where.dtype.word}")
        if where._array.ndim > 1:
            raise RuntimeError("tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional "
                               f"tensor, but got a tensor with {where._array.ndim} dims")
        where = where.tolist()
    length = input._array.shape[dim]
    if isinstance(where, int):
        if where <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {where}")
        size, longer = divmod(length, where)
        cuts = [i * size + min(i, longer) for i in range(where + 1)]
        return tuple([_slice(input, dim, a, b, 1) for a, b in itertools.pairwise(cuts)])
    if where is None:
        raise TypeError("tensor_split(): missing indices or sections")
    cuts = [0, *shape_of((where,)), length]
    return tuple([_piece(input, dim, a, b) for a, b in itertools.pairwise(cuts)])


def _piece(x: Tensor, dim: int, start: int, end: int) -> Tensor:
    start, end, _ = slice(start, end).indices(x._array.shape[dim])
    return _slice(x, dim, start, max(start, end), 1)


def _axis_split(name: str, least: int, dim_of: Any) -> Any:
    def function(input: Tensor, indices_or_sections: Any = None, *more: Any, indices: Any = None,
                 sections: Any = None) -> tuple[Tensor, ...]:
        ndim = input._array.ndim
        if ndim < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} dimension, "
                               f"but got a tensor with {ndim} dimensions!")
        where = next((v for v in (indices_or_sections, indices, sections) if v is not None), None)
        if more:
            where = (where, *more)
        dim = dim_of(ndim)
        if isinstance(where, str) or where is None:
            raise TypeError(f"{name}(): received an invalid combination of arguments: expected a number of sections or a "
                            f"sequence of indices, got {type(where).__name__}")
        if isinstance(where, int):
            length = input._array.shape[dim]
            if where <= 0 or length % where:
                raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but the size of the "
                                   f"dimension {length} is not divisible by the split_size {where}!")
        return tensor_split(input, where, dim)

    function.__doc__ = f"tensor_split along the dimension that {name} is named after."
    return public(function, name=name, out=False)


hsplit = _axis_split("hsplit", 1, lambda ndim: 0 if ndim == 1 else 1)
vsplit = _axis_split("vsplit", 2, lambda ndim: 0)
dsplit = _axis_split("dsplit", 3, lambda ndim: 2)

__all__ = ["split", "chunk", "unbind", "tensor_split"]
