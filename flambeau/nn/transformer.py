"""Transformer, its encoder and decoder, and their layers."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.state import CAPTURE, FOLLOW, grad_enabled, state
from ..creation import factories as creation
from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from . import functional as F
from . import init
from .activation import GELU, ReLU
from .attention_layer import MultiheadAttention
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .norm import LayerNorm

__all__ = ["Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer",
           "TransformerDecoderLayer"]


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    """-inf above the diagonal and 0 elsewhere: a position sees itself and those before it."""
    return FUNCTIONS["triu"](creation.full((sz, sz), -math.inf, dtype=dtype, device=device), diagonal=1)


def _get_seq_len(src: Tensor, batch_first: bool) -> int:
    return src.shape[0 if src.ndim == 2 or not batch_first else 1]


def _get_clones(module: Module, n: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(n)])


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return getattr(F, activation)


def _detect_is_causal_mask(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """The caller's word, or, without one, whether the mask is the causal one."""
    if is_causal is not None or mask is None:
        return is_causal is True
    if state.mode & (CAPTURE | FOLLOW):  # nothing may depend on values there; the mask does the work all the same
        return False
    causal = _generate_square_subsequent_mask(mask.shape[-2] if size is None else size, mask.device, mask.dtype)
    return mask.shape == causal.shape and bool((mask == causal).all())


def _masks(mask: Tensor | None, padding: Tensor | None, names: tuple[str, str], dtype: Any):
    padding = F._canonical_mask(padding, names[1], F._none_or_dtype(mask), names[0], dtype)
    return F._canonical_mask(mask, names[0], None, "", dtype, check_other=False), padding


class Transformer(Module):
    """An encoder over src and a decoder over tgt that looks at the encoder's output.

    Shapes: With batch_first: (batch, source length, d_model) and (batch, target length, d_model); the second is kept.

    >>> model = nn.Transformer(16, nhead=4, num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
    >>> model(torch.randn(2, 5, 16), torch.randn(2, 7, 16)).shape
    torch.Size([2, 7, 16])
    """

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = F.relu,
                 custom_encoder: Any = None, custom_decoder: Any = None, layer_norm_eps: float = 1e-5,
                 batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
                 dtype: Any = None) -> None:
        super().__init__()
        made = dict(device=device, dtype=dtype)
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            layer = TransformerEncoderLayer(*options, **made)
            self.encoder = TransformerEncoder(layer, num_encoder_layers,
                                              LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            layer = TransformerDecoderLayer(*options, **made)
            self.decoder = TransformerDecoder(layer, num_decoder_layers,
                                              LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
                memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                memory_is_causal: bool = False) -> Tensor:
        """The decoder's output for tgt; masks are True or -inf where attention is not allowed."""
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                            tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                            tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """-inf above the diagonal and 0 elsewhere."""
        return _generate_square_subsequent_mask(sz, dtype=dtype, device=device)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)


class TransformerEncoder(Module):
    """A stack of encoder layers, all copies of the one given.

    Shapes: As its layers.

    >>> layer = nn.TransformerEncoderLayer(16, nhead=4, batch_first=True)
    >>> nn.TransformerEncoder(layer, num_layers=2)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    __constants__ = ["norm"]

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: Module | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        reason = _why_not_nested(encoder_layer)
        if enable_nested_tensor and reason:
            warnings.warn(f"enable_nested_tensor is True, but self.use_nested_tensor is False because {reason}", stacklevel=2)
            self.use_nested_tensor = False

    def forward(self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool | None = None) -> Tensor:
        """src through all the layers; is_causal=None: found out by looking at the mask."""
        mask, padding = _masks(mask, src_key_padding_mask, ("mask", "src_key_padding_mask"), src.dtype)
        is_causal = _detect_is_causal_mask(mask, is_causal, _get_seq_len(src, self.layers[0].self_attn.batch_first))
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=is_causal, src_key_padding_mask=padding)
        if padding is not None and mask is None and self._would_nest(src, padding):
            output = output.masked_fill((padding != 0).unsqueeze(-1), 0.0)  # what padding becomes in PyTorch
        return output if self.norm is None else self.norm(output)

    def _would_nest(self, src: Tensor, padding: Tensor) -> bool:
        """Whether PyTorch drops the padding here (nested tensors, in inference): it comes out as zeros then."""
        first = self.layers[0]
        if not getattr(self, "use_nested_tensor", False) or first.training or src.ndim != 3:
            return False
        if grad_enabled() and (src.requires_grad or any([p.requires_grad for p in first.parameters()])):
            return False
        kept = (padding == 0).long()
        return not getattr(self, "mask_check", True) or bool((kept.diff(dim=1) <= 0).all())


def _why_not_nested(layer: Any) -> str:
    """Why PyTorch's nested tensors do not fit a layer, or nothing."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    for unfit, reason in (
            (layer.norm_first, "norm_first was True"),
            (not attention.batch_first, "self_attn.batch_first was not True(use batch_first for better inference "
                                        "performance)"),
            (not attention._qkv_same_embed_dim, "self_attn._qkv_same_embed_dim was not True"),
            (attention.in_proj_bias is None, "self_attn was passed bias=False"),
            (not layer.activation_relu_or_gelu, "activation_relu_or_gelu was not True"),
            (layer.norm1.eps != layer.norm2.eps, "norm1.eps was not equal to encoder_layer.norm2.eps"),
            (attention.num_heads % 2 == 1, "self_attn.num_heads is odd")):
        if unfit:
            return f"encoder_layer.{reason}"
    return ""


