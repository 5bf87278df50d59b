"""Specs of trees as text: JSON, in PyTorch's form."""

from __future__ import annotations

import json
from collections import namedtuple
from typing import Any

from ._pytree import _SERIALIZED, LeafSpec, TreeSpec

_PROTOCOL = 1


class _Encoder(json.JSONEncoder):
    """JSON, and the members of enums."""

    def default(self, o: Any) -> Any:
        if hasattr(o, "name") and hasattr(type(o), "__members__"):
            return f"{type(o).__module__}:{type(o).__qualname__}.{o.name}"
        return super().default(o)


def _as_json(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    known = _SERIALIZED.get(spec.type)
    if spec.type is namedtuple:
        known = _SERIALIZED.get(spec.context)
        if known is None or known.name is None:
            raise NotImplementedError(f"Can't serialize TreeSpec of namedtuple class {spec.context} because we didn't register "
                                      "a serializated_type_name. Please register using `_register_namedtuple`.")
        return {"type": "collections.namedtuple", "context": json.dumps({"type": known.name}),
                "children_spec": [_as_json(c) for c in spec.children_specs]}
    if known is None or known.name is None:
        raise NotImplementedError(f"No registered serialization name for {spec.type} found. Please update your "
                                  "register_pytree_node call with a `serialized_type_name` kwarg.")
    if known.to_dumpable is not None:
        context = json.dumps(known.to_dumpable(spec.context), cls=_Encoder)
    else:
        try:
            context = json.dumps(spec.context, cls=_Encoder)
        except TypeError as error:
            raise TypeError("Unable to serialize context. Please make the context json dump-able, or register a custom "
                            "serializer using _register_pytree_node.") from error
    return {"type": known.name, "context": context, "children_spec": [_as_json(c) for c in spec.children_specs]}


def _from_json(data: dict[str, Any]) -> TreeSpec:
    if data["type"] is None and data["context"] is None and not data["children_spec"]:
        return LeafSpec()
    children = [_from_json(c) for c in data["children_spec"]]
    if data["type"] == "collections.namedtuple":
        name = json.loads(data["context"])["type"]
        return TreeSpec(namedtuple, next(cls for cls, s in _SERIALIZED.items() if s.name == name), children)
    kind, known = next(((cls, s) for cls, s in _SERIALIZED.items() if s.name == data["type"]), (None, None))
    if known is None:
        raise NotImplementedError(f"Deserializing {data['type']} in pytree is not registered.")
    context = json.loads(data["context"])
    return TreeSpec(kind, context if known.from_dumpable is None else known.from_dumpable(context), children)


def dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as text, which `treespec_loads` reads."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"Expected `treespec` to be an instance of PyTreeSpec but got item of type {type(treespec)}.")
    if protocol not in (None, _PROTOCOL):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return json.dumps((_PROTOCOL, _as_json(treespec)))


def loads(serialized: str) -> TreeSpec:
    """The spec that `treespec_dumps` wrote."""
    protocol, data = json.loads(serialized)
    if protocol != _PROTOCOL:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [{_PROTOCOL}]")
    return _from_json(data)
