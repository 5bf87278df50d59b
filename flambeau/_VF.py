"""torch._VF: the functions of the top level under the name that some programs use for them."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import flambeau
    if name.startswith("__"):
        raise AttributeError(f"module 'flambeau._VF' has no attribute '{name}'")
    return getattr(flambeau, name)
