"""Scaled dot-product attention: one fused row, and the same in small operations for what the row does not cover."""

from __future__ import annotations

import math
from typing import Any

from ...autograd.state import FORWARD_AD, state
from ...backends import registry
from ...backends.cpu.layers import attention as _kernels  # noqa: F401  (enters the kernels into the table)
from ...tensors.dtypes import bool_
from ...tensors.shapes import broadcast_shapes
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, Row, along, public
from ..core.steps import by_steps
from ..linalg.matmul import check_tensor, matmul
from ..reduce.scans import _softmax_grad
from ..rules import layers

ndarray = registry.CPU_ARRAY

_safe_softmax = along("_safe_softmax", "self dim dtype", shape=rules.normalised, kernel="safe_softmax", backward=dict(
    self=lambda grad, result, dim: _softmax_grad(grad, result, dim)), node="SafeSoftmaxBackward0")
Row("attention_backward", "grad query key value attn_mask is_causal scale output statistic",
    shape=layers.attention_backward)


def _in_steps(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any, is_causal: bool, scale: float,
              dropout_p: float = 0.0) -> Tensor:
    """softmax(q k^T * scale + mask) v in small operations; the scale goes half to q and half to k, as in PyTorch."""
    return _weighted(query, key, value, attn_mask, is_causal, scale, dropout_p)[0]


def _weighted(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any, is_causal: bool, scale: float,
              dropout_p: float) -> tuple[Tensor, Tensor]:
    if is_causal:
        attn_mask = _with_causal(attn_mask, query, key)
    if attn_mask is not None and attn_mask.dtype is _bool():
        attn_mask = query.new_zeros(()).masked_fill(~attn_mask, -math.inf)
    part = math.sqrt(float(scale)) if scale >= 0 else None
    if part is None:
        scores = matmul(query * scale, key.transpose(-2, -1))
    else:
        scores = matmul(query * part, key.transpose(-2, -1) * part)
    if attn_mask is not None:
        scores = scores + attn_mask
    weights = _safe_softmax(scores, scores.ndim - 1, None)
    if dropout_p > 0:
        weights = FUNCTIONS["dropout"](weights, dropout_p, True)
    return matmul(weights, value), weights


def _with_causal(attn_mask: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    rows, columns = query.shape[-2], key.shape[-2]
    allowed = FUNCTIONS["tril"](query.new_ones((rows, columns), dtype=_bool()))
    if attn_mask is None:
        return allowed
    if attn_mask.dtype is _bool():
        return attn_mask & allowed
    return attn_mask.masked_fill(~allowed, -math.inf)


def _bool() -> Any:
    return bool_


_ARGS = "query key value attn_mask is_causal scale"
_attention = Row(
    "attention", _ARGS, constant=(1,), shape=layers.attention,
    node="ScaledDotProductFlashAttentionForCpuBackward0", backward=by_steps(_in_steps, _ARGS, "query key value"),
    fused={"query key value": f"attention_backward(grad, {', '.join(_ARGS.split())}, result0, result1)"})


# ------------------------------------------------------------------------------------------------------ arguments
def _check(query: Any, key: Any, value: Any, attn_mask: Any) -> None:
    check_tensor("scaled_dot_product_attention", query=query, key=key, value=value)
    if attn_mask is not None and not isinstance(attn_mask, Tensor):
        raise TypeError("scaled_dot_product_attention(): argument 'attn_mask' must be Tensor, not "
                        f"{type(attn_mask).__name__}")
    if not query.dtype is key.dtype is value.dtype:
        names = [t.dtype.c_word for t in (query, key, value)]
        raise RuntimeError("Expected query, key, and value to have the same dtype, but got query.dtype: "
                           f"{names[0]} key.dtype: {names[1]} and value.dtype: {names[2]} instead.")
    if not query.device == key.device == value.device:
        raise RuntimeError("Expected query, key, and value to have the same device type, but got query.device: "
                           f"{query.device} key.device: {key.device} and value.device: {value.device} instead.")
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError("Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: "
                           f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead.")
    if attn_mask is not None:
        if attn_mask.dtype is not _bool() and attn_mask.dtype is not query.dtype and attn_mask.dtype.name != "float32":
            names = [t.dtype.c_word for t in (attn_mask, query)]
            raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype, but got "
                               f"attn_mask.dtype: {names[0]} and  query.dtype: {names[1]} instead.")
    if not query.dtype.is_floating_point:
        raise RuntimeError("scaled_dot_product_attention: expected floating point query, key and value, but got "
                           f"{query.dtype}")


def _repeat_heads(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Grouped queries: each head of key and value serves several of the query's."""
    heads = query.shape[-3]
    if key.shape[-3] == 0 or value.shape[-3] == 0 or heads % key.shape[-3] or heads % value.shape[-3]:
        raise RuntimeError("Number of heads in key and value must divide the number of heads in query, but got "
                           f"{key.shape[-3]}, {value.shape[-3]} and {heads}")
    made = [t if t.shape[-3] == heads else t.repeat_interleave(heads // t.shape[-3], -3) for t in (key, value)]
    return made[0], made[1]


def _fits(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any) -> bool:
    """Whether the shapes are what the fused kernel takes; if not, the small operations say what is wrong."""
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2] or not query.shape[-1]:
        return False
    if attn_mask is not None:
        scores = (*query.shape[:-1], key.shape[-2])
        if len(attn_mask.shape) > len(scores):
            return False
        return all([m in (1, n) for m, n in zip(reversed(attn_mask.shape), reversed(scores))])
    return True


@public(toplevel=False, method=False, out=False, autocast="lower")
def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
                                 enable_gqa: bool = False) -> Tensor:
    """softmax(query @ key^T * scale + mask) @ value over the last two dimensions.

    attn_mask: bool (True takes part) or numbers to add; is_causal: row i sees columns up to i; dropout_p drops weights;
    scale is 1 / sqrt(columns of query) unless given; enable_gqa: key and value have fewer heads (dimension -3).
    """
    _check(query, key, value, attn_mask)
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    flash = query.ndim == 4 and dropout_p == 0
    if is_causal and attn_mask is not None and not flash:
        raise RuntimeError("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        key, value = _repeat_heads(query, key, value)
    fusable = all([type(t._array) is ndarray or registry.backend_of(t._array).NAME in ("cpu", "meta", "cuda")
                 for t in (query, key, value)])
    if dropout_p > 0 or not fusable or state.mode & FORWARD_AD or (attn_mask is not None and attn_mask.requires_grad):
        return _in_steps(query, key, value, attn_mask, is_causal, scale, dropout_p=dropout_p)
    batch = query.shape[:-2]
    if key.shape[:-2] != batch or value.shape[:-2] != batch:
        batch = broadcast_shapes(batch, key.shape[:-2], value.shape[:-2])
        query, key, value = [t.expand(*batch, *t.shape[-2:]) for t in (query, key, value)]
    if not _fits(query, key, value, attn_mask):
        return _in_steps(query, key, value, attn_mask, is_causal, scale)
    return _attention(query, key, value, attn_mask, bool(is_causal), float(scale))[0]


__all__ = ["scaled_dot_product_attention"]
