"""Arguments and results as flat lists of leaves: lists, tuples (named ones too), dicts and dataclasses are taken apart.

Results may also be of classes that a program has registered as containers (`torch.utils._pytree`).
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

LEAF = object()


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
        return _maker(kind, tuple(value)), [flatten(v, leaves, registered) for v in value.values()]
    if registered and kind in registered:
        children, context = registered[kind].flatten_fn(value)
        return _remaker(registered[kind].unflatten_fn, context), [flatten(v, leaves, registered) for v in children]
    if is_record(value):
        return _maker(kind, tuple(value.__dict__)), [flatten(v, leaves, registered) for v in value.__dict__.values()]
    leaves.append(value)
    return LEAF


def flatten_result(value: Any, leaves: list[Any]) -> Any:
    """`flatten` that knows the program's own kinds of containers too."""
    pytree = sys.modules.get(f"{__package__.partition('.')[0]}.utils._pytree")
    return flatten(value, leaves, None if pytree is None else pytree.SUPPORTED_NODES)


def containers(value: Any) -> Iterator[Any]:
    """The containers in a result that `flatten_result` takes apart and later calls make anew, tuples left out."""
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
    if not isinstance(value, tuple):
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


@functools.cache
def _maker(kind: type, names: tuple[Any, ...]) -> Callable[..., Any]:
    """Makes an object with these attributes, or a dict with these keys, of their values; one and the same for each kind."""
    def make(*values: Any) -> Any:
        if kind is OrderedDict:
            return OrderedDict(zip(names, values))
        made = object.__new__(kind)
        made.__dict__.update(zip(names, values))
        return made
    return make


def unflatten(shape: Any, leaves: Any) -> Any:
    """leaves: an iterator over the new leaves."""
    if shape is LEAF:
        return next(leaves)
    kind, parts = shape
    if kind is dict:
        return {k: unflatten(s, leaves) for k, s in parts}
    made = [unflatten(s, leaves) for s in parts]
    return made if kind is list else kind(made) if kind is tuple else kind(*made)
