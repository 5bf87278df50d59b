"""`vmap`: a function of one example, applied to a batch.

The function is called once, on tensors that show one example and hold the batch (`backends/batched`); each kernel's batching
rule says how it runs on the whole. Entering and leaving are operations with derivatives, so gradients go through. With
tensor-like objects of foreign classes among its arguments, the function is called once per example instead (`looping.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..autograd import state as _state
from ..autograd.state import mode_bits, not_repeatable, state
from ..backends import registry
from ..backends.batched.arrays import Level, levels_of
from ..ops.core.export import FUNCTIONS
from ..ops.core.levels import enter, leave
from ..tensors.tensor import Tensor
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

_RANDOMNESS = ("error", "different", "same")


class inside:
    """A level is under way in this block: operations take no fast paths."""

    def __init__(self, level: Level):
        registry.load_batched()
        self.level, self.bit = level, mode_bits(set=_state.BATCHED)

    def __enter__(self) -> Level:
        self.bit.__enter__()
        self.level.position = 1 + len(state.levels) + len(state.transforms)
        state.levels = [*state.levels, self.level]
        return self.level

    def __exit__(self, *error: Any) -> None:
        state.levels = [level for level in state.levels if level is not self.level]
        self.bit.__exit__(*error)


# --------------------------------------------------------------------------------------------------------------- vmap
def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
         chunk_size: int | None = None) -> Callable[..., Any]:
    """The function over a batch: in_dims says which dimension of each input is the batch (None: not batched), out_dims
    where it goes in the results. randomness: "different" numbers for each example, the "same", or an "error".
    chunk_size: how many examples are computed at a time.

    >>> torch.func.vmap(torch.dot)(torch.ones(3, 2), torch.ones(3, 2))
    tensor([2., 2., 2.])
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def batched(*args: Any, **kwargs: Any) -> Any:
        if not all([isinstance(d, (int, type(None))) for d in tree_flatten(out_dims)[0]]):
            raise ValueError(f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                             "collection of ints representing where in the outputs the vmapped dimension should appear.")
        size, dims, leaves, spec = _inputs(func, in_dims, args)
        if size is None:
            raise ValueError("vmap: Expected at least one Tensor to vmap over")
        call = _Call(func, out_dims, randomness, spec, kwargs)
        if any(tensor_like(v) and not isinstance(v, Tensor) for v in leaves):
            from .looping import each
            return each(call, size, leaves, dims)
        if state.mode & (_state.CAPTURE | _state.FOLLOW):
            return _uncompiled(call, size, leaves, dims, chunk_size)
        return call(size, leaves, dims) if chunk_size is None or chunk_size >= size else call.in_chunks(
            chunk_size, size, leaves, dims)

    return batched


def _uncompiled(call: _Call, size: int, leaves: list[Any], dims: list[Any], chunk_size: int | None) -> Any:
    """A call of vmap inside a compiled function: its kernels run at once, for they are given arrays that no program has."""
    not_repeatable("vmap was called")
    if state.mode & _state.FOLLOW:
        state.follower.look(None, "vmap was called")
    with mode_bits(clear=_state.CAPTURE | _state.FOLLOW):
        return call(size, leaves, dims) if chunk_size is None else call.in_chunks(chunk_size, size, leaves, dims)


def _run_function(level: Level, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A custom autograd Function on batched tensors."""
    from .functions import apply
    return apply(cls, args, kwargs)


Level.run_function = _run_function


class _Call:
    """A function with what it was told about its inputs and results."""

    def __init__(self, func: Any, out_dims: Any, randomness: str, spec: Any, kwargs: dict[str, Any]):
        self.func, self.out_dims, self.randomness, self.spec, self.kwargs = func, out_dims, randomness, spec, kwargs

    def run(self, leaves: list[Any]) -> Any:
        return self.func(*tree_unflatten(leaves, self.spec), **self.kwargs)

    def flat(self, size: int, leaves: list[Any], dims: list[Any]) -> tuple[list[Any], list[Any], Any]:
        """(results with the batch where it belongs, the dimension of each batch, spec) for all examples at once."""
        level = Level(size, self.randomness)
        with inside(level):
            made = self.run([v if d is None else enter(v, d, level) for v, d in zip(leaves, dims)])
            results, spec = tree_flatten(made, tensor_like)
            out = places(self.func, self.out_dims, spec)
            results = [self._left(v, d, level) for v, d in zip(results, out)]
        return results, out, spec

    def _left(self, value: Any, dim: Any, level: Level) -> Any:
        name = name_of(self.func)
        if not isinstance(value, Tensor):
            if dim is None:
                return value
            raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. Did you mean to "
                             "set out_dims= to None for output?")
        if dim is None:
            if level in levels_of(value._array):
                raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
            return value
        if not -value.ndim - 1 <= dim <= value.ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-value.ndim - 1}, {value.ndim}], but got "
                             f"{dim})")
        return leave(value, dim % (value.ndim + 1), level)

    def __call__(self, size: int, leaves: list[Any], dims: list[Any]) -> Any:
        results, _, spec = self.flat(size, leaves, dims)
        return tree_unflatten(results, spec)

    def in_chunks(self, chunk: int, size: int, leaves: list[Any], dims: list[Any]) -> Any:
        """Some examples at a time; the results are joined."""
        from ..creation.random import default_generator
        chunks = []
        before = default_generator.get_state() if self.randomness == "same" else None
        for start in range(0, size, chunk):
            if before is not None:
                default_generator.set_state(before)
            count = min(chunk, size - start)
            part = [v if d is None else v.narrow(d, start, count) for v, d in zip(leaves, dims)]
            results, out, spec = self.flat(count, part, dims)
            chunks.append(results)
        joined = [values[0] if d is None else FUNCTIONS["cat"](values, d) for values, d in zip(zip(*chunks), out)]
        return tree_unflatten(joined, spec)


def name_of(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def _inputs(func: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[int | None, list[Any], list[Any], Any]:
    """(batch size, the batch dimension of each leaf, leaves, spec), checked."""
    what = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(f"{what}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure "
                         f"of inputs, got: {type(in_dims)}.")
    if not args:
        raise ValueError(f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                         "trying to vmap over a function with no inputs. The latter is unsupported.")
    leaves, spec = tree_flatten(args, tensor_like)
    dims = _broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(f"{what}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
                         f"{tree_flatten(in_dims)[1]} but inputs has structure {spec}.")
    sizes = []
    for k, (value, dim) in enumerate(zip(leaves, dims)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"{what}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None.")
        if not tensor_like(value):
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


def tensor_like(value: Any) -> bool:
    """Whether a value is a tensor, or has dimensions and takes part in operations (`__torch_function__`) like one."""
    return isinstance(value, Tensor) or (hasattr(type(value), "__torch_function__") and hasattr(type(value), "ndim"))


def places(func: Any, out_dims: Any, spec: Any) -> list[Any]:
    """Where the batch goes in each result."""
    what = f"vmap({name_of(func)}, ..., out_dims={out_dims})"
    if isinstance(out_dims, int) or spec.is_leaf():
        alone = isinstance(out_dims, tuple) and len(out_dims) == 1 and spec.is_leaf()
        dims = [out_dims[0] if alone else out_dims] * spec.num_leaves
    else:
        dims = _broadcast_to_and_flatten(out_dims, spec)
    if dims is None or any(isinstance(d, (tuple, list)) for d in dims):
        raise ValueError(f"{what}(<inputs>): out_dims is not compatible with the structure of `outputs`. out_dims has "
                         f"structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}.")
    return dims
