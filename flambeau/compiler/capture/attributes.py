"""Attributes: where Python finds `o.name`, place by place, so that a captured call can say what it depends on.

Python looks at the class of the object and its bases, at descriptors found there, at the object's own table, and at
`__getattr__`; classes, modules, `super()` and tensors have ways of their own. Each place looked at is noted (reads.py); where
a lookup runs code of the user's, that code runs rewritten; a lookup that cannot be followed ends the proof.
"""

from __future__ import annotations

import enum
import functools
import operator
import types
from collections import OrderedDict, defaultdict
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from ...autograd.function import FunctionCtx
from ...nn.module import Module
from ...optim import optimizer as optimizers
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor
from .reads import MISSING, OWN, PLAIN, SCALARS, Entry, Inherited, Kind, Slot, inherited
from .symbolic import SymFloat

_METADATA = frozenset(("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "T", "mT", "H", "mH", "real",
                       "imag", "data", "itemsize", "nbytes", "is_sparse", "is_cuda", "is_cpu", "is_meta", "is_quantized",
                       "is_nested",
                       "is_mkldnn", "names", "is_mps", "is_xla", "is_xpu"))
_ATTRIBUTES = frozenset((*SCALARS, FunctionType, property, staticmethod, classmethod, MemberDescriptorType, type,
                         GetSetDescriptorType,
                         MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType, tuple, list, dict, set))
_ORDINARY = (object, tuple, list, dict, set, int, float, str, BaseException, OrderedDict, types.SimpleNamespace,
             functools.partial, FunctionType, BuiltinFunctionType, defaultdict)  # whose attributes are found the ordinary way


_MODULE_GETATTR = Module.__getattr__  # as it is; somebody may put another in its place
_module_table = ModuleType.__dict__["__dict__"].__get__


def attribute(w: Any, o: Any, name: str) -> Any:
    """o.name, and what Python looked at to find it."""
    kind = type(o)
    if kind in PLAIN or kind in (list, dict, set):
        return float if kind is SymFloat and name == "__class__" else getattr(o, name)
    if issubclass(type(o), Tensor):
        return _tensor_attribute(w, o, kind, name)
    if issubclass(type(o), ModuleType):
        return _module_attribute(w, o, name)
    if issubclass(type(o), type):
        return _class_attribute(w, o, kind, name)
    if kind is super:
        return _super_attribute(w, o, name)
    if issubclass(kind, FunctionCtx):  # made by the call
        return getattr(o, name)
    if kind.__name__ == "OptimizedModule" and kind.__module__ == __package__:
        table = o.__dict__["_modules"]
        return attribute(w, w.note(Entry, table, "_orig_mod", table["_orig_mod"]), name)
    return _object_attribute(w, o, kind, name)


def _object_attribute(w: Any, o: Any, kind: type, name: str) -> Any:
    own = id(o) in w.born
    if getattr(kind.__getattribute__, "__objclass__", None) not in _ORDINARY:
        w.fail(f"'{kind.__name__}' looks up attributes in its own way")
        return getattr(o, name)
    found = inherited(kind, name)
    w.note(Inherited, kind, "__getattribute__", inherited(kind, "__getattribute__"))
    w.note(Inherited, kind, name, found)
    if not own:
        w.note(Kind, o, None, kind)
    _as_descriptor(w, found)
    if found is not MISSING and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")):
        return _descriptor(w, o, kind, name, found, own)
    table = o.__dict__ if kind.__dictoffset__ else None
    if table is not None:
        free = own or id(table) in w.given
        if not free:
            w.note(Slot, o, "__dict__", table)
        value = table.get(name, MISSING)
        if not free:
            w.note(Entry, table, name, value)
        if value is not MISSING:
            if name == "param_groups" and issubclass(type(o), optimizers.Optimizer):
                w.groups.update(map(id, value))
            return value
    if found is MISSING:
        return _fallback(w, o, kind, name)
    return _bound(w, o, kind, name, found)


