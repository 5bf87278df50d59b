"""What a sparse tensor has in place of an array."""

from __future__ import annotations

import numpy as np
from numpy import ndarray


def placeholder(shape: tuple[int, ...], dtype: np.dtype) -> ndarray:
    """An array of any shape over a single zero: it tells shape and dtype, and cannot be written."""
    return np.broadcast_to(np.zeros((), dtype), shape)
