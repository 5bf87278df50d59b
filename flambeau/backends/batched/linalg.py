"""Batching rules: linear algebra, whose kernels take any number of leading dimensions."""

from __future__ import annotations

from typing import Any

from .arrays import Level
from .table import batched, examples, rule, run

_ARRAYS = "strides"


@rule
def leading(kernel: str, level: Level, args: tuple[Any, ...], *own: int) -> Any:
    """Any number of leading dimensions. own: those that the arrays have besides, where the leading ones are broadcast."""
    arrays = [examples(a, level) if hasattr(a, _ARRAYS) else a for a in args]
    if own:  # examples' leading dimensions are broadcast: all must have as many
        lead = max([a.ndim - n for a, n in zip(arrays, own) if hasattr(a, _ARRAYS)])
        for k, n in enumerate(own):
            a = arrays[k]
            if hasattr(a, _ARRAYS):
                arrays[k] = a.reshape((level.size, *(1,) * (lead + n - a.ndim), *a.shape[1:]))
    made = run(kernel, *arrays)
    if made.__class__ in (tuple, list):  # what was not asked for is empty
        made = tuple([m if m.size or m.ndim != 1 else m.reshape((level.size, 0)) for m in made])
    return batched(made, level)


@rule
def one_answer(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """A question about matrices, with one answer for all of them."""
    return run(kernel, *[examples(a, level) if hasattr(a, _ARRAYS) else a for a in args])
