"""Flex attention, which needs a compiler: not implemented. The names are here so that programs can import them."""

from __future__ import annotations

from ...missing import refusal

_REASON = "flex attention is not implemented"
_NAMES = ("flex_attention", "create_block_mask", "create_mask", "BlockMask", "and_masks", "or_masks", "noop_mask",
          "AuxOutput", "AuxRequest", "_create_empty_block_mask", "_mask_mod_signature", "_score_mod_signature")
globals().update({name: refusal(f"nn.attention.flex_attention.{name}", _REASON) for name in _NAMES})

__all__ = [name for name in _NAMES if not name.startswith("_")]
