"""Batching rules: taking and writing elements at positions. Batched positions count within their own example."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import registry
from .arrays import Level, broadcast, innermost
from .elementwise import pointwise
from .table import batched, examples, has, inside, one_by_one, rule, run, up


# ------------------------------------------------------------------------------------------------ x[positions, ...]
def _masks(indices: Any) -> bool:
    return any([a is not None and a.dtype.kind == "b" for a in indices])


def _places(indices: Any) -> tuple[list[int], bool, int]:
    """(dimensions with positions, whether they follow each other, how many dimensions the positions have)."""
    given = [d for d, a in enumerate(indices) if a is not None]
    together = given == list(range(given[0], given[-1] + 1))
    return given, together, max([a.ndim for a in indices if a is not None])


def _beside(x: Any, values: np.ndarray) -> Any:
    """Values of the host's on the device of an array."""
    return registry.backend_of(innermost(x)).asarray(values)


def _numbers(x: Any, level: Level, ndim: int) -> Any:
    """The number of each example, as positions of the batch, where x is."""
    return _beside(x, np.arange(level.size).reshape((level.size, *(1,) * ndim)))


def _order(first: int, count: int, total: int) -> tuple[int, ...]:
    """Where (batch, positions, dimensions before them, dimensions after) have to go: behind the dimensions before."""
    return (0, *range(1 + count, 1 + count + first), *range(1, 1 + count), *range(1 + count + first, total))


