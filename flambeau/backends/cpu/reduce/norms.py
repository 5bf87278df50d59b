"""Vector norms, and what is scaled by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ...dtypes import PARTS
from ...geometry import reduced_shape
from ..halves import narrow, wide
from ..layouts import contiguous, laid_out
from ..table import kernel
from .reductions import _SIZES, _SQUARES, Axes, _native_sums, add_up, axes_of, grid


def magnitude(x: ndarray) -> ndarray:
    return np.abs(wide(x))


@kernel
def vector_norm(x: ndarray, ord: float, axes: Axes = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Any:
    if dtype is not None:
        x = x.astype(dtype, copy=False)
    result = PARTS.get(x.dtype, x.dtype)
    axes_np = axes_of(x, axes)
    if ord in (1, 2) and (sizes := grid(x, axes)) is not None:
        made = _native_sums(x, sizes, mode=_SIZES if ord == 1 else _SQUARES, root=ord == 2)
        return made.reshape(reduced_shape(x.shape, axes, keepdim))
    a = magnitude(x) if ord != 2 or x.dtype in PARTS else wide(x)
    if ord == math.inf:
        made = np.maximum.reduce(a, axis=axes_np, keepdims=keepdim)
    elif ord == -math.inf:
        made = np.minimum.reduce(a, axis=axes_np, keepdims=keepdim)
    elif ord == 0:
        made = add_up((a != 0).astype(a.dtype), axes, keepdim)
    elif ord == 1:
        made = add_up(a, axes, keepdim)
    elif ord == 2:
        made = np.sqrt(add_up(a * a, axes, keepdim))
    else:
        made = np.power(add_up(np.power(a, a.dtype.type(ord)), axes, keepdim), a.dtype.type(1 / ord))
    return contiguous(narrow(made, result), x)


@kernel
def dist(x: ndarray, y: ndarray, p: float) -> Any:
    return vector_norm(x - y, p)


@laid_out
def renorm(x: ndarray, p: float, axis: int, maxnorm: float) -> ndarray:
    others = tuple(i for i in range(x.ndim) if i != axis)
    a = wide(x)
    norm = vector_norm(a, p, others, True)
    one = norm.dtype.type(1)
    scale = np.where(norm > maxnorm, norm.dtype.type(maxnorm) / (norm + norm.dtype.type(1e-7)), one)
    return (a * scale).astype(x.dtype, copy=False)
