"""Replacing one pattern of nodes by another everywhere in a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .graph import Graph
from .graph_module import GraphModule
from .node import Node
from .tracing import symbolic_trace

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class ReplacedPatterns(NamedTuple):
    """A match, and the nodes that stand there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


class Match(NamedTuple):
    """Where a pattern was found: its last node, and the node that each of the pattern's stands for."""

    anchor: Node
    nodes_map: dict[Node, Node]


def _graph_of(what: Any) -> Graph:
    if isinstance(what, Graph):
        return what
    return what.graph if isinstance(what, GraphModule) else symbolic_trace(what).graph


def _matches(pattern: Any, node: Any, found: dict[Node, Node]) -> bool:
    """Whether an argument of the pattern fits one of the graph; fills in what stands for what."""
    if isinstance(pattern, Node):
        if not isinstance(node, Node):
            return False
        if pattern in found:
            return found[pattern] is node
        if pattern.op != "placeholder":
            if (pattern.op, pattern.target) != (node.op, node.target) or pattern.kwargs.keys() != node.kwargs.keys():
                return False
            if len(pattern.args) != len(node.args):
                return False
            both = zip((*pattern.args, *pattern.kwargs.values()), (*node.args, *(node.kwargs[k] for k in pattern.kwargs)))
            if not all(_matches(p, n, found) for p, n in both):
                return False
        found[pattern] = node
        return True
    if isinstance(pattern, (tuple, list)):
        return isinstance(node, (tuple, list)) and len(pattern) == len(node) and all(
            _matches(p, n, found) for p, n in zip(pattern, node))
    return type(pattern) is type(node) and pattern == node


def _closed(found: dict[Node, Node], anchor: Node) -> bool:
    """Whether nothing outside the match uses what is inside, its result apart."""
    inside = {n for p, n in found.items() if p.op != "placeholder"}
    return all(n is anchor or all(u in inside for u in n.users) for n in inside)


def replace_pattern(gm: GraphModule, pattern: Callable | GraphModule, replacement: Callable | GraphModule) -> list[Match]:
    """Puts the replacement wherever the pattern is found; both are functions (or modules) of the same inputs."""
    return [Match(m.anchor, m.nodes_map) for m in replace_pattern_with_filters(gm, pattern, replacement)]


def replace_pattern_with_filters(gm: GraphModule, pattern: Any, replacement: Any = None, match_filters: Any = None,
                                 ignore_literals: bool = False, replacement_callback: Any = None) -> list[ReplacedPatterns]:
    """replace_pattern, at those matches that every filter(match, the graph, the pattern's graph) accepts."""
    if ignore_literals or replacement_callback is not None:
        raise NotImplementedError("replace_pattern_with_filters: ignore_literals and replacement_callback are not implemented "
                                  "in flambeau")
    wanted, instead = _graph_of(pattern), _graph_of(replacement)
    last = wanted.output_node().args[0]
    inputs = wanted.find_nodes(op="placeholder")
    if len(inputs) != len(instead.find_nodes(op="placeholder")):
        raise AssertionError("pattern and replacement must take the same number of inputs")
    matches: list[ReplacedPatterns] = []
    for node in list(gm.graph.nodes):
        found: dict[Node, Node] = {}
        if node._erased or not isinstance(last, Node) or not _matches(last, node, found) or not _closed(found, node):
            continue
        match = Match(node, found)
        if not all(accepts(match, gm.graph, wanted) for accepts in match_filters or ()):
            continue
        there = set(gm.graph.nodes)
        values = dict(zip(instead.find_nodes(op="placeholder"), [found.get(p) for p in inputs]))
        with gm.graph.inserting_before(node):
            result = gm.graph.graph_copy(instead, values)
        node.replace_all_uses_with(result)
        for inner in reversed([n for p, n in found.items() if p.op != "placeholder"]):
            if not inner._erased and not inner.users:
                gm.graph.erase_node(inner)
        matches.append(ReplacedPatterns(node, found, [n for n in gm.graph.nodes if n not in there]))
    if isinstance(replacement, GraphModule):
        for name, module in replacement.named_children():
            if not hasattr(gm, name):
                gm.add_submodule(name, module)
    gm.recompile()
    return matches
