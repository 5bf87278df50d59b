"""New arrays of the geometry that a kernel's shape rule says (facts.SHAPES)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..facts import SHAPES
from .arrays import windows


def blank(name: str, *args: Any) -> Any:
    """New arrays of the geometry that a kernel's rule says."""
    return _made(SHAPES[name](*args))


def _made(rule: Any) -> Any:
    if rule.__class__ is list:
        return tuple([_made(r) for r in rule])
    if rule is None or isinstance(rule, np.ndarray):
        return rule
    shape, dtype, stride = rule
    return windows.empty(shape, dtype) if stride is None else windows.empty_strided(shape, stride, dtype)
