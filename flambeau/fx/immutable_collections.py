"""Lists and dicts that do not change: the arguments of nodes, whose users are counted when the arguments are set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..utils._pytree import _dict_flatten, _dict_flatten_with_keys, _list_flatten, _list_flatten_with_keys, register_pytree_node

__all__ = ["immutable_dict", "immutable_list"]


def _refuses(kind: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or "
                        "args of a torch.fx.Node object,\ninstead create a new copy of it and assign the copy to the node:\n"
                        f"    new_args = {kind}(...)  # copy and mutate\n    node.args = new_args\n")
    return refuse


class immutable_list(list):
    """A list that refuses changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict):
    """A dict that refuses changes."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self.items()),)


for _name in ("__delitem__", "__iadd__", "__imul__", "__setitem__", "append", "clear", "extend", "insert", "pop", "remove",
              "reverse", "sort"):
    setattr(immutable_list, _name, _refuses("list"))
for _name in ("__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(immutable_dict, _name, _refuses("dict"))

register_pytree_node(immutable_list, _list_flatten, lambda values, context: immutable_list(values),
                     serialized_type_name="torch.fx.immutable_collections.immutable_list",
                     flatten_with_keys_fn=_list_flatten_with_keys)
register_pytree_node(immutable_dict, _dict_flatten, lambda values, context: immutable_dict(zip(context, values)),
                     serialized_type_name="torch.fx.immutable_collections.immutable_dict",
                     flatten_with_keys_fn=_dict_flatten_with_keys)
