"""Nested values laid out by a spec that is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils._pytree import TreeSpec

SUPPORTED_NODES: dict[type, Callable[[Any, TreeSpec], list[Any]]] = {}


def register_pytree_flatten_spec(cls: type, flatten_fn_spec: Callable[[Any, TreeSpec], list[Any]],
                                 flatten_fn_exact_match_spec: Any = None) -> None:
    """How values of a class are taken apart by a spec."""
    SUPPORTED_NODES[cls] = flatten_fn_spec


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves that a spec names; more in the value than the spec knows is left out."""
    if spec.is_leaf():
        return [pytree]
    if spec.type in SUPPORTED_NODES:
        parts = SUPPORTED_NODES[spec.type](pytree, spec)
    elif isinstance(pytree, dict):
        parts = [pytree[key] for key in spec.context]
    elif isinstance(pytree, (list, tuple)):
        parts = [pytree[i] for i in range(len(spec.children_specs))]
    else:
        return spec.flatten_up_to(pytree)
    return [leaf for part, inner in zip(parts, spec.children_specs) for leaf in tree_flatten_spec(part, inner)]