@rule
def index(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, indices = args
    if _masks(indices):
        return one_by_one(kernel, level, args)
    given, together, count = _places(indices)
    if not any([has(a, level) for a in indices]):
        made = run(kernel, x.examples, [None, *indices])
        if not together:  # the positions come first
            made = made.transpose((count, *range(count), *range(count + 1, made.ndim)))
        return batched(made, level)
    places = [None if a is None else inside(a, level, count) for a in indices]
    if has(x, level):
        made = run(kernel, x.examples, [_numbers(x, level, count), *places])
        if together and given[0]:
            made = made.transpose(_order(given[0], count, made.ndim))
    else:
        made = run(kernel, x, places)
        if together and given[0]:
            first = given[0]
            made = made.transpose((first, *range(first), *range(first + 1, made.ndim)))
    return batched(made, level)


@rule
def index_put(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, indices, values, accumulate = args
    if _masks(indices):
        if len(indices) == 1 and not values.ndim and not accumulate:  # one value: no need to know where it goes
            mask = indices[0][(..., *(None,) * (x.ndim - indices[0].ndim))]
            return pointwise("where", level, (mask, values, x))
        return one_by_one(kernel, level, args)
    given, together, count = _places(indices)
    places = [None if a is None else inside(a, level, count) for a in indices]
    if together and given[0]:  # here the positions follow the batch, and the dimensions before them come after
        first, shape = given[0], np.broadcast_shapes(*[a.shape for a in indices if a is not None])
        full = (*x.shape[:first], *shape, *x.shape[given[-1] + 1:])
        spread = broadcast(inside(values, level, len(full)), (level.size, *full))
        order = _order(first, count, len(full) + 1)
        values = spread.transpose(sorted(range(len(order)), key=order.__getitem__))
    else:
        rest = len(x.shape) - len(given)
        values = inside(values, level, count + rest)
    return batched(run(kernel, examples(x, level), [_numbers(x, level, count), *places], values, accumulate), level)


@rule
def index_select(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, positions = args
    if has(positions, level):
        if not x.ndim:
            return index_select(kernel, level, (x.reshape((1,)), 0, positions.reshape((positions.size,)))).reshape(())
        return index("index", level, (x, [None] * (dim % x.ndim) + [positions.reshape((positions.size,))]))
    if not x.ndim:
        made = run(kernel, x.examples.reshape((level.size, 1)), 1, positions.reshape((-1,)))
        return batched(made.reshape((level.size,)), level)
    return batched(run(kernel, x.examples, up(dim), positions), level)


@rule
def index_change(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """(x, dim, positions, values, ...)."""
    x, dim, positions, values, *rest = args
    if not x.ndim:
        values, positions = values if kernel == "index_fill" else values.reshape((positions.size,)), positions.reshape((-1,))
        return index_change(kernel, level, (x.reshape((1,)), 0, positions, values, *rest)).reshape(())
    if kernel == "index_fill" and has(values, level):  # another value for each example: where it goes is a question of its own
        places = run(kernel, _beside(x, np.zeros(x.shape, bool)), dim, positions, True)
        return pointwise("where", level, (places, values.astype(x.dtype), x))
    if has(positions, level):
        return _index_change_each(kernel, level, args)
    if kernel != "index_fill":
        values = examples(values, level)
        if values.ndim == x.ndim and x.ndim == 1:
            values = values.reshape((level.size, 1))
    return batched(run(kernel, examples(x, level), up(dim), positions, values, *rest), level)


def _index_change_each(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Each example has positions of its own: batch and dimension become one."""
    x, dim, positions, values, *rest = args
    if kernel != "index_fill" and values.ndim != x.ndim:
        return one_by_one(kernel, level, args)
    dim, size = up(dim % x.ndim), level.size
    order = (0, dim, *[d for d in range(1, x.ndim + 1) if d != dim])

    def flat(a: Any) -> Any:
        a = examples(a, level).transpose(order)
        return a.reshape((a.shape[0] * a.shape[1], *a.shape[2:]))

    at = _shifted(_wrapped(positions.reshape((positions.size,)), x.shape[dim - 1]), level, x.shape[dim - 1]).reshape((-1,))
    made = run(kernel, flat(x), 0, at, values if kernel == "index_fill" else flat(values), *rest)
    made = made.reshape((size, x.shape[dim - 1], *made.shape[1:]))
    return batched(made.transpose(sorted(range(made.ndim), key=order.__getitem__)), level)


@rule
def added_rows(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Rows of all examples, one example's behind the other's."""
    source, positions, shape = args
    size, rows = level.size, shape[0]
    source = examples(source, level).reshape((size * positions.size, *shape[1:]))
    at = examples(positions, level).reshape((size, positions.size))
    first = _beside(at, (np.arange(size) * rows).astype(at.dtype)[:, None])
    at = run("add", run("remainder", at, np.asarray(rows, at.dtype)), first)
    return batched(run(kernel, source, at.reshape((-1,)), (size * rows, *shape[1:])).reshape((size, *shape)), level)


# ----------------------------------------------------------------------------------------------- gather and scatter
@rule
def picked_along(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dim, positions = args
    a, at = examples(x, level), examples(positions, level)
    if x.ndim and positions.ndim:
        return batched(run(kernel, a, up(dim), at), level)
    size = level.size
    made = run(kernel, a.reshape((size, x.size)), 1, at.reshape((size, positions.size)))
    return batched(made.reshape((size, *positions.shape)), level)


@rule
def scatter(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """(x, dim, positions, values, ...)."""
    x, dim, positions, values, *rest = args
    if not x.ndim:
        if hasattr(values, "ndim"):
            values = values.reshape((values.size,))
        return scatter(kernel, level, (x.reshape((1,)), 0, positions.reshape((positions.size,)), values, *rest)).reshape(())
    if not positions.ndim:
        return one_by_one(kernel, level, args)
    if hasattr(values, "strides") and (values.ndim or has(values, level)):
        values = examples(values, level)
        if values.ndim == 1:  # one number per example
            values = broadcast(values.reshape((level.size, *(1,) * positions.ndim)), (level.size, *positions.shape))
    return batched(run(kernel, examples(x, level), up(dim), examples(positions, level), values, *rest), level)


@rule
def scatter_added(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    source, dim, positions, shape = args
    if not shape or not positions.ndim:
        flat = [a.reshape((a.size,)) for a in (source, positions)]
        made = scatter_added(kernel, level, (flat[0], 0, flat[1], shape or (1,)))
        return made.reshape(shape)
    return batched(run(kernel, examples(source, level), up(dim), examples(positions, level), (level.size, *shape)), level)


@rule
def take(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, positions = args
    size = level.size
    if not has(positions, level):
        made = run("index_select", x.examples.reshape((size, x.size)), 1, _wrapped(positions.reshape((-1,)), x.size))
    elif not has(x, level):
        return batched(run(kernel, x, positions.examples), level)
    else:
        flat = _wrapped(positions.examples.reshape((size, positions.size)), x.size)
        made = run("gather", x.examples.reshape((size, x.size)), 1, flat)
    return batched(made.reshape((size, *positions.shape)), level)


@rule
def put(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """One example's elements behind the other's."""
    x, positions, values, accumulate = args
    size, count = level.size, x.size
    at = _shifted(_wrapped(positions.reshape((positions.size,)), count), level, count)
    flat = examples(x, level).reshape((size * count,))
    made = run(kernel, flat, at.reshape((-1,)), examples(values, level).reshape((-1,)), accumulate)
    return batched(made.reshape((size, *x.shape)), level)


@rule
def masked_select(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, mask = args
    if has(mask, level):
        return dynamic(kernel, level, args)
    shape = np.broadcast_shapes(x.shape, mask.shape)
    places = run("nonzero", broadcast(mask, shape).reshape((-1,))).reshape((-1,))
    spread = broadcast(inside(x, level, len(shape)), (level.size, *shape))
    return batched(run("index_select", spread.reshape((level.size, -1)), 1, places), level)


@rule
def dynamic(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """As many results as the values give: other numbers for each example."""
    raise RuntimeError("vmap: We do not support batching operators that can output dynamic shape. Attempted to vmap over "
                       f"aten::{kernel}.")


def _wrapped(positions: Any, size: int) -> Any:
    return run("remainder", positions, np.asarray(max(size, 1), positions.dtype))


# ---------------------------------------------------------------------------------------------------- embeddings
def _shifted(positions: Any, level: Level, rows: int) -> Any:
    """Rows of each example's table, where all tables lie behind each other."""
    at = examples(positions, level)
    first = (np.arange(level.size) * rows).astype(at.dtype).reshape((-1, *(1,) * positions.ndim))
    return run("add", at, _beside(at, first))


@rule
def embedding(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    weight, positions, *rest = args
    if not has(weight, level):
        return batched(run(kernel, weight, positions.examples, *rest), level)
    if not has(positions, level):
        made = run("index_select", weight.examples, 1, positions.reshape((-1,)))
        return batched(made.reshape((level.size, *positions.shape, weight.shape[1])), level)
    table = weight.examples.reshape((level.size * weight.shape[0], weight.shape[1]))
    return batched(run(kernel, table, _shifted(positions, level, weight.shape[0]), *rest), level)


@rule
def embedding_dense_backward(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, positions, count, padding, by_frequency = args
    if padding >= 0:  # its number is another one in each example's table: its gradients are made zero instead
        kept = pointwise("ne", level, (positions, np.asarray(padding, positions.dtype)))
        grad = pointwise("mul", level, (grad, kept.astype(grad.dtype)[..., None]))
    made = run(kernel, examples(grad, level), _shifted(positions, level, count), level.size * count, -1, by_frequency)
    return batched(made.reshape((level.size, count, grad.shape[-1])), level)
