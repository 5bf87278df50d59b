"""`torch.ops.<namespace>`: operations that users defined (library.py), by name."""

from __future__ import annotations

import types
from typing import Any


class OpNamespace(types.SimpleNamespace):
    """`torch.ops.<name>`."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'_OpNamespace' '{self.__dict__.get('_name')}' object has no attribute '{name}'")


NAMESPACES: dict[str, OpNamespace] = {}
