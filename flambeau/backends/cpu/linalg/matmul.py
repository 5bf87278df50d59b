"""Products of matrices and vectors: native where that pays (gemm.py), else by NumPy's BLAS. Kernels of linalg.py and fft.py,
imported when first used.

Half precision multiplies in float32 and rounds once. Integers go through float64's BLAS where that is exact (NumPy's
own integer product has no BLAS and is some thirty times slower).
"""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
from numpy import ndarray

from .. import memory, parallel
from ..halves import FLOAT32, cast, narrow
from ..layouts import by_rule, laid_out
from ..table import KERNELS, kernel
from . import gemm

_BLAS = "fdFD"
_HALF = "eE"               # float16 and bfloat16
_NATIVE = "fdeE"
_POOLED = 1 << 16          # elements of a result from which memory comes from the pool
_EXACT = 1 << 53           # integers below it are exact in float64
_WORTH_CONVERTING = 1 << 12
_ONE_THREAD = 1 << 18      # multiplications up to which OpenBLAS uses one core for a product
_SHARED_WORK = 1 << 24     # multiplications from which a batch of such products is shared among the cores


def product(a: ndarray, b: ndarray) -> ndarray:
    """np.matmul for arrays of one dtype, any dtype, any batch."""
    if a.dtype.char in _BLAS:
        return np.matmul(a, b)
    kind = a.dtype.kind
    if kind in "fV":
        return narrow(np.matmul(cast(a, FLOAT32), cast(b, FLOAT32)), a.dtype)
    if kind == "b":
        return np.matmul(a, b)
    if a.size > _WORTH_CONVERTING and _fits(a, b):
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.matmul(a, b, dtype=a.dtype)


def _fits(a: ndarray, b: ndarray) -> bool:
    """Whether every partial sum of an integer product is exact in float64 and does not wrap around."""
    if not a.size or not b.size:
        return False
    reach = [max(abs(int(x.min())), abs(int(x.max()))) for x in (a, b)]
    return reach[0] * reach[1] * a.shape[-1] < min(_EXACT, np.iinfo(a.dtype).max)


@kernel
def mm(a: ndarray, b: ndarray) -> ndarray:
    if a.dtype.char not in _BLAS:
        made = gemm.mm(a, b) if a.dtype.char in _HALF else None
        return product(a, b) if made is None else made
    if a.shape[1] == 1:  # (np.dot makes nothing of zero times what is not a number, where one matrix is a number)
        return np.multiply(a, b)
    made = gemm.mm(a, b) if a.size * b.shape[1] >= gemm.LEAST else None
    if made is not None:
        return made
    shape = (a.shape[0], b.shape[1])
    if shape[0] * shape[1] < _POOLED:
        return np.dot(a, b)
    return np.matmul(a, b, out=memory.empty(shape, a.dtype))


@kernel
def bmm(a: ndarray, b: ndarray) -> ndarray:
    if a.dtype.char not in _BLAS:
        made = gemm.bmm(a, b) if a.dtype.char in _HALF else None
        return product(a, b) if made is None else made
    made = gemm.bmm(a, b) if a.size * b.shape[2] >= gemm.WORTH else None
    if made is not None:
        return made
    shape = (a.shape[0], a.shape[1], b.shape[2])
    if a.shape[2] == 1:  # products of one term each, over which BLAS takes thirty times as long
        out = memory.empty(shape, a.dtype)
        made = parallel.large(np.multiply, a, b, out=out)
        return out if made is None else made
    each = shape[1] * shape[2] * a.shape[2]
    if shape[0] * shape[1] * shape[2] < _POOLED and each * shape[0] < _SHARED_WORK:
        return np.matmul(a, b)
    out = memory.empty(shape, a.dtype)
    if each > _ONE_THREAD or each * shape[0] < _SHARED_WORK:
        return np.matmul(a, b, out=out)

    def work(start: int, stop: int) -> None:
        np.matmul(a[start:stop], b[start:stop], out=out[start:stop])

    parallel.split(shape[0], work)
    return out


