"""Shape rules of normalization, losses, attention, recurrent layers and embeddings."""

from __future__ import annotations

from typing import Any

from ...backends.strides import format_strides
from . import FLOAT32, INT64, Made, like, pointwise, shape_rule, strides


# ------------------------------------------------------------------------------------------------------- normalization
def _wide(x: Any) -> Any:
    """The dtype of what is computed on the way."""
    return x.dtype if x.dtype.char in "fdFD" else FLOAT32


def batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float,
               eps: float) -> list[Made]:
    saved = Made((x.shape[1],), _wide(x))
    return [like(x), saved, saved]


def layer_norm(x: Any, dims: int, weight: Any, bias: Any, eps: float) -> list[Made]:
    saved = Made((*x.shape[:x.ndim - dims], *(1,) * dims), _wide(x))
    return [Made(x.shape, x.dtype), saved, saved]


def layer_norm_shaped(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> list[Made]:
    return layer_norm(x, len(shape), weight, bias, eps)


def rms_norm(x: Any, dims: int, weight: Any, eps: float) -> list[Made]:
    return layer_norm(x, dims, None, None, eps)[:2]


def group_norm(x: Any, groups: int, weight: Any, bias: Any, eps: float) -> list[Made]:
    saved = Made((x.shape[0], groups), x.dtype if weight is None else weight.dtype)
    return [Made(x.shape, x.dtype), saved, saved]


def _gradients(g: Any, x: Any, weight: Any, inner: Any, needs: Any) -> list[Any]:
    """Of the input, weight and bias; None for those that are not needed."""
    kept = weight.dtype if weight is not None else x.dtype if x.dtype.char in "fd" else FLOAT32
    return [Made(x.shape, g.dtype) if needs[0] else None, *[Made(inner, kept) if n else None for n in needs[1:]]]


def batch_norm_grad(g: Any, x: Any, weight: Any, mean: Any, inverse: Any, training: bool, needs: Any) -> list[Any]:
    """The input's gradient lies as channels-last images do; it is contiguous for all others."""
    dx, *rest = _gradients(g, x, weight, (x.shape[1],), needs)
    last = {4: "channels_last", 5: "channels_last_3d"}.get(len(x.shape))
    if dx is not None and last is not None and tuple(strides(x)) == (stride := format_strides(x.shape, last)):
        dx = dx._replace(stride=stride)
    return [dx, *rest]


def layer_norm_grad(g: Any, x: Any, dims: int, mean: Any, inverse: Any, weight: Any, needs: Any) -> list[Any]:
    return _gradients(g, x, weight, x.shape[x.ndim - dims:], needs)


def rms_norm_grad(g: Any, x: Any, dims: int, inverse: Any, weight: Any, needs: Any) -> list[Any]:
    return _gradients(g, x, weight, x.shape[x.ndim - dims:], needs)


def group_norm_grad(g: Any, x: Any, groups: int, mean: Any, inverse: Any, weight: Any, needs: Any) -> list[Any]:
    return _gradients(g, x, weight, (x.shape[1],), needs)


# -------------------------------------------------------------------------------------------------------------- losses
def pairwise(x: Any, y: Any, reduction: int, *rest: Any) -> Made:
    return Made((), x.dtype) if reduction else pointwise(x, y)


def pairwise_backward(grad: Any, x: Any, y: Any, *rest: Any) -> Made:
    return pointwise(x, y)


def binary(x: Any, target: Any, *rest: Any) -> Made:
    """rest: weights, where there are any, and last the reduction."""
    return Made((), x.dtype) if rest[-1] else pointwise(x, target, *[w for w in rest[:-1] if w is not None])


def binary_backward(grad: Any, x: Any, target: Any, *rest: Any) -> Made:
    return pointwise(x, target, *[w for w in rest[:-1] if w is not None])


def nll(x: Any, target: Any, weight: Any, reduction: int, *rest: Any) -> list[Made]:
    """The loss, and what it was divided by."""
    return [Made((), x.dtype) if reduction else like(target, x.dtype), Made((), x.dtype)]


def cross_entropy(x: Any, target: Any, weight: Any, reduction: int, ignore_index: int, keep: bool) -> list[Made]:
    """The loss, powers, one over their sums, and what the loss was divided by."""
    return [Made(() if reduction else target.shape, x.dtype), Made(x.shape if keep else (0, 0), x.dtype),
            Made(target.shape, x.dtype), Made((), x.dtype)]


def margins(x: Any, target: Any, p: int, margin: float, weight: Any, reduction: int) -> Made:
    return Made(() if reduction else target.shape, x.dtype)


def label_margins(x: Any, target: Any, reduction: int) -> list[Made]:
    return [Made(() if reduction else x.shape[:-1], x.dtype), Made(target.shape, x.dtype)]


def ctc(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *rest: Any) -> list[Made]:
    """The longest target is a matter of values; it counts as long as the targets are."""
    steps, batch, _ = log_probs.shape
    longest = targets.shape[-1]
    return [Made((batch,), log_probs.dtype), Made((batch, steps, 2 * longest + 1), log_probs.dtype)]


# ----------------------------------------------------------------------------------------------------------- attention
def attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float) -> list[Made]:
    """The result in the query's order of dimensions; a statistic per row."""
    shape = (*q.shape[:-1], v.shape[-1])
    return [like(q) if shape == q.shape else Made(shape, q.dtype), Made((*q.shape[:-1], 1), _wide(q))]


