"""Reductions by adding up: sums that are fast and accurate, large contiguous ones natively (reduce.c); products and logic.

NumPy adds pairwise only along the last axis: long sums across memory are taken in float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import arrays, library
from ...geometry import reduced_shape
from .. import memory
from ..halves import FLOAT32, NARROW, cast, narrow, wide
from ..layouts import contiguous
from ..parallel import LARGE, large
from ..table import kernel

FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)
UINT8 = np.dtype(np.uint8)
SMALL = 1 << 13   # below this many elements NumPy's own loop is faster
ROWS = 1 << 8     # elements that may be added one after the other in their own precision

Axes = "tuple[int, ...] | None"


def count_of(x: ndarray, axes: Axes) -> int:
    return x.size if axes is None else math.prod(x.shape[a] for a in axes) if x.ndim else 1


def axes_of(x: ndarray, axes: Axes) -> Axes:
    """Dimension 0 of a zero-dim array is no axis to NumPy."""
    return axes if x.ndim else ()


# ----------------------------------------------------------------------------------------------------- native ones
_ELEMENTS, _SQUARES, _SIZES = range(3)


def grid(x: ndarray, axes: Axes, least: int = SMALL) -> tuple[int, int, int] | None:
    """(outer, n, inner) of a reduction over n that reduce.c can do; None for small, strided or other arrays."""
    if x.size < least or x.dtype.char not in "fd" or not x.flags.c_contiguous or library("reduce") is None:
        return None
    if axes is None or len(axes) == x.ndim:
        return 1, x.size, 1
    if not axes:
        return None
    first, last = min(axes), max(axes)
    if last - first + 1 != len(axes):
        return None
    shape = x.shape
    return math.prod(shape[:first]), math.prod(shape[first:last + 1]), math.prod(shape[last + 1:])


def one_axis(x: ndarray, axis: int) -> tuple[int, int, int, tuple[int, ...]]:
    """(outer, n, inner) of a contiguous array and one axis of it that is longer than one, and the shape without it."""
    shape, inner = x.shape, x.strides[axis] // x.itemsize
    n = shape[axis]
    return x.size // (n * inner), n, inner, shape[:axis] + shape[axis + 1:]


def empty_within(x: ndarray, shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    """Memory for what is no larger than x: of a small array's results nobody has to compute the size."""
    return np.empty(shape, dtype) if x.size < LARGE else memory.empty(shape, dtype)


def _native_sums(x: ndarray, sizes: tuple[int, int, int], shape: tuple[int, ...] | None = None, mode: int = _ELEMENTS,
                 divisor: float = 1.0, root: int = 0) -> ndarray:
    """Sums over the middle of contiguous memory seen as (outer, n, inner): of elements, squares or sizes. shape: one row."""
    out = memory.empty((sizes[0] * sizes[2],) if shape is None else shape, x.dtype)
    native = library("reduce")
    function = native.fl_sum_f32 if x.dtype is FLOAT32 else native.fl_sum_f64
    function(x, out, *sizes, mode, divisor, root)
    return out


# ------------------------------------------------------------------------------------------------------- sums
def flat_sum(x: ndarray) -> Any:
    """The sum of a contiguous one-dimensional float array."""
    n = x.size
    if n < SMALL:
        return np.add.reduce(x)
    if library("reduce") is not None and x.flags.c_contiguous:
        return _native_sums(x, (1, n, 1))[0]
    return np.add.reduce(x)


def add_up(x: ndarray, axes: Axes, keepdim: bool) -> Any:
    """The sum of a float32 or float64 array over some axes (None: all)."""
    if x.ndim == 0:
        return x.copy()
    size = x.size
    if not x.flags.c_contiguous:
        return _add_expanded(x, axes, keepdim) if 0 in x.strides and size > 1 else contiguous(_add_strided(x, axes, keepdim), x)
    if axes is None or len(axes) == x.ndim:
        if FEWEST <= size <= FEW:
            total = x.ravel().dot(ones_of(x.dtype, size))
        else:
            total = np.add.reduce(x, axis=None) if size < SMALL else flat_sum(x.reshape(-1))
        return total if not keepdim else np.full((1,) * x.ndim, total, x.dtype)
    if FEWEST <= size <= FEW and len(axes) == 1 and axes[0] in (0, x.ndim - 1):
        return sum_one(x, axes[0], keepdim)
    if size < SMALL and count_of(x, axes) <= ROWS:
        return np.add.reduce(x, axis=axes, keepdims=keepdim)
    shape = reduced_shape(x.shape, axes, keepdim)
    if size == 0:
        return np.zeros(shape, x.dtype)
    sizes = list(x.shape)
    for first, last in _runs(axes):
        outer, n, inner = math.prod(sizes[:first]), math.prod(sizes[first:last + 1]), math.prod(sizes[last + 1:])
        x = _add_middle(x.reshape(outer, n, inner))
        sizes[first:last + 1] = [1] * (last + 1 - first)
    return x.reshape(shape)


