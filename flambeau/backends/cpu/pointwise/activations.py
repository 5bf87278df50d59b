"""Activations that are more than the C expression in their row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ..parallel import NATIVE
from ..table import kernel
from .functions import sigmoid
from .loops import run

_ZERO = {np.dtype(t): np.zeros((), t) for t in (np.float32, np.float64)}


@kernel
def threshold_backward(grad: ndarray, x: ndarray, limit: Any) -> ndarray:
    """grad where x is above the limit or nan, else 0."""
    zero = _ZERO.get(x.dtype)
    if zero is not None and limit == 0 and grad.size < NATIVE and grad.dtype is x.dtype and grad.shape == x.shape and (
            grad.flags.c_contiguous):
        out = grad.copy()
        np.putmask(out, x <= zero, zero)
        return out
    if grad.size > 1 and (made := run("threshold_backward", grad, x, limit)) is not None:
        return made
    return np.where(x <= limit, grad.dtype.type(0), grad)


@kernel
def glu(x: ndarray, axis: int) -> ndarray:
    value, gate = np.split(x, 2, axis=axis)
    wide = np.float32 if x.dtype.itemsize < 4 else x.dtype
    made = sigmoid(np.ascontiguousarray(gate, dtype=wide))
    np.multiply(made, value, out=made)
    return made if made.dtype == x.dtype else made.astype(x.dtype)
