"""Settings of PyTorch's compiler that programs change: remembered, without effect here."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def _values(section: str) -> Iterator[tuple[str, Any]]:
    """The settings of a module and their first values, as compiler_settings.txt has them."""
    text = Path(__file__).with_suffix(".txt").read_text()
    for line in text.partition(f"[{section}]\n")[2].partition("\n[")[0].replace("\n    ", " ").splitlines():
        value, _, names = line.rpartition(": ")
        for name in names.split():
            yield name, ast.literal_eval(value)


class Settings(ModuleType):
    """A module of switches: those that PyTorch has."""

    def __init__(self, name: str, doc: str):
        super().__init__(name, doc)
        for path, value in _values(name.partition(".")[2]):
            space, _, last = path.rpartition(".")  # `triton.cudagraphs`
            holder = self.__dict__.setdefault(space, SimpleNamespace()) if space else self
            setattr(holder, last, value)
        self._complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_complete") and name not in self.__dict__ and not name.startswith("__"):
            raise AttributeError(f"{self.__name__.replace('flambeau', 'torch', 1)}.{name} does not exist")
        super().__setattr__(name, value)

    @contextlib.contextmanager
    def patch(self, changes: Any = None, value: Any = None, **named: Any) -> Iterator[None]:
        """Other values inside a `with` block or a decorated function."""
        given = {changes: value} if isinstance(changes, str) else dict(changes or {})
        before = dict(self.__dict__)
        for name, new in {**given, **named}.items():
            setattr(self, name, new)
        try:
            yield
        finally:
            self.__dict__.clear()
            self.__dict__.update(before)
