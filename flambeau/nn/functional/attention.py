"""Attention: scaled dot products, and the whole of a multi-head layer."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...ops.core.row import FUNCTIONS, public
from ...ops.layers.attention import scaled_dot_product_attention
from ...ops.layers.linear import linear
from ...tensors.tensor import Tensor

__all__ = ["scaled_dot_product_attention", "multi_head_attention_forward", "_canonical_mask", "_none_or_dtype"]


def _canonical_mask(mask: Tensor | None, mask_name: str, other_type: Any, other_name: str, target_type: Any,
                    check_other: bool = True) -> Tensor | None:
    """A mask as numbers to add: bool masks become -inf where True (where attention is *not* allowed)."""
    if mask is None:
        return None
    if not mask.dtype.is_floating_point and mask.dtype.name != "bool":
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype is not other_type:
        warnings.warn(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both "
                      "instead.", stacklevel=2)
    if mask.dtype.is_floating_point:
        return mask
    return mask.new_zeros(mask.shape, dtype=target_type).masked_fill_(mask, -math.inf)


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor that may be missing."""
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Any, attn_mask: Any, heads: int) -> bool:
    """Whether the input has a batch dimension."""
    if query.ndim not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor")
    dims, kind = query.ndim, "batched (3-D)" if query.ndim == 3 else "unbatched (2-D)"
    if key.ndim != dims or value.ndim != dims:
        raise AssertionError(f"For {kind} `query`, expected `key` and `value` to be {dims}-D but found {key.ndim}-D and "
                             f"{value.ndim}-D tensors respectively")
    if key_padding_mask is not None and key_padding_mask.ndim != dims - 1:
        raise AssertionError(f"For {kind} `query`, expected `key_padding_mask` to be `None` or {dims - 1}-D but found "
                             f"{key_padding_mask.ndim}-D tensor instead")
    if attn_mask is not None:
        if attn_mask.ndim not in (2, 3):
            raise AssertionError(f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                                 f"{attn_mask.ndim}-D tensor instead")
        wanted = (heads, query.shape[0], key.shape[0])
        if dims == 2 and attn_mask.ndim == 3 and tuple(attn_mask.shape) != wanted:
            raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {attn_mask.shape}")
    return dims == 3


def _as_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A batch of one; what was one tensor stays one."""
    first = value.unsqueeze(1)
    second = first if key is value else key.unsqueeze(1)
    return second if query is key else query.unsqueeze(1), second, first


def _project(query: Tensor, key: Tensor, value: Tensor, weights: Any, biases: Any) -> list[Tensor]:
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases)]


def _project_packed(query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None) -> list[Tensor]:
    """The three projections from one packed weight: in one product where the inputs are the same tensor."""
    size = query.shape[-1]
    if key is value and query is key:
        return list(linear(query, weight, bias).split(size, -1))
    if key is value:
        w, rest = weight.split([size, 2 * size])
        b, rest_bias = (None, None) if bias is None else bias.split([size, 2 * size])
        return [linear(query, w, b), *linear(key, rest, rest_bias).split(size, -1)]
    return _project(query, key, value, weight.chunk(3), (None,) * 3 if bias is None else bias.chunk(3))


def _project_apart(query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None) -> list[Tensor]:
    """The three projections from weights of their own."""
    for name, weight in zip("qkv", weights):
        _require(weight is not None, f"use_separate_proj_weight is True but {name}_proj_weight is None")
    return _project(query, key, value, weights, (None,) * 3 if bias is None else bias.chunk(3))


def _in_projection(q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, b_q: Tensor | None = None,
                   b_k: Tensor | None = None, b_v: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """PyTorch's private name, which programs with an attention of their own borrow."""
    return tuple(_project(q, k, v, (w_q, w_k, w_v), (b_q, b_k, b_v)))


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None) -> list[Tensor]:
    """The same with the three weights in one."""
    return list(_project_packed(q, k, v, w, b))


def _check_mask(mask: Tensor | None, batch: int, heads: int, rows: int, columns: int) -> Tensor | None:
    """The attention mask with four dimensions: (batch or 1, heads or 1, rows, columns)."""
    if mask is None:
        return None
    wanted = (rows, columns) if mask.ndim == 2 else (batch * heads, rows, columns)
    if mask.ndim not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.ndim} is not supported")
    if tuple(mask.shape) != wanted:
        raise RuntimeError(f"The shape of the {mask.ndim}D attn_mask is {mask.shape}, but should be {wanted}.")
    return mask.view(1, 1, rows, columns) if mask.ndim == 2 else mask.reshape(batch, heads, rows, columns)


def _check_padding(padding: Tensor, batch: int, columns: int) -> Tensor:
    """The key padding mask as an attention mask: (batch, 1, 1, columns)."""
    for dim, wanted in ((0, batch), (1, columns)):
        _require(padding.shape[dim] == wanted,
                 f"Expected key_padded_mask.shape[{dim}] to be {wanted}, but got {padding.shape[dim]}")
    return padding.view(batch, 1, 1, columns)


