"""`vmap` example by example: where what runs is not our own kernels on our own arrays."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

from ..autograd.engine import graphs_kept
from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from ..utils._pytree import tree_flatten, tree_unflatten
from .batching import name_of, places, tensor_like


def each(call: Any, size: int, leaves: list[Any], dims: list[Any]) -> Any:
    """The function called once per example, on slices of the inputs; the results are stacked."""
    if not size:
        raise ValueError(f"vmap({name_of(call.func)}): the batch dimension is empty; without an example the results' shapes "
                         "cannot be told here")
    draws = _Draws(call.run, call.randomness)
    results = []
    for i in range(size):
        with graphs_kept() if i + 1 < size else contextlib.nullcontext():
            results.append(draws([_slice(v, d, i) for v, d in zip(leaves, dims)]))
    return _outputs(call.func, call.out_dims, results)


def _slice(value: Any, dim: int | None, i: int) -> Any:
    if isinstance(value, Tensor):
        return value if dim is None else value.select(dim, i)
    if dim is None:
        return copy.copy(value) if tensor_like(value) else value  # what one example writes into it is its own
    return FUNCTIONS["unbind"](value, dim)[i]


class _Draws:
    """Calls the function, seeing to the random numbers that it draws."""

    def __init__(self, func: Callable[..., Any], randomness: str):
        self.func, self.randomness, self.before = func, randomness, None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.randomness == "different":
            return self.func(*args, **kwargs)
        from ..creation.random import default_generator
        if self.randomness == "same" and self.before is not None:
            default_generator.set_state(self.before)
            return self.func(*args, **kwargs)
        first = self.before is None
        if first:
            self.before = default_generator.get_state()
        made = self.func(*args, **kwargs)
        if self.randomness == "error" and first and not bool((default_generator.get_state() == self.before).all()):
            raise RuntimeError("vmap: called random operation while in randomness error mode. Please either use the "
                               "'same' or 'different' randomness flags on vmap or perform the randomness operation out "
                               "of vmap")
        return made


def _outputs(func: Any, out_dims: Any, results: list[Any]) -> Any:
    from ..ops.shape.joining import stack
    taken = [tree_flatten(r, tensor_like) for r in results]
    spec = taken[0][1]
    made = []
    for values, dim in zip(zip(*[leaves for leaves, _ in taken]), places(func, out_dims, spec)):
        if not tensor_like(values[0]):
            if dim is None:
                made.append(values[0])
                continue
            name = name_of(func)
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(values[0])}.")
        made.append(values[0] if dim is None else stack(values, dim))
    return tree_unflatten(made, spec)
