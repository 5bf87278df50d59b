"""Batching rules: element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import registry
from .arrays import BatchedArray, Level, broadcast
from .table import batched, examples, has, inside, rule, run

_on_cpu = registry.cpu.call


@rule
def pointwise(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Examples of fewer dimensions get dimensions of length one behind the batch."""
    ndim, on_cpu, mine = 0, True, False
    for a in args:
        if a.__class__ is BatchedArray:
            ndim = max(ndim, a.ndim)
            if a.level is level:
                mine = True
                on_cpu = on_cpu and a.examples.__class__ is np.ndarray
            else:
                on_cpu = False
        elif isinstance(a, np.ndarray):
            ndim = max(ndim, a.ndim)
    if not mine:  # asked for by another rule
        return run(kernel, *args)
    given = tuple([inside(a, level, ndim) if a.__class__ is BatchedArray else a for a in args])
    made = _on_cpu(kernel, given) if on_cpu and registry.following is None else run(kernel, *given)
    if made.__class__ is np.ndarray:
        return BatchedArray(level, made)
    return batched(made, level)


@rule
def masked_fill(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, mask, value = args
    if value.__class__ is BatchedArray:
        return pointwise("where", level, (mask, value.astype(x.dtype), x))
    shape = np.broadcast_shapes(x.shape, mask.shape)
    goal = x.examples if has(x, level) else broadcast(x, (level.size, *shape))
    return batched(run(kernel, goal, inside(mask, level, len(shape)), value), level)


@rule
def cloned(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, form = args[0], args[-1]
    if form not in ("preserve", "contiguous"):  # channels last: of one example
        order = {4: (0, 1, 3, 4, 2), 5: (0, 1, 3, 4, 5, 2)}[x.ndim]
        made = run(kernel, x.examples.transpose(order), *args[1:-1], "contiguous")
        back = sorted(range(x.ndim + 1), key=order.__getitem__)
        return batched(made.transpose(back), level)
    return batched(run(kernel, x.examples, *args[1:]), level)


@rule
def drawn(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return args[-1]


@rule
def filled(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """The second argument's value, in the first one's shape."""
    x, value = args
    first = examples(x, level)
    return batched(run(kernel, first, inside(value, level, x.ndim) if hasattr(value, "strides") else value), level)
