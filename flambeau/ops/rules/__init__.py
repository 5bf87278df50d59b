"""Shape rules: which geometry a kernel's results have, without running it. The `shape` column of an operation's row.

A rule takes what the kernel takes, arrays and plain values, looks at shapes, strides and dtypes only, and returns a `Made`,
a list of them where the kernel gives several results, one of the arrays where the kernel hands that back, or None. Strides
are PyTorch's, also where a CPU kernel of ours lays its result out in another way.

Here are the rules that many kernels share; those of one family are in the modules beside this one, or in its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...backends import registry
from ...backends.facts import SHAPES
from ...backends.geometry import reduced_shape
from ...backends.strides import dense_strides, elementwise_strides, like_strides, ordered_strides
from ...tensors import dtypes
from ...tensors.shapes import broadcast_shapes

BOOL, UINT8, INT32, INT64 = (d.native for d in (dtypes.bool_, dtypes.uint8, dtypes.int32, dtypes.int64))
FLOAT32, FLOAT64 = dtypes.float32.native, dtypes.float64.native
strides = registry.cpu.strides


class Made(NamedTuple):
    """The geometry of a new array; stride in elements, None: contiguous."""

    shape: tuple[int, ...]
    dtype: Any
    stride: Any = None


def shape_rule(*kernels: str) -> Callable:
    """Enters a rule for kernels that are called without a row."""
    def enter(rule: Callable) -> Callable:
        for name in kernels:
            SHAPES[name] = rule
        return rule

    return enter


# --------------------------------------------------------------------------------------------------- like an argument
def same(x: Any, *rest: Any) -> Made:
    """A contiguous array of x's shape and dtype."""
    return Made(x.shape, x.dtype)


def alike(x: Any, *rest: Any) -> Made:
    """As x, in its order of dimensions."""
    return like(x)


def itself(x: Any, *rest: Any) -> Any:
    return x


def nothing(*args: Any) -> None:
    """Kernels that only write into their arguments."""


def like(x: Any, dtype: Any = None) -> Made:
    return Made(x.shape, dtype or x.dtype, like_strides(x.shape, strides(x)))


def first_as(position: int) -> Callable:
    """The shape of another argument, the dtype of the first."""
    return lambda *args: Made(args[position].shape, args[0].dtype)


def of_shape(position: int) -> Callable:
    """The shape that an argument says, the dtype of the first."""
    return lambda *args: Made(tuple(args[position]), args[0].dtype)


def last_dims(position: int) -> Callable:
    """As the first array, with the last dimensions that an argument says."""
    return lambda *args: Made(with_last(args[0].shape, args[position]), args[0].dtype)


def with_last(shape: Any, last: Any) -> tuple[int, ...]:
    return (*shape[:len(shape) - len(last)], *last)


def with_dim(shape: Any, dim: int, n: int) -> tuple[int, ...]:
    """The shape with another size at one dimension; a zero-dim array stays one."""
    return (*shape[:dim], n, *shape[dim + 1:]) if shape else ()


def by_value(name: str) -> Callable:
    """The shape of the result depends on values, which a meta tensor does not have."""
    def rule(*args: Any) -> Any:
        raise NotImplementedError(f"{name}: the shape of the result depends on values, which a meta tensor does not have")

    rule.dynamic = True
    return rule


# ---------------------------------------------------------------------------------------------------------- broadcasting
def elementwise(shape: Any, arrays: Any, dtype: Any) -> Made:
    """The result of work element by element: in the order of dimensions that the arrays have."""
    return Made(shape, dtype, elementwise_strides(shape, [(a.shape, strides(a)) for a in arrays]))


def broadcast(*arrays: Any) -> tuple[int, ...]:
    return broadcast_shapes(*[a.shape for a in arrays if a is not None])


# ------------------------------------------------------------------------------------------------------------ reductions
def reduced(x: Any, axes: Any, keepdim: bool, dtype: Any = None) -> Made:
    if isinstance(axes, int):
        axes = (axes,)
    return Made(reduced_shape(x.shape, axes, keepdim) if x.shape else (), dtype or x.dtype)


