"""torch._VF: the functions of the top level under the name that some programs use for them."""

from __future__ import annotations

from typing import Any


def unique_dim(input: Any, dim: int, sorted: bool = True, return_inverse: bool = False,
               return_counts: bool = False) -> tuple[Any, ...]:
    """unique along a dimension, with all three results."""
    return input.unique(sorted=sorted, return_inverse=True, return_counts=True, dim=dim)


def __getattr__(name: str) -> Any:
    import flambeau
    if name.startswith("__"):
        raise AttributeError(f"module 'flambeau._VF' has no attribute '{name}'")
    return getattr(flambeau, name)
