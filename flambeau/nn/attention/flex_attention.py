"""Flex attention, which needs a compiler: not implemented. The names are here so that programs can import them."""

from __future__ import annotations

from ...missing import refusal

_REASON = "flex attention is not implemented"
_NAMES = ("flex_attention", "create_block_mask", "create_mask", "BlockMask", "and_masks", "or_masks", "noop_mask")
globals().update({name: refusal(f"nn.attention.flex_attention.{name}", _REASON) for name in _NAMES})

__all__ = list(_NAMES)