class TransformerDecoder(Module):
    """A stack of decoder layers, all copies of the one given.

    Shapes: As its layers.

    >>> layer = nn.TransformerDecoderLayer(16, nhead=4, batch_first=True)
    >>> nn.TransformerDecoder(layer, num_layers=2)(torch.randn(2, 5, 16), torch.randn(2, 7, 16)).shape
    torch.Size([2, 5, 16])
    """

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool | None = None, memory_is_causal: bool = False) -> Tensor:
        """tgt through all the layers, each looking at memory."""
        tgt_is_causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal,
                                               _get_seq_len(tgt, self.layers[0].self_attn.batch_first))
        output = tgt
        for layer in self.layers:
            output = layer(output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                           tgt_key_padding_mask=tgt_key_padding_mask, memory_key_padding_mask=memory_key_padding_mask,
                           tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal)
        return output if self.norm is None else self.norm(output)


class _TransformerLayer(Module):
    """What encoder and decoder layers share: attention, a feed-forward network, and a LayerNorm and dropout for each part."""

    __constants__ = ["norm_first"]

    def _build(self, attentions: tuple[str, ...], d_model: int, nhead: int, dim_feedforward: int, dropout: float,
               activation: Any, layer_norm_eps: float, batch_first: bool, norm_first: bool, bias: bool, made: Any) -> None:
        for name in attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **made))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        parts = range(1, len(attentions) + 2)
        for part in parts:
            setattr(self, f"norm{part}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        for part in parts:
            setattr(self, f"dropout{part}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                  is_causal: bool = False) -> Tensor:
        x = self.self_attn(x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False,
                           is_causal=is_causal)[0]
        return self.dropout1(x)


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward network, each with a residual connection and a LayerNorm (before with norm_first,
    else after).

    Shapes: With batch_first: (batch, length, d_model), kept.

    >>> nn.TransformerEncoderLayer(16, nhead=4, batch_first=True)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self._build(("self_attn",), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
                    norm_first, bias, dict(device=device, dtype=dtype))
        relu = self.activation is F.relu or isinstance(self.activation, ReLU)
        gelu = self.activation is F.gelu or isinstance(self.activation, GELU)
        self.activation_relu_or_gelu = 1 if relu else 2 if gelu else 0

    def forward(self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
                is_causal: bool = False) -> Tensor:
        """is_causal says that src_mask is the causal mask."""
        src_mask, padding = _masks(src_mask, src_key_padding_mask, ("src_mask", "src_key_padding_mask"), src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, padding, is_causal=is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, src_mask, padding, is_causal=is_causal))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to the encoder's output and a feed-forward network.

    Shapes: With batch_first: (batch, length, d_model) and (batch, memory length, d_model); the first is kept.

    >>> nn.TransformerDecoderLayer(16, nhead=4, batch_first=True)(torch.randn(2, 5, 16), torch.randn(2, 7, 16)).shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = F.relu, layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self._build(("self_attn", "multihead_attn"), d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps,
                    batch_first, norm_first, bias, dict(device=device, dtype=dtype))

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
                tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
                tgt_is_causal: bool = False, memory_is_causal: bool = False) -> Tensor:
        """tgt, having looked at itself and at memory."""
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None,
                   is_causal: bool = False) -> Tensor:
        x = self.multihead_attn(x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
                                is_causal=is_causal, need_weights=False)[0]
        return self.dropout2(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
