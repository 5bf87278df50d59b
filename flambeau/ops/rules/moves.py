"""Shape rules of copies, joining, rearranging and picking by index."""

from __future__ import annotations

import math
from typing import Any

from ...backends import registry
from ...backends.geometry import broadcasts_to, indexed_shape, padded_shape, placed, value_shape_error
from ...backends.strides import dense_strides, format_strides, stretched, view_strides
from ...tensors.shapes import broadcast_shapes
from . import BOOL, INT64, Made, like, strides, with_dim


# ------------------------------------------------------------------------------------------------------------- copies
def copy(x: Any, fmt: str) -> Made:
    return copy_as(x, x.dtype, fmt)


def copy_as(x: Any, dtype: Any, fmt: str) -> Made:
    return like(x, dtype) if fmt == "preserve" else Made(x.shape, dtype, format_strides(x.shape, fmt))


def strided(x: Any, stride: Any) -> Made:
    return Made(x.shape, x.dtype, stride)


def kept(x: Any, *rest: Any) -> Made:
    """A copy with x's strides, holes included, unless elements of x share a place."""
    return like(x) if any(n > 1 and not s for n, s in zip(x.shape, strides(x))) else Made(x.shape, x.dtype, strides(x))


def reshaped(x: Any, shape: Any) -> Made:
    """A view where there is one, else a copy."""
    return Made(tuple(shape), x.dtype, view_strides(x.shape, strides(x), shape))


def restored(grad: Any, source: Any, target: Any, counted: Any) -> Made:
    """The gradient of a view: as the view's input where that has no two elements in one place."""
    size, stride, _ = target
    apart, reach = True, 0
    for s, n in sorted((s, n) for n, s in zip(size, stride) if n > 1):
        apart, reach = apart and s > reach, reach + s * (n - 1)
    return Made(tuple(size), grad.dtype, stride if apart and 0 not in size else None)


def viewed_copy(kernel: str) -> Any:
    """The rule of `name_copy`: what the view kernel makes, each part contiguous."""
    def rule(*args: Any) -> Any:
        made = registry.backend_of(args[0]).call(kernel, args)
        return [Made(m.shape, m.dtype) for m in made] if made.__class__ is list else Made(made.shape, made.dtype)

    return rule


def narrowed(x: Any, dim: int, start: int, length: int) -> Made:
    return Made(with_dim(x.shape, dim, length), x.dtype)


# ------------------------------------------------------------------------------------------------- joining, repeating
def joined(arrays: Any, dim: int, dtype: Any, fmt: str) -> Made:
    parts = [a for a in arrays if a.shape != (0,)]
    if not parts:
        return Made((0,), dtype)
    shape = with_dim(parts[0].shape, dim, sum(a.shape[dim] for a in parts))
    return Made(shape, dtype, format_strides(shape, fmt))


def stacked(arrays: Any, dim: int, dtype: Any) -> Made:
    shape = arrays[0].shape
    return Made((*shape[:dim], len(arrays), *shape[dim:]), dtype)


def block_diagonal(arrays: Any, dtype: Any) -> Made:
    blocks = [(1,) * (2 - a.ndim) + a.shape for a in arrays]
    return Made((sum(b[0] for b in blocks), sum(b[1] for b in blocks)), dtype)


def repeated(x: Any, repeats: Any) -> Made:
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    return Made(tuple([n * r for n, r in zip(shape, repeats)]), x.dtype)


def turned(x: Any, k: int, dims: Any) -> Made:
    """rot90: a flip, and for odd k a transposed one."""
    made = like(x) if k else Made(x.shape, x.dtype)
    if k % 2 == 0:
        return made
    order = list(range(x.ndim))
    first, second = dims
    order[first], order[second] = second, first
    return Made(tuple([made.shape[d] for d in order]), x.dtype, [made.stride[d] for d in order])


def diagonal(x: Any, offset: int, dim1: int, dim2: int) -> Made:
    """diag_embed."""
    shape = list(x.shape[:-1])
    for d in sorted((dim1, dim2)):
        shape.insert(d, x.shape[-1] + abs(offset))
    return Made(tuple(shape), x.dtype)


def padded(x: Any, pad: Any, value: Any) -> Made:
    return Made(padded_shape(x.shape, pad), x.dtype)


def combinations(x: Any, r: int, repeated: bool) -> Made:
    n = x.shape[0]
    return Made((r, math.comb(n + r - 1 if repeated else n, r) if n or not r else 0), INT64)


# ----------------------------------------------------------------------------------------------------- picking by index
def indexed(x: Any, indices: Any) -> Made:
    """x[indices]. A mask picks as many elements as it has ones, which are not known here."""
    arrays: list[Any] = []
    for a in indices:
        if a is not None and a.dtype.char in "?B":
            raise NotImplementedError("index: the shape of the result depends on the values of a mask, which a meta tensor "
                                      "does not have")
        arrays.append(a)
    if len(arrays) > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim} (got {len(arrays)})")
    given = [a.shape for a in arrays if a is not None]
    try:
        common = broadcast_shapes(*given)
    except RuntimeError:
        shapes = ", ".join(str(list(s)) for s in given)
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with shapes " + shapes) from None
    shape, (dims, at) = indexed_shape(x.shape, arrays, common), placed(arrays)
    rest = [s for d, s in enumerate(strides(x)) if d not in dims]
    blank = (0,) * len(common)
    lead, trail = (0,) * at, (0,) * (len(rest) - at)
    operands = [(*lead, *stretched(common, a.shape, strides(a)), *trail) for a in arrays if a is not None]
    return Made(shape, x.dtype, dense_strides(shape, (*rest[:at], *blank, *rest[at:]), *operands))


def index_put(x: Any, indices: Any, values: Any, accumulate: bool) -> Made:
    if not any(a is not None and a.dtype.char in "?B" for a in indices):
        shape = indexed(x, indices).shape
        if not broadcasts_to(values.shape, shape):
            raise value_shape_error(values.shape, shape)
    return like(x)


def selected(x: Any, dim: int, positions: Any) -> Made:
    return Made(with_dim(x.shape, dim, positions.size), x.dtype)


def found(x: Any, size: int, fill_value: int) -> Made:
    """nonzero_static: column by column."""
    return Made((size, x.ndim), INT64, (1, max(size, 1)))


def one_hot(indices: Any, classes: int) -> Made:
    return Made((*indices.shape, classes), INT64)


def is_in(elements: Any, test: Any, *rest: Any) -> Made:
    return like(elements, BOOL)
