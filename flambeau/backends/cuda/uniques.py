"""Distinct elements, of sorted ones or of runs. How many there are only the device knows: that is waited for."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import CudaArray, windows
from .backend import call, contiguous, copied, fill
from .masks import _found
from .places import BOOL, INT64, REPORTED, move, taken
from .pointwise import COMPUTED
from .sorts import sorted_rows
from .table import kernel as enter


def _runs(flat: CudaArray) -> tuple[CudaArray, CudaArray, CudaArray]:
    """(one element of each run, the run's number for every element, lengths) of elements where equal ones lie together."""
    n = flat.size
    new, numbers = windows.empty((n,), BOOL), windows.empty((n,), INT64)
    if not n:
        return windows.empty((0,), flat.dtype), numbers, windows.empty((0,), INT64)
    fill(new, True)
    if n > 1:
        copied(call("ne", (flat[1:], flat[:-1])), new[1:])
    starts = _found(new, False)
    ends = windows.empty(starts.shape, INT64)
    fill(ends, n)
    if starts.size > 1:
        copied(starts[1:], ends[:-1])
    numbers = call("sub", (call("cumsum", (new, 0, None)), np.asarray(1, INT64)))
    return taken(flat, 0, starts, False, REPORTED), numbers, call("sub", (ends, starts))


@enter("unique")
def unique(x: CudaArray) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    ordered, order = sorted_rows(contiguous(x).reshape((x.size,)))
    values, numbers, counts = _runs(ordered)
    inverse = windows.empty((x.size,), INT64)
    move("put", inverse, numbers, order, (1, x.size, x.size, 1), False, REPORTED)
    return values, inverse.reshape(x.shape), counts


@enter("unique_consecutive")
def unique_consecutive(x: CudaArray) -> Any:
    if x.dtype not in COMPUTED:
        return NotImplemented
    values, numbers, counts = _runs(contiguous(x).reshape((x.size,)))
    return values, numbers.reshape(x.shape), counts
