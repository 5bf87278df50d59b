"""Pinned memory is for copies to a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def pin_memory(data: Any, device: Any = None) -> Any:
    """The same nesting with everything pinned that can be: what has a `pin_memory` method."""
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return type(data)({key: pin_memory(value, device) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[pin_memory(value, device) for value in data])
    if isinstance(data, Sequence):
        return [pin_memory(value, device) for value in data]
    return data
