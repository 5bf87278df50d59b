"""Picking, replacing and adding up elements by index arrays: x[i, j], index_select, embedding and the like (places.py)."""

from __future__ import annotations

import math
import struct
from typing import Any

from ..cpu.index.indexing import _common_shape
from ..geometry import broadcasts_to, indexed_shape, placed, value_shape_error
from . import faults
from .arrays import CudaArray, device_index, windows
from .backend import contiguous, copied
from .launch import launch
from .masks import nonzero
from .places import (
    INT64,
    RANGE,
    REPORTED,
    SMALL,
    add,
    apart,
    around,
    can_add,
    changing,
    checked,
    move,
    out_of_bounds,
    positions,
    single,
    taken,
    zeros,
)
from .rules import blank
from .table import kernel as enter


@enter("embedding", repeatable=True)
def embedding(weight: CudaArray, indices: CudaArray, *options: Any) -> CudaArray:
    return taken(weight, 0, indices, False, faults.site(IndexError, RANGE))


@enter("index_select", repeatable=True)
def index_select(x: CudaArray, dim: int, at: CudaArray) -> CudaArray:
    site = faults.site(IndexError, RANGE)
    if not x.ndim:
        return taken(x.reshape((1,)), 0, at.reshape((-1,)), False, site).reshape(())
    return taken(x, dim, at.reshape((-1,)), False, site)


@enter("take", repeatable=True)
def take(x: CudaArray, at: CudaArray) -> CudaArray:
    site = faults.site(IndexError, f"out of range: tried to access index {{}} on a tensor of {x.size} elements.")
    return taken(contiguous(x).reshape((x.size,)), 0, at, True, site)


@enter("embedding_dense_backward", repeatable=True)
def embedding_dense_backward(grad: CudaArray, indices: CudaArray, count: int, padding_idx: int,
                             scale_grad_by_freq: bool) -> Any:
    if not can_add(grad.dtype):
        return NotImplemented
    out = zeros((count, grad.shape[-1]), grad.dtype)
    skipped = padding_idx if padding_idx >= 0 else 1 << 62
    at = checked(indices, count, False, faults.site(IndexError, RANGE), skipped)
    add(out, at, grad, (1, count, grad.shape[-1]), by_count=scale_grad_by_freq)
    return out


@enter("added_rows", repeatable=True)
def added_rows(source: CudaArray, at: CudaArray, shape: Any) -> Any:
    if not can_add(source.dtype):
        return NotImplemented
    out = zeros(shape, source.dtype)
    at = checked(at, shape[0], True, faults.site(IndexError, out_of_bounds(0, shape[0])))
    add(out, at, source, (1, shape[0], math.prod(shape[1:])))
    return out


@changing("index_add")
def index_add(x: CudaArray, dim: int, at: CudaArray, source: CudaArray, alpha: Any) -> Any:
    if not can_add(x.dtype):
        return NotImplemented
    at = checked(at, around(x, dim)[1], False, faults.site(IndexError, RANGE))
    add(x, at, apart(source, x), around(x, dim), alpha=alpha)
    return None


@changing("index_copy")
def index_copy(x: CudaArray, dim: int, at: CudaArray, source: CudaArray) -> None:
    outer, size, inner = around(x, dim)
    site = faults.site(IndexError, f"index_copy_(): index {{}} is out of bounds for dimension {dim} with size {size}")
    source = contiguous(apart(source, x))
    at = positions(at)
    move("put", x, source, at, (outer, size, at.size, inner), False, site)


@changing("index_fill")
def index_fill(x: CudaArray, dim: int, at: CudaArray, value: Any) -> None:
    outer, size, inner = around(x, dim)
    at, site = positions(at), faults.site(IndexError, out_of_bounds(dim, size))
    move("put", x, single(value, x.dtype), at, (outer, size, at.size, inner), True, site, True)


@changing("index_reduce")
def index_reduce(x: CudaArray, dim: int, at: CudaArray, source: CudaArray, reduce: str, include_self: bool) -> Any:
    if not can_add(x.dtype, reduce):
        return NotImplemented
    at = checked(at, around(x, dim)[1], False, faults.site(IndexError, RANGE))
    add(x, at, apart(source, x), around(x, dim), reduce, include_self)
    return None


# -------------------------------------------------------------------------------------------------- x[i, j, mask], x[i] = v
def _expanded(shape: tuple[int, ...], indices: Any) -> list[Any]:
    """One array of positions or None per dimension: masks become the positions where they hold."""
    out: list[Any] = []
    for a in indices:
        if a is None or (a.dtype.kind != "b" and a.dtype.char != "B"):
            out.append(a if a is None or type(a) is CudaArray else copied(a, windows.empty(a.shape, INT64)))
            continue
        if type(a) is not CudaArray:
            a = copied(a, windows.empty(a.shape, a.dtype))
        at = len(out)
        for k in range(a.ndim):
            if at + k >= len(shape) or a.shape[k] != shape[at + k]:
                raise IndexError(f"The shape of the mask {list(a.shape)} at index {k} does not match the shape "
                                 f"of the indexed tensor {list(shape)} at index {at + k}")
        found = nonzero(a)
        out.extend([found[:, d] for d in range(a.ndim)] if a.ndim else [zeros((found.shape[0],), INT64)])
    if len(out) > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)} (got {len(out)})")
    return out


