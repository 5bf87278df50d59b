"""CPU kernels: conversion, views and rearranging."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy import ndarray

from ...geometry import padded_shape
from ...strides import CHANNEL_ORDER, expand_strides, format_strides, unsqueeze_stride, view_strides
from .. import arrays, memory
from ..arrays import cast_into, restride, strides
from ..creation import zeros
from ..parallel import LARGE, NATIVE_COPY, copy_into
from ..table import KERNELS, add, kernel


# ------------------------------------------------------------------------------------------------------ conversion
def _blank(x: ndarray, dtype: np.dtype, fmt: str) -> ndarray:
    """Memory for a copy of x in a memory format."""
    if fmt == "preserve":
        return memory.like(x, dtype)
    return _target(x.shape, dtype, fmt)


@kernel
def clone(x, fmt):
    if fmt == "contiguous" or (fmt == "preserve" and x.flags.c_contiguous and 1 not in x.shape and x.size):
        if x.nbytes < memory.POOLED_BYTES:
            return x.copy()
        out = memory.empty(x.shape, x.dtype)
    else:
        out = _blank(x, x.dtype, fmt)
    if out.flags.c_contiguous and x.ndim > 1 and x.nbytes > _BLOCKED and x.strides[-1] > 64:
        _copy_transposed(out, x)
    else:
        copy_into(out, x)
    return out


_BLOCKED = 1 << 16


def _copy_transposed(out: ndarray, x: ndarray) -> None:
    """np.copyto for an x that runs across memory: a few columns at a time stay in the cache (four times as fast)."""
    for j in range(0, x.shape[-1], 8):
        out[..., j:j + 8] = x[..., j:j + 8]


@kernel
def clone_strided(x, stride):
    out = arrays.empty_strided(x.shape, stride, x.dtype)
    if arrays.Storage(out).nbytes != x.nbytes:
        arrays.storage_bytes(out).fill(0)  # the holes between the elements
    np.copyto(out, x)
    return out


@kernel
def _to_copy(x, dtype, fmt):
    if x.nbytes < 65536 and fmt == "preserve" and x.dtype.kind in "biuf" and dtype.kind in "biuf" and (
            x.flags.c_contiguous and x.size and 1 not in x.shape):
        return x.astype(dtype)  # the same in a third of the time
    out = _blank(x, dtype, fmt)
    cast_into(out, x)
    return out


@kernel
def fill(x, value):
    out = memory.like(x)
    np.copyto(out, value, casting="unsafe")
    return out


# ----------------------------------------------------------------------------------------------------------- views
# NumPy's own indexing where it gives PyTorch's strides, which it does for arrays that are not empty; else restride.
_ALL = slice(None)
_BACKWARDS = slice(None, None, -1)


@kernel
def as_strided(x, size, stride, storage_offset, geometry=None):
    return arrays.as_strided(x, size, stride, storage_offset)


@kernel
def alias(x):
    return x.view()


@kernel
def view(x, shape, stride=None):
    if x.flags.c_contiguous and x.size and 1 not in x.shape:
        return x.reshape(shape)
    steps = view_strides(x.shape, strides(x), shape)
    if steps is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension "
                           "spans across two contiguous subspaces). Use .reshape(...) instead.")
    return restride(x, shape, steps)


@kernel
def view_dtype(x, dtype, shape, stride):
    size, goal = x.itemsize, dtype.itemsize
    if size == goal and x.size:
        return x.view(dtype)
    holder = memory.owner(x)
    start = 0 if holder is x else x.ctypes.data - holder.ctypes.data
    return arrays._window(holder, shape, dtype, start, [s * goal for s in stride])


@kernel
def expand(x, shape):
    return restride(x, shape, expand_strides(x.shape, strides(x), shape))


@kernel
def permute(x, dims):
    if x.size:
        return x.transpose(dims)
    steps = strides(x)
    return restride(x, tuple([x.shape[d] for d in dims]), tuple([steps[d] for d in dims]))


@kernel
def transpose(x, dim0, dim1):
    if x.size and x.ndim:
        return x.swapaxes(dim0, dim1)
    dims = list(range(x.ndim))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return permute(x, dims) if dims else x.view()


@kernel
def t(x):
    return transpose(x, 0, 1) if x.ndim == 2 else x.view()


@kernel
def select(x, dim, index):
    if x.size:
        return x[(_ALL,) * dim + (index, ...)]
    steps = strides(x)
    return restride(x, x.shape[:dim] + x.shape[dim + 1:], steps[:dim] + steps[dim + 1:], index * steps[dim])


@kernel
def slice_(x, dim, start, end, step):
    length = max(0, (end - start + step - 1) // step)
    if x.size and length:
        return x[(_ALL,) * dim + (slice(start, end, step),)]
    steps = list(strides(x))
    skip = start * steps[dim]
    steps[dim] *= step
    return restride(x, x.shape[:dim] + (length,) + x.shape[dim + 1:], tuple(steps), skip)


@kernel
def unfold(x, dimension, size, step):
    steps = strides(x)
    if not x.ndim:
        return restride(x, (size,), (1,))
    shape = list(x.shape)
    shape[dimension] = (shape[dimension] - size) // step + 1
    moved = list(steps)
    moved[dimension] *= step
    return restride(x, (*shape, size), (*moved, steps[dimension]))


@kernel
def diagonal(x, offset, dim1, dim2):
    steps = strides(x)
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    skip = 0 if not length else offset * steps[dim2] if offset >= 0 else -offset * steps[dim1]
    keep = [i for i in range(x.ndim) if i not in (dim1, dim2)]
    return restride(x, (*[x.shape[i] for i in keep], length), (*[steps[i] for i in keep], steps[dim1] + steps[dim2]), skip)


@kernel
def squeeze(x, dims):
    """Drops the given dimensions that have length one."""
    drop = tuple([d for d in dims if x.ndim and x.shape[d] == 1])
    if x.size:
        return x.squeeze(drop) if drop else x.view()
    keep = [i for i in range(x.ndim) if i not in drop]
    steps = strides(x)
    return restride(x, tuple([x.shape[i] for i in keep]), tuple([steps[i] for i in keep]))


@kernel
def unsqueeze(x, dim):
    shape, steps = x.shape, strides(x)
    step = unsqueeze_stride(shape, steps, dim)
    return restride(x, shape[:dim] + (1,) + shape[dim:], steps[:dim] + (step,) + steps[dim:])


@kernel
def split_with_sizes(x, split_sizes, dim):
    out, start = [], 0
    for n in split_sizes:
        out.append(slice_(x, dim, start, start + n, 1))
        start += n
    return out


@kernel
def split(x, split_size, dim):
    total = x.shape[dim]
    if not split_size:
        return [x.view()]
    starts = range(0, total, split_size)
    return [slice_(x, dim, start, min(start + split_size, total), 1) for start in starts] or [x.view()]


@kernel
def unbind(x, dim):
    return [select(x, dim, i) for i in range(x.shape[dim])]


_VIEWS = (as_strided, alias, view, expand, permute, transpose, t, select, unfold, diagonal, squeeze, unsqueeze,
          split_with_sizes, split, unbind)


def _copying(make: Any) -> Any:
    def copying(*args):
        made = make(*args)
        return [m.copy() for m in made] if made.__class__ is list else np.array(made, order="C", copy=True)

    return copying


add(**{f"{f.__name__}_copy": _copying(f) for f in _VIEWS}, slice_copy=_copying(slice_))


# ------------------------------------------------------------------------------------------- derivatives of views
@kernel
def select_backward(grad, shape, dim, index):
    out = zeros(tuple(shape), grad.dtype)
    out[(_ALL,) * dim + (index,)] = grad
    return out


@kernel
def slice_backward(grad, shape, dim, start, end, step):
    out = zeros(tuple(shape), grad.dtype)
    out[(_ALL,) * dim + (slice(start, end, step),)] = grad
    return out


@kernel
def diagonal_backward(grad, shape, offset, dim1, dim2):
    out = zeros(tuple(shape), grad.dtype)
    np.copyto(diagonal(out, offset, dim1, dim2), grad)
    return out


@kernel
def unfold_backward(grad, shape, dimension, size, step):
    """Adds each window where it was taken from; windows may overlap, so one offset within the window at a time."""
    out = zeros(tuple(shape), grad.dtype)
    if not out.ndim:
        out[()] = grad.sum() if grad.size else 0
        return out
    count = grad.shape[dimension]
    for i in range(size):
        piece = out[(_ALL,) * dimension + (slice(i, i + (count - 1) * step + 1, step),)] if count else None
        if piece is not None:
            piece += grad[..., i]
    return out


@kernel
def restore(grad, source, target, counted):
    """Puts grad into memory by one geometry (size, stride, offset) and reads it back by another.

    Elements that fall on one place are added. `counted` is the geometry of the view's input: where several of its
    elements share a place, each gets an equal part.
    """
    shifts = [g[2] for g in (source, target)]
    low = min(shifts)
    reach = max(_reach(g) for g in (source, target)) - low
    flat = np.zeros(max(reach, 0), grad.dtype)
    source, target, counted = [(tuple(g[0]), tuple(g[1]), g[2] - low) for g in (source, target, counted)]
    if grad.size:
        if _overlapping(source):
            np.add.at(flat, arrays.element_numbers(source[0], source[1]) + source[2], grad)
        else:
            restride(flat, *source)[...] = grad
    if flat.size and _overlapping(counted):
        count = np.zeros(flat.size, np.int64)
        np.add.at(count, arrays.element_numbers(counted[0], counted[1]) + counted[2], 1)
        flat /= np.maximum(count, 1).astype(flat.dtype)
    out = restride(flat, *target) if 0 not in target[0] else np.zeros(target[0], grad.dtype)
    return out.copy() if _overlapping(target) else out


def _reach(geometry) -> int:
    size, stride, offset = geometry
    return offset if 0 in size else offset + 1 + sum((n - 1) * s for n, s in zip(size, stride))


def _overlapping(geometry) -> bool:
    dims = sorted((s, n) for n, s in zip(geometry[0], geometry[1]) if n > 1)
    reach = 0
    for stride, n in dims:
        if stride <= reach:
            numbers = arrays.element_numbers(geometry[0], geometry[1])
            return np.unique(numbers).size < numbers.size
        reach += stride * (n - 1)
    return False


# ---------------------------------------------------------------------------------------------------- *_scatter
def _scattered(x: ndarray, src: ndarray, make: Any, *args: Any) -> ndarray:
    out = _kept(x)
    np.copyto(out, x)
    np.copyto(make(out, *args), src, casting="unsafe")
    return out


def _kept(x: ndarray) -> ndarray:
    """Memory of x's strides, holes included, unless elements of x share a place."""
    if arrays.is_dense(x) or arrays.has_overlap(x):
        return memory.like(x)
    steps = strides(x)
    return restride(memory.empty((_reach((x.shape, steps, 0)),), x.dtype), x.shape, steps)


