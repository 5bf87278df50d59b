"""From an operation to C statements: finds the lowering of its kernel (lowerings/)."""

from __future__ import annotations

import importlib
import pkgutil

from ..ir.parts import C_TYPES, Op
from . import lowerings

_loaded = False


def _load() -> None:
    global _loaded
    if not _loaded:
        _loaded = True
        for module in pkgutil.iter_modules(lowerings.__path__):
            importlib.import_module(f"{lowerings.__name__}.{module.name}")


def lowered(op: Op) -> str | None:
    """C statements for the operation, or None: the NumPy kernel is called."""
    _load()
    found = lowerings.LOWERINGS.get(op.kernel)
    if found is None or any(v.dtype.char not in C_TYPES for v in (*op.reads, *op.writes)):
        return None
    return found(op)
