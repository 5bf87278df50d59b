"""Strides of what kernels make: PyTorch's, which the shape rules (ops/rules) say, where NumPy's own are others.

NumPy keeps the order of dimensions of what it is given; PyTorch's reductions, scans and sorts mostly do not, and its results of
LAPACK are stored column by column.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from numpy import ndarray

from ..facts import SHAPES
from ..strides import contiguous_strides, elementwise_strides
from . import memory, table
from .arrays import strides
from .parallel import HALF, LARGE, copy_into, large


def laid_out(function: Callable[..., Any] | None = None, *, name: str | None = None, always: bool = False,
             **facts: Any) -> Callable[..., Any]:
    """`kernel`, for those whose results must be brought into the strides of their shape rule.

    That is where an argument is not contiguous; `always`: of contiguous ones too. Kernels call each other without it.
    """
    if function is None:
        return functools.partial(laid_out, name=name, always=always, **facts)
    name = name or function.__name__.rstrip("_")

    @functools.wraps(function)
    def checked(*args: Any) -> Any:
        made = function(*args)
        if not always:
            for a in args:
                if type(a) is ndarray and not a.flags.c_contiguous:
                    break
            else:
                return made
        return by_rule(name, args, made)

    table.kernel(function, name, **facts)
    table.KERNELS[name] = checked
    return function


def by_rule(name: str, args: tuple[Any, ...], made: Any) -> Any:
    """The results of a kernel in the strides that its rule says."""
    rule = SHAPES.get(name)
    if rule is None:
        return made
    wanted = rule(*args)
    if made.__class__ is tuple:
        return tuple([_ordered(m, w) for m, w in zip(made, wanted)])
    return _ordered(made, wanted)


def _ordered(made: Any, wanted: Any) -> Any:
    if type(made) is not ndarray or made.size < 2 or wanted.__class__ is ndarray or wanted is None or wanted[0] != made.shape:
        return made
    if wanted[2] is None:
        return made if made.flags.c_contiguous else made.copy()
    return strided(made, wanted[2])


def contiguous(made: Any, x: ndarray) -> Any:
    """What NumPy made of x, in the order of its dimensions; nothing to do where x was contiguous."""
    if x.flags.c_contiguous or type(made) is not ndarray:
        return made
    return made if made.flags.c_contiguous and 1 not in made.shape else made.copy()


def strided(made: ndarray, stride: Any) -> ndarray:
    """The same elements in memory of these strides, which have no holes; the array itself if it is that."""
    shape, size = made.shape, made.itemsize
    if all([s * size == t for s, t, n in zip(stride, made.strides, shape) if n > 1]):
        return made
    if len(shape) == 2 and made.size < LARGE:  # the same, in fewer steps
        return made.T.copy().T if stride[0] < stride[1] else made.copy()
    order = sorted(range(len(shape)), key=lambda i: (-stride[i], shape[i] > 1, i))
    back = [order.index(i) for i in range(len(shape))]
    out = memory.empty(tuple([shape[i] for i in order]), made.dtype).transpose(back)
    copy_into(out, made)
    return out


# ----------------------------------------------------------------------------------------------------- element by element
def elementwise(made: Any, args: Any) -> Any:
    """What a pointwise kernel made of arguments, in PyTorch's order of dimensions: the first argument that has one decides.

    NumPy keeps an order that all arguments have, and takes that of the dimensions where they differ.
    """
    for a in args:
        if type(a) is ndarray and not a.flags.c_contiguous:
            break
    else:
        return made
    if made.__class__ is tuple:
        return tuple([elementwise(m, args) for m in made])
    if type(made) is not ndarray or made.ndim < 2:
        return made
    stride = elementwise_strides(made.shape, [(a.shape, strides(a)) for a in args if type(a) is ndarray and a.ndim])
    return strided(made, contiguous_strides(made.shape) if stride is None else stride)


def uneven(kernel: Any, x: Any, y: Any) -> Any:
    """A pointwise kernel of any two arrays."""
    if type(x) is not ndarray or type(y) is not ndarray:
        return kernel(x, y)  # those of other devices know what to do
    if (most := max(x.size, y.size)) >= LARGE or (most >= HALF and x.dtype.char in "eE"):
        made = large(kernel, x, y)
    else:
        made = kernel(x, y, out=...)  # an array, not a scalar
    if x.ndim < 2 or (order := x.strides) == y.strides or sorted(order, reverse=True) == [*order]:
        return made
    return elementwise(made, (x, y))
