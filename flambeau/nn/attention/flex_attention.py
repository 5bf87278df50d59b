"""Attention whose scores are changed by a function of the user's, and masked by a rule: `flex_attention`.

The scores are computed as a whole and changed by tensor operations. Gradients work on the CPU too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ...creation.factories import ones, zeros
from ...ops.core.row import FUNCTIONS
from ...ops.layers.attention import _safe_softmax
from ...ops.linalg.matmul import matmul
from ...tensors.dtypes import int32
from ...tensors.tensor import Tensor
from .block_masks import (
    DEFAULT_BLOCK_SIZE,
    BlockMask,
    _sliced_mask_mod,
    and_masks,
    create_block_mask,
    create_mask,
    everywhere,
    noop_mask,
    or_masks,
)

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention",
           "noop_mask", "or_masks"]

_DEFAULT_SPARSE_BLOCK_SIZE = DEFAULT_BLOCK_SIZE
_LARGE_SPARSE_BLOCK_SIZE = 1 << 30  # the block size of a mask that leaves everything
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class AuxRequest(NamedTuple):
    """What else to return: the logarithms of the sums of exponentials, the largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an AuxRequest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def _create_empty_block_mask(query: Tensor, key: Tensor) -> BlockMask:
    """The mask that leaves everything: one block as large as can be."""
    return BlockMask.from_kv_blocks(ones(1, 1, 1, dtype=int32, device=query.device),
                                    zeros(1, 1, 1, 1, dtype=int32, device=query.device),
                                    BLOCK_SIZE=_LARGE_SPARSE_BLOCK_SIZE, seq_lengths=(1, 1))


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ValueError("Expect query and key/value to have the same embedding dimension "
                         f"but got E={query.shape[-1]} and E={key.shape[-1]}.")
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, theirs = query.shape[1], key.shape[1]
    if not enable_gqa and heads != theirs:
        raise ValueError(f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={theirs}. "
                         "Try setting enable_gqa=True for GQA.")
    if heads % theirs:
        raise ValueError("Expect number of query heads to be a multiple of kv heads for GQA "
                         f"but got Hq={heads} and Hkv={theirs}.")
    if query.shape[0] != key.shape[0] and block_mask is None:
        raise ValueError("Expect query and key/value to have the same batch size, or non-none block_mask, "
                         f"but got block_mask=None, Bq={query.shape[0]}, and Bkv={key.shape[0]}.")
    if query.shape[0] != key.shape[0] and block_mask.kv_num_blocks.shape[0] != query.shape[0]:
        raise ValueError("Expect query and key/value to have the same batch size, or block_mask and query to have the same "
                         f"batch size, but got Bq={query.shape[0]}, Bkv={key.shape[0]}, "
                         f"B_block_mask={block_mask.kv_num_blocks.shape[0]}.")
    if block_mask is not None:
        _check_lengths(query.shape[2], key.shape[2], block_mask)


def _check_lengths(q_len: int, kv_len: int, block_mask: BlockMask) -> None:
    if block_mask.mask_mod is _sliced_mask_mod:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    made_for = block_mask.shape[-2:]
    if block_mask.BLOCK_SIZE == (_LARGE_SPARSE_BLOCK_SIZE,) * 2 or made_for == (q_len, kv_len):
        return
    start = (f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. "
             "As the block mask was created for a ")
    if q_len > made_for[0] or kv_len > made_for[1]:
        raise ValueError(start + "smaller length than you're using it for, you likely need to create a new block mask.")
    raise ValueError(start + "larger length than you're using it for, you can either 1. create a new block mask with the "
                     "correct length, or 2. 'adjust' the existing block mask to the correct length by calling "
                     "block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper left corner, "
                     "which does not work for all mask_mods!")


def _scores(query: Tensor, key: Tensor, score_mod: Callable | None, block_mask: BlockMask | None, scale: float) -> Tensor:
    """The scores as the functions leave them, at least in float32."""
    if query.dtype.name != "float64":
        query, key = query.float(), key.float()
    scores = matmul(query, key.transpose(-2, -1)) * scale
    shape = tuple(scores.shape)
    if score_mod is not None:
        scores = everywhere(score_mod, shape, query.device, scores)
    if block_mask is not None and block_mask.mask_mod is not noop_mask:
        scores = scores.masked_fill(~everywhere(block_mask.mask_mod, shape, query.device), -math.inf)
    return scores


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod: Callable | None = None,
                   block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
                   return_lse: bool = False, kernel_options: dict[str, Any] | None = None, *,
                   return_aux: AuxRequest | None = None) -> Any:
    """softmax(mod(q k^T * scale)) v, where score_mod(score, batch, head, query, key) changes each score."""
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux. "
                         "return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead.")
    if return_aux is not None and return_aux.max_scores:
        raise NotImplementedError("Returning max scores is not supported on CPU/MPS.")
    groups = query.shape[1] // key.shape[1]
    key, value = (t if groups == 1 else t.repeat_interleave(groups, 1) for t in (key.to(query.dtype), value.to(query.dtype)))
    scores = _scores(query, key, score_mod, block_mask, query.shape[-1] ** -0.5 if scale is None else scale)
    out = matmul(_safe_softmax(scores, 3, None).to(query.dtype), value)
    if not (return_lse or return_aux is not None):
        return out
    lse = FUNCTIONS["logsumexp"](scores, -1) if return_lse or return_aux.lse else None
    return (out, lse) if return_lse else (out, AuxOutput(lse=lse))
