"""New arrays of the geometry that a kernel's shape rule says (facts.SHAPES)."""

from __future__ import annotations

from typing import Any

from ..facts import SHAPES
from .arrays import windows


def blank(name: str, *args: Any) -> Any:
    """New arrays of the geometry that a kernel's rule says."""
    return windows.by_rule(SHAPES[name](*args))
