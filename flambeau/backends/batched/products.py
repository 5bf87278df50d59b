"""Batching rules: products of matrices. What is not batched is not repeated: the batch becomes rows or columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..cpu.linalg.gemm import WORTH
from .arrays import Level
from .elementwise import pointwise
from .table import RULES, batched, examples, has, rule, run


def _conj(x: Any) -> Any:
    return run("conj", x) if x.dtype.kind == "c" else x


def _mm(a: Any, b: Any, level: Level) -> Any:
    """The whole of the product of two matrices."""
    size = level.size
    if has(a, level) and has(b, level):
        if a.shape[1] == 1 and a.examples.size * b.shape[1] < WORTH:  # columns times rows: faster as a product of elements
            return run("mul", a.examples, b.examples)
        return run("bmm", a.examples, b.examples)
    if has(a, level):
        rows = a.examples.reshape((size * a.shape[0], a.shape[1]))
        return run("mm", rows, b).reshape((size, a.shape[0], b.shape[1]))
    columns = b.examples.swapaxes(1, 2).reshape((size * b.shape[1], b.shape[0]))
    return run("mm", columns, a.swapaxes(0, 1)).reshape((size, b.shape[1], a.shape[0])).swapaxes(1, 2)


def _bmm(a: Any, b: Any, level: Level) -> Any:
    size = level.size
    if has(a, level) and has(b, level):
        left, right = [x.examples.reshape((size * x.shape[0], *x.shape[1:])) for x in (a, b)]
        return run("bmm", left, right).reshape((size, a.shape[0], a.shape[1], b.shape[2]))
    if has(a, level):
        rows = a.examples.transpose((1, 0, 2, 3)).reshape((a.shape[0], size * a.shape[1], a.shape[2]))
        return run("bmm", rows, b).reshape((a.shape[0], size, a.shape[1], b.shape[2])).transpose((1, 0, 2, 3))
    columns = b.examples.transpose((1, 2, 0, 3)).reshape((b.shape[0], b.shape[1], size * b.shape[2]))
    return run("bmm", a, columns).reshape((a.shape[0], a.shape[1], size, b.shape[2])).transpose((2, 0, 1, 3))


def _mv(a: Any, v: Any, level: Level) -> Any:
    size = level.size
    if has(a, level) and has(v, level):
        return run("bmm", a.examples, v.examples.reshape((size, v.shape[0], 1))).reshape((size, a.shape[0]))
    if has(a, level):
        return run("mv", a.examples.reshape((size * a.shape[0], a.shape[1])), v).reshape((size, a.shape[0]))
    return run("mm", v.examples, a.swapaxes(0, 1))


def _dot(a: Any, b: Any, level: Level) -> Any:
    if has(a, level) and has(b, level):
        size, n = level.size, a.shape[0]
        return run("bmm", a.examples.reshape((size, 1, n)), b.examples.reshape((size, n, 1))).reshape((size,))
    return run("mv", a.examples, b) if has(a, level) else run("mv", b.examples, a)


def _enter(name: str, product: Callable) -> None:
    RULES[name] = lambda kernel, level, args: batched(product(*args[:2], level), level)


for _name, _product in (("mm", _mm), ("bmm", _bmm), ("mv", _mv), ("dot", _dot)):
    _enter(_name, _product)


@rule
def vdot(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return batched(_dot(_conj(args[0]), args[1], level), level)


def _scaled(x: Any, factor: Any) -> Any:
    return x if factor.__class__ in (int, float) and factor == 1 else run("mul", x, np.asarray(factor, x.dtype))


def _added(self: Any, product: Any, beta: Any, alpha: Any, level: Level) -> Any:
    """beta * self + alpha * product."""
    product = batched(_scaled(product, alpha), level)
    if beta.__class__ in (int, float) and beta == 0:
        return product
    return pointwise("add", level, (_scaled(self, beta), product))


@rule
def addmm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    bias, a, b, beta, alpha = args
    if not (has(a, level) or has(b, level)):
        return _added(bias, examples(run("mm", a, b), level), beta, alpha, level)
    if has(a, level) and not has(b, level) and not has(bias, level) and bias.ndim == 1:
        rows = a.examples.reshape((level.size * a.shape[0], a.shape[1]))
        return batched(run(kernel, bias, rows, b, beta, alpha).reshape((level.size, a.shape[0], b.shape[1])), level)
    return _added(bias, _mm(a, b, level), beta, alpha, level)


def _or_repeated(product: Any, kernel: str, a: Any, b: Any, level: Level) -> Any:
    return product(a, b, level) if has(a, level) or has(b, level) else examples(run(kernel, a, b), level)


@rule
def addmv(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    bias, a, v, beta, alpha = args
    return _added(bias, _or_repeated(_mv, "mv", a, v, level), beta, alpha, level)


@rule
def baddbmm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    bias, a, b, beta, alpha = args
    return _added(bias, _or_repeated(_bmm, "bmm", a, b, level), beta, alpha, level)


@rule
def addbmm(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    bias, a, b, beta, alpha = args
    product = _or_repeated(_bmm, "bmm", a, b, level)
    return _added(bias, run("sum", product, (1,), False, None), beta, alpha, level)


@rule
def addr(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    bias, u, v, beta, alpha = args
    column = u[:, None]
    return _added(bias, examples(pointwise("mul", level, (column, v)), level), beta, alpha, level)


@rule
def linear(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    """(bias, x, weight); x may have any number of dimensions."""
    bias, x, weight = args
    if not has(weight, level) and not has(bias, level):
        return batched(run(kernel, bias, x.examples, weight), level)
    if not has(weight, level):
        made = batched(run(kernel, None, examples(x, level), weight), level)
        return made if bias is None else pointwise("add", level, (made, bias))
    lead = x.shape[:-1]
    rows = x.examples.reshape((level.size, -1, x.shape[-1])) if has(x, level) else x.reshape((-1, x.shape[-1]))
    turned = weight.examples.swapaxes(1, 2)
    if has(x, level):
        product = run("bmm", rows, turned)
    else:
        every = weight.examples.reshape((level.size * weight.shape[0], weight.shape[1]))
        product = run("mm", rows, every.swapaxes(0, 1)).reshape((-1, level.size, weight.shape[0])).swapaxes(0, 1)
    product = batched(product.reshape((level.size, *lead, weight.shape[0])), level)
    return product if bias is None else pointwise("add", level, (product, bias))


@rule
def trace(kernel: str, level: Level, args: tuple[Any, ...]) -> Any:
    return batched(run("sum", run("diagonal", args[0].examples, 0, 1, 2), (1,), False, None), level)
