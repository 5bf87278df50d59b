"""Packages that import their parts when asked for, seen as a whole: `vars(torch.optim)` has all that `__all__` names.

Programs that walk over a module's `__dict__` to find every layer or optimizer see what they see in PyTorch; all others
pay nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

table_of = ModuleType.__dict__["__dict__"].__get__  # the dictionary as it is


class CompleteModule(ModuleType):
    """A module whose `__dict__` is complete when somebody looks at it."""

    @property
    def __dict__(self) -> dict[str, Any]:
        table = table_of(self)
        for name in self.__all__:
            if name not in table:
                table.setdefault(name, getattr(self, name))
        return table

    def __dir__(self) -> list[str]:
        own = table_of(self).get("__dir__")
        return sorted(self.__dict__) if own is None else own()


def show_complete(name: str) -> None:
    """Makes the module of that name such a module."""
    sys.modules[name].__class__ = CompleteModule
