"""Causal masks for queries and keys of different length: aligned at the first pair, or at the last."""

from __future__ import annotations

import warnings
from enum import IntEnum, auto
from typing import Any

from ...creation.factories import ones
from ...ops.core.row import FUNCTIONS
from ...tensors.dtypes import bool_
from ...tensors.tensor import Tensor, wrap_as

__all__ = ["causal_upper_left", "causal_lower_right", "CausalVariant", "CausalBias"]


class CausalVariant(IntEnum):
    """Which pair of query and key the diagonal starts or ends at."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A bool mask for scaled_dot_product_attention that remembers how it was made."""

    _answers_itself = True

    _without_overrides = True

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int):
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        lower = variant == CausalVariant.LOWER_RIGHT
        if lower and seq_len_q > seq_len_kv:
            warnings.warn("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!",
                          stacklevel=2)
        mask = FUNCTIONS["tril"](ones(seq_len_q, seq_len_kv, dtype=bool_), seq_len_kv - seq_len_q if lower else 0)
        made = wrap_as(cls, mask._array)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        pass

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a plain tensor."""
        mask = FUNCTIONS["clone"](self)
        return mask if device is None else mask.to(device)

    def __repr__(self) -> str:
        return repr(self._materialize())


def _sizes(name: str, size: tuple[int, ...]) -> tuple[int, ...]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors")
    return size


def causal_upper_left(*size: int) -> CausalBias:
    """Query i sees keys up to i."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_sizes("causal_upper_left", size))


def causal_lower_right(*size: int) -> CausalBias:
    """The last query sees all keys, the one before it all but the last, and so on."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_sizes("causal_lower_right", size))
