"""Trees of Python containers: taken apart into leaves and a description, and put together again.

Lists, tuples, named tuples, dicts and deques are nodes, and so is any class given to `register_pytree_node`;
everything else, None included, is a leaf.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

PyTree = Any
Context = Any


class NodeDef(NamedTuple):
    """How one kind of container is taken apart: into (children, context), and made again from both."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None  # children with the steps to them


class KeyEntry(NamedTuple):
    """A step on the way to a leaf."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


SUPPORTED_NODES: dict[type, NodeDef] = {}


def register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, *, serialized_type_name: str | None = None,
                         to_dumpable_context: Callable | None = None, from_dumpable_context: Callable | None = None,
                         flatten_with_keys_fn: Callable | None = None) -> None:
    """Makes a class a node: flatten_fn(x) -> (children, context), unflatten_fn(children, context) -> x.

    flatten_with_keys_fn(x) -> ([(step, child)], context) serves the functions of paths. The names for specs in files are
    accepted: specs are not written to files.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node


def _deregister_pytree_node(cls: type) -> None:
    """Makes a class a leaf again."""
    SUPPORTED_NODES.pop(cls, None)


def _list_flatten(d: Any) -> tuple[list[Any], None]:
    return list(d), None


def _list_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], None]:
    return [(SequenceKey(i), value) for i, value in enumerate(d)], None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    return list(values)


def _tuple_unflatten(values: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(values)


def _dict_flatten(d: Any) -> tuple[list[Any], list[Any]]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values))


def _deque_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d), d.maxlen


def _defaultdict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), (d.default_factory, list(d))


def _namedtuple_flatten(d: Any) -> tuple[list[Any], type]:
    return list(d), type(d)


_tuple_flatten, _tuple_flatten_with_keys = _list_flatten, _list_flatten_with_keys
for _node in (
        NodeDef(list, _list_flatten, _list_unflatten, _list_flatten_with_keys),
        NodeDef(tuple, _tuple_flatten, _tuple_unflatten, _tuple_flatten_with_keys),
        NodeDef(dict, _dict_flatten, _dict_unflatten, _dict_flatten_with_keys),
        NodeDef(OrderedDict, _dict_flatten, lambda c, keys: OrderedDict(zip(keys, c)), _dict_flatten_with_keys),
        NodeDef(deque, _deque_flatten, lambda c, most: deque(c, maxlen=most),
                lambda d: (_list_flatten_with_keys(d)[0], d.maxlen)),
        NodeDef(defaultdict, _defaultdict_flatten, lambda c, context: defaultdict(context[0], zip(context[1], c)),
                lambda d: (_dict_flatten_with_keys(d)[0], _defaultdict_flatten(d)[1])),
        NodeDef(namedtuple, _namedtuple_flatten, lambda c, cls: cls(*c),
                lambda d: ([(GetAttrKey(name), value) for name, value in zip(d._fields, d)], type(d)))):
    SUPPORTED_NODES[_node.type] = _node


def is_namedtuple(value: Any) -> bool:
    """Whether a value (or a class) is a named tuple."""
    return is_namedtuple_class(value if isinstance(value, type) else type(value))


def is_namedtuple_class(cls: type) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(value: Any) -> bool:
    return is_namedtuple_class(type(value))


def is_structseq_class(cls: type) -> bool:
    """Whether a class is one of the interpreter's own named tuples, such as time.struct_time."""
    return (isinstance(cls, type) and cls.__bases__ == (tuple,) and not hasattr(cls, "_fields")
            and all(isinstance(getattr(cls, f"n_{name}fields", None), int) for name in ("", "sequence_", "unnamed_")))


def is_structseq_instance(value: Any) -> bool:
    return is_structseq_class(type(value))


def is_structseq(value: Any) -> bool:
    """Whether a value (or a class) is one of the interpreter's own named tuples."""
    return is_structseq_class(value if isinstance(value, type) else type(value))


def _get_node_type(tree: Any) -> Any:
    return namedtuple if is_namedtuple(tree) and type(tree) not in SUPPORTED_NODES else type(tree)


_kind = _get_node_type


