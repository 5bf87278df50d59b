"""What the nodes that are being made come from: the metadata of the node that is being run."""

from __future__ import annotations

import contextlib
import copy
import traceback
from collections.abc import Iterator
from typing import Any

from .node import Node

__all__ = ["annotate", "format_stack", "get_current_meta", "has_preserved_node_meta", "preserve_node_meta", "set_current_meta",
           "set_stack_trace"]

current_meta: dict[str, Any] = {}
should_preserve_node_meta = False


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Inside the block nodes that are made take over the metadata of the one that is run."""
    global should_preserve_node_meta, current_meta
    before = should_preserve_node_meta, current_meta
    should_preserve_node_meta, current_meta = enable, dict(current_meta)
    try:
        yield
    finally:
        should_preserve_node_meta, current_meta = before


def has_preserved_node_meta() -> bool:
    return should_preserve_node_meta


def set_stack_trace(stack: list[str]) -> None:
    if should_preserve_node_meta and stack:
        current_meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """The stack that was set, or the one there is."""
    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])


@contextlib.contextmanager
def set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Inside the block the metadata is that of a node."""
    global current_meta
    if not (should_preserve_node_meta and node.meta):
        yield
        return
    before, current_meta = current_meta, dict(node.meta)
    try:
        yield
    finally:
        current_meta = before


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Adds entries of one's own to the metadata of the nodes made inside the block."""
    before = copy.copy(current_meta.get("custom"))
    current_meta.setdefault("custom", {})
    current_meta["custom"] = {**current_meta["custom"], **annotation_dict}
    try:
        yield
    finally:
        if before is None:
            del current_meta["custom"]
        else:
            current_meta["custom"] = before


def get_current_meta() -> dict[str, Any]:
    return current_meta