def _add_strided(x: ndarray, axes: Axes, keepdim: bool) -> Any:
    """The sum of what is not contiguous; what is dense in another order of its dimensions is added up in that of memory."""
    if axes is not None and len(axes) < x.ndim and x.size < SMALL and count_of(x, axes) <= ROWS:
        return np.add.reduce(x, axis=axes, keepdims=keepdim)
    order = memory.dense_order(x) if x.size >= SMALL else None
    if order is None:
        return add_up(np.ascontiguousarray(x), axes, keepdim)
    shape = reduced_shape(x.shape, axes, keepdim)
    if axes is not None:
        axes = tuple([i for i, a in enumerate(order) if a in axes])
    return add_up(x.transpose(order), axes, True).transpose(np.argsort(order)).reshape(shape)


def _add_expanded(x: ndarray, axes: Axes, keepdim: bool) -> Any:
    """A repeated element counts several times: an expanded gradient is never written out to be summed."""
    axes = tuple(range(x.ndim)) if axes is None else axes
    repeated = [i for i in range(x.ndim) if x.strides[i] == 0 and x.shape[i] > 1]
    once = np.ascontiguousarray(x[tuple([slice(0, 1) if i in repeated else slice(None) for i in range(x.ndim)])])
    made = add_up(once, axes, True) * x.dtype.type(math.prod(x.shape[i] for i in repeated if i in axes))
    shape = reduced_shape(x.shape, axes, True)
    if made.shape != shape:
        made = np.broadcast_to(made, shape).copy()
    return made.reshape(reduced_shape(x.shape, axes, keepdim))


