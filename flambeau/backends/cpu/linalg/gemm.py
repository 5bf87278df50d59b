"""Matrix products by the native kernels (native/gemm.c, and gemm_half.c for half precision).

They serve floating types, matrices whose rows or columns lie together in memory, and sizes at which the call is worth it.
Each function answers None for the rest: NumPy's BLAS does it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from .... import native
from .. import memory
from ..halves import BFLOAT16, FLOAT16, FLOAT32

WORTH = 1 << 19       # multiplications from which a product is faster than through NumPy
WORTH_HALF = 1 << 11  # the same for half precision, which NumPy has to convert first
LEAST = 1 << 17       # the same of a matrix and a vector, for which OpenBLAS wakes its own threads
_FLOAT64 = np.dtype(np.float64)
_HALVES = {BFLOAT16: "bf16", FLOAT16: "f16"}


def worth(dtype: np.dtype) -> int:
    """Multiplications from which a product may be worth a look."""
    return LEAST if dtype.itemsize > 2 else WORTH_HALF


def layout(x: ndarray) -> tuple[int, int] | None:
    """(whether the last two dimensions are stored transposed, elements from one stored row to the next)."""
    down, across = x.strides[-2:]
    item = x.itemsize
    if x.shape[-2] == 1 and across == item:
        return 0, x.shape[-1]
    if x.shape[-1] == 1 and down > 0 and down % item == 0:
        return 0, down // item
    if across == item and down % item == 0 and down >= x.shape[-1] * item:
        return 0, down // item
    if down == item and across % item == 0 and across >= x.shape[-2] * item:
        return 1, across // item
    return None


def _half(a: ndarray, b: ndarray) -> str | None:
    return _HALVES.get(a.dtype) if a.dtype is b.dtype and type(a) is ndarray is type(b) else None


def _suits(a: ndarray, b: ndarray) -> bool:
    return a.dtype is b.dtype and (a.dtype is FLOAT32 or a.dtype is _FLOAT64) and type(a) is ndarray is type(b)


def mm(a: ndarray, b: ndarray, alpha: float = 1.0, beta: float = 0.0, out: ndarray | None = None) -> ndarray | None:
    """alpha * a @ b (+ beta * out, which is then contiguous and is written to)."""
    (m, k), n = a.shape, b.shape[1]
    if a.dtype.itemsize == 2:
        return _mm_half(a, b, alpha, beta, out, None)
    if m * n * k < (WORTH if m > 1 < n else LEAST) or not _suits(a, b):
        return None
    lib = native.library("gemm")
    one, two = layout(a), layout(b)
    if lib is None or one is None or two is None:
        return None
    if out is None:
        out = memory.empty((m, n), a.dtype)
    run = lib.fl_gemm_f32 if a.dtype is FLOAT32 else lib.fl_gemm_f64
    run(one[0], two[0], m, n, k, alpha, a, one[1], b, two[1], beta, out, n)
    return out


def _mm_half(a: ndarray, b: ndarray, alpha: Any, beta: Any, out: ndarray | None, bias: ndarray | None) -> ndarray | None:
    """The same in half precision, plus a bias per column: sums are float32, and each element is rounded once."""
    (m, k), n = a.shape, b.shape[1]
    if m * n * k < WORTH_HALF or (suffix := _half(a, b)) is None or (lib := native.library("gemm_half")) is None:
        return None
    one, two = _packable(a), _packable(b)
    if out is None:
        out = memory.empty((m, n), a.dtype)
    run = getattr(lib, f"fl_gemm_{suffix}")
    if n == 1 and bias is None:  # as a row times a matrix: the matrix is then read where it lies
        run(1 - two[1], 1 - one[1], 1, m, k, alpha, two[0], two[2], one[0], one[2], beta, out, m, None)
    else:
        run(one[1], two[1], m, n, k, alpha, one[0], one[2], two[0], two[2], beta, out, n, bias)
    return out


def _packable(x: ndarray) -> tuple[ndarray, int, int]:
    """An array of matrices with its layout, or a copy that has one."""
    found = layout(x)
    if found is None:
        x = np.ascontiguousarray(x)
        found = 0, x.shape[-1]
    return x, *found


def bmm(a: ndarray, b: ndarray, alpha: float = 1.0, beta: float = 0.0, out: ndarray | None = None) -> ndarray | None:
    """The same for a batch (count, m, k), (count, k, n)."""
    (count, m, k), n = a.shape, b.shape[2]
    item, half = a.itemsize, _half(a, b)
    if half is not None:
        lib = native.library("gemm_half") if count * m * n * k >= WORTH_HALF else None
        (a, *one), (b, *two) = _packable(a), _packable(b)
    elif count * m * n * k < WORTH or not _suits(a, b):
        return None
    else:
        lib, one, two = native.library("gemm"), layout(a), layout(b)
    if lib is None or one is None or two is None or a.strides[0] % item or b.strides[0] % item:
        return None
    if out is None:
        out = memory.empty((count, m, n), a.dtype)
    run = getattr(lib, f"fl_bgemm_{half or ('f32' if a.dtype is FLOAT32 else 'f64')}")
    run(count, one[0], two[0], m, n, k, alpha, a, one[1], a.strides[0] // item, b, two[1],
        b.strides[0] // item, beta, out, n, m * n)
    return out


def linear(x: ndarray, w: ndarray, bias: ndarray | None) -> ndarray | None:
    """x @ w.T + bias for a matrix x; the bias is added to what is still in the cache."""
    (m, k), n = x.shape, w.shape[0]
    if bias is not None and (bias.dtype is not x.dtype or bias.shape != (n,) or bias.strides[0] != bias.itemsize):
        return None
    if x.dtype.itemsize == 2:
        return _mm_half(x, w.T, 1.0, 0.0, None, bias)
    if m * n * k < (WORTH if m > 1 < n else LEAST) or not _suits(x, w):
        return None
    lib = native.library("gemm")
    one, two = layout(x), layout(w)
    if lib is None or one is None or two is None:
        return None
    out = memory.empty((m, n), x.dtype)
    run = lib.fl_linear_f32 if x.dtype is FLOAT32 else lib.fl_linear_f64
    run(one[0], 1 - two[0], m, n, k, x, one[1], w, two[1], bias, out, n)
    return out
