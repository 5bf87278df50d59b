"""A model's graph for TensorBoard: one call is watched, and each operation in it is a node below the module that made it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from ...autograd.modes import no_grad
from ...autograd.profiler.names import name_of
from ...nn.module import Module
from ...ops.core.overrides import TorchFunctionMode
from ...tensors.tensor import Tensor


def graph(model: Module, inputs: Any, verbose: bool = False) -> GraphDef:
    """The graph of model(*inputs). verbose: prints it, too."""
    if inputs is None:
        raise ValueError("add_graph: input_to_model is needed, the model is called with it")
    made = _Watched(model)
    made.run(inputs if isinstance(inputs, (tuple, list)) else (inputs,))
    drawn = GraphDef(node=made.nodes, versions=VersionDef(producer=22))
    if verbose:
        print(drawn)
    return drawn


class _Watched(TorchFunctionMode):
    def __init__(self, model: Module):
        self.model = model
        self.nodes: list[NodeDef] = []
        self.maker: dict[int, str] = {}   # tensor -> name of the node that it comes from
        self.kept: list[Any] = []         # tensors whose addresses are in use
        self.scope: list[str] = []
        self.counts: Counter[str] = Counter()
        self.names = {m: name for name, m in model.named_modules()}
        self.parameters = {id(p): name for name, p in (*model.named_parameters(), *model.named_buffers())}

    def run(self, inputs: Any) -> None:
        for n, t in enumerate(_tensors(inputs)):
            self._add(f"input/input.{n + 1}", "IO Node", [], t)
        hooks = [hook for m in self.names for hook in (
            m.register_forward_pre_hook(self._enter), m.register_forward_hook(self._leave, always_call=True))]
        try:
            with no_grad(), self:
                result = self.model(*inputs)
        finally:
            for hook in hooks:
                hook.remove()
        for n, t in enumerate(_tensors((result,))):
            self._add(f"output/output.{n + 1}", "IO Node", [self._source(t)], t)

    def _enter(self, module: Module, args: Any) -> None:
        name = self.names[module].rpartition(".")[2]
        self.scope.append(f"{type(module).__name__}[{name}]" if name else type(module).__name__)

    def _leave(self, module: Module, args: Any, result: Any) -> None:
        self.scope.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        operation = name_of(func, args, kwargs or {})
        made = list(_tensors((result,)))
        if operation is not None and made:
            sources = [self._source(t) for t in _tensors((*args, *(kwargs or {}).values()))]
            short = operation.removeprefix("aten::")
            path = "/".join([*self.scope, short])
            self.counts[path] += 1
            self._add(f"{path}.{self.counts[path]}", operation, sources, *made)
        return result

    def _source(self, t: Tensor) -> str:
        """The node that a tensor comes from: an operation, an input, a parameter, or a constant."""
        if id(t) not in self.maker:
            name = self.parameters.get(id(t))
            path = "/".join([*self.scope, name.rpartition(".")[2]]) if name is not None else "/".join([*self.scope, "constant"])
            self.counts[path] += 1
            repeated = self.counts[path] > 1
            self._add(f"{path}.{self.counts[path]}" if repeated else path, "prim::GetAttr" if name else "prim::Constant", [], t)
        return self.maker[id(t)]

    def _add(self, name: str, operation: str, sources: list[str], *results: Tensor) -> None:
        shapes = [TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in t.shape]) for t in results]
        self.nodes.append(NodeDef(name=name, op=operation, input=sources, attr={
            "_output_shapes": AttrValue(list=AttrValue.ListValue(shape=shapes))}))
        for t in results:
            self.maker[id(t)] = name
            self.kept.append(t)


def _tensors(values: Any) -> Any:
    for v in values:
        if isinstance(v, Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _tensors(v)
        elif isinstance(v, dict):
            yield from _tensors(v.values())