def _as_descriptor(w: Any, found: Any) -> None:
    """What a class has under a name may be of a class that makes it a descriptor later."""
    if found is not MISSING and type(found) not in _ATTRIBUTES:
        w.note(Kind, found, None, type(found))
        for part in ("__get__", "__set__", "__delete__"):
            w.note(Inherited, type(found), part, inherited(type(found), part))


def _descriptor(w: Any, o: Any, kind: type, name: str, found: Any, own: bool) -> Any:
    if issubclass(kind, tuple) and type(found) is property and type(found.fget) is operator.itemgetter:
        return getattr(o, name)
    if type(found) is property and found.fget is not None:
        try:
            return w.call(found.fget)(o)
        except AttributeError:
            if inherited(kind, "__getattr__") is MISSING:
                w.note(Inherited, kind, "__getattr__", MISSING)
                raise
        return _fallback(w, o, kind, name)  # (outside, as its errors are not those of the handler)
    if type(found) is MemberDescriptorType:
        if inherited(kind, "__getattr__") is not MISSING:
            return _unsure(w, o, name)
        w.note(Inherited, kind, "__getattr__", MISSING)
        value = getattr(o, name, MISSING)
        if not own:
            w.note(Slot, o, name, value)
        return getattr(o, name) if value is MISSING else value
    if name == "__class__":
        return kind
    if type(found).__name__ == "_tuplegetter" and issubclass(kind, tuple):
        return getattr(o, name)
    if name in ("__dict__", "__name__", "__qualname__", "__doc__", "__module__") and (
            type(found) is GetSetDescriptorType or kind is FunctionType):
        value = getattr(o, name)
        if not own:
            w.note(Slot, o, name, value)
        elif name == "__dict__":
            w.made(value)
        return value
    w.fail(f"'{kind.__name__}.{name}' is a descriptor of its own kind")
    return getattr(o, name)


def _bound(w: Any, o: Any, kind: type, name: str, found: Any) -> Any:
    """A class's attribute as one of an instance."""
    sort = type(found)
    if sort is FunctionType:
        return MethodType(found, o)
    if sort is staticmethod:
        return found.__func__
    if sort is classmethod and type(found.__func__) is FunctionType:
        return MethodType(found.__func__, kind)
    if sort in (MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType) or not hasattr(sort, "__get__"):
        return getattr(o, name)
    w.fail(f"'{kind.__name__}.{name}' is a descriptor of its own kind")
    return getattr(o, name)


def _fallback(w: Any, o: Any, kind: type, name: str) -> Any:
    """An attribute that neither the object nor its class has."""
    ask = inherited(kind, "__getattr__")
    w.note(Inherited, kind, "__getattr__", ask)
    if ask is MISSING:
        return getattr(o, name)
    if ask is not _MODULE_GETATTR:
        return w.call(MethodType(ask, o))(name) if type(ask) is FunctionType else _unsure(w, o, name)
    own, free = o.__dict__, id(o) in w.born
    for part in ("_parameters", "_buffers", "_modules"):
        table = own.get(part, MISSING)
        if not free:
            w.note(Entry, own, part, table)
        if type(table) not in (dict, OrderedDict):
            return _unsure(w, o, name) if table is not MISSING else getattr(o, name)
        value = table.get(name, MISSING)
        if not free:
            w.note(Entry, table, name, value)
        if value is not MISSING:
            return value
    return w.unwatched(ask, o, name)  # which says that there is none


def _unsure(w: Any, o: Any, name: str) -> Any:
    w.fail(f"the attribute '{name}' of a '{type(o).__name__}' is found in its own way")
    return getattr(o, name)


