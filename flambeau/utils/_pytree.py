"""Trees of Python containers: taken apart into leaves and a description, and put together again.

Lists, tuples, named tuples, dicts and deques are nodes, and so is any class given to `register_pytree_node`;
everything else, None included, is a leaf.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["Context", "DumpableContext", "FlattenFn", "FromDumpableContextFn", "LeafSpec", "PyTree", "PyTreeSpec",
           "ToDumpableContextFn", "TreeSpec", "UnflattenFn", "is_namedtuple", "is_namedtuple_class", "is_namedtuple_instance",
           "is_structseq", "is_structseq_class", "is_structseq_instance", "key_get", "keystr", "register_pytree_node",
           "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf",
           "tree_iter",
           "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
           "tree_map_with_path", "tree_structure", "tree_unflatten", "treespec_dict", "treespec_dumps", "treespec_leaf",
           "treespec_loads", "treespec_pprint", "treespec_tuple"]
PyTree = Context = DumpableContext = Any
FlattenFn = UnflattenFn = ToDumpableContextFn = FromDumpableContextFn = Callable[..., Any]


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

    flatten_with_keys_fn(x) -> ([(step, child)], context) serves the functions of paths. serialized_type_name: what the class is
    called in `treespec_dumps`, which writes its contexts as to_dumpable_context makes them (by default as JSON).
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    _enter_node(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name, to_dumpable_context,
                from_dumpable_context)


def _enter_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, with_keys: Callable | None = None,
                name: str | None = None, to_dumpable: Callable | None = None, from_dumpable: Callable | None = None) -> None:
    if (to_dumpable is None) is not (from_dumpable is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, with_keys)
    _SERIALIZED[cls] = _Serialized(name, to_dumpable, from_dumpable)


def _register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable, to_str_fn: Any = None,
                          maybe_from_str_fn: Any = None, *, serialized_type_name: str | None = None,
                          to_dumpable_context: Callable | None = None,
                          from_dumpable_context: Callable | None = None, flatten_with_keys_fn: Callable | None = None) -> None:
    """The older form: a second registration takes the place of the first."""
    if cls in SUPPORTED_NODES:
        warnings.warn(f"{cls} is already registered as pytree node. Overwriting the previous registration.", stacklevel=2)
    _enter_node(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn, serialized_type_name, to_dumpable_context,
                from_dumpable_context)


def register_dataclass(cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
                       serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a node, whose children are its fields.

    field_names: which of them; then drop_field_names names the others, which get their defaults again.
    """
    import dataclasses
    drop = list(drop_field_names or ())
    if not dataclasses.is_dataclass(cls):
        if field_names is None:
            raise ValueError(f"field_names must be specified with a list of all fields used to initialize {cls}, as it is not "
                             "a dataclass.")
    else:
        known = [f.name for f in dataclasses.fields(cls) if f.init]
        field_names = known if field_names is None else list(field_names)
        if set(field_names) | set(drop) != set(known):
            missing, more = set(known) - set(field_names) - set(drop), set(field_names) - set(known)
            raise ValueError("field_names does not include all dataclass fields.\n" + (
                f"Missing fields in `field_names`: {missing}. Name them, or drop them.\n" if missing else "") + (
                f"Unexpected fields in `field_names`: {more}. Take them out.\n" if more else ""))
    names = list(field_names or ())

    def present(x: Any) -> list[str]:
        return [n for n in names if getattr(x, n) is not None]

    register_pytree_node(
        cls, lambda x: ([getattr(x, n) for n in present(x)], [present(x), [n for n in names if getattr(x, n) is None]]),
        lambda values, context: cls(**dict(zip(context[0], values)), **dict.fromkeys(context[1])),
        serialized_type_name=serialized_type_name, flatten_with_keys_fn=lambda x: (
            [(GetAttrKey(n), getattr(x, n)) for n in present(x)], [present(x), [n for n in names if getattr(x, n) is None]]))


class ConstantNode(NamedTuple):
    """The context of a node that is a constant."""

    value: Any


