"""Stores: which changes a captured call may make. Of its own objects any; of what was there before none, except to set a thing
to what it is already, and what a program does itself (the elements and gradients of tensors).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MemberDescriptorType, ModuleType
from typing import Any

from ...autograd.function import FunctionCtx
from ...nn import hooks as module_hooks
from ...nn.module import Module
from ...tensors.tensor import Tensor
from .reads import CONTAINERS, MISSING, Entry, Inherited, Kind, Slot, inherited, same


class Stores:
    """The part of a `Witness` that hears of stores and deletions."""

    born: dict[int, Any]
    known: dict[int, Any]
    arguments: set[int]
    fail: Callable[[str], None]
    note: Callable[..., Any]
    attribute: Callable[..., Any]
    content: Callable[..., Any]
    behaviour: Callable[..., None]
    identity: Callable[..., None]
    _operands: Callable[..., None]
    _method_of: Callable[..., None]

    def store_attribute(self, value: Any, o: Any, name: str) -> None:
        kind = type(o)
        if issubclass(type(o), Tensor) and name in ("grad", "requires_grad"):
            if name == "requires_grad" and (id(o) in self.known or id(o) in self.arguments):
                self.fail("a tensor's 'requires_grad' is set")
        elif id(o) in self.born and self.behaviour(kind):
            pass
        elif issubclass(kind, FunctionCtx) or self._sets_the_same(o, kind, name, value):
            pass
        elif id(o) not in self.born or issubclass(type(o), (Module, type)) or kind.__setattr__ is not object.__setattr__ or (
                hasattr(type(found := inherited(kind, name)), "__set__") and type(found) is not MemberDescriptorType):
            self.fail(f"the attribute '{name}' of a '{o.__name__ if issubclass(type(o), type) else kind.__name__}' is set")
        else:
            for looked in (name, "__setattr__"):
                self.note(Inherited, kind, looked, inherited(kind, looked))
        setattr(o, name, value)

    def _sets_the_same(self, o: Any, kind: type, name: str, value: Any) -> bool:
        """Whether an attribute is set to what it is already: nothing changes then, as long as it still is."""
        if issubclass(kind, Module) and kind.__setattr__ is Module.__setattr__ and id(o) not in self.born and (
                issubclass(type(value), Tensor)):  # self.buffer += x
            self.note(Inherited, kind, "__setattr__", inherited(kind, "__setattr__"))
            for table in (module_hooks._global_buffer_registration_hooks, module_hooks._global_parameter_registration_hooks):
                self.content(table)
            return self.attribute(o, name) is value if hasattr(o, name) else False
        found = inherited(kind, name)
        if kind.__setattr__ is not object.__setattr__ or kind.__dictoffset__ == 0 or issubclass(kind, (type, ModuleType)) or (
                found is not MISSING and hasattr(type(found), "__set__")):
            return False
        table = o.__dict__
        if id(o) in self.born or not same(table.get(name, MISSING), value):
            return False
        self.note(Inherited, kind, name, found)
        self.note(Inherited, kind, "__setattr__", inherited(kind, "__setattr__"))
        self.note(Kind, o, None, kind)
        self.note(Slot, o, "__dict__", table)
        self.note(Entry, table, name, table[name])
        return True

    def store_item(self, value: Any, o: Any, key: Any) -> None:
        if issubclass(type(o), Tensor):
            self._method_of(o, "__setitem__")
            self._operands(key, value, "a tensor's index")
        elif type(o) is dict and id(o) not in self.born and same(o.get(key, MISSING), value):
            self.note(Entry, o, key, o[key])  # set to what it is already
        elif id(o) not in self.born or type(o) not in CONTAINERS:
            self.fail(f"an item of a '{type(o).__name__}' is set")
        elif type(o) is not list:
            self.identity(key)
        o[key] = value

    def delete_attribute(self, o: Any, name: str) -> None:
        if issubclass(type(o), Tensor) and name == "grad":
            o.grad = None
            return
        if id(o) not in self.born:
            self.fail(f"the attribute '{name}' of a '{type(o).__name__}' is deleted")
        self.behaviour(type(o))
        delattr(o, name)

    def delete_item(self, o: Any, key: Any) -> None:
        if id(o) not in self.born or type(o) not in CONTAINERS:
            self.fail(f"an item of a '{type(o).__name__}' is deleted")
        self.identity(key)
        del o[key]
