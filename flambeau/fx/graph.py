"""A graph: a list of nodes that can be changed, and the Python code that runs it."""

from __future__ import annotations

import builtins
import contextlib
import copy
import keyword
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .codegen import (  # noqa: F401  PyTorch has them here
    CodeGen,
    PythonCode,
    _PyTreeCodeGen,
    _PyTreeInfo,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from .node import Argument, Node, Target, map_arg

__all__ = ["CodeGen", "Graph", "PythonCode"]


_OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output", "root")
_TAKEN = ("torch", "device", "inf", "nan", "NoneType")


class _Names:
    """Gives every value of a graph a name of its own that is valid Python."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A name like the candidate that is still free."""
        return self.create(candidate)

    def create(self, wanted: str) -> str:
        wanted = re.sub(r"[^0-9a-zA-Z_]+", "_", wanted) or "_unnamed"
        if wanted[0].isdigit():
            wanted = f"_{wanted}"
        match = re.match(r"(.*)_(\d+)$", wanted)
        base, count = (match[1], int(match[2])) if match else (wanted, self.counts.get(wanted, 0))
        name = wanted if match or not count else f"{base}_{count}"
        while name in self.used or name in _TAKEN or keyword.iskeyword(name) or hasattr(builtins, name):
            count += 1
            name = f"{base}_{count}"
        self.used.add(name)
        self.counts[base] = count
        return name


_Namespace = _Names


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Graph:
    """Nodes in order of execution; the last is the output."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None):
        self._root = Node(self, "", "root", "", (), {})
        self._names = _Names()
        self._before: Node = self._root  # new nodes come just before this one
        self.owning_module, self._tracer_cls = owning_module, tracer_cls
        self._codegen = CodeGen()

    # ------------------------------------------------------------------------------------------------------ reading
    @property
    def nodes(self) -> _Nodes:
        return _Nodes(self)

    def output_node(self) -> Node:
        return next(iter(reversed(self.nodes)))

    def find_nodes(self, *, op: str, target: Target = None, sort: bool = True) -> list[Node]:
        """The nodes of a kind (and a target)."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # ------------------------------------------------------------------------------------------------------- adding
    def create_node(self, op: str, target: Target, args: tuple[Argument, ...] | None = None,
                    kwargs: dict[str, Argument] | None = None, name: str | None = None, type_expr: Any = None) -> Node:
        """A new node at the place where nodes are inserted."""
        if op not in _OPS:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {self}, name = '{name or target}'] target {target} has type "
                             f"{type(target).__name__} but a Callable is expected")
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(f"Node [graph = {self}, name = '{name or op}'] target {target} has type {type(target).__name__} "
                             "but a str is expected")
        wanted = name or (_snake(target) if isinstance(target, str) else getattr(target, "__name__", "value"))
        node = Node(self, self._names.create(wanted), op, target, args or (), kwargs or {}, type_expr)
        self._before.prepend(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), {}, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        if self.owning_module is not None and not _found(self.owning_module, qualified_name):
            warnings.warn("Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! Call "
                          "GraphModule.add_submodule to add the necessary submodule, GraphModule.add_parameter to add the "
                          "necessary Parameter, or nn.Module.register_buffer to add the necessary buffer", stacklevel=2)
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        if self.owning_module is not None:
            self.owning_module.get_submodule(module_name)  # raises where there is none
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function: Callable, args: Any = None, kwargs: Any = None, type_expr: Any = None,
                      name: str | None = None) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda n: n) -> Node:
        """A copy of a node (of another graph), its arguments put through arg_transform."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies all nodes of g here; returns what its output was given."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # ------------------------------------------------------------------------------------------------------ changing
    def erase_node(self, to_erase: Node) -> None:
        """Takes out a node that nobody uses."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                               f"{to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        if self._before is to_erase:
            self._before = to_erase._next
        to_erase._unlink()
        to_erase._erased = True
        to_erase._set((), {})

    def inserting_before(self, n: Node | None = None) -> Any:
        """New nodes come before n; as a `with` block for the block only."""
        return self._inserting(self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> Any:
        """New nodes come after n."""
        return self._inserting((self._root if n is None else n)._next)

    def _inserting(self, place: Node) -> Any:
        if place.graph is not self:
            raise AssertionError("Node to insert at is not in the graph.")
        before, self._before = self._before, place

        @contextlib.contextmanager
        def block() -> Iterator[None]:
            try:
                yield
            finally:
                self._before = before

        return block()

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None,
                            respect_side_effects: bool = True) -> bool:
        """Takes out what nobody uses; returns whether there was any."""
        keep = is_impure_node or (lambda n: n.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not keep(node):
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Checks that values are made before they are used, and that the names and targets exist."""
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used not in seen:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check "
                                       "that Nodes in the graph are topologically ordered")
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            if node.op in ("call_module", "get_attr") and self.owning_module is not None:
                _check_reference(node, self.owning_module)
            seen.add(node)
            names.add(node.name)

    # --------------------------------------------------------------------------------------------------------- code
    def set_codegen(self, codegen: CodeGen) -> None:
        """Another writer of code; takes effect when the module is recompiled."""
        self._codegen = codegen

    def python_code(self, root_module: str = "self", **options: Any) -> PythonCode:
        """`def forward(self, ...)` as text."""
        return self._codegen._gen_python_code(self.nodes, root_module, self._names, **options)

    def on_generate_code(self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]) -> Any:
        """Has a function change the lines of the code: make_transformer(the one before, or None). A `with` block undoes it."""
        codegen = self._codegen
        before = codegen._body_transformer
        codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def block() -> Iterator[None]:
            try:
                yield
            finally:
                codegen._body_transformer = before

        return block()

    def process_inputs(self, *args: Any) -> Any:
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        return self._codegen.process_outputs(out)

    def __str__(self) -> str:
        return "graph():\n" + "\n".join(f"    {n.format_node()}" for n in self.nodes)

    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        rows = [["opcode", "name", "target", "args", "kwargs"]]
        rows += [[n.op, n.name, str(n.target), str(n.args), str(n.kwargs)] for n in self.nodes]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        rows.insert(1, ["-" * w for w in widths])
        print("\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, widths)).rstrip() for r in rows))

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        made._codegen = copy.deepcopy(self._codegen)
        result = made.graph_copy(self, {}, return_output_node=True)
        if result is not None:
            values, old = result
            made.output(values, old.type).meta = dict(old.meta)
        return made


def _found(module: Any, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True


def _check_reference(node: Node, root: Any) -> None:
    """Refuses a node whose module, parameter or buffer is not there."""
    at: Any = root
    parts = node.target.split(".")
    for i, part in enumerate(parts):
        inner = getattr(at, part, None)
        if inner is None:
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part} of "
                               f"{'.'.join(parts[:i])}")
        at = inner
    if node.op == "call_module" and not hasattr(at, "named_modules"):
        raise RuntimeError(f"Node {node} target {node.target} {parts[-1]} of {'.'.join(parts[:-1])} does not reference an "
                           "nn.Module")


class _Nodes:
    """The nodes of a graph, which may change while they are gone through."""

    def __init__(self, graph: Graph, back: bool = False):
        self.graph, self.back = graph, back

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._prev if self.back else root._next
        while node is not root:
            if not node._erased:
                yield node
            node = node._prev if self.back else node._next

    def __reversed__(self) -> _Nodes:
        return _Nodes(self.graph, not self.back)

    def __len__(self) -> int:
        return sum(1 for _ in self)
