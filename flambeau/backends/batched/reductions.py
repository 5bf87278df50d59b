"""Batching rules: reductions, scans, sorting and all else that works along dimensions."""

from __future__ import annotations

from typing import Any

from .arrays import Level
from .elementwise import pointwise
from .table import batched, examples, has, one_by_one, rule, run, up, ups


@rule
def along(kernel: str, level: Level, args: tuple[Any, ...], at: int) -> Any:
    """A kernel of arrays of one shape, whose argument number `at` is a dimension or several (None: all)."""
    count = 1
    while count < at and hasattr(args[count], "strides"):
        count += 1
    arrays = [examples(a, level) for a in args[:count]]
    ndim = arrays[0].ndim - 1
    dims = args[at] if len(args) > at else None
    if ndim:
        return batched(run(kernel, *arrays, *args[count:at], ups(dims, ndim), *args[at + 1:]), level)
    # Along the only dimension of a single element.
    size = level.size
    made = run(kernel, *[a.reshape((size, 1)) for a in arrays], *args[count:at],
               1 if dims.__class__ is int else (1,), *args[at + 1:])
    return batched([m.reshape((size,)) for m in made] if made.__class__ in (tuple, list) else made.reshape((size,)), level)


@rule
def argument_of_extreme(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Without a dimension it is the place in the flattened example."""
    x, dim, keepdim = (*args, None, False)[:3] if len(args) == 1 else (*args, False)[:3]
    if dim is not None:
        return along(kernel, level, (x, dim, keepdim), 1)
    made = run(kernel, x.examples.reshape((level.size, x.size)), 1, False)
    return batched(made.reshape((level.size, *(1,) * x.ndim)) if keepdim else made, level)


@rule
def median(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, ignore_nan = args
    return batched(run("median_dim", x.examples.reshape((level.size, x.size)), 1, False, ignore_nan)[0], level)


@rule
def sum_to_size(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims, shape = args
    return batched(run(kernel, x.examples, ups(dims, 0), (level.size, *shape)), level)


@rule
def dist(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, y, p = args
    difference = pointwise("sub", level, (x, y)).examples
    return batched(run("vector_norm", difference, p, tuple(range(1, difference.ndim)), False), level)


@rule
def searchsorted(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    bounds, values, right, sorter, narrow = args
    if not has(bounds, level) and bounds.ndim == 1 and not has(sorter, level):
        return batched(run(kernel, bounds, values.examples, right, sorter, narrow), level)
    if not hasattr(values, "shape"):
        return one_by_one(kernel, level, args)
    b, v = examples(bounds, level), examples(values, level)
    s = None if sorter is None else examples(sorter, level)
    if b.ndim == 2:
        v = v.reshape((level.size, values.size))
    return batched(run(kernel, b, v, right, s, narrow).reshape((level.size, *values.shape)), level)


@rule
def isin(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    if has(args[1], level):
        values, known, _, invert = args
        equal = pointwise("eq", level, (values[..., None], known.reshape((known.size,))))
        found = run("any", equal.examples, (values.ndim + 1,), False)
        return batched(run("logical_not", found) if invert else found, level)
    return batched(run(kernel, args[0].examples, *args[1:]), level)


@rule
def renorm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Slices of all examples along one dimension: the batch and that dimension as one."""
    x, p, dim, largest = args
    order = (0, up(dim), *[d for d in range(1, x.ndim + 1) if d != up(dim)])
    moved = x.examples.transpose(order)
    flat = moved.reshape((moved.shape[0] * moved.shape[1], *moved.shape[2:]))
    made = run(kernel, flat, p, 0, largest).reshape(moved.shape)
    return batched(made.transpose(sorted(range(x.ndim + 1), key=order.__getitem__)), level)