def register_constant(cls: type) -> None:
    """Makes the values of a class part of specs: they have no leaves, and are compared by `==`."""
    if cls.__eq__ is object.__eq__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None or cls.__hash__ is object.__hash__:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__hash__` implementation.")
    register_pytree_node(cls, lambda x: ([], ConstantNode(x)), lambda values, context: context.value,
                         flatten_with_keys_fn=lambda x: ([], ConstantNode(x)))


def is_constant_class(cls: type) -> bool:
    return cls in SUPPORTED_NODES and cls not in (list, tuple, dict) and cls.__module__ != "builtins" and (
        getattr(SUPPORTED_NODES[cls].unflatten_fn, "__qualname__", "").startswith("register_constant"))


def _deregister_pytree_node(cls: type) -> None:
    """Makes a class a leaf again."""
    SUPPORTED_NODES.pop(cls, None)
    _SERIALIZED.pop(cls, None)


class _Serialized(NamedTuple):
    """How a kind of node is written into text."""

    name: str | None = None
    to_dumpable: Callable | None = None
    from_dumpable: Callable | None = None


_SERIALIZED: dict[Any, _Serialized] = {}


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
    return list(d.values()), [d.default_factory, list(d)]


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


def _named(path: str) -> Any:
    """The class or function of a dotted name."""
    import importlib
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


_SERIALIZED.update({
    list: _Serialized("builtins.list"), tuple: _Serialized("builtins.tuple"), dict: _Serialized("builtins.dict"),
    OrderedDict: _Serialized("collections.OrderedDict"), deque: _Serialized("collections.deque"),
    defaultdict: _Serialized("collections.defaultdict", lambda c: {
        "default_factory_module": c[0].__module__, "default_factory_name": c[0].__qualname__, "dict_context": c[1]},
        lambda d: [_named(f"{d['default_factory_module']}.{d['default_factory_name']}"), d["dict_context"]])})


def _is_return_type(cls: type) -> bool:
    """Whether a class is one of torch.return_types, each of which is a kind of node."""
    return getattr(cls, "__module__", "") == "torch.return_types" and issubclass(cls, tuple)


def is_namedtuple(value: Any) -> bool:
    """Whether a value (or a class) is a named tuple."""
    return is_namedtuple_class(value if isinstance(value, type) else type(value))


def is_namedtuple_class(cls: type) -> bool:
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields") and not _is_return_type(cls)


def is_namedtuple_instance(value: Any) -> bool:
    return is_namedtuple_class(type(value))


def is_structseq_class(cls: type) -> bool:
    """Whether a class is one of the interpreter's own named tuples, such as time.struct_time."""
    return isinstance(cls, type) and (_is_return_type(cls) or (
        cls.__bases__ == (tuple,) and not hasattr(cls, "_fields")
        and all(isinstance(getattr(cls, f"n_{name}fields", None), int) for name in ("", "sequence_", "unnamed_"))))


def is_structseq_instance(value: Any) -> bool:
    return is_structseq_class(type(value))


def is_structseq(value: Any) -> bool:
    """Whether a value (or a class) is one of the interpreter's own named tuples."""
    return is_structseq_class(value if isinstance(value, type) else type(value))


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind in SUPPORTED_NODES:
        return kind
    if is_namedtuple_class(kind):
        return namedtuple
    if _is_return_type(kind):
        _enter_node(kind, lambda x: (list(x), None), lambda values, context: kind(*values), _list_flatten_with_keys,
                    f"torch.return_types.{kind.__name__}")
    return kind


_kind = _get_node_type
STANDARD_DICT_TYPES = (dict, OrderedDict, defaultdict)
BUILTIN_TYPES = frozenset({tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque})
DEFAULT_TREESPEC_SERIALIZATION_PROTOCOL = 1
_is_namedtuple_instance = is_namedtuple_instance


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
        parts = self._parts(tree)
        return [leaf for spec, part in zip(self.children_specs, parts) for leaf in spec.flatten_up_to(part)]

    def _parts(self, tree: PyTree) -> list[Any]:
        """The children of a tree in this one's order: dictionaries of any kind fit, if they have the same keys."""
        kind = _kind(tree)
        dicts = {kind, self.type} <= set(STANDARD_DICT_TYPES)
        if kind is not self.type and not dicts:
            what = "Node type" if self.type in BUILTIN_TYPES else "Type"
            raise ValueError(f"{what} mismatch; expected {self.type!r}, but got {kind!r}.")
        parts, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        if len(parts) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(parts)}.")
        if dicts:
            keys = self.context[1] if self.type is defaultdict else self.context
            missing, extra = set(keys) - set(tree), set(tree) - set(keys)
            if missing or extra:
                raise ValueError("Node keys mismatch" + (f"; missing key(s): {missing}" if missing else "") + (
                    f"; extra key(s): {extra}" if extra else "") + ".")
            return [tree[k] for k in keys]
        if context != self.context and kind is not deque:
            raise ValueError(f"Node context mismatch for node type {self.type!r}; expected {self.context!r}, got {context!r}.")
        return parts

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

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        parts = [c.__repr__(indent + 2) for c in self.children_specs]
        return f"TreeSpec({self.type.__name__}, {self.context}, [" + f",\n{' ' * (indent + 2)}".join(parts) + "])"


class LeafSpec(TreeSpec):
    """The spec of a leaf."""

    def __init__(self) -> None:
        super().__init__()


PyTreeSpec = TreeSpec


def treespec_leaf() -> TreeSpec:
    return LeafSpec()


def treespec_tuple(iterable: Iterable[TreeSpec] = (), /) -> TreeSpec:
    """The spec of a tuple of such parts."""
    return TreeSpec(tuple, None, _specs(list(iterable), "treespec_tuple"))


def treespec_dict(mapping: Any = (), /, **kwargs: TreeSpec) -> TreeSpec:
    """The spec of a dict of such parts."""
    given = dict(mapping, **kwargs)
    return TreeSpec(dict, list(given), _specs(list(given.values()), "treespec_dict"))


def _specs(parts: list[Any], name: str) -> list[TreeSpec]:
    if any([not isinstance(p, TreeSpec) for p in parts]):
        raise ValueError(f"{name}: expected only TreeSpecs, got {parts}")
    return parts


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Gives a class of named tuples a name in texts."""
    _SERIALIZED[cls] = _Serialized(serialized_type_name)


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as text, which `treespec_loads` reads."""
    from ._pytree_text import dumps
    return dumps(treespec, protocol)


def treespec_loads(serialized: str) -> TreeSpec:
    """The spec that `treespec_dumps` wrote."""
    from ._pytree_text import loads
    return loads(serialized)


class _Star:
    def __repr__(self) -> str:
        return "*"


def treespec_pprint(treespec: TreeSpec) -> str:
    """The tree with a star for each leaf."""
    return repr(treespec.unflatten([_Star() for _ in range(treespec.num_leaves)]))


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


def tree_iter(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    """The leaves, one by one."""
    yield from tree_leaves(tree, is_leaf)


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((args, kwargs))


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
