"""A graph: a list of nodes that can be changed, and the Python code that runs it."""

from __future__ import annotations

import builtins
import contextlib
import keyword
import operator
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .node import Argument, Node, Target, map_arg, qualified_name

__all__ = ["Graph", "PythonCode"]

_INFIX = {operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}", operator.floordiv: "{} // {}",
          operator.truediv: "{} / {}", operator.mod: "{} % {}", operator.lt: "{} < {}", operator.le: "{} <= {}",
          operator.eq: "{} == {}", operator.ne: "{} != {}", operator.gt: "{} > {}", operator.ge: "{} >= {}",
          operator.pos: "+{}", operator.neg: "-{}", operator.invert: "~{}", operator.and_: "{} & {}",
          operator.or_: "{} | {}", operator.xor: "{} ^ {}", operator.getitem: "{}[{}]", operator.matmul: "{} @ {}",
          operator.lshift: "{} << {}", operator.rshift: "{} >> {}", operator.pow: "{} ** {}"}


_TAKEN = ("self", "torch", "device", "inf", "nan")


class PythonCode(NamedTuple):
    """The text of a `forward`, and the global names that it uses."""

    src: str
    globals: dict[str, Any]


class _Names:
    """Gives every value of a graph a name of its own that is valid Python."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.counts: dict[str, int] = {}

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


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class Graph:
    """Nodes in order of execution; the last is the output."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None):
        self._root = Node(self, "", "root", "", (), {})
        self._names = _Names()
        self._before: Node = self._root  # new nodes come just before this one
        self.owning_module, self._tracer_cls = owning_module, tracer_cls

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
        wanted = name or (_snake(target) if isinstance(target, str) else getattr(target, "__name__", "value"))
        node = Node(self, self._names.create(wanted), op, target, args or (), kwargs or {}, type_expr)
        self._before.prepend(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), {}, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
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
            if node.op == "call_module" and self.owning_module is not None:
                self.owning_module.get_submodule(node.target)
            seen.add(node)
            names.add(node.name)

    def set_codegen(self, codegen: Any) -> None:
        raise NotImplementedError("Graph.set_codegen: code generators other than Python's are not implemented in flambeau")

    # --------------------------------------------------------------------------------------------------------- code
    def python_code(self, root_module: str = "self", **options: Any) -> PythonCode:
        """`def forward(self, ...)` as text."""
        import flambeau
        globals_: dict[str, Any] = {"torch": flambeau, "inf": float("inf"), "nan": float("nan"), "device": flambeau.device}
        last_use = {used: user for user in self.nodes for used in user.all_input_nodes}
        parameters, lines = [], []
        for node in self.nodes:
            if node.op == "placeholder":
                parameters.append(_parameter(node, globals_))
                if node.target.lstrip("*") != node.name:
                    lines.append(f"{node.name} = {node.target.lstrip('*')}")
                continue
            done = [] if node.op == "output" else [n.name for n in node.all_input_nodes if last_use[n] is node]
            if not node.users and node.op != "output":
                done.append(node.name)
            freed = f";  {' = '.join(done)} = None" if done else ""
            lines.append(_statement(node, root_module, globals_) + freed)
        body = "".join(f"    {line}\n" for line in lines) or "    pass\n"
        head = ", ".join([root_module, *parameters])
        return PythonCode(f"\n\n\ndef forward({head}):\n{body}    ", globals_)

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
        result = made.graph_copy(self, {}, return_output_node=True)
        if result is not None:
            values, old = result
            made.output(values, old.type).meta = dict(old.meta)
        return made


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


def _parameter(node: Node, globals_: dict[str, Any]) -> str:
    default = f" = {_value(node.args[0], globals_)}" if node.args else ""
    kind = _annotation(node.type, globals_)
    return f"{node.target}{f' : {kind}' if kind else ''}{default}"


def _annotation(kind: Any, globals_: dict[str, Any]) -> str:
    """A type as the text of an annotation; nothing for one that has no simple name."""
    from ..tensors.tensor import Tensor
    if kind is Tensor:
        return "torch.Tensor"
    if kind is type(None):
        return "NoneType"
    if isinstance(kind, type) and not typing.get_args(kind):
        return kind.__name__ if kind.__module__ == "builtins" else ""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        parts = [_annotation(part, globals_) for part in typing.get_args(kind)]
        if all(parts):
            globals_["typing_Union"], globals_["NoneType"] = typing.Union, type(None)
            return f"typing_Union[{','.join(parts)}]"
    return ""


def _value(value: Any, globals_: dict[str, Any]) -> str:
    """A value as the text that makes it."""
    if isinstance(value, Node):
        return value.name
    if isinstance(value, tuple):
        made = ", ".join(_value(v, globals_) for v in value)
        if hasattr(value, "_fields"):
            return f"{_global(type(value), globals_)}({made})"
        return f"({made},)" if len(value) == 1 else f"({made})"
    if isinstance(value, list):
        return f"[{', '.join(_value(v, globals_) for v in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_value(v, globals_)}' for k, v in value.items())}}}"
    if isinstance(value, slice):
        return f"slice({', '.join(_value(v, globals_) for v in (value.start, value.stop, value.step))})"
    if callable(value) or isinstance(value, type):
        return _global(value, globals_)
    if type(value).__module__.partition(".")[0] in ("flambeau", "torch") and not repr(value).startswith(("torch.", "device(")):
        return _bound(f"_{type(value).__name__.lower()}_value", value, globals_)
    return repr(value)


def _bound(name: str, value: Any, globals_: dict[str, Any]) -> str:
    unique, count = name, 0
    while globals_.get(unique, value) is not value:
        count += 1
        unique = f"{name}_{count}"
    globals_[unique] = value
    return unique


def _global(function: Any, globals_: dict[str, Any]) -> str:
    """The text for a function: its path below torch, or a global name bound to it."""
    name = qualified_name(function)
    if name.startswith("torch.") or getattr(builtins, name, None) is function:
        return name
    return _bound(re.sub(r"[^0-9a-zA-Z_]+", "_", name), function, globals_)


def _attribute(base: str, path: str) -> str:
    for part in path.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


def _statement(node: Node, root: str, globals_: dict[str, Any]) -> str:
    args = [_value(a, globals_) for a in node.args]
    given = ", ".join([*args, *(f"{k} = {_value(v, globals_)}" for k, v in node.kwargs.items())])
    if node.op == "output":
        return f"return {args[0]}"
    if node.op == "get_attr":
        return f"{node.name} = {_attribute(root, node.target)}"
    if node.op == "call_module":
        return f"{node.name} = {_attribute(root, node.target)}({given})"
    if node.op == "call_method":
        rest = ", ".join([*args[1:], *(f"{k} = {_value(v, globals_)}" for k, v in node.kwargs.items())])
        return f"{node.name} = {args[0]}.{node.target}({rest})"
    if node.target in _INFIX and not node.kwargs:
        args = [f"({a})" if a.startswith("-") else a for a in args]
        return f"{node.name} = {_INFIX[node.target].format(*args)}"
    if node.target is getattr and len(node.args) == 2 and str(node.args[1]).isidentifier():
        return f"{node.name} = {args[0]}.{node.args[1]}"
    return f"{node.name} = {_global(node.target, globals_)}({given})"
