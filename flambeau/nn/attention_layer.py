"""MultiheadAttention."""

from __future__ import annotations

from typing import Any

from ..autograd.state import grad_enabled
from ..creation import factories as creation
from ..tensors.tensor import Tensor
from . import functional as F
from . import init
from .explain import wrong_size
from .linear import NonDynamicallyQuantizableLinear
from .module import Module
from .parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Several heads of attention side by side: out_proj(concat(softmax(q_h k_h^T / sqrt(width)) v_h)).

    Inputs are (length, batch, features), with batch_first (batch, length, features), or (length, features). kdim, vdim:
    features of key and value where they differ; add_bias_kv appends a learned key and value, add_zero_attn one of zeros.

    Shapes: With batch_first: (batch, length, embed_dim) for query, key and value; the result has the query's shape, the
    weights are (batch, query length, key length).

    >>> attention = nn.MultiheadAttention(16, num_heads=4, batch_first=True)
    >>> x = torch.randn(2, 5, 16)
    >>> out, weights = attention(x, x, x)
    >>> out.shape, weights.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 5]))
    """

    __constants__ = ["batch_first"]
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
                 add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None,
                 batch_first: bool = False, device: Any = None, dtype: Any = None) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads="
                             f"{num_heads} instead")
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def parameter(*shape: int) -> Parameter:
            return Parameter(creation.empty(shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = parameter(3 * embed_dim)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            self.bias_k = parameter(1, 1, embed_dim)
            self.bias_v = parameter(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        weights = (self.in_proj_weight,) if self._qkv_same_embed_dim else (
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        for weight in weights:
            init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("_qkv_same_embed_dim", True)  # files of PyTorch 1.1
        super().__setstate__(state)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
                is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
        """(output, weights or None). Masks: True, or -inf, where attention is not allowed."""
        batched = query.ndim == 3
        key_padding_mask = F._canonical_mask(key_padding_mask, "key_padding_mask", F._none_or_dtype(attn_mask),
                                             "attn_mask", query.dtype)
        attn_mask = F._canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        inference_path = self._takes_inference_path(query, key, value)
        if self.batch_first and batched:
            query, key, value = _time_first(query, key, value)
        separate = {} if self._qkv_same_embed_dim else dict(
            use_separate_proj_weight=True, q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight)
        if inference_path and is_causal and attn_mask is None:
            is_causal = False  # PyTorch's inference path does not look at the hint
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            training=self.training, key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            average_attn_weights=average_attn_weights, is_causal=is_causal, **separate)
        if self.batch_first and batched:
            output = output.transpose(1, 0)
            return (output.contiguous() if inference_path else output), weights
        return output, weights

    def _mismatch(self, query: Tensor, name: str) -> str:
        return wrong_size(query, -1, self.embed_dim, "embed_dim", name)

    def _takes_inference_path(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        """Whether PyTorch would take its inference path here, which differs in layout and in what it checks."""
        own = (self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias)
        return (query.ndim == 3 and query is key and key is value and not self.training and self.batch_first
                and self.num_heads % 2 == 0 and self.bias_k is None and self.bias_v is None and not self.add_zero_attn
                and None not in own and query.dtype is self.in_proj_weight.dtype
                and not (grad_enabled() and (query.requires_grad or any([p.requires_grad for p in own]))))

    def merge_masks(self, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                    query: Tensor) -> tuple[Tensor | None, int | None]:
        """Both masks as one of (batch, heads, length, length), and PyTorch's number for its kind: 0, 1 or 2."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.ndim == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2


def _time_first(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Batch and time exchanged; inputs that are one tensor stay one tensor, so they are projected together."""
    swapped = value.transpose(1, 0)
    swapped_key = swapped if key is value else key.transpose(1, 0)
    return swapped_key if query is key else query.transpose(1, 0), swapped_key, swapped
