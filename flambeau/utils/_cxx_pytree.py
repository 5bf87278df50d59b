"""Trees as optree lays them out: the keys of a dictionary in sorted order.

PyTorch has this module where optree is installed. Here it stands on `_pytree`, whose table of nodes it shares; a spec prints as
optree's do.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any

from . import _pytree as _python
from ._pytree import (  # noqa: F401  the same here
    SUPPORTED_NODES,
    Context,
    DumpableContext,
    FlattenFn,
    FromDumpableContextFn,
    PyTree,
    ToDumpableContextFn,
    UnflattenFn,
    is_namedtuple,
    is_namedtuple_class,
    is_namedtuple_instance,
    is_structseq,
    is_structseq_class,
    is_structseq_instance,
    register_pytree_node,
    tree_all,
    tree_all_only,
    tree_any,
    tree_any_only,
    tree_is_leaf,
    tree_map_only,
    tree_map_only_,
)

__all__ = [n for n in _python.__all__ if n != "TreeSpec"] + ["TreeSpec"]


class PyTreeSpec(_python.TreeSpec):
    """The shape of a tree without its leaves."""

    def __repr__(self, indent: int = 0) -> str:
        return f"PyTreeSpec({self._drawn()}, NoneIsLeaf, namespace='torch')"

    __str__ = __repr__

    def _drawn(self) -> str:
        parts = [c._drawn() for c in self.children_specs]
        if self.type is None:
            return "*"
        if self.type is list:
            return f"[{', '.join(parts)}]"
        if self.type is tuple:
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        if self.type is namedtuple:
            named = ", ".join(f"{f}={p}" for f, p in zip(self.context._fields, parts))
            return f"{self.context.__name__}({named})"
        if self.type in (dict, OrderedDict, defaultdict):
            keys = self.context[1] if self.type is defaultdict else self.context
            inner = "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(keys, parts)) + "}"
            if self.type is defaultdict:
                return f"defaultdict({self.context[0]!r}, {inner})"
            return inner if self.type is dict else f"OrderedDict({inner})"
        if self.type is deque:
            length = "" if self.context is None else f", maxlen={self.context}"
            return f"deque([{', '.join(parts)}]{length})"
        return f"CustomTreeNode({self.type.__name__}[{self.context!r}], [{', '.join(parts)}])"


TreeSpec = PyTreeSpec


class LeafSpec(PyTreeSpec):
    """The spec of a leaf."""

    def __new__(cls) -> Any:
        return treespec_leaf()

    def __init__(self) -> None:
        super().__init__()


def _walk(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> PyTreeSpec:
    kind = _python._get_node_type(value)
    definition = SUPPORTED_NODES.get(kind)
    if definition is None or (is_leaf is not None and is_leaf(value)):
        leaves.append(value)
        return PyTreeSpec()
    parts, context = definition.flatten_fn(value)
    if kind in (dict, defaultdict):
        keys = _sorted(value)
        parts, context = [value[k] for k in keys], keys if kind is dict else [context[0], keys]
    return PyTreeSpec(kind, context, [_walk(part, leaves, is_leaf) for part in parts])


def _sorted(keys: Iterable[Any]) -> list[Any]:
    """Keys in order; of types that do not compare, by the types' names first."""
    keys = list(keys)
    try:
        return sorted(keys)
    except TypeError:
        try:
            return sorted(keys, key=lambda k: (f"{type(k).__module__}.{type(k).__qualname__}", k))
        except TypeError:
            return keys


def _translated(spec: _python.TreeSpec) -> PyTreeSpec:
    """A spec of the other module's, with its keys sorted."""
    return tree_structure(spec.unflatten([0] * spec.num_leaves))


def treespec_leaf() -> PyTreeSpec:
    return PyTreeSpec()


def treespec_tuple(iterable: Iterable[PyTreeSpec] = (), /) -> PyTreeSpec:
    return PyTreeSpec(tuple, None, _python._specs(list(iterable), "treespec_tuple"))


def treespec_dict(mapping: Any = (), /, **kwargs: PyTreeSpec) -> PyTreeSpec:
    given = dict(mapping, **kwargs)
    keys = _sorted(given)
    return PyTreeSpec(dict, keys, _python._specs([given[k] for k in keys], "treespec_dict"))


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], PyTreeSpec]:
    """(leaves, spec)."""
    leaves: list[Any] = []
    return leaves, _walk(tree, leaves, is_leaf)


def tree_unflatten(leaves: Iterable[Any], treespec: PyTreeSpec) -> PyTree:
    """The tree of that spec with these leaves."""
    if not isinstance(treespec, PyTreeSpec):
        raise TypeError("tree_unflatten(leaves, treespec): Expected `treespec` to be instance of PyTreeSpec but got item of "
                        f"type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_iter(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    """The leaves, one by one."""
    yield from tree_leaves(tree, is_leaf)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """The tree with func applied to each leaf, in this module's order."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *[spec.flatten_up_to(r) for r in rests]))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """Calls func for its effect; returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _broadcast_to_and_flatten(tree: PyTree, treespec: PyTreeSpec, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """A tree whose leaves may stand for whole parts of the spec, spread over its leaves; None if it does not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf():
        return None
    try:
        parts = treespec._parts(tree)
    except ValueError:
        return None
    spread = [_broadcast_to_and_flatten(part, spec, is_leaf) for part, spec in zip(parts, treespec.children_specs)]
    return None if any(s is None for s in spread) else [leaf for s in spread for leaf in s]


def treespec_dumps(treespec: PyTreeSpec, protocol: int | None = None) -> str:
    """A spec as text, which `treespec_loads` reads."""
    if not isinstance(treespec, PyTreeSpec):
        raise TypeError(f"treespec_dumps(treespec): Expected `treespec` to be instance of PyTreeSpec but got item of type "
                        f"{type(treespec)}.")
    return _python.treespec_dumps(_python.tree_structure(treespec.unflatten([0] * treespec.num_leaves)), protocol)


def treespec_loads(serialized: str) -> PyTreeSpec:
    """The spec that `treespec_dumps` wrote."""
    return _translated(_python.treespec_loads(serialized))


def treespec_pprint(treespec: PyTreeSpec) -> str:
    """The tree with a star for each leaf."""
    return _python.treespec_pprint(treespec)


def _without_paths(name: str) -> Callable:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("KeyPaths are not yet supported in cxx_pytree.")

    refuse.__name__ = name
    return refuse


for _name in ("tree_flatten_with_path", "tree_leaves_with_path", "tree_map_with_path", "keystr", "key_get"):
    globals()[_name] = _without_paths(_name)
