"""Settings of PyTorch's compiler that programs change: remembered, without effect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class Settings(ModuleType):
    """A module of switches; one that was never set is False."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return False

    @contextlib.contextmanager
    def patch(self, changes: Any = None, value: Any = None, **named: Any) -> Iterator[None]:
        """Other values inside a `with` block or a decorated function."""
        given = {changes: value} if isinstance(changes, str) else dict(changes or {})
        before = dict(self.__dict__)
        self.__dict__.update(given, **named)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
