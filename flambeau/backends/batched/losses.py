"""Batching rules: losses. They are computed without reduction, and reduced per example."""

from __future__ import annotations

from typing import Any

import numpy as np

from .arrays import Level, broadcast
from .table import batched, examples, has, inside, one_by_one, rule, run

_NONE, _MEAN, _SUM = range(3)


def _reduced(values: Any, reduction: int, level: Level) -> Any:
    """Values of all examples, reduced as one example's are."""
    if reduction == _NONE:
        return batched(values, level)
    values = values.reshape((level.size, -1))
    return batched(run("mean" if reduction == _MEAN else "sum", values, (1,), False, None), level)


def _spread(grad: Any, reduction: int, shape: tuple[int, ...], level: Level) -> Any:
    """The gradient of each value, from that of what they were reduced to."""
    grad = inside(grad, level, len(shape))
    if reduction == _MEAN:
        grad = run("div", grad, np.asarray(max(int(np.prod(shape)), 1), grad.dtype))
    return broadcast(grad, (level.size, *shape))


def _alike(arrays: Any, level: Level) -> tuple[list[Any], tuple[int, ...]]:
    """Whole arrays broadcast against each other, and the shape of an example."""
    shape = np.broadcast_shapes(*[a.shape for a in arrays if a is not None])
    return [None if a is None else broadcast(inside(a, level, len(shape)), (level.size, *shape)) for a in arrays], shape


@rule
def pair(kernel: str, level: Level, args: tuple[Any, ...], weights: int) -> Any:
    """Of two arrays, some weights, the reduction and numbers."""
    at = 2 + weights
    arrays, _ = _alike(args[:at], level)
    return _reduced(run(kernel, *arrays, _NONE, *args[at + 1:]), args[at], level)


@rule
def pair_backward(kernel: str, level: Level, args: tuple[Any, ...], weights: int) -> Any:
    at = 3 + weights
    arrays, shape = _alike(args[1:at], level)
    grad = _spread(args[0], args[at], shape, level)
    return batched(run(kernel, grad, *arrays, _NONE, *args[at + 1:]), level)


# ------------------------------------------------------------------------------------------- negative log-likelihood
def _folded(x: Any, target: Any, level: Level) -> tuple[Any, Any]:
    """(scores, targets): the batch joins the examples' own, where they have one."""
    scores, targets = examples(x, level), examples(target, level)
    if x.ndim == 1:
        return scores, targets
    size, n = level.size, x.shape[0]
    return scores.reshape((size * n, *x.shape[1:])), targets.reshape((size * n, *target.shape[1:]))


@rule
def nll_loss(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    x, target, weight, reduction, ignored = args
    if has(weight, level):
        return one_by_one(kernel, level, args)
    scores, targets = _folded(x, target, level)
    losses, _ = run(kernel, scores, targets, weight, _NONE, ignored)
    losses = losses.reshape((level.size, *target.shape))
    if reduction == _NONE:
        return batched((losses, run("fill", broadcast(np.asarray(0, x.dtype), (level.size,)), np.asarray(0, x.dtype))), level)
    minus = broadcast(np.asarray(-1, x.dtype), scores.shape)
    weights, _ = run(kernel, minus, targets, weight, _NONE, ignored)
    total = run("sum", weights.reshape((level.size, -1)), (1,), False, None)
    made = run("sum", losses.reshape((level.size, -1)), (1,), False, None)
    return batched((run("div", made, total) if reduction == _MEAN else made, total), level)


@rule
def nll_loss_backward(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    grad, shape, target, weight, reduction, ignored, total = args
    if has(weight, level):
        return one_by_one(kernel, level, args)
    size = level.size
    targets = examples(target, level)
    grad = inside(grad, level, target.ndim)
    if reduction == _MEAN:
        grad = run("div", grad, inside(total, level, target.ndim))
    grad = broadcast(grad, (size, *target.shape))
    if len(shape) > 1:
        targets, grad = [a.reshape((size * target.shape[0], *target.shape[1:])) for a in (targets, grad)]
        full = (size * shape[0], *shape[1:])
    else:
        full = (size, *shape)
    made = run(kernel, grad, full, targets, weight, _NONE, ignored, np.asarray(0, grad.dtype))
    return batched(made.reshape((size, *shape)), level)
