"""The workloads once more in plain jax.numpy: the whole step under one `jit`, its buffers donated.

Parameters start as the PyTorch model's and keep its names, so losses can be compared number for number where nothing is drawn.
Where JAX offers several ways the one that was quickest on a CPU is taken (images channels last, pooling by reshape, the `rbg`
generator, a recurrent layer's input products outside the loop).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

jax.config.update("jax_default_prng_impl", "rbg")

Arrays = dict[str, Any]
LOSSES: dict[str, Callable[..., Any]] = {}  # name -> loss(parameters, key, *inputs); a tuple: the loss and new states


def loss(function: Callable[..., Any]) -> Callable[..., Any]:
    LOSSES[function.__name__] = function
    return function


def linear(p: Arrays, name: str, x: Any) -> Any:
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def cross_entropy(logits: Any, target: Any) -> Any:
    chosen = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - chosen).mean()


def dropout(x: Any, share: float, key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 1 - share, x.shape), x / (1 - share), 0)


@loss
def tiny_mlp(p: Arrays, key: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(linear(p, "2", jnp.tanh(linear(p, "0", x))))
    return ((linear(p, "4", hidden) - y) ** 2).mean()


@loss
def two_layer(p: Arrays, key: Any, x: Any, y: Any) -> Any:
    return ((linear(p, "2", jax.nn.relu(linear(p, "0", x))) - y) ** 2).mean()


@loss
def mnist_mlp(p: Arrays, key: Any, x: Any, y: Any) -> Any:
    hidden = jax.nn.relu(linear(p, "2", jax.nn.relu(linear(p, "0", x))))
    return cross_entropy(linear(p, "4", hidden), y)


def conv(x: Any, weight: Any, stride: int = 1, padding: int = 0) -> Any:
    """x: N H W C; weight: H W in out."""
    return lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2,
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def max_pool(x: Any) -> Any:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


@loss
def mnist_cnn(p: Arrays, key: Any, x: Any, y: Any) -> Any:
    first, second = jax.random.split(key)
    x = jax.nn.relu(conv(x, p["conv1.weight"]) + p["conv1.bias"])
    x = jax.nn.relu(conv(x, p["conv2.weight"]) + p["conv2.bias"])
    x = dropout(max_pool(x), 0.25, first).transpose(0, 3, 1, 2).reshape(x.shape[0], -1)
    return cross_entropy(linear(p, "fc2", dropout(jax.nn.relu(linear(p, "fc1", x)), 0.5, second)), y)


def batch_norm(p: Arrays, name: str, x: Any, statistics: Arrays, new: Arrays) -> Any:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    count = x.size // x.shape[3]
    for key, value in ((f"{name}.running_mean", mean), (f"{name}.running_var", var * count / (count - 1))):
        new[key] = 0.9 * statistics[key] + 0.1 * value
    return (x - mean) * lax.rsqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


@loss
def resnet8(p: Arrays, key: Any, x: Any, y: Any, statistics: Arrays) -> Any:
    new: Arrays = {}

    def block(name: str, x: Any, stride: int) -> Any:
        h = jax.nn.relu(batch_norm(p, f"{name}.bn1", conv(x, p[f"{name}.conv1.weight"], stride, 1), statistics, new))
        h = batch_norm(p, f"{name}.bn2", conv(h, p[f"{name}.conv2.weight"], 1, 1), statistics, new)
        if stride > 1:
            x = batch_norm(p, f"{name}.shortcut.1", conv(x, p[f"{name}.shortcut.0.weight"], stride), statistics, new)
        return jax.nn.relu(h + x)

    x = jax.nn.relu(batch_norm(p, "1", conv(x, p["0.weight"], 1, 1), statistics, new))
    x = block("5", block("4", block("3", x, 1), 2), 2)
    return cross_entropy(linear(p, "8", x.mean((1, 2))), y), (new,)


def layer_norm(p: Arrays, name: str, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


@loss
def gpt(p: Arrays, key: Any, text: Any, target: Any) -> Any:
    (batch, length), width, heads = text.shape, 128, 4
    causal = jnp.tril(jnp.ones((length, length), bool))
    x = p["tokens.weight"][text] + p["positions.weight"]
    for i in range(4):
        name = f"blocks.{i}"
        qkv = linear(p, f"{name}.qkv", layer_norm(p, f"{name}.norm1", x))
        q, k, v = (t.reshape(batch, length, heads, width // heads) for t in jnp.split(qkv, 3, axis=2))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
        weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, width)
        x = x + linear(p, f"{name}.out", mixed)
        hidden = jax.nn.gelu(linear(p, f"{name}.feed.0", layer_norm(p, f"{name}.norm2", x)), approximate=False)
        x = x + linear(p, f"{name}.feed.2", hidden)
    logits = linear(p, "head", layer_norm(p, "norm", x))
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def lstm_layer(p: Arrays, layer: int, x: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
    products = x @ p[f"2.weight_ih_l{layer}"].T + (p[f"2.bias_ih_l{layer}"] + p[f"2.bias_hh_l{layer}"])
    recurrent = p[f"2.weight_hh_l{layer}"].T

    def cell(state: Any, product: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(product + h @ recurrent, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    (h, c), output = lax.scan(cell, (h, c), products)
    return output, h, c


@loss
def lstm_lm(p: Arrays, key: Any, text: Any, target: Any, h: Any, c: Any) -> Any:
    keys = jax.random.split(key, 3)
    x = dropout(p["0.weight"][text], 0.2, keys[0])
    x, h0, c0 = lstm_layer(p, 0, x, h[0], c[0])
    x, h1, c1 = lstm_layer(p, 1, dropout(x, 0.2, keys[1]), h[1], c[1])
    logits = linear(p, "3", dropout(x, 0.2, keys[2]))
    return cross_entropy(logits.reshape(-1, logits.shape[-1]), target), (jnp.stack([h0, h1]), jnp.stack([c0, c1]))


@loss
def vae(p: Arrays, key: Any, x: Any) -> Any:
    hidden = jax.nn.relu(linear(p, "0", x))
    mean, log_variance = linear(p, "1", hidden), linear(p, "2", hidden)
    code = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
    drawn = jax.nn.sigmoid(linear(p, "4", jax.nn.relu(linear(p, "3", code))))
    difference = -(x * jnp.maximum(jnp.log(drawn), -100) + (1 - x) * jnp.maximum(jnp.log1p(-drawn), -100)).sum()
    return difference - 0.5 * (1 + log_variance - mean ** 2 - jnp.exp(log_variance)).sum()


def word2vec_step(p: Arrays, state: Arrays, centres: Any, near: Any, far: Any) -> Any:
    """Only the rows that a batch uses are read, differentiated and updated (a lazy Adam, as SparseAdam is)."""
    used = {"0.weight": centres, "1.weight": jnp.concatenate([near, far.reshape(-1)])}

    def loss_of_rows(rows: Arrays) -> Any:
        v, others = rows["0.weight"], rows["1.weight"]
        positive, negative = others[:len(near)], others[len(near):].reshape(*far.shape, -1)
        return -(jax.nn.log_sigmoid((v * positive).sum(1))
                 + jax.nn.log_sigmoid(-jnp.einsum("bnd,bd->bn", negative, v)).sum(1)).mean()

    value, grads = jax.value_and_grad(loss_of_rows)({name: p[name][index] for name, index in used.items()})
    count = state["count"] + 1
    new_p, new_state = {}, {"count": count}
    for name, index in used.items():
        rows, place = jnp.unique(index, return_inverse=True, size=len(index), fill_value=len(p[name]))
        g = jax.ops.segment_sum(grads[name], place, len(index))
        m = 0.9 * state["m"][name][rows] + 0.1 * g
        v = 0.999 * state["v"][name][rows] + 0.001 * g * g
        change = 1e-3 * jnp.sqrt(1 - 0.999 ** count) / (1 - 0.9 ** count) * m / (jnp.sqrt(v) + 1e-8)
        new_p[name] = p[name].at[rows].add(-change, mode="drop")
        new_state.setdefault("m", {})[name] = state["m"][name].at[rows].set(m, mode="drop")
        new_state.setdefault("v", {})[name] = state["v"][name].at[rows].set(v, mode="drop")
    return new_p, new_state, value, ()


def adam(p: Arrays, grads: Arrays, state: Arrays, decay: float = 0.0) -> tuple[Arrays, Arrays]:
    count = state["count"] + 1
    m = {k: 0.9 * state["m"][k] + 0.1 * g for k, g in grads.items()}
    v = {k: 0.999 * state["v"][k] + 0.001 * g * g for k, g in grads.items()}
    scale, root = 1e-3 / (1 - 0.9 ** count), jnp.sqrt(1 - 0.999 ** count)
    new = {k: w * (1 - 1e-3 * decay) - scale * m[k] / (jnp.sqrt(v[k]) / root + 1e-8) for k, w in p.items()}
    return new, {"count": count, "m": m, "v": v}


def sgd(p: Arrays, grads: Arrays, state: Arrays, rate: float) -> tuple[Arrays, Arrays]:
    return {k: w - rate * grads[k] for k, w in p.items()}, state


def momentum(p: Arrays, grads: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    m = {k: 0.9 * state["m"][k] + g + 5e-4 * p[k] for k, g in grads.items()}
    return {k: w - 1e-2 * m[k] for k, w in p.items()}, {"m": m}


def clipped(p: Arrays, grads: Arrays, state: Arrays) -> tuple[Arrays, Arrays]:
    norm = jnp.sqrt(sum((g * g).sum() for g in grads.values()))
    factor = jnp.minimum(0.25 / (norm + 1e-6), 1.0)
    return sgd(p, {k: g * factor for k, g in grads.items()}, state, 1.0)


# name -> the update rule, and what it keeps of each parameter's past; Adam where nothing is said
UPDATES: dict[str, tuple[Callable[..., tuple[Arrays, Arrays]], str]] = {
    "two_layer": (lambda p, g, s: sgd(p, g, s, 1e-3), ""), "resnet8": (momentum, "m"), "lstm_lm": (clipped, ""),
    "gpt": (lambda p, g, s: adam(p, g, s, decay=0.1), "mv")}
DRAWS = {"mnist_cnn", "lstm_lm", "vae"}


def step_of(name: str) -> Callable[..., Any]:
    """(parameters, state, *inputs) -> the first two anew, the loss, and what stands in for the last inputs in the next step."""
    if name == "word2vec":
        return word2vec_step
    update, _ = UPDATES.get(name, (adam, "mv"))

    def loss_of(p: Arrays, key: Any, *inputs: Any) -> Any:
        result = LOSSES[name](p, key, *inputs)
        return result if isinstance(result, tuple) else (result, ())

    def step(p: Arrays, state: Arrays, *inputs: Any) -> Any:
        key = None
        if name in DRAWS:
            following, key = jax.random.split(state["key"])
            state = {**state, "key": following}
        (value, states), grads = jax.value_and_grad(loss_of, has_aux=True)(p, key, *inputs)
        p, new = update(p, grads, state)
        return p, {**state, **new}, value, states
    return step


def start(name: str, training: Any) -> tuple[Arrays, Arrays, list[Any]]:
    """Parameters, optimizer state and inputs as the PyTorch program has them; images and filters with channels last."""
    def taken(tensor: Any, order: tuple[int, ...]) -> Any:
        array = tensor.detach().numpy()
        return jnp.array(array.transpose(order) if array.ndim == 4 else array)

    p = {k: taken(v, (2, 3, 1, 0)) for k, v in training.model.named_parameters()}
    inputs: list[Any] = [taken(x, (0, 2, 3, 1)) for x in training.inputs]
    if name == "resnet8":
        inputs.append({k: taken(v, ()) for k, v in training.model.named_buffers() if v.ndim})
    state: Arrays = {"count": jnp.zeros((), jnp.float32)}
    for kept in UPDATES.get(name, (adam, "mv"))[1]:
        state[kept] = {k: jnp.zeros_like(w) for k, w in p.items()}
    if name in DRAWS:
        state["key"] = jax.random.key(0)
    return p, state, inputs


def program(name: str, training: Any) -> Callable[[], Any]:
    """A call of this takes one step and returns the loss, perhaps before it is computed (`block_until_ready`)."""
    p, state, inputs = start(name, training)
    compiled = jax.jit(step_of(name), donate_argnums=(0, 1))

    def run() -> Any:
        nonlocal p, state
        p, state, value, states = compiled(p, state, *inputs)
        if states:
            inputs[-len(states):] = states
        return value
    return run