@kernel
def select_scatter(x, src, dim, index):
    return _scattered(x, src, select, dim, index)


@kernel
def slice_scatter(x, src, dim, start, end, step):
    return _scattered(x, src, slice_, dim, start, end, step)


@kernel
def diagonal_scatter(x, src, offset, dim1, dim2):
    return _scattered(x, src, diagonal, offset, dim1, dim2)


@kernel
def as_strided_scatter(x, src, size, stride, storage_offset):
    """A copy of x's memory, seen by x's geometry, with src written at another geometry of it."""
    steps, start = strides(x), arrays.storage_offset(x)
    reach = max(_reach((x.shape, steps, start)), _reach((size, stride, storage_offset)))
    flat = np.zeros(reach, x.dtype)
    mine = restride(flat, x.shape, steps, start)
    mine[...] = x
    restride(flat, tuple(size), tuple(stride), storage_offset)[...] = src
    return mine


@kernel
def sum_to_size(x, dims, shape):
    """The sum over `dims`, in the given shape."""
    if x.size < 4096 and x.dtype.char in "fd":  # what the kernel does for accuracy only matters for more
        return np.add.reduce(x, dims, keepdims=True).reshape(shape)
    return KERNELS["sum"](x, dims, True).reshape(shape)


add(narrow_copy=lambda x, dim, start, length: slice_(x, dim, start, start + length, 1).copy())


