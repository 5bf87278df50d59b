"""A module made of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from typing import Any

from ..nn.module import Module
from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
from .graph import Graph

__all__ = ["GraphModule"]

_numbers = itertools.count()


def _copied(source: Any, target: Module, path: str) -> None:
    """Puts the attribute at a dotted path of one module at the same path of another."""
    *parents, name = path.split(".")
    for part in parents:
        source = getattr(source, part)
        inner = getattr(target, part, None)
        if inner is source:
            return
        if inner is None:
            inner = Module()
            setattr(target, part, inner)
        target = inner
    value = getattr(source, name)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        if name in getattr(target, "_buffers", {}) or not hasattr(target, name):
            target.register_buffer(name, value)
    else:
        setattr(target, name, value)


_copy_attr = _copied
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


class _CodeOnlyModule(Module):
    """A module that is nothing but its attributes: what a copy of a graph's module is made from."""

    def __init__(self, body: dict[str, Any]):
        super().__init__()
        self.__dict__ = body


def _placed(target: Module, path: str, value: Any) -> None:
    """The same from a value."""
    *parents, name = path.split(".")
    for part in parents:
        if not hasattr(target, part):
            setattr(target, part, Module())
        target = getattr(target, part)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        target.register_buffer(name, value)
    else:
        setattr(target, name, value)


class GraphModule(Module):
    """Runs a graph by the Python code made of it. After changing `graph`, call `recompile()`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        own = cls if cls is not GraphModule and "forward" in cls.__dict__ else type("GraphModuleImpl", (cls,), {})
        return super().__new__(own)  # a class per graph: forward is looked up there

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule"):
        super().__init__()
        type(self).__name__ = class_name
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = root.training
            for target in targets:
                _copied(root, self, target)
        else:
            for target in sorted(targets, key=lambda t: t.count(".")):
                if target not in root:
                    raise RuntimeError(f"Node referenced target {target} but that target was not provided in ``root``!")
                _placed(self, target, root[target])
        self.meta: dict[str, Any] = {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        return self.__dict__["_graph"]

    @graph.setter
    def graph(self, g: Graph) -> None:
        g = copy.deepcopy(g) if g.owning_module is not None and g.owning_module is not self else g
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python code that runs."""
        return self.__dict__["_code"]

    def recompile(self) -> Any:
        """Makes the code anew after the graph was changed."""
        info = getattr(self.graph._codegen, "pytree_info", None)
        if info is not None:
            self.__dict__["_in_spec"], self.__dict__["_out_spec"] = info.in_spec, info.out_spec
        made = self.graph.python_code("self")
        self.__dict__["_code"] = made.src
        name = f"<graph module {next(_numbers)}>"
        linecache.cache[name] = (len(made.src), None, made.src.splitlines(True), name)
        space = dict(made.globals)
        exec(compile(made.src, name, "exec"), space)
        type(self).forward = space["forward"]
        return made

    # ------------------------------------------------------------------------------------------------- submodules
    def add_submodule(self, target: str, m: Module) -> bool:
        """Puts a module at a dotted path; False if something else stands in the way."""
        *parents, name = target.split(".")
        at: Any = self
        for part in parents:
            inner = getattr(at, part, None)
            if inner is None:
                inner = Module()
                setattr(at, part, inner)
            elif not isinstance(inner, Module):
                return False
            at = inner
        at.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Takes the module at a dotted path out; False if there is none."""
        *parents, name = target.split(".")
        at: Any = self
        for part in parents:
            at = getattr(at, part, None)
            if not isinstance(at, Module):
                return False
        if not isinstance(getattr(at, name, None), Module):
            return False
        delattr(at, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Takes out the modules that no node calls."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                if node.op == "call_module":
                    used.update(f"{node.target}.{n}" for n, _ in self.get_submodule(node.target).named_modules() if n)
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    # ----------------------------------------------------------------------------------------------------- copying
    def __deepcopy__(self, memo: Any) -> GraphModule:
        holder = Module()
        holder.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in ("_graph", "_code")})
        made = GraphModule(holder, copy.deepcopy(self.graph), type(self).__name__)
        made.__dict__.update({k: v for k, v in holder.__dict__.items() if k not in made.__dict__})
        memo[id(self)] = made
        return made

    __copy__ = lambda self: GraphModule(self, self.graph, type(self).__name__)

    def __reduce__(self) -> Any:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        return _rebuilt, (state, self.code, type(self).__name__, self.graph._codegen)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The code as that of a class."""
        body = self.code.strip("\n ").replace("\n", "\n    ")
        text = f"class {type(self).__name__}(torch.nn.Module):\n    {body}\n"
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.code}\n# To see more debug info, please use `graph_module.print_readable()`"


def _rebuilt(state: dict[str, Any], code: str, name: str, codegen: Any = None) -> GraphModule:
    """A GraphModule from its state and code: the code is traced again."""
    import flambeau

    from .tracing import PH, Tracer

    class EveryModuleTracer(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    space: dict[str, Any] = {"torch": flambeau, "inf": float("inf"), "nan": float("nan"), "device": flambeau.device,
                             "NoneType": type(None), **dict(codegen.additional_globals() if codegen is not None else ())}
    exec(code, space)
    holder = type(name, (Module,), {"forward": space["forward"]})()
    holder.__dict__.update(state)
    if not hasattr(codegen, "pytree_info"):
        return GraphModule(holder, EveryModuleTracer().trace(holder), name)
    from ..utils import _pytree as pytree  # nested arguments: leaves that stay inputs
    nested = pytree.tree_unflatten([PH] * codegen.pytree_info.in_spec.num_leaves, codegen.pytree_info.in_spec)
    return GraphModule(holder, EveryModuleTracer().trace(holder, tuple(nested)), name)
