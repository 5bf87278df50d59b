"""Picking and replacing elements by index arrays and masks.

A kernel whose name ends in `_into` changes its first array; the kernel without the ending works on a copy. Every check
comes before the first write, so an error leaves the array as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ...geometry import broadcasts_to, indexed_shape, placed, value_shape_error
from .. import memory
from ..layouts import by_rule
from ..table import KERNELS, add, kernel
from . import scatter
from .rows import add_natively, index_add_rows, picked_rows, put_natively, take_natively, wrapped

_INT64 = np.dtype(np.int64)
_MANY = 1 << 10  # elements from which native code fills faster
_FEW = 64  # positions below which NumPy is as fast as native code


def copy(x: ndarray) -> ndarray:
    """A C-contiguous copy, from the pool when it is large."""
    out = memory.empty(x.shape, x.dtype)
    np.copyto(out, x)
    return out


def on_copy(into: Callable[..., None]) -> Callable[..., None]:
    """Enters `name_into` and, working on a copy, `name`."""
    name = into.__name__.removesuffix("_into")

    def out_of_place(x: ndarray, *args: Any) -> ndarray:
        out = copy(x)
        into(out, *args)
        return out if x.flags.c_contiguous else by_rule(name, (x, *args), out)

    KERNELS[name + "_into"] = into
    KERNELS[name] = out_of_place
    return into


# ----------------------------------------------------------------------------------------- x[i, j, mask] and x[i] = v
def expanded(shape: tuple[int, ...], indices: Any) -> list[Any]:
    """One int64 array or None per dimension: masks become the positions where they hold."""
    out: list[Any] = []
    for a in indices:
        if a is None:
            out.append(None)
        elif a.dtype.kind == "b" or a.dtype.char == "B":
            at = len(out)
            for k in range(a.ndim):
                if at + k >= len(shape) or a.shape[k] != shape[at + k]:
                    raise IndexError(f"The shape of the mask {list(a.shape)} at index {k} does not match the shape "
                                     f"of the indexed tensor {list(shape)} at index {at + k}")
            out.extend(np.nonzero(a) if a.ndim else (np.zeros(int(bool(a)), _INT64),))
        else:
            out.append(a)
    if len(out) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {len(out)})")
    return out


def _full_mask(x: ndarray, indices: Any) -> ndarray | None:
    """The one boolean mask over all dimensions, which NumPy takes as it is."""
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype.kind == "b" and indices[0].shape == x.shape:
        return indices[0]
    return None


def _key(arrays: list[Any]) -> tuple[Any, ...]:
    return tuple([slice(None) if a is None else a for a in arrays])


def _translated(error: Exception, arrays: list[Any]) -> Exception:
    """NumPy's complaint about an index in PyTorch's words."""
    text = str(error)
    if "out of bounds" in text:
        return IndexError(text.replace("axis", "dimension"))
    if "broadcast" in text:
        shapes = ", ".join(str(list(a.shape)) for a in arrays if a is not None)
        return IndexError(f"shape mismatch: indexing tensors could not be broadcast together with shapes {shapes}")
    return error


@kernel
def index(x: ndarray, indices: Any) -> ndarray:
    mask = _full_mask(x, indices)
    if mask is not None and x.ndim:
        return x[mask]
    arrays = expanded(x.shape, indices)
    given = [d for d, a in enumerate(arrays) if a is not None]
    if len(given) == 1:
        made = taken(x, given[0], arrays[given[0]])
        return made if x.flags.c_contiguous else by_rule("index", (x, arrays), made)
    try:
        made = x[_key(arrays)]
    except IndexError as error:
        raise _translated(error, arrays) from None
    if type(made) is not ndarray or np.may_share_memory(made, x):
        made = np.array(made)
    made = made if made.flags.c_contiguous else np.ascontiguousarray(made)
    return made if x.flags.c_contiguous else by_rule("index", (x, arrays), made)


def taken(x: ndarray, dim: int, positions: ndarray) -> ndarray:
    """x[:, ..., positions] at one dimension; negative positions count from the end."""
    if positions.size >= _FEW:
        shape = x.shape[:dim] + positions.shape + x.shape[dim + 1:]
        out = memory.empty(shape, x.dtype)
        if not out.size or take_natively(x, dim, positions, out, True):
            return out
    if positions.size < 1 << 10:  # NumPy's own check is cheaper than the two passes of `wrapped`
        try:
            return np.asarray(x.take(positions, dim))
        except IndexError:
            wrapped(positions, x.shape[dim], dim)
    positions = wrapped(positions, x.shape[dim], dim)
    shape = x.shape[:dim] + positions.shape + x.shape[dim + 1:]
    out = memory.empty(shape, x.dtype)
    if out.size:
        # Positions are in range already: "clip" writes straight into `out`, "raise" would go through a buffer.
        np.take(x, positions, axis=dim, out=out, mode="clip")
    return out


@on_copy
def index_put_into(x: ndarray, indices: Any, values: ndarray, accumulate: bool) -> None:
    mask = _full_mask(x, indices)
    if mask is not None and values.size == 1 and not accumulate:
        np.copyto(x, values.reshape(()), where=mask)
        return
    if np.may_share_memory(x, values):
        values = values.copy()
    if mask is not None and values.ndim <= 1:
        count = int(np.count_nonzero(mask))
        if values.size not in (1, count):
            raise value_shape_error(values.shape, (count,))
        if accumulate:
            x[mask] += values
        elif count:
            x[mask] = values
        return
    arrays = expanded(x.shape, indices)
    if accumulate:
        _accumulate(x, arrays, values)
        return
    given = [d for d, a in enumerate(arrays) if a is not None]
    if len(given) == 1 and values.shape == x.shape[:given[0]] + arrays[given[0]].shape + x.shape[given[0] + 1:] \
            and put_natively(x, given[0], arrays[given[0]], values, True):
        return
    shape = _result_shape(x.shape, arrays)
    if not broadcasts_to(values.shape, shape):
        raise value_shape_error(values.shape, shape)
    try:
        x[_key(arrays)] = values
    except IndexError as error:
        raise _translated(error, arrays) from None


def _common_shape(arrays: list[Any]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*[a.shape for a in arrays if a is not None])
    except ValueError as error:
        raise _translated(error, arrays) from None


def _result_shape(shape: tuple[int, ...], arrays: list[Any]) -> tuple[int, ...]:
    return indexed_shape(shape, arrays, _common_shape(arrays))


def _accumulate(x: ndarray, arrays: list[Any], values: ndarray) -> None:
    """x[arrays] += values where a position that comes twice is added to twice."""
    given, at = placed(arrays)
    common = _common_shape(arrays)
    shape = _result_shape(x.shape, arrays)
    if not broadcasts_to(values.shape, shape):
        raise value_shape_error(values.shape, shape)
    if not given:
        x += values
        return
    flat = None
    for d in given:
        step = np.broadcast_to(wrapped(arrays[d], x.shape[d], d), common)
        flat = step if flat is None else flat * x.shape[d] + step
    rest = [d for d in range(x.ndim) if d not in given]
    values = np.broadcast_to(values, shape)
    values = np.moveaxis(values, range(at, at + len(common)), range(len(common)))
    rows = int(np.prod([x.shape[d] for d in given]))
    width = int(np.prod([x.shape[d] for d in rest]))
    if not x.size or not flat.size:
        return
    seen = x.transpose(given + rest)
    target = seen.reshape(rows, width)
    index_add_rows(target, flat.reshape(-1), values.reshape(flat.size, width))
    if not np.may_share_memory(target, x):
        seen[...] = target.reshape(seen.shape)


# ------------------------------------------------------------------------------------------------------- one dimension
@kernel
def index_select(x: ndarray, dim: int, positions: ndarray) -> ndarray:
    positions = positions.reshape(-1)
    if x.ndim == 0:
        picked_rows(positions, 1, "index out of range in self")
        return x.copy()
    if positions.size >= _FEW and x.size:
        out = memory.empty((*x.shape[:dim], positions.size, *x.shape[dim + 1:]), x.dtype)
        if take_natively(x, dim, positions, out, False):
            return out
    return taken(x, dim, picked_rows(positions, x.shape[dim], "index out of range in self"))


@on_copy
def index_add_into(x: ndarray, dim: int, positions: ndarray, source: ndarray, alpha: Any) -> None:
    positions = positions.reshape(-1)
    if dim == 0 and x.ndim and alpha == 1 and positions.size and x.size and not np.may_share_memory(source, x) \
            and add_natively(x, positions, source):
        return
    if x.ndim > 1 and positions.size:
        scatter.check_range(positions, x.shape[dim], dim)
    picked_rows(positions, x.shape[dim] if x.ndim else 1, "index out of range in self")
    if alpha != 1:
        source = np.multiply(source, alpha, dtype=source.dtype) if source.dtype.kind != "b" else source & bool(alpha)
    elif np.may_share_memory(source, x):
        source = source.copy()
    if source.dtype != x.dtype:
        source = source.astype(x.dtype)
    target, restore = as_rows(x, dim)
    index_add_rows(target, positions, as_rows(source, dim)[0].reshape(positions.size, target.shape[1]))
    restore()


@kernel
def added_rows(source: ndarray, positions: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Zeros of a shape with source's slices added at positions of the first dimension, which may be negative."""
    out = memory.empty(tuple(shape), source.dtype)
    if source.size and source.dtype.char in "fd" and add_natively(out, positions, source, True):
        return out
    out.fill(0)
    positions = wrapped(positions.reshape(-1), shape[0], 0)
    if out.size:
        index_add_rows(out.reshape(shape[0], -1), positions, source.reshape(positions.size, out.size // shape[0]))
    return out


def as_rows(x: ndarray, dim: int) -> tuple[ndarray, Callable[[], None]]:
    """x as a matrix whose rows are the slices of one dimension, and what writes a changed matrix back into x."""
    front = np.moveaxis(x, dim, 0) if x.ndim else x.reshape(1)
    matrix = front.reshape(front.shape[0], int(np.prod(front.shape[1:])))
    if not matrix.size or np.may_share_memory(matrix, x):
        return matrix, lambda: None

    def restore() -> None:
        front[...] = matrix.reshape(front.shape)

    return matrix, restore


@on_copy
def index_copy_into(x: ndarray, dim: int, positions: ndarray, source: ndarray) -> None:
    size = x.shape[dim] if x.ndim else 1
    positions = positions.reshape(-1)
    bad = positions[(positions < 0) | (positions >= size)]
    if bad.size:
        raise IndexError(f"index_copy_(): index {bad[0]} is out of bounds for dimension {dim} with size {size}")
    if np.may_share_memory(source, x):
        source = source.copy()
    if not x.ndim:
        if positions.size:
            x[...] = source.reshape(-1)[-1]
        return
    if source.ndim == x.ndim and positions.size and put_natively(x, dim, positions, source, False):
        return
    np.moveaxis(x, dim, 0)[positions] = np.moveaxis(source, dim, 0) if source.ndim else source


@on_copy
def index_fill_into(x: ndarray, dim: int, positions: ndarray, value: Any) -> None:
    positions = wrapped(positions.reshape(-1), x.shape[dim] if x.ndim else 1, dim)
    if not x.ndim:
        if positions.size:
            x[...] = value
        return
    np.moveaxis(x, dim, 0)[positions] = value


# ----------------------------------------------------------------------------------------------- flat positions, masks
@kernel
def take(x: ndarray, positions: ndarray) -> ndarray:
    flat = x.reshape(-1)
    if positions.size >= _FEW and x.size:
        out = memory.empty(positions.shape, x.dtype)
        if take_natively(flat, 0, positions, out, True):
            return out
    return taken(flat, 0, _flat_positions(positions, x.size))


def _flat_positions(positions: ndarray, size: int) -> ndarray:
    if positions.size:
        for bad in (int(positions.min()), int(positions.max())):
            if not -size <= bad < size:
                raise IndexError(f"out of range: tried to access index {bad} on a tensor of {size} elements.")
    return positions


@on_copy
def put_into(x: ndarray, positions: ndarray, source: ndarray, accumulate: bool) -> None:
    positions = wrapped(_flat_positions(positions.reshape(-1), x.size), x.size, 0)
    source = source.reshape(-1)
    source = source.copy() if np.may_share_memory(source, x) else source
    flat = x.reshape(-1)
    if accumulate:
        scatter.add_at(flat, positions, source)
    else:
        flat[positions] = source
    if not np.may_share_memory(flat, x):
        x[...] = flat.reshape(x.shape)


def masked_fill_into(x: ndarray, mask: ndarray, value: Any) -> None:
    if not _fill_natively(x, mask, value, x):
        np.copyto(x, value, where=mask, casting="unsafe")


def masked_fill(x: ndarray, mask: ndarray, value: Any) -> ndarray:
    if x.size < _MANY and mask.shape == x.shape and x.dtype.char in "fd" and x.flags.c_contiguous and 1 not in x.shape:
        out = x.copy()
        np.putmask(out, mask, value)  # the same in two thirds of the time
        return out
    out = memory.empty(x.shape, x.dtype)
    if not _fill_natively(x, mask, value, out):
        np.copyto(out, x)
        np.copyto(out, value, where=mask, casting="unsafe")
    return out


def _fill_natively(x: ndarray, mask: ndarray, value: Any, out: ndarray) -> bool:
    """out = value where mask, else x; by native code, if the mask has x's shape or that of its last dimensions."""
    functions = library("index") if x.size >= _MANY and x.itemsize <= 8 else None
    if functions is None or not x.flags.c_contiguous or not mask.flags.c_contiguous or not mask.size:
        return False
    shape = mask.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    if x.shape[x.ndim - len(shape):] != shape:
        return False
    held = np.asarray(value).astype(x.dtype)
    fill = getattr(functions, f"fl_masked_fill_{8 * x.itemsize}")
    fill(x, mask, out, x.size // mask.size, mask.size, held)
    return True


add(masked_fill=masked_fill, masked_fill_into=masked_fill_into)


@kernel
def masked_select(x: ndarray, mask: ndarray) -> ndarray:
    if x.shape != mask.shape:
        x, mask = np.broadcast_arrays(x, mask)
    return x[mask].reshape(-1)


@on_copy
def masked_scatter_into(x: ndarray, mask: ndarray, source: ndarray) -> None:
    mask = np.broadcast_to(mask, x.shape)
    count = int(np.count_nonzero(mask))
    if count > source.size:
        raise RuntimeError(f"masked_scatter: Number of elements of source < number of ones in mask ({source.size} < {count})")
    x[mask] = source.reshape(-1)[:count].copy()


@kernel
def masked_scatter_backward(grad: ndarray, mask: ndarray, shape: tuple[int, ...]) -> ndarray:
    out = np.zeros(int(np.prod(shape, dtype=np.int64)), grad.dtype)
    picked = grad[np.broadcast_to(mask, grad.shape)]
    out[:picked.size] = picked.reshape(-1)
    return out.reshape(shape)


@kernel
def nonzero(x: ndarray) -> ndarray:
    if x.ndim == 0:
        return np.zeros((int(bool(x)), 0), _INT64)
    found = np.nonzero(x)
    out = memory.empty((x.ndim, found[0].size), _INT64)
    for d, column in enumerate(found):
        out[d] = column
    return out.T  # column by column, as PyTorch lays it out: nonzero(as_tuple=True) takes the columns


@kernel
def nonzero_static(x: ndarray, size: int, fill_value: int) -> ndarray:
    out = np.full((size, x.ndim), fill_value, _INT64)
    found = nonzero(x)[:size]
    out[:len(found)] = found
    return out