# --------------------------------------------------------------------------------------------------------- joining
def _target(shape, dtype: np.dtype, fmt: str) -> ndarray:
    if fmt not in CHANNEL_ORDER:
        return memory.empty(tuple(shape), dtype)
    return arrays.empty_strided(shape, format_strides(shape, fmt), dtype)


def _put(out: ndarray, x: ndarray) -> None:
    """Writes to fresh memory: large pieces on all cores."""
    if x.size >= NATIVE_COPY and x.dtype is out.dtype:
        copy_into(out, x)
    else:
        cast_into(out, x)


@kernel
def cat(arrays_, dim, dtype, fmt):
    if len(arrays_) < 64 and fmt == "contiguous" and all([x.flags.c_contiguous and x.dtype is dtype and x.ndim > 1
                                                          and x.nbytes < _BLOCKED for x in arrays_]):
        return np.concatenate(arrays_, dim)
    parts = [x for x in arrays_ if x.shape != (0,)]
    if not parts:
        return np.empty((0,), dtype)
    shape = list(parts[0].shape)
    shape[dim] = sum(x.shape[dim] for x in parts)
    out = _target(shape, dtype, fmt)
    at = 0
    front = (_ALL,) * dim
    for x in parts:
        n = x.shape[dim]
        _put(out[(*front, slice(at, at + n))], x)
        at += n
    return out


@kernel
def stack(arrays_, dim, dtype):
    shape = arrays_[0].shape
    out = memory.empty(shape[:dim] + (len(arrays_),) + shape[dim:], dtype)
    if not dim and shape and out.size < LARGE and all([type(x) is ndarray and x.dtype is dtype for x in arrays_]):
        np.concatenate(arrays_, out=out.reshape(len(arrays_) * shape[0], *shape[1:]))  # a batch of samples
        return out
    front = (_ALL,) * dim
    for i, x in enumerate(arrays_):
        _put(out[(*front, i, ...)], x)
    return out


