"""`torch._tensor_str`: how tensors print, under the name some tools import it from."""

from __future__ import annotations

from typing import Any

from .printing import get_printoptions, set_printoptions

PRINT_OPTS = type("PRINT_OPTS", (), {"__getattr__": lambda self, name: getattr(get_printoptions(), name)})()


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor."""
    return self.__repr__(tensor_contents=tensor_contents)


__all__ = ["PRINT_OPTS", "get_printoptions", "set_printoptions"]