class _Spot:
    """Where index arrays point: x seen as (outer, size, inner) with one position for all indexed dimensions."""

    def __init__(self, x: CudaArray, indices: Any):
        arrays = _expanded(x.shape, indices)
        given, self.front = placed(arrays)
        self.arrays, self.given = arrays, given
        self.common = _common_shape(arrays) if given else ()
        self.shape = indexed_shape(x.shape, arrays, self.common) if given else x.shape
        together = bool(given) and given[-1] - given[0] + 1 == len(given)
        rest = [d for d in range(x.ndim) if d not in given]
        self.order = None if together else [*given, *rest]
        first = given[0] if together else 0
        moved = x.shape if together else tuple([x.shape[d] for d in self.order])
        end = first + len(given)
        self.sizes = math.prod(moved[:first]), math.prod(moved[first:end]), math.prod(moved[end:])
        self.at = self._positions(x)

    def _positions(self, x: CudaArray) -> CudaArray:
        made = None
        for d in self.given:
            at, size = self.arrays[d], x.shape[d]
            if at.shape != self.common or at.dtype != INT64 or not at.flags.c_contiguous:
                at = copied(at, windows.empty(self.common, INT64))
            sentence = out_of_bounds(d, size) if size else "index is out of bounds for dimension with size 0"
            site = faults.site(IndexError, sentence)
            if made is None:
                made = checked(at, size, True, site)
            elif at.size:
                before, made = made, windows.empty((at.size,), INT64)
                launch(SMALL, "joined", "pppll", at.size, struct.pack("4q", at.size, size, 0, 1), device_index(x)).run(
                    made, before, at, faults.address(), site)
        return made

    def seen(self, x: CudaArray) -> CudaArray:
        return x if self.order is None else x.transpose(self.order)


@enter("index", repeatable=True)
def index(x: CudaArray, indices: Any) -> Any:
    spot = _Spot(x, indices)
    if not spot.given:
        return copied(x, windows.empty(x.shape, x.dtype))
    out, source = windows.empty(spot.shape, x.dtype), contiguous(spot.seen(x))
    outer, size, inner = spot.sizes
    move("taken", out, source, spot.at, (outer, size, spot.at.size, inner), False, REPORTED)
    if x.flags.c_contiguous or any([i is not None and i.dtype.char in "?B" for i in indices]):
        return out
    wanted = blank("index", x, indices)  # PyTorch keeps the order of the dimensions in memory
    return out if wanted.flags.c_contiguous else copied(out, wanted)


@changing("index_put")
def index_put(x: CudaArray, indices: Any, values: CudaArray, accumulate: bool) -> Any:
    if accumulate and not can_add(x.dtype):
        return NotImplemented
    spot, values = _Spot(x, indices), apart(values, x)
    if not broadcasts_to(values.shape, spot.shape):
        raise value_shape_error(values.shape, spot.shape)
    if type(values) is not CudaArray:
        values = copied(values, windows.empty(values.shape, x.dtype))
    if values.shape != spot.shape or values.dtype != x.dtype or not values.flags.c_contiguous:
        values = copied(values, windows.empty(spot.shape, x.dtype))
    if not spot.given:
        raise NotImplementedError("index_put without indices on a CUDA device")
    target = contiguous(spot.seen(x))
    outer, size, inner = spot.sizes
    if accumulate:
        add(target, spot.at, values, spot.sizes)
    else:
        move("put", target, values, spot.at, (outer, size, spot.at.size, inner), False, REPORTED)
    if spot.order is not None:
        copied(target, spot.seen(x))
    return None


@changing("put")
def put(x: CudaArray, at: CudaArray, source: CudaArray, accumulate: bool) -> Any:
    site = faults.site(IndexError, f"out of range: tried to access index {{}} on a tensor of {x.size} elements.")
    source = contiguous(apart(source, x))
    if accumulate:
        if not can_add(x.dtype):
            return NotImplemented
        add(x, checked(at, x.size, True, site), source, (1, x.size, 1))
    else:
        at = positions(at)
        move("put", x, source, at, (1, x.size, at.size, 1), True, site)
    return None


@enter("one_hot", repeatable=True)
def one_hot(indices: CudaArray, classes: int) -> CudaArray:
    out, at = windows.empty((*indices.shape, classes), INT64), positions(indices)
    if out.size:
        launch(SMALL, "one_hot", "ppll", out.size, struct.pack("4q", at.size, classes, 0, 0), device_index(at)).run(
            out, at, faults.address(), faults.site(RuntimeError, "Class values must be smaller than num_classes."))
    return out
