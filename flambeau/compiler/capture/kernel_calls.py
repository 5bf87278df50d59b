"""What a kernel call does beyond its result: what it writes, and what its result depends on."""

from __future__ import annotations

import os
from typing import Any

from numpy import ndarray

from ...backends.cpu import backend as cpu
from ...backends.facts import DYNAMIC, WRITES
from ..ir.parts import SCALAR, Number, Value, values_in


def changed_by(kernel: str, values: list[Any]) -> list[Value]:
    """The arguments that a kernel writes (FLAMBEAU_DEBUG=writes checks that there are no others)."""
    return list(values_in([values[i] for i in WRITES.get(kernel, ()) if i < len(values)]))


def _by_value(kernel: str, values: list[Any]) -> bool:
    """Whether the shape of a kernel's result depends on values."""
    depends = DYNAMIC[kernel]
    return depends(*values) if callable(depends) else depends


_CHECKED = "writes" in os.environ.get("FLAMBEAU_DEBUG", "").split(",")


def _checked(name: str, args: list[Any], written: list[Any], recorder: Any) -> Any:
    """Runs a kernel and makes sure that it writes no argument it does not say it writes."""
    flat = [a for x in args for a in (x if x.__class__ in (list, tuple) else (x,)) if isinstance(a, ndarray)]
    before = [a.tobytes() for a in flat]
    made = cpu.call(name, tuple(args))
    for a, then in zip(flat, before):
        if a.tobytes() != then and recorder.value(a).key not in written:
            raise AssertionError(f"kernel {name} writes an argument of shape {a.shape} that changed_by() does not name")
    return made


def _is_view(out: Value, values: list[Any]) -> bool:
    return any(v.storage is out.storage for v in values_in(values))


def _has_number(values: Any) -> bool:
    return any(v.__class__ is Number or (v.__class__ is Value and v.storage.kind is SCALAR) or
               (v.__class__ in (list, tuple) and _has_number(v)) for v in values)