def _runs(axes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Neighbouring axes together, the last ones first: (0, 2, 3) -> [(2, 3), (0, 0)]."""
    runs: list[tuple[int, int]] = []
    for a in sorted(axes, reverse=True):
        if runs and runs[-1][0] == a + 1:
            runs[-1] = (a, runs[-1][1])
        else:
            runs.append((a, a))
    return runs


def _add_middle(x: ndarray) -> ndarray:
    """Sums over the middle of contiguous (outer, n, inner)."""
    outer, n, inner = x.shape
    if inner == 1 and x.size < SMALL:
        return np.add.reduce(x, axis=1)
    small = inner > 1 and (n * inner < 512 or (x.size < SMALL and n <= ROWS))
    if not small and library("reduce") is not None:
        return _native_sums(x, (outer, n, inner)).reshape(outer, inner)
    if n <= ROWS:
        return np.add.reduce(x, axis=1)
    return np.add.reduce(x, axis=1, dtype=FLOAT64).astype(x.dtype)


@kernel
def sum_(x: ndarray, axes: Axes = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Any:
    kind = x.dtype.kind
    if dtype is None:
        dtype = INT64 if kind in "iub" else x.dtype
    if dtype.num == FLOAT32.num or dtype.num == FLOAT64.num:
        return add_up(narrow(x, FLOAT32 if dtype.num == FLOAT32.num else FLOAT64), axes, keepdim)
    if dtype.num in NARROW:
        return add_up(cast(x, FLOAT32), axes, keepdim).astype(dtype)
    if dtype.kind == "c":
        return _add_complex(x, axes, keepdim, dtype)
    if dtype.kind == "b":
        return contiguous(np.any(x, axis=axes_of(x, axes), keepdims=keepdim), x)
    if kind in "fcV":
        x = x.astype(dtype)
    return contiguous(np.add.reduce(x, axis=axes_of(x, axes), keepdims=keepdim, dtype=dtype), x)


def _add_complex(x: ndarray, axes: Axes, keepdim: bool, dtype: np.dtype) -> Any:
    if x.size > ROWS or x.dtype.kind != "c":
        return contiguous(np.add.reduce(x, axis=axes_of(x, axes), keepdims=keepdim, dtype=np.complex128).astype(dtype), x)
    return contiguous(np.add.reduce(narrow(x, dtype), axis=axes_of(x, axes), keepdims=keepdim), x)


@kernel
def mean(x: ndarray, axes: Axes = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Any:
    dtype = dtype or x.dtype
    n = count_of(x, axes)
    if dtype.num in NARROW:
        total = add_up(cast(x, FLOAT32), axes, keepdim)
        return (total / FLOAT32.type(n)).astype(dtype)
    total = sum_(x, axes, keepdim, dtype)
    return total / dtype.type(n)


# ------------------------------------------------------------------- small arrays, where the number of calls counts
FEW = 1 << 10  # elements up to which a product with ones (0.3 us) replaces a reduction (0.8 us): BLAS uses one thread
FEWEST = 8    # fewer are added one after another, as PyTorch does
_ones: dict[tuple[np.dtype, int], ndarray] = {}


def ones_of(dtype: np.dtype, n: int) -> ndarray:
    found = _ones.get((dtype, n))
    if found is None:
        found = _ones[dtype, n] = np.ones(n, dtype)
    return found


def sum_all(x: ndarray) -> Any:
    """The whole sum of a float32 or float64 array, for the fast path: an array without dimensions."""
    if not x.flags.c_contiguous:
        return np.asarray(add_up(x, None, False))
    n = x.size
    if FEWEST <= n <= FEW:
        return np.asarray(x.ravel().dot(ones_of(x.dtype, n)))
    if n < SMALL:
        return np.add.reduce(x, axis=None, out=...)
    if library("reduce") is None:
        return np.asarray(flat_sum(x.reshape(-1)))
    return _native_sums(x, (1, n, 1), ())


def sum_one(x: ndarray, axis: int, keepdim: bool) -> ndarray:
    """The sum of a float32 or float64 array with dimensions over one axis (0 to ndim - 1), for the fast path."""
    shape = x.shape
    if FEWEST <= x.size <= FEW and x.flags.c_contiguous:
        n = len(shape)
        if axis == n - 1:
            made = x.dot(ones_of(x.dtype, shape[-1]))
            return np.asarray(made) if n == 1 and not keepdim else made.reshape(*shape[:-1], 1) if keepdim else made
        if axis == 0:
            made = ones_of(x.dtype, shape[0]).dot(x.reshape(shape[0], -1) if n != 2 else x)
            return made.reshape(1, *shape[1:]) if keepdim else made if n == 2 else made.reshape(shape[1:])
    elif x.size >= SMALL and x.flags.c_contiguous and library("reduce") is not None:
        n, inner = shape[axis], math.prod(shape[axis + 1:])
        if inner == 1 or n * inner >= 512:
            return _native_sums(x, (math.prod(shape[:axis]), n, inner), reduced_shape(shape, (axis,), keepdim))
    return np.asarray(add_up(x, (axis,), keepdim))


def mean_all(x: ndarray) -> ndarray:
    return np.asarray(sum_all(x) / x.dtype.type(x.size))


def mean_one(x: ndarray, axis: int, keepdim: bool) -> ndarray:
    made = sum_one(x, axis, keepdim)
    return np.divide(made, x.dtype.type(x.shape[axis]), out=made)


def max_all(x: ndarray) -> ndarray:
    """The largest element of a contiguous array that is not empty (NaN if there is one): of many, found by its place."""
    if (found := arrays.extreme(x, None, False)) is not None:
        return found
    flat = x.ravel()
    return np.asarray(flat[flat.argmax()])


def min_all(x: ndarray) -> ndarray:
    if (found := arrays.extreme(x, None, True)) is not None:
        return found
    flat = x.ravel()
    return np.asarray(flat[flat.argmin()])


def small_norm(x: ndarray) -> ndarray:
    """The 2-norm of all elements of a small contiguous array, for the fast path."""
    return np.sqrt(sum_all(x * x), out=...)


# --------------------------------------------------------------------------------------- products and logic
@kernel
def prod(x: ndarray, axes: Axes = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Any:
    if dtype is None:
        dtype = INT64 if x.dtype.kind in "iub" else x.dtype
    if dtype.num in NARROW:
        return contiguous(np.multiply.reduce(cast(x, FLOAT32), axis=axes_of(x, axes), keepdims=keepdim).astype(dtype), x)
    if dtype.kind == "b":
        return contiguous(np.all(x, axis=axes_of(x, axes), keepdims=keepdim), x)
    x = narrow(x, dtype)
    if axes is None and x.size >= SMALL and x.flags.c_contiguous:
        # NumPy multiplies along memory one by one; across a thousand columns it works on several at a time.
        in_rows = x.size - x.size % 1024
        flat = x.reshape(-1)
        columns = np.multiply.reduce(flat[:in_rows].reshape(-1, 1024), axis=0, dtype=dtype)
        return np.multiply.reduce(columns, dtype=dtype) * np.multiply.reduce(flat[in_rows:], dtype=dtype)
    return contiguous(np.multiply.reduce(x, axis=axes_of(x, axes), keepdims=keepdim, dtype=dtype), x)


def _truth(x: ndarray) -> ndarray:
    return x if x.dtype.kind != "V" else cast(x, FLOAT32) != 0


@kernel
def any_(x: ndarray, axes: Axes = None, keepdim: bool = False) -> Any:
    made = contiguous(np.any(_truth(x), axis=axes_of(x, axes), keepdims=keepdim), x)
    return made.astype(UINT8) if x.dtype.num == UINT8.num else made


@kernel
def all_(x: ndarray, axes: Axes = None, keepdim: bool = False) -> Any:
    made = contiguous(np.all(_truth(x), axis=axes_of(x, axes), keepdims=keepdim), x)
    return made.astype(UINT8) if x.dtype.num == UINT8.num else made


@kernel
def count_nonzero(x: ndarray, axes: Axes = None) -> Any:
    x = _truth(x)
    if axes is None or not x.ndim:
        return np.asarray(np.count_nonzero(x), INT64)
    return contiguous(np.asarray(np.count_nonzero(x, axis=axes), INT64), x)


@kernel
def nansum(x: ndarray, axes: Axes = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Any:
    if x.dtype.kind in "fcV":
        kept = wide(x) if dtype is None or dtype.num in NARROW else x.astype(dtype, copy=False)
        dtype = dtype or x.dtype
        x = np.where(np.isnan(kept), kept.dtype.type(0), kept) if kept.dtype.kind in "fc" else kept
    return sum_(x, axes, keepdim, dtype)


@kernel
def hash_tensor(x: ndarray, axes: Axes = None, keepdim: bool = False) -> Any:
    if x.dtype.kind in "fV":
        bits = x.astype(FLOAT64).view(np.uint64)
    else:
        bits = x.astype(INT64).view(np.uint64) if x.dtype.kind != "u" else x.astype(np.uint64)
    return contiguous(np.bitwise_xor.reduce(bits, axis=axes_of(x, axes), keepdims=keepdim), x)


# ------------------------------------------------------------------------------------ log-sum-exp
# exp() of numbers up to this neither overflows nor loses bits in a sum, so there is no maximum to take out first.
TAME = 40.0


def tame(x: ndarray) -> bool:
    return -TAME <= np.minimum.reduce(x, axis=None) and np.maximum.reduce(x, axis=None) <= TAME


@kernel
def logsumexp(x: ndarray, axes: Axes = None, keepdim: bool = False) -> Any:
    a = wide(x)
    if not a.size:
        made = np.full(reduced_shape(a.shape, axes, keepdim), -math.inf, a.dtype)
        return narrow(made, x.dtype)
    axes_np = axes_of(a, axes)
    if a is not x:
        return _half_logsumexp(x, axes_np, keepdim)
    sizes = grid(x, axes)
    if sizes is not None:
        made = memory.empty(reduced_shape(x.shape, axes, keepdim), x.dtype)
        native = library("reduce")
        (native.fl_logsumexp_f32 if x.dtype is FLOAT32 else native.fl_logsumexp_f64)(x, made, *sizes)
        return made
    if a.dtype.kind == "f" and tame(a):
        powers = large(np.exp, a) if a.size >= SMALL else np.exp(a)
        return narrow(np.asarray(np.log(add_up(powers, axes, keepdim))), x.dtype)
    real = a.real
    top = np.maximum.reduce(real, axis=axes_np, keepdims=True)
    top = np.where(np.isinf(top), top.dtype.type(0), top)
    made = np.log(sum_(np.exp(a - top), axes, True))
    made = np.asarray(made).reshape(top.shape) + top
    return contiguous(narrow(made.reshape(reduced_shape(a.shape, axes, keepdim)), x.dtype), x)


def _half_logsumexp(x: ndarray, axes: Axes, keepdim: bool) -> Any:
    """In half precision PyTorch rounds after every step."""
    def rounded(a: Any) -> Any:
        return np.asarray(a).astype(x.dtype).astype(FLOAT32)

    a = cast(x, FLOAT32)
    top = np.maximum.reduce(a, axis=axes, keepdims=True)
    top = np.where(np.isinf(top), FLOAT32.type(0), top)
    total = np.add.reduce(rounded(np.exp(rounded(a - top))), axis=axes, keepdims=True)
    made = contiguous((rounded(np.log(rounded(total))) + top).astype(x.dtype), x)
    return made if keepdim else made.reshape(reduced_shape(x.shape, axes, False))
