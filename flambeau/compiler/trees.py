"""Arguments and results as flat lists of leaves: lists, tuples (named ones too) and dicts are taken apart."""

from __future__ import annotations

from typing import Any

LEAF = object()


def flatten(value: Any, leaves: list[Any]) -> Any:
    """Appends the leaves; returns the shape of the tree, from which `unflatten` puts it together."""
    kind = value.__class__
    if kind is list or kind is tuple:
        return kind, [flatten(v, leaves) for v in value]
    if kind is dict:
        return kind, [(k, flatten(v, leaves)) for k, v in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, [flatten(v, leaves) for v in value]
    leaves.append(value)
    return LEAF


def unflatten(shape: Any, leaves: Any) -> Any:
    """leaves: an iterator over the new leaves."""
    if shape is LEAF:
        return next(leaves)
    kind, parts = shape
    if kind is dict:
        return {k: unflatten(s, leaves) for k, s in parts}
    made = [unflatten(s, leaves) for s in parts]
    return made if kind is list else kind(made) if kind is tuple else kind(*made)
