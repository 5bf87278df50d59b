"""The steps of gpu.py in plain jax.numpy: one `jit` with donated buffers. (Their first numbers are not PyTorch's.)"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory, too
import jax
import jax.numpy as jnp
import numpy as np

Call = Callable[[], Any]
Arrays = Any


def _training(loss: Callable[..., Any], p: Arrays, data: tuple[Any, ...], decay: float = 0.0) -> Call:
    """Steps of Adam (decay: AdamW's) from some parameters on one batch."""
    def step(p: Arrays, m: Arrays, v: Arrays, count: Any) -> tuple[Any, ...]:
        value, grads = jax.value_and_grad(loss)(p, *data)
        count = count + 1
        m = jax.tree.map(lambda a, g: a + 0.1 * (g - a), m, grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
        p = jax.tree.map(lambda w, a, b: w * (1 - 1e-3 * decay) - 1e-3 / (1 - 0.9 ** count) * a / (
            jnp.sqrt(b / (1 - 0.999 ** count)) + 1e-8), p, m, v)
        return value, p, m, v, count
    compiled = jax.jit(step, donate_argnums=(0, 1, 2, 3))
    state = [p, jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros(())]

    def run() -> Any:
        value, *state[:] = compiled(*state)
        return value
    return run


def _drawn(*shape: int, scale: float = 1.0) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32) * scale)


def _linear(inner: int, outer: int) -> dict[str, Any]:
    return {"w": _drawn(inner, outer, scale=inner ** -0.5), "b": jnp.zeros(outer)}


def _cross_entropy(logits: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), y[:, None], 1).mean()


def mnist() -> Call:
    p = [_linear(784, 512), _linear(512, 256), _linear(256, 10)]

    def loss(p: Arrays, x: Any, y: Any) -> Any:
        for layer in p[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return _cross_entropy(x @ p[-1]["w"] + p[-1]["b"], y)
    y = jnp.asarray(np.random.default_rng(0).integers(0, 10, 128))
    return _training(loss, p, (_drawn(128, 784), y))


def chain() -> Call:
    def total(y: Any) -> Any:
        for _ in range(5):
            y = jnp.tanh(y * 1.01 + 0.1) - 0.05
        return y.sum()
    compiled, x = jax.jit(jax.value_and_grad(total)), jnp.full((64, 64), 0.5)
    return lambda: compiled(x)[0]


def gpt(layers: int, width: int, heads: int, batch: int, length: int, words: int) -> Call:
    norm = lambda: {"w": jnp.ones(width), "b": jnp.zeros(width)}
    p = {"words": _drawn(words, width, scale=0.02), "places": _drawn(length, width, scale=0.02), "norm": norm(),
         "head": _drawn(width, words, scale=0.02),
         "blocks": [{"ln1": norm(), "ln2": norm(), "qkv": _linear(width, 3 * width), "out": _linear(width, width),
                     "up": _linear(width, 4 * width), "down": _linear(4 * width, width)} for _ in range(layers)]}
    half = lambda x: x.astype(jnp.bfloat16)

    def dense(q: Arrays, x: Any) -> Any:
        return half(x) @ half(q["w"]) + half(q["b"])

    def normed(q: Arrays, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * q["w"] + q["b"]

    def block(q: Arrays, h: Any) -> Any:
        b, n, c = h.shape
        parts = dense(q["qkv"], normed(q["ln1"], h)).reshape(b, n, 3, heads, c // heads)
        y = jax.nn.dot_product_attention(parts[:, :, 0], parts[:, :, 1], parts[:, :, 2], is_causal=True, implementation="cudnn")
        h = h + dense(q["out"], y.reshape(b, n, c)).astype(jnp.float32)
        return h + dense(q["down"], jax.nn.gelu(dense(q["up"], normed(q["ln2"], h)))).astype(jnp.float32)

    def loss(p: Arrays, x: Any, y: Any) -> Any:
        h = p["words"][x] + p["places"]
        for q in p["blocks"]:
            h = block(q, h)
        return _cross_entropy((half(normed(p["norm"], h)) @ half(p["head"])).reshape(-1, words), y)
    draw = np.random.default_rng(0)
    x, y = (jnp.asarray(draw.integers(0, words, (batch, length))) for _ in range(2))
    return _training(loss, p, (x, y.reshape(-1)), 0.01)
