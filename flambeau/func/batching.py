"""`vmap`: a function of one example, applied to a batch.

The function is called once per example, on slices of the inputs, and its results are stacked: the numbers, the shapes
and the derivatives are those of PyTorch's vmap; the speed is that of a loop, so a function that can take a batch by
itself should.
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any

from ..autograd.engine import graphs_kept
from ..ops.table import FUNCTIONS
from ..tensor import Tensor
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

_RANDOMNESS = ("error", "different", "same")


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """The function over a batch: in_dims says which dimension of each input is the batch (None: not batched), out_dims
    where it goes in the results. randomness: "different" numbers for each example, the "same", or an "error".
    chunk_size is accepted: examples are computed one after the other anyhow."""
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        size, dims, leaves, spec = _inputs(func, in_dims, args)
        keyword_leaves, keyword_spec = tree_flatten(kwargs)
        keyword_dims = [0 if isinstance(v, Tensor) else None for v in keyword_leaves]
        for value in keyword_leaves:
            if isinstance(value, Tensor):
                size = value.shape[0] if size is None else size
        if not size:
            raise ValueError(f"vmap({_name(func)}): the batch dimension is empty; flambeau's vmap calls the function "
                             "once per example and cannot tell the results' shapes without one")
        call = _Draws(func, randomness)
        results = []
        for i in range(size):
            one = tree_unflatten([_slice(v, d, i) for v, d in zip(leaves, dims)], spec)
            named = tree_unflatten([_slice(v, d, i) for v, d in zip(keyword_leaves, keyword_dims)], keyword_spec)
            with graphs_kept() if i + 1 < size else contextlib.nullcontext():
                results.append(call(*one, **named))
        return _outputs(func, out_dims, results, any(d is not None for d in dims + keyword_dims))

    return batched


def _name(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def _inputs(func: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[int | None, list[Any], list[Any], Any]:
    """(batch size, the batch dimension of each leaf, leaves, spec), checked."""
    what = f"vmap({_name(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{what}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure "
                         f"of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"{what}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
                         "function with no inputs. The latter is unsupported.")
    leaves, spec = tree_flatten(args, _tensor_like)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(f"{what}: in_dims is not compatible with the structure of inputs.")
    sizes = []
    for k, (value, dim) in enumerate(zip(leaves, dims)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"{what}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or "
                             "None.")
        if not _tensor_like(value):
            raise ValueError(f"{what}: Got in_dim={dim} for an input but the input is of type {type(value)}. We cannot "
                             "vmap over non-Tensor arguments, please use None as the respective in_dim")
        if not -value.ndim <= dim < value.ndim:
            raise ValueError(f"{what}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                             f"{value.ndim} so expected in_dim to satisfy -{value.ndim} <= in_dim < {value.ndim}.")
        dims[k] = dim % value.ndim
        sizes.append(value.shape[dim])
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sizes} "
                         "for the mapped dimension")
    return (sizes[0] if sizes else None), dims, leaves, spec


def _tensor_like(value: Any) -> bool:
    """Whether a value is a tensor, or has dimensions and takes part in operations (`__torch_function__`) like one."""
    return isinstance(value, Tensor) or (hasattr(type(value), "__torch_function__") and hasattr(type(value), "ndim"))


def _slice(value: Any, dim: int | None, i: int) -> Any:
    if isinstance(value, Tensor):
        return value if dim is None else value.select(dim, i)
    if dim is None:
        return copy.copy(value) if _tensor_like(value) else value  # what one example writes into it is its own
    return FUNCTIONS["unbind"](value, dim)[i]


class _Draws:
    """Calls the function, seeing to the random numbers that it draws."""

    def __init__(self, func: Callable[..., Any], randomness: str):
        self.func, self.randomness, self.before = func, randomness, None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.randomness == "different":
            return self.func(*args, **kwargs)
        from ..random import default_generator
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


def _outputs(func: Any, out_dims: Any, results: list[Any], batched: bool) -> Any:
    from ..ops.shape import stack
    taken = [tree_flatten(r, _tensor_like) for r in results]
    spec = taken[0][1]
    what = f"vmap({_name(func)}, ..., out_dims={out_dims})"
    if isinstance(out_dims, int) or spec.is_leaf():
        alone = isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.is_leaf()
        dims = [out_dims[0] if alone else out_dims] * spec.num_leaves
    else:
        dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None or any(isinstance(d, (tuple, list)) for d in dims):
        raise ValueError(f"{what}: out_dims is not compatible with the structure of outputs.")
    made = []
    for values, dim in zip(zip(*[leaves for leaves, _ in taken]), dims):
        if not _tensor_like(values[0]):
            if dim is None:
                made.append(values[0])
                continue
            raise ValueError(f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type "
                             f"{type(values[0])}.")
        made.append(values[0] if dim is None else stack(values, dim))
    return tree_unflatten(made, spec)
