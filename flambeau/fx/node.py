"""A node of a graph: one value of the traced program, and who uses it."""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

from ..tensors.tensor import Size
from .immutable_collections import immutable_dict, immutable_list

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any
Target = Any
_SIDE_EFFECTS: set[Any] = set()


def has_side_effect(fn: Callable) -> Callable:
    """Says that calls of a function must be kept even if nobody uses what they return. Also a decorator."""
    _SIDE_EFFECTS.add(fn)
    return fn


def map_aggregate(a: Argument, fn: Callable[[Argument], Argument]) -> Argument:
    """fn of every leaf of tuples, lists, dicts and slices."""
    if isinstance(a, tuple) and not isinstance(a, Size):
        made = [map_aggregate(v, fn) for v in a]
        return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
    if isinstance(a, list):
        return immutable_list([map_aggregate(v, fn) for v in a])
    if isinstance(a, dict):
        return immutable_dict({k: map_aggregate(v, fn) for k, v in a.items()})
    if isinstance(a, slice):
        return slice(*[map_aggregate(v, fn) for v in (a.start, a.stop, a.step)])
    return fn(a)


def map_arg(a: Argument, fn: Callable[[Node], Argument]) -> Argument:
    """fn of every Node in arguments; all else stays."""
    return map_aggregate(a, lambda v: fn(v) if isinstance(v, Node) else v)


def target_name(target: Any) -> str:
    """How a target prints: torch.relu, operator.add, layer.0."""
    if isinstance(target, str):
        return target
    name = qualified_name(target)
    return name if "." in name else f"builtins.{name}"


def qualified_name(function: Any) -> str:
    """The dotted name that a user calls a function by; `torch.` for those of flambeau."""
    name = getattr(function, "__name__", None)
    if name is None:
        return repr(function)
    if getattr(builtins, name, None) is function:
        return name
    if getattr(operator, name, None) is function:
        return f"operator.{name}"
    found = _in_flambeau(function, name)
    if found is not None:
        return found
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{function.__objclass__.__name__}.{name}"
    module = getattr(function, "__module__", None) or "builtins"
    return f"{module}.{name}"


_SPACES = (".", "nn.functional", "linalg", "fft", "special", "Tensor", "ops")


def _in_flambeau(function: Any, name: str) -> str | None:
    import flambeau
    for path in _SPACES:
        space: Any = flambeau
        for part in path.strip(".").split(".") if path != "." else ():
            space = getattr(space, part)
        if vars(space).get(name) is function or (path == "." and getattr(space, name, None) is function):
            return f"torch.{name}" if path == "." else f"torch.{path}.{name}"
    space, _, inner = name.partition("_")  # linalg_inv is torch.linalg.inv
    if space in _SPACES and getattr(getattr(flambeau, space), inner, None) is function:
        return f"torch.{space}.{inner}"
    return None


def public_form(function: Any) -> Any:
    """The function that users name for one that an override was told of: some have a quicker front."""
    name = getattr(function, "__name__", "")
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    if package != "flambeau" or _in_flambeau(function, name) is not None:
        return function
    import flambeau
    return getattr(flambeau, name, None) or getattr(flambeau.nn.functional, name, function)


class Node:
    """`op` says what kind it is: placeholder, get_attr, call_function, call_method, call_module or output."""

    def __init__(self, graph: Any, name: str, op: str, target: Target, args: tuple[Argument, ...],
                 kwargs: dict[str, Argument], return_type: Any = None):
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = {}
        self._input_nodes: dict[Node, None] = {}
        self._prev = self._next = self
        self._erased = False
        self._set(args, kwargs)

    # ------------------------------------------------------------------------------------------------- arguments
    def _set(self, args: Any, kwargs: Any) -> None:
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._input_nodes = {}

        def note(node: Node) -> Node:
            self._input_nodes[node] = None
            node.users[self] = None
            return node

        self._args, self._kwargs = map_arg((tuple(args), dict(kwargs)), note)

    @property
    def args(self) -> tuple[Argument, ...]:
        return self._args

    @args.setter
    def args(self, value: Iterable[Argument]) -> None:
        self._set(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Argument]) -> None:
        self._set(self._args, value)

    @property
    def all_input_nodes(self) -> list[Node]:
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Argument) -> None:
        args = list(self.args)
        args[idx] = arg
        self.args = args

    def insert_arg(self, idx: int, arg: Argument) -> None:
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Uses new_input wherever it used old_input."""
        swapped = map_arg((self.args, self.kwargs), lambda n: new_input if n is old_input else n)
        self._set(*swapped)

    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Makes every user of this node use another; returns the nodes that changed."""
        if propagate_meta:
            replace_with.meta.update({k: v for k, v in self.meta.items() if k not in replace_with.meta})
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    # --------------------------------------------------------------------------------------------- place in the graph
    @property
    def prev(self) -> Node:
        return self._prev

    @property
    def next(self) -> Node:
        return self._next

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Moves x to just before this node."""
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Moves x to just after this node."""
        if x is not self:
            self._next.prepend(x)

    # --------------------------------------------------------------------------------------------------- questions
    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it must be kept even if nobody uses it."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            return self.target in _SIDE_EFFECTS
        if self.op == "call_module" and self.graph.owning_module is not None:
            return bool(getattr(self.graph.owning_module.get_submodule(self.target), "_is_impure", False))
        return False

    @property
    def stack_trace(self) -> str | None:
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def format_node(self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None,
                    **options: Any) -> str:
        """One line of the graph's listing."""
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            kind = "" if self.type is None else f"{_type_word(self.type)} "
            return f"%{self.name} : {kind}[num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "output":
            return f"return {self.args[0]}"
        if self.op == "get_attr":
            return f"%{self.name} : [num_users={len(self.users)}] = get_attr[target={self.target}]"
        named = ", ".join(f"{k}: {_listed(v)}" for k, v in self.kwargs.items())
        return (f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target_name(self.target)}]"
                f"(args = {_listed(self.args)}, kwargs = {{{named}}})")

    def __repr__(self) -> str:
        return self.name


def _type_word(kind: Any) -> str:
    if not isinstance(kind, type):
        return str(kind)
    return f"torch.{kind.__name__}" if kind.__module__.startswith("flambeau") else kind.__name__


def _listed(value: Argument) -> str:
    """An argument in a listing: nodes as %name."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(_listed, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_listed(v)}" for k, v in value.items()) + "}"
    return str(value)


# PyTorch's names of these
_get_qualified_name = qualified_name
_format_arg = _listed


def _type_repr(obj: Any) -> str:
    """A type as text."""
    return _type_word(obj) if isinstance(obj, type) else repr(obj)
