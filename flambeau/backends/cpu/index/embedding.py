"""Look-ups of rows, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from .. import memory
from ..halves import wide
from ..table import kernel
from .rows import add_natively, dense_positions, in_range, index_add_rows, take_natively

_FEW = 1 << 16  # rows times indices up to which a product with ones and zeros is faster than adding row by row
_MESSAGE = "index out of range in self"


def taken(weight: ndarray, indices: ndarray) -> ndarray:
    """weight[indices], with PyTorch's error for an index that is not there."""
    shape = indices.shape + weight.shape[1:]
    if indices.size and weight.size:
        out = memory.empty(shape, weight.dtype)
        if take_natively(weight, 0, indices, out, False):
            return out
    if indices.size and not in_range(indices, weight.shape[0]):
        raise IndexError(_MESSAGE)
    if not indices.size or not weight.size:
        return np.empty(shape, weight.dtype)
    # "clip" lets NumPy write straight into `out`; the range was checked above.
    return np.take(weight, indices, axis=0, out=out, mode="clip")


@kernel
def embedding(weight: ndarray, indices: ndarray, padding_idx: int, scale_grad_by_freq: bool, sparse: bool) -> ndarray:
    return taken(weight, indices)


def _frequencies(indices: ndarray, count: int, dtype: np.dtype) -> ndarray:
    return np.bincount(indices, minlength=count)[indices].astype(dtype)[:, None]


@kernel
def embedding_rows(grad: ndarray, indices: ndarray, count: int, padding_idx: int,
                   scale_grad_by_freq: bool) -> tuple[ndarray, ndarray]:
    """(indices, gradients per index) without the padding's."""
    flat = indices.reshape(-1).astype(np.int64, copy=False)
    rows = grad.reshape(flat.size, grad.shape[-1])
    if padding_idx >= 0:
        keep = flat != padding_idx
        if not keep.all():
            flat, rows = flat[keep], rows[keep]
    if scale_grad_by_freq and flat.size:
        rows = rows / _frequencies(flat, count, wide(rows).dtype)
    return flat, rows.astype(grad.dtype, copy=False)


@kernel
def embedding_dense_backward(grad: ndarray, indices: ndarray, count: int, padding_idx: int,
                             scale_grad_by_freq: bool) -> ndarray:
    if not scale_grad_by_freq and grad.dtype.char in "fd" and grad.size:
        out = memory.empty((count, grad.shape[-1]), grad.dtype)
        if add_natively(out, indices, grad, True, padding_idx):
            return out
    flat, rows = embedding_rows(grad, indices, count, padding_idx, scale_grad_by_freq)
    if 0 < count * flat.size <= _FEW and rows.dtype.char in "fd":
        chosen = np.zeros((count, flat.size), rows.dtype)
        chosen[flat, np.arange(flat.size)] = 1
        made = np.dot(chosen, rows)
        if np.isfinite(made.sum()):  # an inf in one row would make nan of all the others
            return made
    out = memory.empty((count, grad.shape[-1]), wide(grad).dtype)
    out.fill(0)
    if flat.size and out.size:
        index_add_rows(out, flat, np.ascontiguousarray(wide(rows)))
    return out if out.dtype == grad.dtype else out.astype(grad.dtype)


@kernel
def embedding_renorm(weight: ndarray, indices: ndarray, max_norm: float, norm_type: float) -> ndarray:
    """The rows to change and their new values, stacked: every used row whose norm is above max_norm is shrunk."""
    rows = np.unique(indices)
    if rows.size and not in_range(rows, weight.shape[0]):
        raise IndexError(_MESSAGE)
    values = wide(weight[rows])
    norms = np.linalg.norm(values, ord=norm_type, axis=1)
    over = norms > max_norm
    weight[rows[over]] = (values[over] * (max_norm / (norms[over] + 1e-7))[:, None]).astype(weight.dtype)
    return weight