@kernel
def grouped_mm(a: ndarray, b: ndarray, ends: ndarray | None) -> ndarray:
    """A product per group; the groups lie one after another in what is 2-D, in the common dimension if both are."""
    if ends is None:
        return bmm(a, b)
    cuts = [0, *ends.tolist()]
    groups = [slice(start, stop) for start, stop in pairwise(cuts)]
    out = np.zeros((len(groups),) * (a.ndim == b.ndim) + (a.shape[-2], b.shape[-1]), a.dtype)
    for i, group in enumerate(groups):
        if group.start == group.stop:  # as for most experts when one token is generated
            continue
        if a.ndim == b.ndim:
            out[i] = mm(a[:, group], b[group])
        elif a.ndim == 2:
            out[group] = mm(a[group], b[i])
        else:
            out[:, group] = mm(a[i], b[:, group])
    return out


@kernel
def dot(a: ndarray, b: ndarray) -> Any:
    if a.dtype.char in _BLAS:
        return np.dot(a, b)
    return np.asarray(mm(a[None], b[:, None])[0, 0])


@kernel
def mv(a: ndarray, v: ndarray) -> ndarray:
    if a.dtype.char not in _BLAS:
        return mm(a, v[:, None])[:, 0]
    made = gemm.mm(a, v[:, None]) if a.size >= gemm.LEAST else None
    return np.matmul(a, v) if made is None else made[:, 0]


KERNELS["vdot"] = lambda a, b: dot(a.conj(), b)
KERNELS["matmul_2d"] = np.dot  # small real matrices: half the overhead of np.matmul


def _wide(x: ndarray) -> ndarray:
    """Half precision as float32: scaling and adding round only once, at the end."""
    return cast(x, FLOAT32) if x.dtype.char not in _BLAS and x.dtype.kind not in "iub" else x


def _scaled_sum(self: ndarray, made: ndarray, beta: Any, alpha: Any, native: np.dtype) -> ndarray:
    """beta * self + alpha * made; self is not looked at when beta is 0 (so its nan does not spread)."""
    if made.dtype.kind in "iu":
        alpha, beta = made.dtype.type(alpha), made.dtype.type(beta)
    if alpha != 1:
        made = made * alpha
    if beta != 0:
        made = np.add(made, self if beta == 1 else self * beta, out=made if memory.is_writable(made) else None)
    return made if made.dtype == native else made.astype(native)


@kernel
def addmm(self: ndarray, mat1: ndarray, mat2: ndarray, beta: Any, alpha: Any) -> ndarray:
    if self.dtype is mat1.dtype and mat1.dtype.char in _NATIVE and (
            mat1.shape[0] * mat1.shape[1] * mat2.shape[1] >= gemm.worth(mat1.dtype)):
        made = gemm.linear(mat1, mat2.T, self) if beta == 1 == alpha and self.ndim == 1 else None
        if made is None and beta != 0:
            out = memory.empty((mat1.shape[0], mat2.shape[1]), mat1.dtype)
            out[...] = self
            made = gemm.mm(mat1, mat2, alpha, beta, out)
        if made is not None:
            return made
    return _scaled_sum(_wide(self), mm(_wide(mat1), _wide(mat2)), beta, alpha, mat1.dtype)


@kernel
def addmv(self: ndarray, mat: ndarray, vec: ndarray, beta: Any, alpha: Any) -> ndarray:
    return _scaled_sum(_wide(self), product(_wide(mat), _wide(vec)[:, None])[:, 0], beta, alpha, mat.dtype)


