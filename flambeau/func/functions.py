"""Custom `autograd.Function`s inside `vmap`: a `vmap` method of their own, or (generate_vmap_rule) run as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..autograd.state import BATCHED, state
from ..backends.batched.arrays import Level, levels_of
from ..tensors.tensor import Tensor
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_map, tree_unflatten
from .batching import enter, leave


class VmapInfo(NamedTuple):
    """What a `vmap` method is told."""

    batch_size: int
    randomness: str


def apply(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a Function's `vmap` method; NotImplemented where the Function runs as it is."""
    from ..autograd.function import Function
    found = [level for a in tree_flatten((args, kwargs))[0] if isinstance(a, Tensor) for level in levels_of(a._array)]
    found = [level for level in found if level in state.levels]
    if not found:
        return NotImplemented
    check_setup(cls)
    own = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule:
        if own:
            raise RuntimeError(f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an "
                               "overridden vmap staticmethod. Please set generate_vmap_rule=False or delete the overridden "
                               "vmap staticmethod to avoid ambiguity.")
        return NotImplemented
    if not own:
        raise RuntimeError(f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and "
                           "implement the vmap staticmethod or set generate_vmap_rule=True.")
    return _own_rule(cls, max(found, key=lambda level: level.number), args)


def check_setup(cls: Any) -> None:
    """Inside transformations a Function says apart from `forward` what it saves."""
    from ..autograd.function import _no_setup
    if cls.setup_context is _no_setup and not cls.__module__.startswith(_OWN):
        raise RuntimeError("In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                           "must override the setup_context staticmethod. For more details, please see "
                           f"https://pytorch.org/docs/main/notes/extending.func.html ({cls.__name__} does not)")


_OWN = __name__.partition(".")[0] + "."


def _own_rule(cls: Any, level: Level, args: tuple[Any, ...]) -> Any:
    def dim(value: Any) -> int | None:
        return 0 if isinstance(value, Tensor) and level in levels_of(value._array) else None

    def out(value: Any) -> Any:
        return leave(value, 0, level) if dim(value) == 0 else value

    dims, given = tree_map(dim, args), tree_map(out, args)
    before = state.levels, state.mode
    state.levels = [known for known in state.levels if known is not level]
    if not state.levels:
        state.mode &= ~BATCHED
    try:
        made = cls.vmap(VmapInfo(level.size, level.randomness), dims, *given)
    finally:
        state.levels, state.mode = before
    if not isinstance(made, tuple) or len(made) != 2:
        got = f"a tuple with {len(made)} elements" if isinstance(made, tuple) else f"a {type(made)}"
        raise RuntimeError("Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
                           f"compatible with the output. Got {got} from that of {cls.__name__}.")
    values, spec = tree_flatten(made[0])
    places = _broadcast_to_and_flatten(made[1], spec)
    if places is None:
        raise RuntimeError("The autograd.Function's vmap staticmethod returned an incompatible (output, out_dims) tuple. "
                           f"Expected out_dims={made[1]} to be compatible with the structure of `output`. out_dims has "
                           f"structure {tree_flatten(made[1])[1]} but output has structure {spec}. ({cls.__name__}.vmap)")
    return tree_unflatten([enter(v, p % v.ndim, level) if isinstance(v, Tensor) and p is not None else v
                           for v, p in zip(values, places)], spec)
