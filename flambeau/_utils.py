"""Small helpers that programs import from here."""

from __future__ import annotations

from .utils.data.errors import ExceptionWrapper, KeyErrorMessage

__all__ = ["ExceptionWrapper", "KeyErrorMessage"]
