"""The factors of dropout: 0 or 1 / (1 - p), drawn and scaled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy import ndarray

from .. import memory

_FRACTION = np.uint64((1 << 53) - 1)


def noise_scale(dtype: np.dtype, p: float) -> float:
    """1 / (1 - p), rounded as a division in that dtype is."""
    return float(dtype.type(1) / dtype.type(1.0 - p))


def scaled_mask(engine: Any, shape: tuple[int, ...], dtype: np.dtype, p: float) -> ndarray:
    """One 53-bit uniform per element, as `bernoulli_(1 - p)` draws them; kept where it is below 1 - p."""
    draws = engine.draw64(math.prod(shape)) & _FRACTION
    kept = draws.reshape(shape) < np.uint64(math.ceil((1.0 - p) * 2.0**53))
    return np.multiply(kept, dtype.type(noise_scale(dtype, p)), out=memory.empty(shape, dtype))