class TreeSpec:
    """The shape of a tree without its leaves."""

    def __init__(self, type: Any = None, context: Any = None, children_specs: Iterable[TreeSpec] = ()):
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        self.num_nodes = 1 + sum(c.num_nodes for c in self.children_specs)
        self.num_leaves = sum(c.num_leaves for c in self.children_specs) if type is not None else 1
        self.num_children = len(self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def children(self) -> list[TreeSpec]:
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """The parts of a tree at the places of this one's leaves."""
        if self.type is None:
            return [tree]
        if _kind(tree) is not self.type:
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        parts, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if len(parts) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(parts)}.")
        if context != self.context:
            raise ValueError(f"Node context mismatch for {self.type!r}: {context!r} and {self.context!r}.")
        return [leaf for spec, part in zip(self.children_specs, parts) for leaf in spec.flatten_up_to(part)]

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a "
                             f"pytree that holds {self.num_leaves} items ({self}).")
        if self.type is None:
            return leaves[0]
        parts, at = [], 0
        for spec in self.children_specs:
            parts.append(spec.unflatten(leaves[at:at + spec.num_leaves]))
            at += spec.num_leaves
        return SUPPORTED_NODES[self.type].unflatten_fn(parts, self.context)

    def __eq__(self, other: Any) -> bool:
        return (isinstance(other, TreeSpec) and self.type is other.type and self.context == other.context
                and self.children_specs == other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, self.num_nodes, self.num_leaves))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The spec of a leaf."""

    def __init__(self) -> None:
        super().__init__()


def treespec_leaf() -> TreeSpec:
    return LeafSpec()


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves, spec)."""
    leaves: list[Any] = []
    spec = _walk(tree, leaves, is_leaf)
    return leaves, spec


def _walk(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    """Appends the leaves of a tree. (A function inside tree_flatten would refer to itself, and keep the leaves alive.)"""
    kind = _kind(value)
    definition = SUPPORTED_NODES.get(kind)
    if definition is None or (is_leaf is not None and is_leaf(value)):
        leaves.append(value)
        return LeafSpec()
    parts, context = definition.flatten_fn(value)
    return TreeSpec(kind, context, [_walk(part, leaves, is_leaf) for part in parts])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of that spec with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError("tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item "
                        f"of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree,
             is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """The tree with func applied to each leaf (and to what stands at its place in the other trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten(map(func, leaves, *others))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree,
              is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """Calls func for its effect; returns the tree."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _wanted(kind: Any) -> Callable[[Any], bool]:
    return (lambda v: isinstance(v, kind)) if isinstance(kind, (type, tuple)) else kind


def map_only(kind: Any) -> Callable[[Callable], Callable]:
    """A function made to leave alone what is not of the type."""
    wanted = _wanted(kind)
    return lambda func: lambda value: func(value) if wanted(value) else value


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: PyTree,
                  is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """tree_map over the leaves of a type (or those a function picks)."""
    return tree_map(map_only(kind)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, func: Callable[[Any], Any], tree: PyTree,
                   is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    tree_map_only(kind, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kind: Any, pred: Callable[[Any], bool], tree: PyTree,
                  is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return all(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if _wanted(kind)(leaf))


def tree_any_only(kind: Any, pred: Callable[[Any], bool], tree: PyTree,
                  is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return any(pred(leaf) for leaf in tree_leaves(tree, is_leaf) if _wanted(kind)(leaf))


def tree_is_leaf(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return _kind(tree) not in SUPPORTED_NODES or (is_leaf is not None and is_leaf(tree))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec,
                              is_leaf: Callable[[Any], bool] | None = None) -> list[Any] | None:
    """A tree whose leaves may stand for whole parts of the spec, spread over its leaves; None if it does not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _kind(tree) is not treespec.type:
        return None
    parts, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(parts) != treespec.num_children or context != treespec.context:
        return None
    spread: list[Any] = []
    for part, spec in zip(parts, treespec.children_specs):
        got = _broadcast_to_and_flatten(part, spec, is_leaf)
        if got is None:
            return None
        spread += got
    return spread


# ------------------------------------------------------------------------------------------------------------- paths
class MappingKey(KeyEntry):
    """A step into a dictionary."""

    def get(self, tree: Any) -> Any:
        return tree[self.key]


class SequenceKey(NamedTuple):
    """A step into a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, tree: Any) -> Any:
        return tree[self.idx]


class GetAttrKey(NamedTuple):
    """A step to an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, tree: Any) -> Any:
        return getattr(tree, self.name)


KeyPath = tuple[Any, ...]


def _walk_with_path(tree: PyTree, here: KeyPath, is_leaf: Callable[[Any], bool] | None) -> Iterable[tuple[KeyPath, Any]]:
    if tree_is_leaf(tree, is_leaf):
        yield here, tree
        return
    steps = SUPPORTED_NODES[_kind(tree)].flatten_with_keys_fn
    if steps is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {type(tree)}. Please pass a flatten_with_keys_fn "
                         "argument to register_pytree_node.")
    for step, child in steps(tree)[0]:
        yield from _walk_with_path(child, (*here, step), is_leaf)


def tree_flatten_with_path(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
                           ) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """([(path, leaf)], spec)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[KeyPath, Any]]:
    return list(_walk_with_path(tree, (), is_leaf))


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree,
                       is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """tree_map whose function gets the path of each leaf first."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten([func(path, leaf, *rest) for (path, leaf), *rest in zip(pairs, *others)])


def keystr(kp: KeyPath) -> str:
    """A path as one would write it: ['x'][1].a"""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What stands at a path."""
    for step in kp:
        obj = step.get(obj)
    return obj