def attention_backward(grad: Any, q: Any, k: Any, v: Any, *rest: Any) -> list[Made]:
    return [_swapped(x) for x in (q, k, v)]


def _swapped(x: Any) -> Made:
    """Heads and rows exchanged in memory where x has them so."""
    return Made(x.shape, x.dtype, like(x).stride)


# ---------------------------------------------------------------------------------------------------- recurrent layers
def lstm(x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, w_hr: Any, *rest: Any) -> list[Made]:
    """The output, the last states, and for the backward pass gates, cells and their tanh."""
    rows, hidden = x.shape[0], c0.shape[1]
    kept = [Made((rows, n), _wide(x)) for n in (4 * hidden, hidden, hidden)]
    return [Made((rows, h0.shape[1]), x.dtype), Made(h0.shape, x.dtype), Made(c0.shape, x.dtype), *kept]


def gru(x: Any, h0: Any, *rest: Any) -> list[Made]:
    rows, hidden, inner = x.shape[0], h0.shape[1], _wide(x)
    return [Made((rows, hidden), x.dtype), Made(h0.shape, x.dtype), Made((rows, 3 * hidden), inner),
            Made((rows, hidden), inner)]


def rnn(x: Any, h0: Any, *rest: Any) -> list[Made]:
    return [Made((x.shape[0], h0.shape[1]), x.dtype), Made(h0.shape, x.dtype)]


def _layer_gradients(x: Any, states: Any, w_ih: Any, w_hh: Any, needs: Any) -> list[Any]:
    """Of x, the first states, both weights and both biases."""
    bias = w_hh.shape[:1]
    weights = [Made(shape, x.dtype) if needs[1] else None for shape in (w_ih.shape, w_hh.shape, bias, bias)]
    return [Made(x.shape, x.dtype) if needs[0] else None, *[Made(s.shape, x.dtype) for s in states], *weights]


@shape_rule("lstm_layer_backward")
def lstm_backward(grad_out: Any, grad_h: Any, grad_c: Any, x: Any, h0: Any, c0: Any, w_ih: Any, w_hh: Any, w_hr: Any,
                  *rest: Any) -> list[Any]:
    made = _layer_gradients(x, (h0, c0), w_ih, w_hh, rest[-1])
    return [*made, Made(w_hr.shape, x.dtype) if w_hr is not None and rest[-1][1] else None]


@shape_rule("gru_layer_backward", "rnn_layer_backward")
def state_backward(grad_out: Any, grad_h: Any, x: Any, h0: Any, w_ih: Any, w_hh: Any, *rest: Any) -> list[Any]:
    return _layer_gradients(x, (h0,), w_ih, w_hh, rest[-1])


# ---------------------------------------------------------------------------------------------------------- embeddings
def embedding(weight: Any, indices: Any, *rest: Any) -> Made:
    return Made((*indices.shape, weight.shape[1]), weight.dtype)


def embedding_dense(grad: Any, indices: Any, count: int, *rest: Any) -> Made:
    return Made((count, grad.shape[-1]), grad.dtype)


def embedding_bag(weight: Any, indices: Any, offsets: Any, mode: int, include_last: bool, *rest: Any) -> list[Made]:
    """The bags, the bag of each index, the sizes of the bags, for max: which index won."""
    count = offsets.shape[0] - bool(include_last)
    shape = (count, weight.shape[1])
    return [Made(shape, weight.dtype), Made(indices.shape, INT64), Made((count,), INT64),
            Made(shape if mode == 2 else (0,), INT64)]


def embedding_bag_backward(grad: Any, indices: Any, bags: Any, sizes: Any, winners: Any, mode: int, count: int,
                           *rest: Any) -> Made:
    return Made((count, grad.shape[1]), grad.dtype)

