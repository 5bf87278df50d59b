"""x @ w.T + b and its gradients, into pooled memory: native where that pays (gemm.py), else by BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from .. import memory
from ..halves import narrow, wide
from ..linalg import gemm
from ..linalg.matmul import mm
from ..reduce.reductions import sum_
from ..table import kernel

_POOLED = 1 << 16
_dot, _add, _matmul = np.dot, np.add, np.matmul


def _product(a: ndarray, b: ndarray) -> ndarray:
    if a.dtype.char not in "fdFD":
        return mm(a, b)
    if a.shape[1] == 1:  # as in linalg/matmul.py
        return np.multiply(a, b)
    made = gemm.mm(a, b) if a.size * b.shape[1] >= gemm.LEAST else None
    if made is not None:
        return made
    if a.shape[0] * b.shape[1] < _POOLED:
        return _dot(a, b)
    return _matmul(a, b, out=memory.empty((a.shape[0], b.shape[1]), a.dtype))


@kernel
def linear(b: ndarray | None, x: ndarray, w: ndarray) -> ndarray:
    if x.dtype.char not in "fdFD":
        return _other_linear(b, x, w)
    if x.size * w.shape[0] >= gemm.LEAST:
        made = gemm.linear(x if x.ndim == 2 else x.reshape(-1, x.shape[-1]), w, b)
        if made is not None:
            return made if x.ndim == 2 else made.reshape(*x.shape[:-1], w.shape[0])
    if x.ndim == 2:
        made = _product(x, w.T)
    else:
        made = _product(x.reshape(-1, x.shape[-1]), w.T).reshape(*x.shape[:-1], w.shape[0])
    return made if b is None else _add(made, b, out=made)


def _other_linear(b: ndarray | None, x: ndarray, w: ndarray) -> ndarray:
    """linear in half precision, or of integers."""
    if x.dtype.char in "eE" and x.size * w.shape[0] >= gemm.WORTH_HALF:
        made = gemm.linear(x if x.ndim == 2 else x.reshape(-1, x.shape[-1]), w, b)
        if made is not None:
            return made if x.ndim == 2 else made.reshape(*x.shape[:-1], w.shape[0])
    bias, x_, w_ = [None if a is None else wide(a) for a in (b, x, w)]
    made = np.matmul(x_, w_.T)
    return narrow(made if bias is None else made + bias, x.dtype)


def linear_backward(g: ndarray, x: ndarray | None, w: ndarray | None, wants_bias: bool) -> tuple[Any, Any, Any]:
    """(for the bias, for x, for the weight); None for those whose other factor is not given."""
    flat = g if g.ndim == 2 else g.reshape(-1, g.shape[-1])
    for_bias = for_x = for_w = None
    if wants_bias:
        for_bias = _add.reduce(flat, axis=0) if flat.size < 1 << 11 else sum_(flat, (0,), False, None)
    if w is not None:
        for_x = _product(flat, w)
        if g.ndim != 2:
            for_x = for_x.reshape(*g.shape[:-1], w.shape[1])
    if x is not None:
        for_w = _product(flat.T, x if x.ndim == 2 else x.reshape(-1, x.shape[-1]))
    return for_bias, for_x, for_w
