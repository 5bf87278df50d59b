"""Exceptions that travel from a worker to the main process with their traceback."""

from __future__ import annotations

import sys
import traceback
from typing import Any


class KeyErrorMessage(str):
    """A text that KeyError shows as it is, line breaks and all, where it would show the repr of a plain string."""

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception's type and printed traceback: what can be sent of any exception."""

    def __init__(self, exc_info: Any = None, where: str = "in background"):
        info = sys.exc_info() if exc_info is None else exc_info
        self.exc_type = info[0]
        self.exc_msg = "".join(traceback.format_exception(*info))
        self.where = where

    def reraise(self) -> None:
        """Raises the exception here, its text being the traceback of where it happened."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(message))
        try:
            error = self.exc_type(message=message) if hasattr(self.exc_type, "message") else self.exc_type(message)
        except Exception:  # a type whose constructor wants something else
            raise RuntimeError(message) from None
        raise error


__all__ = ["ExceptionWrapper", "KeyErrorMessage"]
