"""Batching rules: convolution, pooling, resizing and normalization. The batch joins the samples, or the channels."""

from __future__ import annotations

from typing import Any

from .arrays import Level
from .elementwise import pointwise
from .table import batched, examples, has, one_by_one, rule, run


def _samples(x: Any, level: Level) -> Any:
    """(batch, n, ...) as (batch * n, ...)."""
    x = examples(x, level)
    return x.reshape((x.shape[0] * x.shape[1], *x.shape[2:]))


def _apart(x: Any, level: Level, n: int = 0) -> Any:
    """(batch * n, ...) as (batch, n, ...); n has to be given only for an empty batch."""
    return x.reshape((level.size, x.shape[0] // level.size if level.size else n, *x.shape[1:]))


def _channels(x: Any, level: Level) -> Any:
    """(batch, n, c, ...) as (n, batch * c, ...)."""
    x = examples(x, level).swapaxes(0, 1)
    return x.reshape((x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))


def _from_channels(x: Any, level: Level) -> Any:
    """(n, batch * c, ...) as (batch, n, c, ...)."""
    return x.reshape((x.shape[0], level.size, x.shape[1] // level.size, *x.shape[2:])).swapaxes(0, 1)


# ------------------------------------------------------------------------------------------------------ convolution
@rule
def convolution(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Weights of each example's own: as many groups as there are examples."""
    x, weight, bias, *rest = args
    if not has(weight, level):
        extra = bias if has(bias, level) else None
        if not has(x, level):
            made = batched(examples(run(kernel, x, weight, None, *rest), level), level)
        else:
            made = run(kernel, _samples(x, level), weight, None if extra is not None else bias, *rest)
            made = batched(_apart(made, level, x.shape[0]), level)
        return made if extra is None else pointwise("add", level, (made, extra[(slice(None), *(None,) * (x.ndim - 2))]))
    joined = None if bias is None else _samples(bias, level)
    made = run(kernel, _channels(x, level), _samples(weight, level), joined, *rest[:-1], rest[-1] * level.size)
    return batched(_from_channels(made, level), level)


@rule
def conv_input(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, weight, bias, *rest = args
    if not has(weight, level) and not has(bias, level):
        return batched(_apart(run(kernel, _samples(grad, level), weight, bias, *rest), level, grad.shape[0]), level)
    joined = None if bias is None else _samples(bias, level)
    made = run(kernel, _channels(grad, level), _samples(weight, level), joined, *rest[:-1], rest[-1] * level.size)
    return batched(_from_channels(made, level), level)


@rule
def conv_weight(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, x, *rest = args
    made = run(kernel, _channels(grad, level), _channels(x, level), *rest[:-1], rest[-1] * level.size)
    if kernel == "conv_weight":
        return batched(_apart(made, level), level)
    return batched(tuple([_apart(m, level) for m in made]), level)


# -------------------------------------------------------------------------------------------------- pooling, resizing
def _by_sample(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Kernels whose arrays are ([n,] c, ...): all arrays have the same leading dimensions."""
    arrays = [examples(a, level) if hasattr(a, "strides") else a for a in args]
    lead = next(a for a in arrays if hasattr(a, "strides")).shape
    flat = [a.reshape((a.shape[0] * a.shape[1], *a.shape[2:])) if hasattr(a, "strides") else a for a in arrays]
    made = run(kernel, *flat)
    back = lambda m: m.reshape((lead[0], lead[1], *m.shape[1:]))
    return batched(tuple([back(m) for m in made]) if made.__class__ in (tuple, list) else back(made), level)


@rule
def by_sample(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return _by_sample(kernel, level, args)


@rule
def im2col(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, size = args[:2]
    if x.ndim == len(size) + 1:
        return batched(run(kernel, x.examples, *args[1:]), level)
    return _by_sample(kernel, level, args)


@rule
def col2im(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    if args[0].ndim == 2:
        return batched(run(kernel, args[0].examples, *args[1:]), level)
    return _by_sample(kernel, level, args)


# ------------------------------------------------------------------------------------------------------ normalization
@rule
def batch_norm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """Every example's channels are channels of their own."""
    x, weight, bias, mean, var, training, momentum, eps = args
    if not any([has(a, level) for a in (x, mean, var)]):  # the statistics are the same for all examples
        out, *rest = run(kernel, x, None, None, mean, var, training, momentum, eps)
        return (_affine(out, weight, bias, level, x.ndim - 2), *rest)
    if training and mean is not None and has(x, level) and not (has(mean, level) and has(var, level)):
        raise RuntimeError("Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
                           "updated in place, were not batched.\nIf you are using a module and do not need eval mode, please "
                           "set `track_running_stats` to be False.If you are using a prebuilt module and do not need eval "
                           "mode, please see the functorch website for resources on how to patch your module to work with "
                           "vmap")
    if not training and not any([has(a, level) for a in (weight, bias, mean, var)]):
        out, *rest = run(kernel, _samples(x, level), *args[1:])
        return (batched(_apart(out, level), level), *rest)
    parts = [None if a is None else run("clone", _samples(a, level), "contiguous") for a in (weight, bias, mean, var)]
    out, *rest = run(kernel, _channels(x, level), *parts, training, momentum, eps)
    for goal, part in ((mean, parts[2]), (var, parts[3])):
        if training and goal is not None:
            rows = part.reshape((level.size, -1))
            _write(goal.examples if has(goal, level) else goal, rows if has(goal, level) else rows[0])
    return (batched(_from_channels(out, level), level),
            *[batched(r.reshape((level.size, -1)), level) if r.size else r for r in rest])


def _write(goal: Any, value: Any) -> None:
    from .. import registry
    registry.backend_of(goal).write(goal, value)


@rule
def batch_norm_grad(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, x, weight, mean, inverse, training, needs = args
    parts = [None if a is None else _samples(a, level) for a in (weight, mean, inverse)]
    dx, *rest = run(kernel, _channels(grad, level), _channels(x, level), *parts, training, needs)
    return (None if dx is None else batched(_from_channels(dx, level), level),
            *[None if r is None else batched(r.reshape((level.size, -1)), level) for r in rest])


def _affine(out: Any, weight: Any, bias: Any, level: Level, after: int = 0) -> Any:
    """out * weight + bias, where these have `after` dimensions of length one behind them."""
    for name, factor in (("mul", weight), ("add", bias)):
        if factor is not None:
            out = pointwise(name, level, (out, factor[(..., *(None,) * after)] if after else factor))
    return out


@rule
def layer_norm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims, weight, bias, eps = args
    if not (has(weight, level) or has(bias, level)):
        return batched(run(kernel, x.examples, dims, weight, bias, eps), level)
    out, mean, rstd = batched(run(kernel, examples(x, level), dims, None, None, eps), level)
    return _affine(out, weight, bias, level), mean, rstd


@rule
def rms_norm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, dims, weight, eps = args
    if not has(weight, level):
        return batched(run(kernel, x.examples, dims, weight, eps), level)
    out, rstd = batched(run(kernel, examples(x, level), dims, None, eps), level)
    return _affine(out, weight, None, level), rstd


def _times(a: Any, b: Any, level: Level) -> Any:
    return pointwise("mul", level, (a, b))


@rule
def layer_norm_grad(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """The input's gradient has no part in other samples; those of weight and bias are summed per example."""
    grad, x, dims, *statistics, weight, needs = args
    if has(weight, level) and needs[0]:
        grad_in, scale = _times(grad, weight, level), None
    else:
        grad_in, scale = grad, weight
    made: list[Any] = [None] * len(needs)
    if needs[0]:
        given = [examples(s, level) for s in statistics]
        only = (True, *[False] * (len(needs) - 1))
        dx = run(kernel, examples(grad_in, level), examples(x, level), dims, *given, scale, only)[0]
        made[0] = batched(dx, level)
    axes = tuple(range(1, x.ndim + 1 - dims))
    if needs[1]:
        centred = x if len(statistics) == 1 else pointwise("sub", level, (x, statistics[0]))
        normal = _times(centred, statistics[-1], level)
        made[1] = batched(run("sum", examples(_times(grad, normal, level), level), axes, False, None), level)
    if len(needs) > 2 and needs[2]:
        made[2] = batched(run("sum", examples(grad, level), axes, False, None), level)
    return tuple(made)


@rule
def group_norm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, groups, weight, bias, eps = args
    own = has(weight, level) or has(bias, level)
    made = run(kernel, _samples(x, level), groups, None if own else weight, None if own else bias, eps)
    out, mean, rstd = batched(tuple([_apart(m, level, x.shape[0]) for m in made]), level)
    return (_affine(out, weight, bias, level, x.ndim - 2) if own else out), mean, rstd


@rule
def group_norm_grad(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, x, groups, mean, rstd, weight, needs = args
    if x.ndim < 2:
        return one_by_one(kernel, level, args)
    made: list[Any] = [None, None, None]
    spread = (..., *(None,) * (x.ndim - 2))
    if needs[0]:
        own = has(weight, level)
        flowing = _times(grad, weight[spread], level) if own else grad
        dx = run(kernel, _samples(flowing, level), _samples(x, level), groups, _samples(mean, level), _samples(rstd, level),
                 None if own else weight, (True, False, False))[0]
        made[0] = batched(_apart(dx, level), level)
    axes = (1, *range(3, x.ndim + 1))
    if needs[1]:
        each = x.shape[1] // groups
        parts = examples(x, level).reshape((level.size, x.shape[0], groups, each, *x.shape[2:]))
        further = (..., *(None,) * (x.ndim - 1))
        normal = run("mul", run("sub", parts, examples(mean, level)[further]), examples(rstd, level)[further])
        product = run("mul", examples(grad, level), normal.reshape((level.size, *x.shape)))
        made[1] = batched(run("sum", product, axes, False, None), level)
    if needs[2]:
        made[2] = batched(run("sum", examples(grad, level), axes, False, None), level)
    return tuple(made)