@kernel
def baddbmm(self: ndarray, batch1: ndarray, batch2: ndarray, beta: Any, alpha: Any) -> ndarray:
    if self.dtype is batch1.dtype and beta != 0 and batch1.dtype.char in _NATIVE and (
            batch1.size * batch2.shape[2] >= gemm.worth(batch1.dtype)):
        out = memory.empty((*batch1.shape[:2], batch2.shape[2]), batch1.dtype)
        out[...] = self
        made = gemm.bmm(batch1, batch2, alpha, beta, out)
        if made is not None:
            return made
    return _scaled_sum(_wide(self), bmm(_wide(batch1), _wide(batch2)), beta, alpha, batch1.dtype)


@kernel
def addbmm(self: ndarray, batch1: ndarray, batch2: ndarray, beta: Any, alpha: Any) -> ndarray:
    """The batch is summed by one product of the matrices laid side by side."""
    count, rows, inner = batch1.shape
    left = _wide(batch1).transpose(1, 0, 2).reshape(rows, count * inner)
    right = _wide(batch2).reshape(count * inner, batch2.shape[2])
    return _scaled_sum(_wide(self), mm(left, right), beta, alpha, batch1.dtype)


@laid_out
def addr(self: ndarray, vec1: ndarray, vec2: ndarray, beta: Any, alpha: Any) -> ndarray:
    native = np.result_type(self.dtype, vec1.dtype) if self.dtype != vec1.dtype else self.dtype
    if native.kind == "b":
        made = np.logical_and(vec1[:, None], vec2[None]) if alpha else np.zeros((len(vec1), len(vec2)), native)
        return np.logical_or(made, self) if beta else made
    return _scaled_sum(_wide(self), np.multiply.outer(_wide(vec1), _wide(vec2)), beta, alpha, native)


@kernel
def trace(x: ndarray) -> Any:
    if x.dtype.kind in "iub":
        return np.asarray(np.trace(x, dtype=np.int64))
    return np.asarray(np.trace(_wide(x)), x.dtype)


@kernel
def linalg_cross(a: ndarray, b: ndarray, dim: int) -> ndarray:
    """The vector product along a dimension of length 3; the shapes are broadcast already."""
    native = a.dtype
    a, b = np.moveaxis(_wide(a), dim, 0), np.moveaxis(_wide(b), dim, 0)
    out = np.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
    return np.ascontiguousarray(np.moveaxis(out, 0, dim), native)


@kernel
def unsafe_view(x: ndarray, shape: tuple[int, ...]) -> ndarray:
    return x.reshape(shape)


# ------------------------------------------------------------------------------------ kernels of other files, on first
# use
def lazily(module: str, prefix: str, names: str, ruled: bool = True) -> None:
    """Enters module.name as prefix + name, importing the module at the first call. ruled: its results get the strides of its
    shape rule; else they have PyTorch's already, where those of its meta device (the rule) are others."""
    for name in names.split():
        KERNELS[prefix + name] = _Later(module, name, prefix + name if ruled else None)


class _Later:
    __slots__ = ("function", "module", "name", "ruled")

    def __init__(self, module: str, name: str, ruled: str | None):
        self.module, self.name, self.ruled, self.function = module, name, ruled, None

    def __call__(self, *args: Any) -> Any:
        if self.function is None:
            self.function = getattr(import_module("." + self.module, __package__), self.name)
        made = self.function(*args)
        return made if self.ruled is None else by_rule(self.ruled, args, made)


lazily("kernels", "linalg_", "solve_triangular cholesky_ex lu_factor_ex lu_solve solve_ex inv_ex det slogdet qr "
       "svdvals eigh eigvalsh eigvals lstsq matrix_exp ldl_factor_ex ldl_solve householder_product check_info lu det_lu "
       "cofactor cofactor_lu steps_aside pinv solve_lapack slogdet_lapack det_lapack")
lazily("kernels", "", "cholesky_solve cholesky_inverse lu_unpack geqrf ormqr cdist")
lazily("kernels", "linalg_", "eig svd", ruled=False)
lazily("quantized", "", "weight_int8pack_mm int4_packed weight_int4pack_mm linear_dynamic", ruled=False)
lazily("fft", "fft_", "c2c r2c c2r", ruled=False)
