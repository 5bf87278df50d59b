"""Modules made quicker for inference: batch norms folded into convolutions and products, dropouts taken out."""

from __future__ import annotations

import copy
from typing import Any

from ...nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d, Linear
from ...nn.dropout import Dropout
from ...nn.module import Module
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from ..graph_module import GraphModule
from ..interpreter import Transformer
from ..node import Node
from ..tracing import symbolic_trace

__all__ = ["fuse", "matches_module_pattern", "remove_dropout", "replace_node_module"]

_PAIRS = ((Conv1d, BatchNorm1d), (Conv2d, BatchNorm2d), (Conv3d, BatchNorm3d), (Linear, BatchNorm1d))


def matches_module_pattern(pattern: Any, node: Node, modules: dict[str, Any]) -> bool:
    """Whether a node calls a module of the second class on what a module of the first gave."""
    if not node.args or not isinstance(node.args[0], Node):
        return False
    return all(n.op == "call_module" and type(modules.get(n.target)) is kind for kind, n in zip(pattern, (node.args[0], node)))


def replace_node_module(node: Node, modules: dict[str, Any], new_module: Module) -> None:
    """Another module at the place of the one that a node calls."""
    parent, _, name = node.target.rpartition(".")
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> GraphModule:
    """A copy of a module in eval mode whose batch norms are folded into the layers before them."""
    model = model if inplace else copy.deepcopy(model)
    traced = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(traced.named_modules())
    for pattern in _PAIRS:
        for node in list(traced.graph.nodes):
            if not matches_module_pattern(pattern, node, modules) or len(node.args[0].users) > 1:
                continue
            layer, norm = modules[node.args[0].target], modules[node.target]
            if not norm.track_running_stats:
                continue
            folded = (fuse_linear_bn_eval if pattern[0] is Linear else fuse_conv_bn_eval)(layer, norm)
            replace_node_module(node.args[0], modules, folded)
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)
    return GraphModule(traced, traced.graph)


def remove_dropout(model: Module) -> Module:
    """The module without its dropouts."""
    traced = symbolic_trace(model)

    class Without(Transformer):
        def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(self.submodules[target], Dropout):
                return args[0]
            return super().call_module(target, args, kwargs)

    return Without(traced).transform()
