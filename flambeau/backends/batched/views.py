"""Batching rules: views, their derivatives, joining and rearranging. All but a few shift dimensions by one."""

from __future__ import annotations

from typing import Any

from ..cpu.table import add
from .arrays import BatchedArray, Level, batch
from .table import batched, examples, has, one_by_one, rule, run, up, ups


def _aligned(x: Any, ndim: int) -> Any:
    """A whole array with dimensions of length one behind the batch, up to `ndim` dimensions per example."""
    return x if x.ndim > ndim else x.reshape((x.shape[0], *(1,) * (ndim + 1 - x.ndim), *x.shape[1:]))


@rule
def as_strided(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, size, stride, offset = args[:4]
    step = x.examples.strides[0] // x.itemsize
    return batched(run(kernel, x.examples, (level.size, *size), (step, *stride), offset), level)


@rule
def as_strided_scatter(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """An example has no place of its own in memory that the numbers could mean."""
    raise RuntimeError("aten::as_strided_scatter requires special handling, and does not yet have a batching rule. Feel free "
                       "to file a github issue! (Inside vmap, say which elements are written with indices.)")


@rule
def view(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return batched(run(kernel, args[0].examples, (level.size, *args[1])), level)


@rule
def view_dtype(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dtype, shape, stride = args
    step = x.examples.strides[0] // dtype.itemsize
    return batched(run(kernel, x.examples, dtype, (level.size, *shape), (step, *stride)), level)


@rule
def clone_strided(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Each example's memory comes after the one before."""
    x, stride = args
    reach = 1 + sum([(n - 1) * s for n, s in zip(x.shape, stride)]) if x.size else 0
    return batched(run(kernel, x.examples, (reach, *stride)), level)


@rule
def expand(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, shape = args
    return batched(run(kernel, _aligned(x.examples, len(shape)), (level.size, *shape)), level)


@rule
def permute(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return batched(run(kernel, args[0].examples, (0, *ups(args[1], 0))), level)


@rule
def transpose(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x = args[0]
    if not x.ndim:
        return batched(run(kernel, x.examples, 0, 0), level)
    return batched(run(kernel, x.examples, up(args[1]), up(args[2])), level)


@rule
def t(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x = args[0]
    a, b = (1, 2) if x.ndim == 2 else (0, 0)
    return batched(run(kernel.replace("t", "transpose", 1), x.examples, a, b), level)


@rule
def first_dim(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """(x, dim, ...)."""
    return batched(run(kernel, args[0].examples, up(args[1]), *args[2:]), level)


@rule
def unfold(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x = args[0].examples
    return batched(run(kernel, x if x.ndim > 1 else x.reshape((level.size, 1)), up(args[1]), *args[2:])
                   if x.ndim > 1 else x.reshape((level.size, 1))[:, :args[2]], level)


@rule
def diagonal(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, offset, dim1, dim2 = args
    return batched(run(kernel, x.examples, offset, up(dim1), up(dim2)), level)


@rule
def squeeze(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims = args
    return batched(run(kernel, x.examples, tuple([up(d) for d in dims]) if x.ndim else ()), level)


@rule
def split(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return batched(run(kernel, args[0].examples, args[1], up(args[2])), level)


@rule
def placed(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """(grad, shape, dim, ...)."""
    if not args[1]:
        return one_by_one(kernel, level, args)
    return batched(run(kernel, args[0].examples, (level.size, *args[1]), up(args[2]), *args[3:]), level)


@rule
def diagonal_backward(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, shape, offset, dim1, dim2 = args
    return batched(run(kernel, grad.examples, (level.size, *shape), offset, up(dim1), up(dim2)), level)


@rule
def restore(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Every example is a stretch of memory of its own."""
    grad, *geometries = args
    reach = max([g[2] + 1 + sum([(n - 1) * s for n, s in zip(g[0], g[1])]) for g in geometries])
    return batched(run(kernel, grad.examples, *[((level.size, *size), (reach, *stride), offset)
                                             for size, stride, offset in geometries]), level)


@rule
def scattered(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, source, dim, *rest = args
    return batched(run(kernel, examples(x, level), examples(source, level), up(dim), *rest), level)


@rule
def diagonal_scatter(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, source, offset, dim1, dim2 = args
    return batched(run(kernel, examples(x, level), examples(source, level), offset, up(dim1), up(dim2)), level)


# --------------------------------------------------------------------------------------------------- joining, rearranging
@rule
def cat(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    arrays, dim, dtype, form = args
    parts = [a for a in arrays if a.shape != (0,)] or list(arrays)
    if not any([has(a, level) for a in parts]):
        return run(kernel, parts, dim, dtype, form)
    return batched(run(kernel, [examples(a, level) for a in parts], up(dim), dtype, "contiguous"), level)


@rule
def stack(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    arrays, dim, *rest = args
    return batched(run(kernel, [examples(a, level) for a in arrays], up(dim), *rest), level)


@rule
def repeat(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, repeats = args
    return batched(run(kernel, _aligned(x.examples, len(repeats)), (1, *repeats)), level)


@rule
def roll(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, shifts, dims = args
    if not x.ndim:
        return batched(run("clone", x.examples, "preserve"), level)
    if not dims:
        return batched(run(kernel, x.examples.reshape((level.size, x.size)), shifts, (1,)).reshape(x.examples.shape), level)
    return batched(run(kernel, x.examples, shifts, ups(dims, 0)), level)


@rule
def flip(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims = args
    return batched(run(kernel, x.examples, ups(dims, 0) if x.ndim else ()), level)


@rule
def rot90(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return batched(run(kernel, args[0].examples, args[1], ups(args[2], 0)), level)


@rule
def trailing(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Kernels that work on the last dimensions, whatever comes before."""
    return batched(run(kernel, args[0].examples, *args[1:]), level)


@rule
def pad_edges(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, pads, mode = args
    return batched(run(kernel, x.examples, ((0, 0), *pads), mode), level)


# --------------------------------------------------------------------------------------------------- into and out of a level
@rule
def add_batch_dim(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return enter(*args)


@rule
def remove_batch_dim(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return leave(*args)


def enter(x: Any, dim: int, level: Level) -> BatchedArray:
    """One example of x per element of a dimension."""
    order = (dim, *[d for d in range(x.ndim) if d != dim])
    return batch(level, x if not dim else run("permute", x, order))


def leave(x: Any, dim: int, level: Level) -> Any:
    """The whole behind a batched array, with the batch as dimension `dim`."""
    from .arrays import unbatch
    made = unbatch(x, level)
    order = (*range(1, dim + 1), 0, *range(dim + 1, made.ndim))
    return run("permute", made, order) if dim else made


add(add_batch_dim=enter, remove_batch_dim=leave)
