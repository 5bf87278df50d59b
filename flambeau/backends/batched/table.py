"""The table of batching rules by kernel name, and what rules are written with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from numpy import dtype, ndarray

from .. import registry
from ..facts import BATCHING, POINTWISE
from .arrays import BatchedArray, Level, batch, broadcast

RULES: dict[str, Callable[..., Any]] = {}  # by name: (kernel, level, args, numbers that rows say) -> the result, batched
_PLAIN = frozenset((ndarray, int, float, bool, str, type(None), *[type(dtype(c)) for c in "fdilqbBhHIFD?"]))
_found: dict[str, Callable[..., Any]] = {}  # the rules of kernels that were called so far
looped: set[str] = set()                   # kernels that went example by example so far


def rule(function: Callable) -> Callable:
    """Enters a rule under its name: for the kernel of that name, and for those whose row says so (facts.BATCHING)."""
    RULES[function.__name__] = function
    return function


def run(kernel: str, *args: Any) -> Any:
    """A kernel on whole arrays, which may be batched at outer levels."""
    on_cpu = registry.following is None
    for a in args:
        kind = a.__class__
        if kind is BatchedArray:
            return call(kernel, args)
        if kind not in _PLAIN:
            on_cpu = False
    if on_cpu:
        return registry.cpu.call(kernel, args)
    arrays = []
    for a in args:
        if a.__class__ is list or a.__class__ is tuple:
            arrays += [t for t in a if hasattr(t, "dtype") and hasattr(t, "strides")]
        elif hasattr(a, "strides"):
            arrays.append(a)
    return registry.common(arrays).call(kernel, args)


def batched(made: Any, level: Level) -> Any:
    """The results of a kernel on whole arrays, as arrays of this level."""
    if made.__class__ is ndarray and made.ndim:
        return BatchedArray(level, made)
    if made.__class__ is tuple or made.__class__ is list:
        return made.__class__([m if m is None else batched(m, level) for m in made])
    return batch(level, made if hasattr(made, "strides") and made.ndim else registry.cpu.asarray(made))


def has(x: Any, level: Level) -> bool:
    """Whether an argument is batched at a level."""
    return x.__class__ is BatchedArray and x.level is level


def examples(x: Any, level: Level) -> Any:
    """The whole array of an argument; what is not batched is repeated (without memory of its own)."""
    if x.__class__ is BatchedArray and x.level is level:
        return x.examples
    return broadcast(x, (level.size, *x.shape))


def inside(x: Any, level: Level, ndim: int) -> Any:
    """An argument such that it broadcasts against whole arrays of examples with `ndim` dimensions."""
    if x.__class__ is BatchedArray and x.level is level:
        x = x.examples
        if x.ndim <= ndim:
            shape = x.shape
            x = x.reshape((shape[0], *(1,) * (ndim + 1 - len(shape)), *shape[1:]))
    return x


def up(dim: int) -> int:
    """A dimension of one example, as a dimension of the whole."""
    return dim + 1 if dim >= 0 else dim


def ups(dims: Any, ndim: int) -> Any:
    """Dimensions of one example (None: all of them) as dimensions of the whole."""
    if dims is None:
        return tuple(range(1, ndim + 1))
    return up(dims) if dims.__class__ is int else tuple([up(d) for d in dims])


def one_by_one(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """A kernel without a rule: runs on one example after the other."""
    if kernel not in looped:
        looped.add(kernel)
        warnings.warn(f"There is a performance drop because there is no batching rule for {kernel}: it runs once per example.",
                      UserWarning, stacklevel=2)
    count = level.size or 1
    results = [run(kernel, *[_one(a, level, i) for a in args]) for i in range(count)]
    return _joined(results, level)


def _one(a: Any, level: Level, i: int) -> Any:
    if a.__class__ is BatchedArray and a.level is level:
        return a.examples[i, ...] if level.size else registry.cpu.zeros(a.shape, a.dtype)
    if a.__class__ is list or a.__class__ is tuple:
        return a.__class__([_one(t, level, i) for t in a])
    return a


def _joined(results: list[Any], level: Level) -> Any:
    first = results[0]
    if first is None:
        return None
    if first.__class__ is tuple or first.__class__ is list:
        return first.__class__([_joined(list(column), level) for column in zip(*results)])
    arrays = [r if hasattr(r, "strides") and hasattr(r, "flags") else registry.cpu.asarray(r) for r in results]
    if not hasattr(first, "dtype"):
        return first  # a plain value
    if any(a.shape != arrays[0].shape for a in arrays):
        raise RuntimeError("vmap: the shape of a result depends on values, so examples do not fit into one tensor")
    made = run("stack", arrays, 0, arrays[0].dtype)
    return batch(level, made if level.size else made[:0])


def call(kernel: str, args: tuple[Any, ...]) -> Any:
    """A kernel of which some array is batched."""
    level = None
    for a in args:
        if a.__class__ is BatchedArray:
            if level is None or a.level.number > level.number:
                level = a.level
        elif a.__class__ is list or a.__class__ is tuple:
            for t in a:
                if t.__class__ is BatchedArray and (level is None or t.level.number > level.number):
                    level = t.level
    return (_found.get(kernel) or _rule_of(kernel))(kernel, level, args)


def _rule_of(kernel: str) -> Callable:
    """The rule that its row says, that of its own name, that of all pointwise kernels, or a loop."""
    said = BATCHING.get(kernel, kernel)
    if said.__class__ is tuple:
        rule, numbers = RULES[said[0]], said[1:]
        found = lambda kernel, level, args: rule(kernel, level, args, *numbers)
    else:
        found = RULES.get(said) if said.__class__ is str else said
        found = found or (RULES["pointwise"] if kernel in POINTWISE else one_by_one)
    _found[kernel] = found
    return found
