"""`__torch_function__`: tensor subclasses and modes that take part in operations.

`active` stays False until a subclass with its own behaviour is defined or a mode is entered, so that programs without
either pay one global read per call.
"""

from __future__ import annotations

from typing import Any

active = False


def dispatch(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    return False, None
