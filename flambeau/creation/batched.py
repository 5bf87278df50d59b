"""Random numbers inside `vmap`: none, the same ones for all examples, or different ones, as each call of vmap was told."""

from __future__ import annotations

from typing import Any

from ..autograd.state import BATCHED, mode_bits, state
from ..backends import registry
from ..backends.batched.arrays import Level, batch, levels_of
from ..backends.batched.table import examples, inside, run
from ..backends.facts import BATCHING
from .random import draw as draw_unbatched

_ERROR = ("vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
          "randomness flags on vmap or perform the randomness operation out of vmap")
_SAME = ("Vmap does not currently support same randomness with a batched tensor input. Please file an issue with functorch (or "
         "draw with randomness=\"different\": the distribution differs between examples)")
_IN_PLACE = ("vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will appear like same randomness. "
             "If this is necessary for your usage, please file an issue with functorch.")


def _check() -> None:
    if any(level.randomness == "error" for level in state.levels):
        raise RuntimeError(_ERROR)


def draw(array: Any, generator: Any, kernel: str, args: tuple[Any, ...], keep: bool) -> Any:
    """Draws for an array inside vmap, as `random.draw` does outside: keep says that the array itself is to be filled."""
    _check()
    return _draw(list(state.levels), array, generator, kernel, args, keep)


def _draw(levels: list[Level], array: Any, generator: Any, kernel: str, args: tuple[Any, ...], keep: bool) -> Any:
    if not levels:
        with mode_bits(clear=BATCHED):
            return draw_unbatched(array, generator, kernel, *args, keep=keep)
    level = levels.pop()
    batched = level in levels_of(array)
    if level.randomness == "same":
        if any([level in levels_of(a) for a in args]):
            raise RuntimeError(_SAME)
        if not batched:
            return _draw(levels, array, generator, kernel, args, keep)
        made = _draw(levels, registry.cpu.empty(array.shape, array.dtype), generator, kernel, args, False)
        registry.backend_of(array).write(array, made)
        return array
    if not batched and keep:
        raise RuntimeError(_IN_PLACE)
    goal = array.examples if batched else registry.cpu.empty((level.size, *array.shape), array.dtype)
    given = tuple([inside(a, level, array.ndim) if hasattr(a, "strides") else a for a in args])
    made = _draw(levels, goal, generator, kernel, given, keep)
    return array if keep else batch(level, made)


def call(generator: Any, kernel: str, args: tuple[Any, ...]) -> Any:
    """A draw that is a kernel of its own (`random.call`) inside vmap."""
    _check()
    if args[0].__class__ is tuple:  # shape, dtype, ...
        return _draw(list(state.levels), registry.cpu.empty(args[0], args[1]), generator, kernel, args[2:], False)
    return _call(list(state.levels), generator, kernel, args)


def _call(levels: list[Level], generator: Any, kernel: str, args: tuple[Any, ...]) -> Any:
    if not levels:
        with generator._lock:
            return run(kernel, generator._words._array, *args)
    level = levels.pop()
    arrays = [a for a in args if hasattr(a, "strides")]
    batched = any([level in levels_of(a) for a in arrays])
    if level.randomness == "same":
        if batched:
            raise RuntimeError(_SAME)
        return _call(levels, generator, kernel, args)
    if BATCHING.get(kernel) == "pointwise":
        given = tuple([examples(a, level) if hasattr(a, "strides") else a for a in args])
        return batch(level, _call(levels, generator, kernel, given))
    if kernel == "draw_multinomial":
        x = examples(args[0], level)
        made = _call(levels, generator, kernel, (x.reshape((-1, x.shape[-1])), *args[1:]))
        return batch(level, made.reshape((*x.shape[:-1], made.shape[-1])))
    rows = [_call(list(levels), generator, kernel, tuple([a.examples[i] if level in levels_of(a) else a for a in args]))
            for i in range(level.size)]
    return batch(level, run("stack", rows, 0, rows[0].dtype))

