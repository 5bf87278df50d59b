"""The rows of `flambeau bench` in JAX, each under `jit`; only imported where JAX is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Call = Callable[[], Any]


def make(row: str) -> Call:
    """The call of a row, which returns when the result is there."""
    function, arguments = ROWS[row]()
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))


def _random(*sizes: tuple[int, ...]) -> list[Any]:
    return [jax.random.uniform(jax.random.key(n), size) for n, size in enumerate(sizes)]


def _chain() -> tuple[Any, Any]:
    def total(x: Any, c: Any) -> Any:
        y = x
        for _ in range(5):
            y = jnp.tanh(y * c + x)
        return y.sum()
    return jax.grad(total), _random((4, 8), (4, 8))


def _convolution() -> tuple[Any, Any]:
    def total(w: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2).sum()
    return jax.grad(total), _random((32, 16, 3, 3), (8, 16, 32, 32))


def _step() -> tuple[Any, Any]:
    w1, b1, w2, b2, x = _random((64, 128), (128,), (128, 10), (10,), (128, 64))
    y = jnp.arange(128) % 10

    def loss(p: Any, x: Any, y: Any) -> Any:
        logits = jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]
        return (jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, y[:, None], 1)[:, 0]).mean()

    def step(p: Any, x: Any, y: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, x, y)
        return value, [a - 0.01 * g for a, g in zip(p, gradient)]
    return step, ([w1, b1, w2, b2], x, y)


_LARGE = (1000, 1000)
ROWS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "a * b, 3x4, recorded": lambda: (lambda a, b: a * b, _random((3, 4), (3, 4))),
    "15 small operations and backward": _chain,
    "a + b, 1 M": lambda: (jnp.add, _random(_LARGE, _LARGE)),
    "exp, 1 M": lambda: (jnp.exp, _random(_LARGE)),
    "sum, 1 M": lambda: (jnp.sum, _random(_LARGE)),
    "softmax, 1000x1000": lambda: (lambda x: jax.nn.softmax(x, axis=-1), _random(_LARGE)),
    "matmul, 512x512": lambda: (jnp.matmul, _random((512, 512), (512, 512))),
    "conv2d 3x3, forward and backward": _convolution,
    "training step of an MLP": _step,
    "training step of an MLP, compiled (torch: not)": _step,
}
