"""`torch.ops.aten.add` (a packet) and `torch.ops.aten.add.Tensor` (an overload): what handlers get and call."""

from __future__ import annotations

import enum
import functools
import types
from typing import Any

from . import calls, schemas
from .schemas import NoFit, Schema

Tag = enum.IntEnum("Tag", """core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace
    inplace_view maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order
    nondeterministic_bitwise nondeterministic_seeded out out_variant pointwise pt2_compliant_tag reduction view_copy""",
                   start=0, module="flambeau")
Tag.__doc__ = """What is true of an operation, in PyTorch's words.

>>> torch.Tag.pointwise in torch.ops.aten.mul.Tensor.tags
True
"""
Tag.__str__ = enum.Enum.__str__


class OpOverloadPacket:
    """An operation by name; its attributes are the overloads."""

    def __init__(self, namespace: str, name: str):
        self.__name__, self._namespace = name, namespace
        self._qualified_op_name = f"{namespace}::{name}"
        self.__module__ = f"torch.ops.{namespace}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            entry, _ = schemas.resolve(self.__name__, args, kwargs)
        except NoFit:
            return calls.function_named(self.__name__)(*args, **kwargs)
        return getattr(self, entry.overload)(*args, **kwargs)

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        for entry in schemas.overloads_of(self.__name__):
            if entry.overload == overload:
                made = self.__dict__[overload] = OpOverload(self, overload, entry.schema)
                return made
        if self._namespace == "aten" and not schemas.is_known(self.__name__) and not overload.startswith("_"):
            made = self.__dict__[overload] = OpOverload(self, overload, None)
            return made
        raise AttributeError(f"The underlying op of '{self._namespace}.{self.__name__}' has no overload name '{overload}'")

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return [entry.overload for entry in schemas.overloads_of(self.__name__)]

    @property
    def op(self) -> Any:
        return self

    def __str__(self) -> str:
        return f"{self._namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __reduce__(self) -> Any:
        return packet, (self._namespace, self.__name__)


class OpOverload:
    """One form of an operation. Custom ones (library.py) have a kernel of their own, a fake one, and handlers by class."""

    kernel: Any = None
    fake: Any = None
    handlers: Any = types.MappingProxyType({})

    def __init__(self, packet: OpOverloadPacket, overload: str, schema: Schema | None):
        self._overloadpacket, self._overloadname, self._schema = packet, overload, schema
        self.namespace = self._namespace = packet._namespace
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__ = self.__name__
        self.__module__ = packet.__module__
        self._opname = packet.__name__
        self._name = packet._qualified_op_name + (f".{overload}" if overload != "default" else "")

    @property
    def overloadpacket(self) -> OpOverloadPacket:
        return self._overloadpacket

    @property
    def op(self) -> Any:
        return self._overloadpacket

    def name(self) -> str:
        return self._name

    @functools.cached_property
    def is_view(self) -> bool:
        return self._schema is not None and self._schema.is_view

    @functools.cached_property
    def tags(self) -> list[Tag]:
        words = "".join([e.tags for e in schemas.overloads_of(self._opname)
                         if self.namespace == "aten" and e.overload == self._overloadname])
        return sorted([Tag[word] for word in words.split()] + [Tag.pt2_compliant_tag])

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """What the operation is made of, where it is put together from others; else NotImplemented."""
        from .lowering import LOWERED
        found = LOWERED.get(self._opname)
        return found(*args, **kwargs) if found is not None else NotImplemented

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        composite = any([e.composite for e in schemas.overloads_of(self._opname) if e.overload == self._overloadname])
        return str(key).rpartition(".")[2] == "CompositeImplicitAutograd" if composite else True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return calls.call_overload(self, args, kwargs)

    def redispatch(self, keys: Any, *args: Any, **kwargs: Any) -> Any:
        return calls.call_overload(self, args, kwargs)

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __str__(self) -> str:
        return f"{self._overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self._overloadpacket}', overload='{self._overloadname}')>"

    def __reduce__(self) -> Any:
        return _overload, (self.namespace, self._opname, self._overloadname)

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self


@functools.cache
def packet(namespace: str, name: str) -> OpOverloadPacket:
    """The operation of a name: always the same object."""
    return OpOverloadPacket(namespace, name)


def _overload(namespace: str, name: str, overload: str) -> OpOverload:
    return getattr(packet(namespace, name), overload)
