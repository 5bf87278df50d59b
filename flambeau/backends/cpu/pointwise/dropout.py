"""The factors of dropout: 0 or 1 / (1 - p), drawn and scaled piece by piece."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from .. import memory
from ..table import kernel

_PIECE = 1 << 14
_FRACTION = np.uint64((1 << 53) - 1)


def noise_scale(dtype: np.dtype, p: float) -> float:
    """1 / (1 - p), rounded as a division in that dtype is."""
    return float(dtype.type(1) / dtype.type(1.0 - p))


def scaled_mask(engine: Any, shape: tuple[int, ...], dtype: np.dtype, p: float) -> ndarray:
    """One 53-bit uniform per element, as `bernoulli_(1 - p)` draws them; kept where it is below 1 - p."""
    out = memory.empty(shape, dtype)
    flat = out.reshape(-1)
    bound = np.uint64(math.ceil((1.0 - p) * 2.0**53))
    scale = dtype.type(noise_scale(dtype, p))
    for i in range(0, flat.size, _PIECE):
        part = flat[i:i + _PIECE]
        draws = engine.draw64(part.size)
        np.bitwise_and(draws, _FRACTION, out=draws)
        np.multiply(draws < bound, scale, out=part)
    return out


@kernel
def masked_scale(x: ndarray, mask: ndarray, scale: float) -> ndarray:
    """x * mask * scale."""
    return x * mask.astype(x.dtype) * x.dtype.type(scale)
