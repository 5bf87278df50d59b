"""Arguments and results as flat lists of leaves: lists, tuples (named ones too), dicts and dataclasses are taken apart.

Results may also be of classes that a program has registered as containers (`torch.utils._pytree`).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

LEAF = object()
_SCALARS = int, float, complex, bool, bytes, type(None)


def flatten(value: Any, leaves: list[Any], registered: Any = None) -> Any:
    """Appends the leaves; returns the shape of the tree, from which `unflatten` puts it together.

    registered: further kinds of containers, as _pytree.SUPPORTED_NODES describes them.
    """
    kind = type(value)  # not value.__class__, which may be the user's own property
    if kind is list or kind is tuple:
        return kind, [flatten(v, leaves, registered) for v in value]
    if kind is dict:
        return kind, [(k, flatten(v, leaves, registered)) for k, v in value.items()]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind, [flatten(v, leaves, registered) for v in value]
    if kind is OrderedDict:
        return _Maker(kind, tuple(value)), [flatten(v, leaves, registered) for v in value.values()]
    if registered and kind in registered:
        children, context = registered[kind].flatten_fn(value)
        return _remaker(registered[kind].unflatten_fn, context), [flatten(v, leaves, registered) for v in children]
    if is_record(value):
        return _Maker(kind, tuple(value.__dict__)), [flatten(v, leaves, registered) for v in value.__dict__.values()]
    leaves.append(value)
    return LEAF


def flatten_result(value: Any, leaves: list[Any]) -> Any:
    """`flatten` that knows the program's own kinds of containers too."""
    pytree = sys.modules.get(f"{__package__.partition('.')[0]}.utils._pytree")
    return flatten(value, leaves, None if pytree is None else pytree.SUPPORTED_NODES)


def containers(value: Any) -> Iterator[Any]:
    """The containers in a result that `flatten_result` takes apart and later calls make anew."""
    pytree = sys.modules.get(f"{__package__.partition('.')[0]}.utils._pytree")
    parts: Any = ()
    if isinstance(value, (list, tuple)):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    elif is_record(value):
        parts = value.__dict__.values()
    elif pytree is None or value.__class__ not in pytree.SUPPORTED_NODES:
        return
    yield value
    for part in parts:
        yield from containers(part)


def _remaker(unflatten_fn: Callable[..., Any], context: Any) -> Callable[..., Any]:
    """Makes a registered container of its children."""
    return lambda *children: unflatten_fn(list(children), context)


def is_record(value: Any) -> bool:
    """Whether it is an object of a dataclass that is nothing else besides."""
    kind = type(value)
    return hasattr(kind, "__dataclass_fields__") and kind.__dictoffset__ != 0 and kind.__base__ is object and (
        kind.__getattribute__ is object.__getattribute__)


class _Maker:
    """Makes an object with these attributes, or a dict with these keys, of their values."""

    __slots__ = ("kind", "names")

    def __init__(self, kind: type, names: tuple[Any, ...]):
        self.kind, self.names = kind, names

    def __call__(self, *values: Any) -> Any:
        if self.kind is OrderedDict:
            return OrderedDict(zip(self.names, values))
        made = object.__new__(self.kind)
        made.__dict__.update(zip(self.names, values))
        return made


class _Itself:
    """An object that equals nothing but itself, whatever its class says."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return other.__class__ is _Itself and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def comparable(shape: Any) -> Any:
    """A shape as a key: equal to another if kinds and keys are exactly the same."""
    if shape is LEAF or shape.__class__ is int:  # so many tensors
        return shape
    if shape.__class__ is list:
        return tuple([comparable(s) for s in shape])
    kind, parts = shape
    if kind is dict:
        return dict, tuple([(_key(k), comparable(s)) for k, s in parts])
    inside = tuple([comparable(s) for s in parts])
    if kind.__class__ is _Maker:
        return _Itself(kind.kind), tuple(map(_key, kind.names)), inside
    return _Itself(kind), inside


def _key(key: Any) -> Any:
    kind = type(key)
    if kind is str:
        return key
    if kind is tuple:
        return tuple(map(_key, key))
    return (kind, repr(key)) if kind in _SCALARS else _Itself(key)


def unflatten(shape: Any, leaves: Any) -> Any:
    """leaves: an iterator over the new leaves."""
    if shape is LEAF:
        return next(leaves)
    kind, parts = shape
    if kind is dict:
        return {k: unflatten(s, leaves) for k, s in parts}
    made = [unflatten(s, leaves) for s in parts]
    return made if kind is list else kind(made) if kind is tuple else kind(*made)