def _one_more(mask: Tensor | None) -> Tensor | None:
    """A mask with one more column, which everyone may see."""
    return None if mask is None else FUNCTIONS["cat"]([mask, mask.new_zeros((*mask.shape[:-1], 1))], -1)


def _in_heads(x: Tensor, heads: int, width: int) -> Tensor:
    """(length, batch, heads * width) as (batch, heads, length, width)."""
    return x.view(x.shape[0], x.shape[1], heads, width).permute(1, 2, 0, 3)


def _static(name: str, given: Tensor, batch: int, heads: int, width: int) -> Tensor:
    for dim, wanted in ((0, batch * heads), (2, width)):
        _require(given.shape[dim] == wanted, f"expecting {name}.size({dim}) of {wanted}, but got {given.shape[dim]}")
    return given.view(batch, heads, *given.shape[1:])


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, heads: int, separate: bool) -> None:
    size = query.shape[-1]
    _require(size == embed_dim_to_check, f"was expecting embedding dimension of {embed_dim_to_check}, but got {size}")
    _require(size % heads == 0, f"embed_dim {size} not divisible by num_heads {heads}")
    if separate:
        _require(key.shape[:2] == value.shape[:2],
                 f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    else:
        _require(key.shape == value.shape, f"key shape {key.shape} does not match value shape {value.shape}")


@public(toplevel=False, method=False, out=False)
def multi_head_attention_forward(
        query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
        in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
        out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True,
        key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
        use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None,
        v_proj_weight: Tensor | None = None, static_k: Tensor | None = None, static_v: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention as nn.MultiheadAttention does it; inputs are (length, batch, features) or (length, features).

    Returns the output and, with need_weights, the weights: their mean over the heads, or each with
    average_attn_weights=False.

    >>> x, w = torch.ones(5, 2, 4), torch.ones(12, 4)
    >>> out, weights = F.multi_head_attention_forward(x, x, x, 4, 2, w, None, None, None, False, 0.0, torch.eye(4), None)
    >>> out.shape, weights.shape
    (torch.Size([5, 2, 4]), torch.Size([2, 5, 5]))
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _as_batch(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    rows, batch, size = query.shape
    key_padding_mask = _canonical_mask(key_padding_mask, "key_padding_mask", _none_or_dtype(attn_mask), "attn_mask",
                                       query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
                           "`generate_square_subsequent_mask` to create this mask.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the hint says the same, and costs nothing
    else:
        attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        is_causal = is_causal and key_padding_mask is None and attn_mask is None
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    width, columns = size // num_heads, key.shape[0]
    if use_separate_proj_weight:
        q, k, v = _project_apart(query, key, value, (q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias)
    else:
        _require(in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _project_packed(query, key, value, in_proj_weight, in_proj_bias)
    mask = _check_mask(attn_mask, batch, num_heads, rows, columns)
    if bias_k is not None and bias_v is not None:
        _require(static_k is None, "bias cannot be added to static key.")
        _require(static_v is None, "bias cannot be added to static value.")
        k, v = [FUNCTIONS["cat"]([x, b.repeat(1, batch, 1)]) for x, b in ((k, bias_k), (v, bias_v))]
        mask, key_padding_mask = _one_more(mask), _one_more(key_padding_mask)
    else:
        _require(bias_k is None, "bias_k is set but bias_v is None")
        _require(bias_v is None, "bias_v is set but bias_k is None")
    q = _in_heads(q, num_heads, width)
    k = _in_heads(k, num_heads, width) if static_k is None else _static("static_k", static_k, batch, num_heads, width)
    v = _in_heads(v, num_heads, width) if static_v is None else _static("static_v", static_v, batch, num_heads, width)
    if add_zero_attn:
        k, v = [FUNCTIONS["cat"]([x, x.new_zeros((batch, num_heads, 1, width))], 2) for x in (k, v)]
        mask, key_padding_mask = _one_more(mask), _one_more(key_padding_mask)
    if key_padding_mask is not None:
        padding = _check_padding(key_padding_mask, batch, k.shape[2])
        mask = padding if mask is None else mask + padding
    attended, weights = _attended(q, k, v, mask, dropout_p if training else 0.0, is_causal, need_weights)
    output = linear(attended.permute(2, 0, 1, 3).reshape(rows * batch, size), out_proj_weight, out_proj_bias)
    output = output.view(rows, batch, output.shape[1])
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if not batched:
        output, weights = output.squeeze(1), None if weights is None else weights.squeeze(0)
    return output, weights


def _attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool,
              need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """The result, and the weights where they are wanted; a row of these that sees nothing is nan, as in PyTorch."""
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal), None
    scores = FUNCTIONS["matmul"](q * math.sqrt(1.0 / q.shape[-1]), k.transpose(-2, -1))
    weights = FUNCTIONS["softmax"](scores if mask is None else scores + mask, -1)
    if dropout_p > 0:
        weights = FUNCTIONS["dropout"](weights, dropout_p, True)
    return FUNCTIONS["matmul"](weights, v), weights
