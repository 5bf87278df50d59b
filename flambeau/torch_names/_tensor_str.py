"""`torch._tensor_str`: how tensors print, under the name some tools import it from."""

from __future__ import annotations

from typing import Any

from .tensors.printing import (
    PRINT_OPTS,
    add_suffixes,
    contents,
    get_printoptions,
    printoptions,
    set_printoptions,
    tensor_repr,
)


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor."""
    return self.__repr__(tensor_contents=tensor_contents)


def _str_intern(inp: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor, whatever its class says of printing."""
    return tensor_repr(inp, tensor_contents=tensor_contents)


def _tensor_str(self: Any, indent: int) -> str:
    """The elements in brackets."""
    return contents(self, indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    """The elements followed by what else is said of a tensor."""
    return add_suffixes(tensor_str, suffixes, indent, force_newline)


__all__ = ["PRINT_OPTS", "get_printoptions", "printoptions", "set_printoptions"]
