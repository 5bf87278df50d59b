"""The layers' functions that PyTorch also has at its top level (`torch.conv2d`); imported when one is asked for."""

from __future__ import annotations

from typing import Any

from ..core.row import FUNCTIONS
from . import conv, normalization, pooling, resample  # noqa: F401


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"no function named {name!r}")