# ------------------------------------------------------------------------------------------------- sparse gradients
def _sorted(places: ndarray, limit: int) -> Any:
    """(native functions, order, starts, distinct places) of positions below limit; None without native code."""
    functions = library("index")
    n = places.size
    if functions is None or not 0 < n < 1 << 31:
        return None
    places = dense_positions(places)
    order, starts, found = np.empty(n, np.int32), np.empty(n + 1, np.int32), np.empty(n, np.int64)
    count = functions.fl_sort_positions(places, n, limit, order, starts, found)
    return None if count < 0 else (functions, order, starts, found[:count])


@kernel
def coalesced_rows(places: ndarray, values: ndarray, limit: int) -> tuple[ndarray, ndarray]:
    """(the distinct places in order, the sum of the values at each); places are below limit."""
    found = _sorted(places, limit) if values.dtype.char in "fd" else None
    if found is not None:
        functions, order, starts, distinct = found
        values = np.ascontiguousarray(values)
        out = memory.empty((distinct.size, *values.shape[1:]), values.dtype)
        add_up = functions.fl_sum_rows_f32 if values.dtype.char == "f" else functions.fl_sum_rows_f64
        add_up(values, order, starts, out, distinct.size, values.size // places.size)
        return distinct.copy(), out
    distinct, where = np.unique(places, return_inverse=True)
    out = np.zeros((distinct.size, *values.shape[1:]), values.dtype)
    index_add_rows(out.reshape(distinct.size, -1), where, values.reshape(places.size, -1))
    return distinct, out


@kernel
def sparse_adam(table: ndarray, average: ndarray, squares: ndarray, places: ndarray, values: ndarray, rate: float,
                beta1: float, beta2: float, eps: float, maximize: bool) -> None:
    """Adam's step, in place, for the rows that have a gradient. All arrays are contiguous and of one dtype."""
    found = _sorted(places, len(table)) if values.dtype.char in "fd" else None
    if found is not None:
        functions, order, starts, distinct = found
        values = np.ascontiguousarray(values)
        step = functions.fl_sparse_adam_f32 if values.dtype.char == "f" else functions.fl_sparse_adam_f64
        step(table, average, squares, values, order, starts,
             distinct, distinct.size, values.size // places.size, rate, 1 - beta1, 1 - beta2, eps, maximize)
        return
    rows, grads = coalesced_rows(places, values, len(table))
    grads = np.negative(grads) if maximize else grads
    mean, square = average[rows], squares[rows]
    mean += (grads - mean) * (1 - beta1)
    square += (grads * grads - square) * (1 - beta2)
    average[rows], squares[rows] = mean, square
    table[rows] -= rate * (mean / (np.sqrt(square) + eps))


# -------------------------------------------------------------------------------------------------------------- bags
def _bags(indices: ndarray, offsets: ndarray, include_last: bool) -> tuple[ndarray, int]:
    """(the bag of each index, how many bags)."""
    starts = offsets[:-1] if include_last else offsets
    ends = np.append(starts[1:], offsets[-1] if include_last else indices.size) if starts.size else starts
    bags = np.zeros(indices.size, np.int64)
    inner = starts[1:]
    np.add.at(bags, inner[inner < indices.size], 1)
    bags = np.cumsum(bags)
    if include_last and offsets.size:
        bags = np.where(np.arange(indices.size) < ends[-1], bags, -1)
    return bags, starts.size


def _segments(bags: ndarray) -> tuple[ndarray, ndarray]:
    """(where each run of one bag starts, which bag it is)."""
    if not bags.size:
        return bags, bags
    starts = np.flatnonzero(np.concatenate(([True], bags[1:] != bags[:-1])))
    return starts, bags[starts]


def _outside(indices: ndarray, rows: int, places: bool) -> RuntimeError:
    """Names the first index without a row. places: the way PyTorch says it of bags that its quick kernels take."""
    place = int(np.flatnonzero((indices < 0) | (indices >= rows))[0])
    value = indices.reshape(-1)[place]
    return RuntimeError(f"Index {place} of input takes value {value} which is not in the valid range [0, {rows})" if places else
                        f"embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {value}")


@kernel
def embedding_bag(weight: ndarray, indices: ndarray, offsets: ndarray, mode: int, include_last: bool, padding_idx: int,
                  sample_weights: ndarray | None, scale_grad_by_freq: bool,
                  sparse: bool) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """(bags, bag of each index (-1: padding), sizes of the bags, for max: which index won)."""
    if indices.size and not in_range(indices, weight.shape[0]):
        raise _outside(indices, weight.shape[0], mode != 2 and padding_idx < 0)
    bags, count = _bags(indices, offsets, include_last)
    keep = (bags >= 0) & (indices != padding_idx) if padding_idx >= 0 else bags >= 0
    used, places = indices[keep], bags[keep]
    rows = wide(taken(weight, used))
    if sample_weights is not None:
        rows = rows * wide(sample_weights)[keep][:, None]
    sizes = np.bincount(places, minlength=count).astype(np.int64) if count else np.zeros(0, np.int64)
    out = np.zeros((count, weight.shape[1]), rows.dtype)
    starts, which = _segments(places)
    winners = np.zeros((count, weight.shape[1]) if mode == 2 else (0,), np.int64)
    if starts.size:
        if mode == 2:
            out[which] = np.maximum.reduceat(rows, starts, axis=0)
            at = np.where(rows == out[places], np.arange(used.size)[:, None], used.size - 1)
            winners[which] = used[np.minimum.reduceat(at, starts, axis=0)]
        else:
            out[which] = np.add.reduceat(rows, starts, axis=0)
            if mode == 1:
                out /= np.maximum(sizes, 1)[:, None]
    return out.astype(weight.dtype, copy=False), np.where(keep, bags, -1), sizes, winners


@kernel
def embedding_bag_rows(grad: ndarray, indices: ndarray, bags: ndarray, sizes: ndarray, winners: ndarray, mode: int,
                       count: int, scale_grad_by_freq: bool, sample_weights: ndarray | None) -> Any:
    """(indices, gradients per index) of sum and mean."""
    keep = bags >= 0
    used, places = indices[keep].astype(np.int64, copy=False), bags[keep]
    rows = wide(grad)[places]
    if sample_weights is not None:
        rows = rows * wide(sample_weights)[keep][:, None]
    if mode == 1:
        rows = rows / np.maximum(sizes, 1).astype(rows.dtype)[places][:, None]
    if scale_grad_by_freq and used.size:
        rows = rows / _frequencies(used, count, rows.dtype)
    return used, rows.astype(grad.dtype, copy=False)


@kernel
def embedding_bag_backward(grad: ndarray, indices: ndarray, bags: ndarray, sizes: ndarray, winners: ndarray, mode: int,
                           count: int, scale_grad_by_freq: bool, sample_weights: ndarray | None) -> ndarray:
    out = np.zeros((count, grad.shape[1]), wide(grad).dtype)
    if mode == 2:
        filled = np.flatnonzero(sizes)
        np.add.at(out, (winners[filled], np.arange(grad.shape[1])[None]), wide(grad)[filled])
        return out.astype(grad.dtype, copy=False)
    used, rows = embedding_bag_rows(grad, indices, bags, sizes, winners, mode, count, scale_grad_by_freq, sample_weights)
    if used.size and out.size:
        index_add_rows(out, used, np.ascontiguousarray(wide(rows)))
    return out.astype(grad.dtype, copy=False)


@kernel
def one_hot(indices: ndarray, classes: int) -> ndarray:
    functions = library("index")
    if functions is not None and indices.size:
        indices, out = dense_positions(indices), memory.empty((*indices.shape, classes), np.dtype(np.int64))
        if not functions.fl_one_hot(indices, out, indices.size, classes):
            return out
    out = np.zeros((*indices.shape, classes), np.int64)
    np.put_along_axis(out, indices.astype(np.int64)[..., None], 1, axis=-1)
    return out