def total(x: Any, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Made:
    """Sums and products: integers add up as int64."""
    return reduced(x, axes, keepdim, dtype or (INT64 if x.dtype.kind in "iub" else x.dtype))


def picked(x: Any, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Made:
    """Reductions that keep the dtype."""
    return reduced(x, axes, keepdim, dtype)


def truth(x: Any, axes: Any = None, keepdim: bool = False) -> Made:
    return reduced(x, axes, keepdim, UINT8 if x.dtype.num == UINT8.num else BOOL)


def position(x: Any, axis: Any = None, keepdim: bool = False) -> Made:
    return reduced(x, axis, keepdim, INT64)


def with_position(x: Any, axis: int, keepdim: bool = False, *rest: Any) -> list[Made]:
    """An element and where it was."""
    return [reduced(x, axis, keepdim), reduced(x, axis, keepdim, INT64)]


def spread(x: Any, axes: Any, correction: float, keepdim: bool) -> Made:
    """Variance and deviation."""
    return reduced(x, axes, keepdim, real(x.dtype))


def spread_mean(x: Any, axes: Any, correction: float, keepdim: bool) -> list[Made]:
    return [reduced(x, axes, keepdim, real(x.dtype)), reduced(x, axes, keepdim)]


def scan(x: Any, axis: int, dtype: Any = None) -> Made:
    """Running sums and products."""
    return Made(x.shape, dtype or (INT64 if x.dtype.kind in "iub" else x.dtype))


def scan_with_position(x: Any, axis: int) -> list[Made]:
    return [Made(x.shape, x.dtype), Made(x.shape, INT64)]


# ---------------------------------------------------------------------------------------------------------------- dtypes
def real(dtype: Any) -> Any:
    return dtypes.from_native(dtype).to_real().native


def complex_of(dtype: Any) -> Any:
    return dtypes.from_native(dtype).to_complex().native


def promoted(*arrays: Any) -> Any:
    found = dtypes.from_native(arrays[0].dtype)
    for a in arrays[1:]:
        found = dtypes.promote_types(found, dtypes.from_native(a.dtype))
    return found.native


def columns(shape: Any) -> tuple[int, ...]:
    """Strides of a batch of matrices, each stored column by column, as LAPACK wants them."""
    n = len(shape)
    return ordered_strides(shape, (*range(n - 2), n - 1, n - 2)) if n > 1 else ordered_strides(shape, range(n))


# --------------------------------------------------------------------------------------------- more rules by few kernels
def drawn(*args: Any) -> Any:
    """A draw that was made already."""
    return args[-1]


def pointwise(*arrays: Any) -> Made:
    return elementwise(broadcast(*arrays), arrays, arrays[0].dtype)


def complex_pair(first: Any, second: Any) -> Made:
    return elementwise(broadcast(first, second), (first, second), complex_of(first.dtype))


def like_second(grad: Any, x: Any, *rest: Any) -> Made:
    return Made(x.shape, x.dtype)


def halved(x: Any, axis: int) -> Made:
    shape = with_dim(x.shape, axis, x.shape[axis] // 2)
    return Made(shape, x.dtype, dense_strides(shape, strides(x)))


def normalised(x: Any, axis: int, dtype: Any = None) -> Made:
    """softmax and its kin."""
    return Made(x.shape, dtype or x.dtype)


def one_element(x: Any, *rest: Any) -> Made:
    """One element for all."""
    return Made((), x.dtype)


def extremes(x: Any, axes: Any = None, keepdim: bool = False) -> list[Made]:
    return [reduced(x, axes, keepdim)] * 2


def hashed(x: Any, axes: Any = None, keepdim: bool = False) -> Made:
    return reduced(x, axes, keepdim, dtypes.uint64.native)


def norm(x: Any, order: float, axes: Any = None, keepdim: bool = False, dtype: Any = None) -> Made:
    return reduced(x, axes, keepdim, real(dtype or x.dtype))


def distance(x: Any, y: Any, p: float) -> Made:
    return Made((), real(promoted(x, y)))


def sorted_with_position(x: Any, dim: int, descending: bool) -> list[Made]:
    return [like(x), like(x, INT64)]


def topk(x: Any, k: int, dim: int, largest: bool) -> list[Made]:
    shape = with_dim(x.shape, dim, k) if x.ndim or k else (0,)
    return [Made(shape, x.dtype), Made(shape, INT64)]


def kth(x: Any, k: int, dim: int, keepdim: bool) -> list[Made]:
    return with_position(x, dim, keepdim)


def searched(edges: Any, values: Any, right: bool, order: Any, small: bool) -> Made:
    return Made(values.shape, INT32 if small else INT64)


def histogram(x: Any, bins: int, low: float, high: float) -> Made:
    return Made((bins,), x.dtype)


def histogram_of_points(x: Any, edges: Any, weight: Any, density: bool) -> Made:
    return Made(tuple([e.shape[0] - 1 for e in edges]), x.dtype)
