"""From an operation to statements: finds the lowering of its kernel (lowerings/)."""

from __future__ import annotations

import importlib
import pkgutil

from ..ir.parts import KINDS, Op
from ..ir.statements import Statement
from . import lowerings

_loaded = False


def _load() -> None:
    global _loaded
    if not _loaded:
        _loaded = True
        for module in pkgutil.iter_modules(lowerings.__path__):
            importlib.import_module(f"{lowerings.__name__}.{module.name}")


def lowered(op: Op) -> list[Statement] | None:
    """The operation as statements, or None: the NumPy kernel is called."""
    _load()
    found = lowerings.LOWERINGS.get(op.kernel)
    if found is None or any(v.dtype.char not in KINDS for v in (*op.reads, *op.writes)):
        return None
    made = found(op)
    return made if made is None or made.__class__ is list else [made]
