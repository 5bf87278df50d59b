"""What an operation does with distributed tensors.

A rule says, for one call, in which placements each operand is wanted and in which the result then is; `execute` moves the
operands, runs the operation on the pieces and wraps what comes out. An operation without a rule runs on whole tensors, which is
right and costs a gather.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...backends.facts import POINTWISE
from ...tensors.tensor import Tensor
from ...utils._pytree import tree_flatten, tree_unflatten
from .dtensor import DTensor, as_dtensor, local_of, moved
from .layout import is_partial
from .moves import shared
from .placement_types import Placement, Replicate, Shard

RULES: dict[str, Callable[..., Any]] = {}  # by the operation's name: (function, args, kwargs) -> its result
REPLICATING: list[str] = []  # operations for which plain tensors count as replicated (loss_parallel)
_implicit = [0]  # blocks of `implicit_replication` that are entered


def rule(function: Callable) -> Callable:
    """Enters a rule for the operation of its name."""
    RULES[function.__name__.strip("_") if function.__name__.endswith("__") else function.__name__] = function
    return function


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """Inside, a plain tensor among distributed ones counts as replicated."""
    _implicit[0] += 1
    try:
        yield
    finally:
        _implicit[0] -= 1


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation of which some operand is a DTensor."""
    from . import rules  # noqa: F401  (they enter themselves)
    name = func.__name__
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"{name}(out=...) is not implemented for DTensors in flambeau")
    args, kwargs = _all_distributed(name, args, kwargs)
    known = RULES.get(name.strip("_") if name.endswith("__") else name)
    if known is not None:
        return known(func, args, kwargs)
    if name.endswith("_") and not name.endswith("__"):
        return RULES["in_place"](func, args, kwargs)
    if name in POINTWISE or name.removesuffix("_scalar") in POINTWISE:
        return RULES["pointwise"](func, args, kwargs)
    return everywhere(func, args, kwargs)


def _all_distributed(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The operands, plain tensors made replicated ones where that is allowed: single numbers, and in implicit_replication."""
    leaves, spec = tree_flatten((args, kwargs))
    mesh = next(t for t in leaves if isinstance(t, DTensor)).device_mesh
    for i, t in enumerate(leaves):
        if isinstance(t, DTensor):
            if t.device_mesh != mesh:
                raise RuntimeError(f"{name}: DTensors of two meshes, {mesh} and {t.device_mesh}, do not go together")
        elif isinstance(t, Tensor):
            if t.ndim and not _implicit[0] and name not in REPLICATING:
                raise RuntimeError(f"{name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor "
                                   "before calling distributed operators!")
            leaves[i] = as_dtensor(t, mesh, (Replicate(),) * mesh.ndim, t.shape)
    return tree_unflatten(leaves, spec)


def distributed_in(*values: Any) -> list[DTensor]:
    """All DTensors in arguments."""
    return [t for t in tree_flatten(values)[0] if isinstance(t, DTensor)]


def execute(func: Any, args: Any, kwargs: Any, wants: Sequence[Sequence[Placement]], out: Sequence[Placement],
            sizes: Any) -> Any:
    """Runs an operation on pieces.

    wants: the placements of each DTensor among the arguments, in their order. out: those of the result (or of all results).
    sizes: {dimension: length} of the result where it is cut, or a function from a local result to the whole's shape.
    """
    leaves, spec = tree_flatten((args, kwargs))
    given = [t for t in leaves if isinstance(t, DTensor)]
    mesh = given[0].device_mesh
    split = [i for i in range(mesh.ndim) if any(not isinstance(w[i], Replicate) for w in wants)]
    pieces = []
    for t, want in zip(given, wants):
        local = local_of(moved(t, tuple(want)))
        pieces.append(shared(local, mesh, [i for i in split if isinstance(want[i], Replicate)]))
    following = iter(pieces)
    args, kwargs = tree_unflatten([next(following) if isinstance(t, DTensor) else t for t in leaves], spec)
    return wrapped(func(*args, **kwargs), mesh, out, sizes)


def wrapped(made: Any, mesh: Any, out: Sequence[Placement], sizes: Any) -> Any:
    """Local results as distributed ones."""
    if isinstance(made, Tensor):
        if callable(sizes):
            shape = sizes(made)
        else:
            shape = list(made.shape)
            for p in out:
                if isinstance(p, Shard):
                    shape[p.dim] = sizes[p.dim]
        return as_dtensor(made, mesh, out, shape)
    if isinstance(made, (list, tuple)):
        parts = [wrapped(m, mesh, out, sizes) for m in made]
        return type(made)(*parts) if hasattr(made, "_fields") else type(made)(parts)
    return made


def everywhere(func: Any, args: Any, kwargs: Any) -> Any:
    """Every process runs the operation on whole tensors."""
    given = distributed_in(args, kwargs)
    whole = (Replicate(),) * given[0].device_mesh.ndim
    return execute(func, args, kwargs, [whole] * len(given), whole, {})


def gathered(x: DTensor, dims: Any, partial: bool = True) -> DTensor:
    """The tensor with no cut along some dimensions (and, as a rule, without summands)."""
    target = [Replicate() if (isinstance(p, Shard) and p.dim in dims) or (partial and p.is_partial()) else p
              for p in x.placements]
    return moved(x, tuple(target))


def bound(func: Any, args: Any, kwargs: Any, names: Sequence[str]) -> dict[str, Any]:
    """The arguments of a call by name."""
    made = dict(zip(names, args))
    made.update(kwargs)
    return made


def without_partial(x: DTensor) -> DTensor:
    """Summands added up."""
    return gathered(x, ()) if is_partial(x.placements) else x