@kernel
def block_diag(arrays_, dtype):
    blocks = [np.atleast_2d(x) for x in arrays_]
    out = zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)), dtype)
    row, column = 0, 0
    for b in blocks:
        out[row:row + b.shape[0], column:column + b.shape[1]] = b
        row, column = row + b.shape[0], column + b.shape[1]
    return out


# ------------------------------------------------------------------------------------------- repeating, rearranging
@kernel
def repeat(x, repeats):
    """Written once per element: the output is seen as (count, length) pairs and the input broadcast into it."""
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    out = memory.empty(tuple([n * r for n, r in zip(shape, repeats)]), x.dtype)
    pairs = [k for n, r in zip(shape, repeats) for k in (r, n)]
    np.copyto(out.reshape(pairs), x.reshape([k for n in shape for k in (1, n)]))
    return out


@kernel
def interleave(repeats):
    if (repeats < 0).any():
        raise RuntimeError("repeats can not be negative")
    return np.repeat(np.arange(repeats.size, dtype=repeats.dtype), repeats.reshape(-1))


def _runs(shift: int, n: int) -> list[tuple[slice, slice]]:
    return [(slice(shift, n), slice(0, n - shift)), (slice(0, shift), slice(n - shift, n))]


@kernel
def roll(x, shifts, dims):
    if not x.ndim or not x.size:
        return x.copy()
    if not dims:
        return roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    total = [0] * x.ndim
    for s, d in zip(shifts, dims):
        total[d] += s
    out = memory.empty(x.shape, x.dtype)
    # Each rolled dimension falls into two runs: what moved on, and what came back at the start.
    runs = [_runs(s % n, n) if s % n else [(_ALL, _ALL)] for s, n in zip(total, x.shape)]
    for combination in itertools.product(*runs):
        out[tuple([to for to, _ in combination])] = x[tuple([source for _, source in combination])]
    return out


@kernel
def flip(x, dims):
    steps = [_ALL] * x.ndim
    for d in dims if x.ndim else ():
        steps[d] = _BACKWARDS
    turned = x[tuple(steps)]
    if x.flags.c_contiguous and 0 < x.nbytes < memory.POOLED_BYTES and 1 not in x.shape:
        return turned.copy()  # half the time of what follows
    out = memory.like(x)
    copy_into(out, turned)
    return out


@kernel
def rot90(x, k, dims):
    first, second = dims
    if k == 0:
        return x.copy()
    if k == 2:
        return flip(x, dims)
    return transpose(flip(x, (second if k == 1 else first,)), first, second)


def _numbers(n: int) -> ndarray:
    return np.arange(n, dtype=np.int32)


def _triangular(x: ndarray, keep: ndarray) -> ndarray:
    out = zeros(x.shape, x.dtype)
    np.copyto(out, x, where=keep)
    return out


@kernel
def tril(x, diagonal):
    rows, columns = x.shape[-2:]
    return _triangular(x, _numbers(columns) <= _numbers(rows)[:, None] + np.int32(min(max(diagonal, -rows), columns)))


@kernel
def triu(x, diagonal):
    rows, columns = x.shape[-2:]
    return _triangular(x, _numbers(columns) >= _numbers(rows)[:, None] + np.int32(min(max(diagonal, -rows), columns)))


@kernel
def diag_embed(x, offset, dim1, dim2):
    length = x.shape[-1] + abs(offset)
    shape = list(x.shape[:-1])
    for d in sorted((dim1, dim2)):
        shape.insert(d, length)
    out = zeros(tuple(shape), x.dtype)
    np.copyto(diagonal(out, offset, dim1, dim2), x)
    return out


@kernel
def constant_pad_nd(x, pad, value):
    before, after = [0] * x.ndim, [0] * x.ndim
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    source, target, shape = [], [], padded_shape(x.shape, pad)
    for n, a, b in zip(x.shape, before, after):
        source.append(slice(max(-a, 0), n - max(-b, 0)))
        target.append(slice(max(a, 0), n + a + b - max(b, 0)))
    if any(n for n in pad if n > 0):
        out = memory.empty(shape, x.dtype)
        out.fill(value)
    else:
        out = memory.empty(shape, x.dtype)
    if all(s.stop > s.start for s in source):
        out[tuple(target)] = x[tuple(source)]
    elif out.size:
        out.fill(value)
    return out


@kernel
def combination_indices(x, r, repeated):
    pick = itertools.combinations_with_replacement if repeated else itertools.combinations
    rows = np.array(list(pick(range(x.shape[0]), r)), np.int64).reshape(-1, r)
    return np.ascontiguousarray(rows.T)
