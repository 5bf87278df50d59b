"""The Python code of a graph: how a `forward` begins, what its lines are and what it returns."""

from __future__ import annotations

import builtins
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from .node import Node, qualified_name

__all__ = ["CodeGen", "PythonCode"]

_INFIX = {operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}", operator.floordiv: "{} // {}",
          operator.truediv: "{} / {}", operator.mod: "{} % {}", operator.lt: "{} < {}", operator.le: "{} <= {}",
          operator.eq: "{} == {}", operator.ne: "{} != {}", operator.gt: "{} > {}", operator.ge: "{} >= {}",
          operator.pos: "+{}", operator.neg: "-{}", operator.invert: "~{}", operator.and_: "{} & {}",
          operator.or_: "{} | {}", operator.xor: "{} ^ {}", operator.getitem: "{}[{}]", operator.matmul: "{} @ {}",
          operator.lshift: "{} << {}", operator.rshift: "{} >> {}", operator.pow: "{} ** {}"}
# The same by the names of `operator`: what PyTorch's programs ask for.
magic_methods = {function.__name__: form for function, form in _INFIX.items()}
reflectable_magic_methods = {name: form for name, form in magic_methods.items()
                             if form.count("{}") == 2 and not hasattr(object, f"__{name}__")}  # comparisons have no __rlt__
inplace_methods = {f"i{name.rstrip('_')}": form.replace(" {}", "= {}") for name, form in reflectable_magic_methods.items()
                   if name != "getitem"} | {"setitem": "{}[{}] = {}"}


class PythonCode(NamedTuple):
    """The text of a `forward`, and the global names that it uses."""

    src: str
    globals: dict[str, Any]


class CodeGen:
    """Writes the code of a graph. Derive from it to change how a `forward` begins and ends, and what it takes and gives."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line `def forward(...):`, from the parameters as text."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, descs: Any = None) -> str:
        """The statement that returns; output_args prints as the text of its values."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders, from the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What a call gives, from the value of the output node."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Further names that the code uses."""
        return []

    def _gen_python_code(self, nodes: Iterable[Node], root_module: str = "self", namespace: Any = None,
                         **options: Any) -> PythonCode:
        """`def forward(self, ...)` as text."""
        import flambeau
        nodes = list(nodes)
        globals_: dict[str, Any] = {"torch": flambeau, "inf": float("inf"), "nan": float("nan"), "device": flambeau.device,
                                    "NoneType": type(None), **dict(self.additional_globals())}
        last_use = {used: user for user in nodes for used in user.all_input_nodes}
        parameters, lines, returned = [], [], ""
        for node in nodes:
            if node.op == "placeholder":
                parameters.append(_parameter(node, globals_))
                if node.target.lstrip("*") != node.name:
                    lines.append(f"{node.name} = {node.target.lstrip('*')}")
                continue
            if node.op == "output":
                kind = _annotation(node.type, globals_)
                returned = f" -> {kind}" if kind else ""
                lines.append(self.generate_output(_Shown(node.args[0], globals_)))
                continue
            done = [n.name for n in node.all_input_nodes if last_use[n] is node]
            if not node.users:
                done.append(node.name)
            freed = f";  {' = '.join(done)} = None" if done else ""
            lines.append(_statement(node, root_module, globals_) + freed)
        body = [f"{line}\n" for line in lines] or ["pass\n"]
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        text = "\n".join(f"    {line}" for line in "".join(body).split("\n"))
        return PythonCode(f"\n\n\n{self.gen_fn_def(parameters, returned)}\n{text}", globals_)


class _Shown:
    """The values of an output, which print as the code that makes them."""

    def __init__(self, value: Any, globals_: dict[str, Any]):
        self.value, self.globals = value, globals_

    def __repr__(self) -> str:
        return _value(self.value, self.globals)

    __str__ = __repr__

    def __iter__(self) -> Any:
        return (_Shown(v, self.globals) for v in self.value)


class _PyTreeInfo(NamedTuple):
    """How nested arguments and results become flat ones."""

    orig_args: list[str]
    in_spec: Any
    out_spec: Any


class _PyTreeCodeGen(CodeGen):
    """For a function whose arguments or results are nested: the graph has their leaves."""

    def __init__(self, pytree_info: _PyTreeInfo):
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        from ..utils import _pytree as pytree
        return pytree.arg_tree_leaves(*args)

    def process_outputs(self, outputs: Any) -> Any:
        from ..utils import _pytree as pytree
        if self.pytree_info.out_spec is None:
            return outputs
        leaves = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        names = self.pytree_info.orig_args
        leaves = [v.split(":")[0].split("=")[0].strip() for v in free_vars]
        definition = super().gen_fn_def(list(names), maybe_return_annotation)
        given = names[1:] if names and names[0] == "self" else names
        if leaves and leaves[0] == "self":
            leaves = leaves[1:]
        if not leaves:
            return definition
        return f"{definition}\n    {', '.join(leaves)}, = fx_pytree.tree_flatten_spec([{', '.join(given)}], self._in_spec)"

    def generate_output(self, output_args: Any, *, descs: Any = None) -> str:
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args)
        return f"return pytree.tree_unflatten({output_args!r}, self._out_spec)"

    def additional_globals(self) -> list[tuple[str, Any]]:
        from ..utils import _pytree as pytree
        from . import _pytree as fx_pytree
        return [("fx_pytree", fx_pytree), ("pytree", pytree)]


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