def _module_attribute(w: Any, o: Any, name: str) -> Any:
    table = _module_table(o)
    ours = str(table.get("__name__")).partition(".")[0] in ("flambeau", "torch")
    if type(o) is not ModuleType and not ours:
        return _unsure(w, o, name)
    w.note(Kind, o, None, type(o))
    value = table.get(name, MISSING)
    if value is MISSING:
        ask = w.note(Entry, table, "__getattr__", table.get("__getattr__", MISSING))
        if not ours and ask is not MISSING:
            return _unsure(w, o, name)
        try:
            value = getattr(o, name) if ours else MISSING  # loaded when it is first asked for
            w.known[id(value)] = value
            return getattr(o, name) if value is MISSING else value
        finally:
            w.note(Entry, table, name, table.get(name, MISSING))
    w.note(Entry, table, name, value)
    return value


def _class_attribute(w: Any, o: Any, kind: type, name: str) -> Any:
    if issubclass(type(o), enum.EnumMeta) and name in o._member_map_:
        return w.note(Entry, o._member_map_, name, o._member_map_[name])
    if kind.__getattribute__ is not type.__getattribute__ or inherited(kind, "__getattr__") is not MISSING:
        return _unsure(w, o, name)
    above, found = inherited(kind, name), inherited(o, name)
    if kind is not type:
        for looked in (name, "__getattribute__", "__getattr__"):
            w.note(Inherited, kind, looked, inherited(kind, looked))
    w.note(Inherited, o, name, found)
    _as_descriptor(w, found)
    if above is not MISSING and hasattr(type(above), "__set__"):
        if name in ("__name__", "__qualname__", "__module__", "__mro__", "__doc__", "__bases__") and kind is type:
            return w.note(Slot, o, name, getattr(o, name))
        return _unsure(w, o, name)
    if found is MISSING:
        if above is MISSING:
            return getattr(o, name)
        return _bound(w, o, kind, name, above)
    sort = type(found)
    if sort is staticmethod:
        return found.__func__
    if sort is classmethod and type(found.__func__) is FunctionType:
        return MethodType(found.__func__, o)
    if sort in (FunctionType, property, MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType) or (
            not hasattr(sort, "__get__")):
        return getattr(o, name)
    return _unsure(w, o, name)


def _super_attribute(w: Any, o: Any, name: str) -> Any:
    start, owner = o.__self_class__, o.__self__
    w.note(Inherited, start, None, start.__mro__)
    bases = start.__mro__[start.__mro__.index(o.__thisclass__) + 1:]
    for base in bases:
        found = base.__dict__.get(name, MISSING)
        if found is not MISSING:
            w.note(Inherited, base, name, found)
            if issubclass(type(owner), type):
                return getattr(o, name) if type(found) in (classmethod, staticmethod) else _unsure(w, o, name)
            if type(found) is property and found.fget is not None:
                return w.call(found.fget)(owner)
            return _bound(w, owner, start, name, found) if type(found) is FunctionType else _unsure(w, o, name)
        w.note(Inherited, base, name, inherited(base, name))
    return getattr(o, name)


def _tensor_attribute(w: Any, o: Any, kind: type, name: str) -> Any:
    if type(o) is not Tensor and type(o) is not Parameter and not o._without_overrides:
        return _unsure(w, o, name)
    found = inherited(kind, name)
    w.note(Inherited, kind, name, found)
    if name in _METADATA:
        w.metadata(o)
        return getattr(o, name)
    if name == "grad":
        return w.gradient(o.grad)
    given = id(o) in w.arguments or id(o) in w.gradients  # another tensor may be in its place
    if name not in OWN and name in o.__dict__:
        if given:
            w.fail(f"the attribute '{name}' of an argument or a gradient is looked at")
        elif id(o) in w.known:
            w.note(Entry, o.__dict__, name, o.__dict__[name])
        return getattr(o, name)
    if id(o) in w.known and not given:  # which may be given one of its own
        w.note(Entry, o.__dict__, name, o.__dict__.get(name, MISSING))
    if type(found) is FunctionType:
        return MethodType(found, o)
    if found is MISSING and not given:  # there is no such attribute: of a tensor that the call made, for sure
        w.note(Inherited, kind, "__getattr__", inherited(kind, "__getattr__"))
        return getattr(o, name)
    w.fail(f"a tensor's '{name}' is looked at")
    return getattr(o, name)
