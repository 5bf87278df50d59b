"""`torch.fx`: a module's graph as Python objects, to be looked at and changed.

`symbolic_trace` runs a module with stand-ins for its inputs (`__torch_function__` writes down what they go through);
the GraphModule that comes out runs code made of the graph.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .codegen import CodeGen
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern
from .tracing import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap

_symbolic_trace = sys.modules[f"{__name__}._symbolic_trace"] = sys.modules[f"{__name__}.tracing"]  # PyTorch's file

__all__ = ["CodeGen", "Graph", "GraphModule", "Interpreter", "Node", "PH", "Proxy", "ProxyableClassMeta", "Tracer",
           "Transformer",
           "has_side_effect", "map_arg", "replace_pattern", "symbolic_trace", "wrap"]


def __getattr__(name: str) -> Any:
    if name in ("passes", "experimental", "traceback"):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
