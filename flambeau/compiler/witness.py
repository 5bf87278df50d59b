"""The witness of a captured call: hears of every read and effect of Python state, and says whether that is all there is to know.

While a call is captured, the user's functions (and flambeau's own layers, optimizers' rules and utilities) run rewritten
(rewrite.py): each attribute, subscript, call, operator, loop, test and store comes to a method here, which does it, and
- notes the read (reads.py), where the place was there before the call;
- lets it pass, where only things are involved that the call itself made, or values that cannot change;
- or calls `fail`, where it cannot be proved that the next call would find or do the same. Then the rest of the call runs as it
  would without a witness, and the program is not one that can stand for a call whose Python does not run.

What may be called: the user's own Python (rewritten), flambeau's operations (which look at their arguments and at settings that are
part of a call's signature), and the builtins of builtins_known.py. As a net below all that, a profile function (native/watch.c) sees
every Python function that starts: one that is neither rewritten nor an operation of flambeau's is a way around the witness.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import gc
import operator
import os
import sys
import threading
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import ml_dtypes
import numpy as np

from .. import dtypes as _dtypes
from ..autograd.function import Function as AutogradFunction
from ..autograd.function import FunctionCtx
from ..autograd.node import user_frame
from ..device import device as _device
from ..native import toolchain
from ..nn import hooks as module_hooks
from ..nn.module import Module
from ..optim import optimizer as optimizers
from ..parameter import Parameter
from ..random import Generator
from ..tensor import Size, Tensor
from .reads import (
    MISSING,
    SCALARS,
    Content,
    Entry,
    Function,
    Inherited,
    Kind,
    Metadata,
    Reads,
    Slot,
    Variable,
    inherited,
    same,
)
from .rewrite import BUILTINS, REWRITTEN, Unsupported, global_names, rewritten
from .symbolic import SymFloat
from .trees import is_record

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_NUMPY = tuple(os.path.dirname(os.path.abspath(m.__file__)) + os.sep for m in (np, ml_dtypes))
# Parts of flambeau that read nothing but their arguments and the settings in a call's signature.
_OPERATIONS = ("ops", "autograd", "backends", "native", "amp", "compiler", f"nn{os.sep}functional", f"nn{os.sep}_reduction.py", "tensor.py", "creation.py",
               "random.py", "literals.py", "linalg.py", "fft.py", "special.py", "functional.py", "parameter.py", "dtypes.py",
               "device.py", "shapes.py", "formats.py", "tensor_methods.py", "tensor_leftovers.py", "legacy.py", "whole.py",
               "overrides.py", "return_types.py", "sparse.py", "_VF.py", "settings.py", "checks.py")
# Operations that change Python state, or give a value that their arguments do not decide.
_EFFECTS = frozenset(("register_hook", "register_post_accumulate_grad_hook", "retain_grad", "share_memory_", "set_", "resize_",
                      "resize_as_", "manual_seed", "seed", "use_deterministic_algorithms", "apply_", "map_", "swap_tensors",
                      "get_rng_state", "get_state", "__setstate__", "untyped_storage",
                      "storage", "data_ptr", "numpy", "__array__"))
# Operations that give a Python value, decided by the shapes and dtypes of their arguments.
_VALUES = frozenset(("size", "dim", "ndimension", "numel", "nelement", "stride", "is_floating_point", "is_complex", "is_signed",
                     "is_contiguous", "element_size", "get_device", "is_tensor", "is_grad_enabled", "get_default_dtype",
                     "broadcast_shapes", "result_type", "promote_types", "can_cast", "is_inference_mode_enabled", "is_nonzero_",
                     "is_inference", "__len__", "is_same_size", "backward", "zero_grad", "is_autocast_enabled",
                     "get_autocast_dtype", "get_autocast_cpu_dtype", "is_autocast_cpu_enabled", "is_set_to", "is_storage", "clip", "is_dense", "item", "tolist"))  # (the last two: of constants only)
_METADATA = frozenset(("shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "layout", "T", "mT", "H", "mH", "real",
                       "imag", "data", "itemsize", "nbytes", "is_sparse", "is_cuda", "is_cpu", "is_meta", "is_quantized", "is_nested",
                       "is_mkldnn", "names", "is_mps", "is_xla", "is_xpu"))
_MANAGERS = ("flambeau.autograd.grad_mode", "flambeau.autograd.modes", "flambeau.amp.autocast_mode")
_PLAIN = frozenset((*SCALARS, tuple, range, slice, Size, SymFloat, type(...), type(NotImplemented), _dtypes.dtype, _device,
                    frozenset))
_ATTRIBUTES = frozenset((*SCALARS, FunctionType, property, staticmethod, classmethod, MemberDescriptorType, GetSetDescriptorType,
                         MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType, tuple, list, dict, set, type))
_ORDINARY = (object, tuple, list, dict, set, int, float, str, BaseException, OrderedDict, types.SimpleNamespace,
             functools.partial, FunctionType, MethodType, BuiltinFunctionType)  # whose attributes are found the ordinary way
_CONTAINERS = frozenset((list, dict, set, OrderedDict, defaultdict))
_OPERATORS = {name: getattr(operator, name) for name in (
    "add sub mul truediv floordiv mod pow matmul lshift rshift or_ xor and_ neg pos invert lt le gt ge eq ne "
    "iadd isub imul itruediv ifloordiv imod ipow imatmul ilshift irshift ior ixor iand").split()}
TRUSTED: set[CodeType] = set()  # code without a source of which it is known what it does
_local = threading.local()


def present() -> Witness | None:
    """The witness of the capture that is going on in this thread, as long as it has not failed."""
    return getattr(_local, "witness", None)


def entered(f: Any) -> Any:
    """What flambeau calls in place of a function of the user's while a call is captured: it reports itself."""
    witness = present()
    return f if witness is None else witness.call(f)


@functools.cache
def where(file: str) -> str:
    """Whose code a file holds: "operation", "flambeau" (rewritten like the user's), "foreign" (Python's own, NumPy) or "user"."""
    if file.startswith(_OURS):
        return "operation" if file[len(_OURS):].startswith(_OPERATIONS) else "flambeau"
    if file.startswith(("<frozen", *_NUMPY)) or (file.startswith(_STDLIB) and "site-packages" not in file):
        return "foreign"
    return "user"


class Witness:
    """Collects the reads of one captured call; `reason` says why they cannot be all, or is None."""

    def __init__(self, function: Callable[..., Any], leaves: list[Any], args: Any, kwargs: Any):
        self.reads = Reads()
        self.reason: str | None = None
        self.born: dict[int, Any] = {}     # containers and objects that the call made
        self.given: dict[int, Any] = {}    # containers among the arguments, which the signature takes apart
        self.known: dict[int, Any] = {}    # objects that were there before
        self.arguments = {id(a) for a in leaves if issubclass(type(a), Tensor)}
        self.when_failed: list[Callable[[], None]] = []
        self.groups: set[int] = set()      # optimizers' groups, whose numbers each call reads anew
        self._take([list(args), kwargs])
        self.known.update({id(a): a for a in leaves if not issubclass(type(a), Tensor)})
        self.function = function

    def _take(self, value: Any) -> None:
        if id(value) in self.given:
            return
        if issubclass(type(value), (list, tuple)):
            parts = value
        elif issubclass(type(value), dict):
            parts = list(value.values())
        elif is_record(value):
            parts = list(value.__dict__.values())
            self.given[id(value.__dict__)] = value.__dict__
        else:
            return
        self.given[id(value)] = value
        for v in parts:
            self._take(v)

    def fail(self, reason: str) -> None:
        if self.reason is None:
            frame = user_frame()
            self.reason = reason + (f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame is not None else "")
        _local.witness = None
        for undo in self.when_failed:
            undo()

    def __enter__(self) -> Witness:
        self.before = present()
        _local.witness = self
        return self

    def __exit__(self, *exc: Any) -> None:
        _local.witness = self.before

    # ------------------------------------------------------------------------------------------------------ noting
    def made(self, value: Any) -> Any:
        self.born[id(value)] = value
        return value

    def own(self, value: Any) -> bool:
        """Whether an object is the call's own, or one that the signature takes apart."""
        return id(value) in self.born or id(value) in self.given

    def note(self, kind: Any, owner: Any, name: Any, value: Any) -> Any:
        self.reads.add(kind, owner, name, value)
        if type(value) not in _PLAIN:
            self.known[id(value)] = value
        return value

    def content(self, owner: Any) -> Any:
        """Notes all that a container holds."""
        if not self.own(owner):
            read = (Content, id(owner), (type(None), None))
            if read not in self.reads.by_place:
                found = Content(owner, None, None)
                found.value = found.now()
                self.reads.by_place[read] = found
                self.known.update({id(v): v for v in found.value if type(v) not in _PLAIN})
        return owner

    def metadata(self, tensor: Any) -> None:
        if id(tensor) in self.known and id(tensor) not in self.arguments:
            self.reads.once(Metadata, tensor)

    def function_read(self, function: FunctionType) -> None:
        """The function itself, its closure and the globals that its code names."""
        if function.__code__ in REWRITTEN:
            return
        self.reads.once(Function, function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.note(Variable, cell, name, cell.cell_contents)
            except ValueError:
                self.note(Variable, cell, name, MISSING)
        table = function.__globals__
        for name in global_names(function.__code__):
            value = table.get(name, MISSING)
            self.note(Entry, table, name, value)
            if value is MISSING:
                self.note(Entry, BUILTINS, name, BUILTINS.get(name, MISSING))
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.known[id(value)] = value

    # ---------------------------------------------------------------------------------------------------- operands
    def operand(self, value: Any, what: str = "an operation") -> bool:
        """Whether a value may go where only its content counts; notes that content."""
        kind = type(value)
        if kind in _PLAIN or kind is Tensor or kind is Parameter:
            if kind is tuple or kind is frozenset:
                return all([self.operand(v, what) for v in value])
            if kind is slice:
                return all([self.operand(v, what) for v in (value.start, value.stop, value.step)])
            return True
        if kind in _CONTAINERS:
            self.content(value)
            inside = list(value.values()) if issubclass(type(value), dict) else list(value)
            return all([self.operand(v, what) for v in inside])
        if issubclass(type(value), (np.generic, Tensor, BaseException)) or (issubclass(type(value), tuple) and hasattr(kind, "_fields")):
            return True
        if issubclass(type(value), enum.Enum) and kind.__eq__ is object.__eq__:
            return True
        if kind.__module__ in ("flambeau.formats", "flambeau.device") or issubclass(kind, (Generator, FunctionCtx)):
            return True
        if issubclass(type(value), type) and value.__module__ in ("builtins", "flambeau.dtypes"):
            return True
        if id(value) in self.born and hasattr(value, "__next__"):
            return True
        self.fail(f"an object of type '{kind.__name__}' is given to {what}")
        return False

    # -------------------------------------------------------------------------------------------------- attributes
    def attribute(self, o: Any, name: str) -> Any:
        kind = type(o)
        if kind in _PLAIN or kind in _CONTAINERS:
            return float if kind is SymFloat and name == "__class__" else getattr(o, name)
        if issubclass(type(o), Tensor):
            return self._tensor_attribute(o, kind, name)
        if issubclass(type(o), ModuleType):
            return self._module_attribute(o, name)
        if issubclass(type(o), type):
            return self._class_attribute(o, kind, name)
        if kind is super:
            return self._super_attribute(o, name)
        if issubclass(kind, FunctionCtx):  # made by the call
            return getattr(o, name)
        if kind.__name__ == "OptimizedModule" and kind.__module__ == __package__:
            table = o.__dict__["_modules"]
            return self.attribute(self.note(Entry, table, "_orig_mod", table["_orig_mod"]), name)
        return self._object_attribute(o, kind, name)

    def _object_attribute(self, o: Any, kind: type, name: str) -> Any:
        own = id(o) in self.born
        if getattr(kind.__getattribute__, "__objclass__", None) not in _ORDINARY:
            self.fail(f"'{kind.__name__}' looks up attributes in its own way")
            return getattr(o, name)
        found = inherited(kind, name)
        self.note(Inherited, kind, name, found)
        if not own:
            self.note(Kind, o, None, kind)
        if found is not MISSING and type(found) not in _ATTRIBUTES:
            for part in ("__get__", "__set__", "__delete__"):  # it may become a descriptor
                self.note(Inherited, type(found), part, inherited(type(found), part))
        if found is not MISSING and (hasattr(type(found), "__set__") or hasattr(type(found), "__delete__")):
            return self._descriptor(o, kind, name, found, own)
        table = getattr(o, "__dict__", None)
        if table is not None:
            free = own or id(table) in self.given
            if not free:
                self.note(Slot, o, "__dict__", table)
            value = table.get(name, MISSING)
            if not free:
                self.note(Entry, table, name, value)
            if value is not MISSING:
                if name == "param_groups" and issubclass(type(o), optimizers.Optimizer):
                    self.groups.update(map(id, value))
                return value
        if found is MISSING:
            return self._fallback(o, kind, name)
        return self._bound(o, kind, name, found)

    def _descriptor(self, o: Any, kind: type, name: str, found: Any, own: bool) -> Any:
        if issubclass(kind, tuple) and type(found) is property and type(found.fget) is operator.itemgetter:
            return getattr(o, name)
        if type(found) is property and found.fget is not None:
            return self.call(found.fget)(o)
        if type(found) is MemberDescriptorType:
            value = getattr(o, name, MISSING)
            if not own:
                self.note(Slot, o, name, value)
            return getattr(o, name) if value is MISSING else value
        if name == "__class__":
            return kind
        if type(found).__name__ == "_tuplegetter" and issubclass(kind, tuple):
            return getattr(o, name)
        if name in ("__dict__", "__name__", "__qualname__", "__doc__", "__module__") and (
                type(found) is GetSetDescriptorType or kind is FunctionType):
            value = getattr(o, name)
            if not own:
                self.note(Slot, o, name, value)
            elif name == "__dict__":
                self.made(value)
            return value
        self.fail(f"'{kind.__name__}.{name}' is a descriptor of its own kind")
        return getattr(o, name)

    def _bound(self, o: Any, kind: type, name: str, found: Any) -> Any:
        """A class's attribute as one of an instance."""
        sort = type(found)
        if sort is FunctionType:
            return MethodType(found, o)
        if sort is staticmethod:
            return found.__func__
        if sort is classmethod:
            return MethodType(found.__func__, kind)
        if sort in (MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType) or not hasattr(sort, "__get__"):
            return getattr(o, name)
        self.fail(f"'{kind.__name__}.{name}' is a descriptor of its own kind")
        return getattr(o, name)

    def _fallback(self, o: Any, kind: type, name: str) -> Any:
        """An attribute that neither the object nor its class has."""
        ask = inherited(kind, "__getattr__")
        self.note(Inherited, kind, "__getattr__", ask)
        if ask is MISSING:
            return getattr(o, name)
        if ask is not Module.__getattr__:
            return self.call(MethodType(ask, o))(name) if type(ask) is FunctionType else self._unsure(o, name)
        own, free = o.__dict__, id(o) in self.born
        for part in ("_parameters", "_buffers", "_modules"):
            table = own.get(part, MISSING)
            if not free:
                self.note(Entry, own, part, table)
            if type(table) not in (dict, OrderedDict):
                return self._unsure(o, name) if table is not MISSING else getattr(o, name)
            value = table.get(name, MISSING)
            if not free:
                self.note(Entry, table, name, value)
            if value is not MISSING:
                return value
        return getattr(o, name)

    def _unsure(self, o: Any, name: str) -> Any:
        self.fail(f"the attribute '{name}' of a '{type(o).__name__}' is found in its own way")
        return getattr(o, name)

    def _module_attribute(self, o: Any, name: str) -> Any:
        table = o.__dict__
        ours = str(table.get("__name__")).partition(".")[0] in ("flambeau", "torch")
        if type(o) is not ModuleType and not ours:
            return self._unsure(o, name)
        value = table.get(name, MISSING)
        if value is MISSING and ours:
            value = getattr(o, name)  # loaded when it is first asked for
            if name in table:
                self.note(Entry, table, name, value)
            self.known[id(value)] = value
            return value
        if value is MISSING and "__getattr__" in table:
            return self._unsure(o, name)
        self.note(Entry, table, name, value)
        return getattr(o, name) if value is MISSING else value

    def _class_attribute(self, o: Any, kind: type, name: str) -> Any:
        if issubclass(type(o), enum.EnumMeta) and name in o._member_map_:
            return self.note(Entry, o._member_map_, name, o._member_map_[name])
        if kind.__getattribute__ is not type.__getattribute__ or inherited(kind, "__getattr__") is not MISSING:
            return self._unsure(o, name)
        above, found = inherited(kind, name), inherited(o, name)
        if kind is not type:
            self.note(Inherited, kind, name, above)
        self.note(Inherited, o, name, found)
        if above is not MISSING and hasattr(type(above), "__set__"):
            if name in ("__name__", "__qualname__", "__module__", "__mro__", "__doc__", "__bases__") and kind is type:
                return self.note(Slot, o, name, getattr(o, name))
            return self._unsure(o, name)
        if found is MISSING:
            if above is MISSING:
                return getattr(o, name)
            return self._bound(o, kind, name, above)
        sort = type(found)
        if sort is staticmethod:
            return found.__func__
        if sort is classmethod:
            return MethodType(found.__func__, o)
        if sort in (FunctionType, property, MethodDescriptorType, WrapperDescriptorType, BuiltinFunctionType) or (
                not hasattr(sort, "__get__")):
            return getattr(o, name)
        return self._unsure(o, name)

    def _super_attribute(self, o: Any, name: str) -> Any:
        start, owner = o.__self_class__, o.__self__
        bases = start.__mro__[start.__mro__.index(o.__thisclass__) + 1:]
        for base in bases:
            found = base.__dict__.get(name, MISSING)
            if found is not MISSING:
                self.note(Inherited, base, name, found)
                if issubclass(type(owner), type):
                    return getattr(o, name) if type(found) in (classmethod, staticmethod) else self._unsure(o, name)
                if type(found) is property and found.fget is not None:
                    return self.call(found.fget)(owner)
                return self._bound(owner, start, name, found) if type(found) is FunctionType else self._unsure(o, name)
            self.note(Inherited, base, name, inherited(base, name))
        return getattr(o, name)

    def _tensor_attribute(self, o: Any, kind: type, name: str) -> Any:
        if type(o) is not Tensor and type(o) is not Parameter and not o._plain:
            return self._unsure(o, name)
        found = inherited(kind, name)
        self.note(Inherited, kind, name, found)
        if name in _METADATA:
            self.metadata(o)
            return getattr(o, name)
        if name == "grad":
            return o.grad
        if not name.startswith("_") and name in o.__dict__:
            if id(o) in self.arguments:
                self.fail(f"the attribute '{name}' of an argument is looked at")
            elif id(o) in self.known:
                self.note(Entry, o.__dict__, name, o.__dict__[name])
            return getattr(o, name)
        if type(found) is FunctionType:
            return MethodType(found, o)
        if found is MISSING and id(o) in self.known and id(o) not in self.arguments:
            self.note(Entry, o.__dict__, name, MISSING)
            return getattr(o, name)
        self.fail(f"a tensor's '{name}' is looked at")
        return getattr(o, name)

    # ------------------------------------------------------------------------------------------------------- items
    def item(self, o: Any, key: Any) -> Any:
        kind = type(o)
        if issubclass(type(o), Tensor):
            self.operand(key, "a tensor's index")
            return o[key]
        if kind is list:
            self.content(o)
            return self.made(o[key]) if type(key) is slice else o[key]
        if kind in (dict, OrderedDict, defaultdict):
            return self._entry(o, kind, key)
        if kind in _PLAIN or (issubclass(type(o), tuple) and kind.__getitem__ is tuple.__getitem__):
            return o[key]
        ask = inherited(kind, "__getitem__")
        if type(ask) is FunctionType:
            return self.call(self._method(o, kind, "__getitem__", ask))(key)
        self.fail(f"an item of a '{kind.__name__}' is read")
        return o[key]

    def _entry(self, o: Any, kind: type, key: Any) -> Any:
        value = dict.get(o, key, MISSING)
        if type(value) is SymFloat:  # an optimizer's number, which each call reads anew
            return value
        if not self.own(o):
            if id(o) in self.groups and type(value) is float:
                from .capture import active
                recorder = active()
                if recorder is not None:
                    return recorder.number(o, key, None, value)
            self.note(Entry, o, key, value)
        if value is MISSING and kind is defaultdict and not self.own(o):
            self.fail("a defaultdict makes an entry")
        return o[key]

    def _method(self, o: Any, kind: type, name: str, found: Any) -> MethodType:
        self.note(Inherited, kind, name, found)
        if id(o) not in self.born:
            self.note(Kind, o, None, kind)
        return MethodType(found, o)

    # --------------------------------------------------------------------------------------------------- operators
    def binary(self, name: str, a: Any, b: Any) -> Any:
        self._operands(a, b, f"'{name.strip('_')}'")
        made = _OPERATORS[name](a, b)
        return self.made(made) if type(made) in _CONTAINERS else made

    def _operands(self, a: Any, b: Any, what: str) -> None:
        self.operand(a, what)
        self.operand(b, what)

    def unary(self, name: str, a: Any) -> Any:
        self.operand(a, f"'{name}'")
        return _OPERATORS[name](a)

    def augmented(self, name: str, a: Any, b: Any) -> Any:
        if type(a) in _CONTAINERS and id(a) not in self.born:
            self.fail(f"a {type(a).__name__} is changed")
        self._operands(a, b, f"'{name[1:]}='")
        return _OPERATORS[name](a, b)

    def compare(self, name: str, a: Any, b: Any) -> Any:
        if name in ("is", "is not"):
            self._identity(a, b)
            return (a is b) is (name == "is")
        if name in ("in", "not in"):
            return self._contains(b, a) is (name == "in")
        self.compared(a)
        self.compared(b)
        return _OPERATORS[name](a, b)

    def compared(self, a: Any) -> Any:
        kind = type(a)
        if issubclass(type(a), (type, FunctionType, ModuleType, Module)) and kind.__eq__ in (object.__eq__, type.__eq__):
            return a
        if kind.__eq__ is object.__eq__ and not issubclass(type(a), Tensor):
            return a
        self.operand(a, "a comparison")
        return a

    def _identity(self, a: Any, b: Any) -> None:
        if a is None or b is None or type(a) is bool or type(b) is bool:
            return
        if issubclass(type(a), Tensor) or issubclass(type(b), Tensor):
            if (id(a) in self.arguments) is not (id(b) in self.arguments):
                self.fail("the identity of an argument is looked at")
        elif type(a) in SCALARS or type(b) in SCALARS or type(a) is tuple or type(b) is tuple:
            self.fail("the identity of a plain value is looked at")

    def _contains(self, container: Any, value: Any) -> bool:
        kind = type(container)
        if kind in _CONTAINERS or kind in _PLAIN or issubclass(type(container), tuple):
            if issubclass(type(container), dict):
                if not self.own(container):
                    self.note(Entry, container, value, dict.get(container, value, MISSING))
            elif kind in _CONTAINERS:
                self.content(container)
                for v in container:
                    self.compared(v)
            return value in container
        if id(container) in self.born and kind.__module__ == "builtins":
            return value in container
        ask = inherited(kind, "__contains__")
        if type(ask) is FunctionType:
            return bool(self.call(self._method(container, kind, "__contains__", ask))(value))
        self.fail(f"a '{kind.__name__}' is searched")
        return value in container

    def test(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN or issubclass(type(value), (Tensor, np.generic)) or issubclass(type(value), tuple):
            return value
        if kind in _CONTAINERS:
            return self.content(value)
        for name in ("__bool__", "__len__"):
            found = inherited(kind, name)
            self.note(Inherited, kind, name, found)
            if found is not MISSING and kind not in (FunctionType, type):
                self.fail(f"the truth of a '{kind.__name__}' is asked")
                break
        else:
            if id(value) not in self.born:
                self.note(Kind, value, None, kind)
        return value

    def shown(self, value: Any) -> Any:
        if type(value) not in SCALARS:
            self.operand(value, "a text")
            if type(value) in _CONTAINERS or not issubclass(type(value), (Tensor, tuple, _dtypes.dtype, _device)):
                self.fail(f"a '{type(value).__name__}' is shown")
        return value

    # ------------------------------------------------------------------------------------------------------- loops
    def iterable(self, value: Any) -> Any:
        kind = type(value)
        if kind in _CONTAINERS:
            return self.content(value)
        if kind in _PLAIN or issubclass(type(value), Tensor) or (issubclass(type(value), tuple) and kind.__iter__ is tuple.__iter__):
            return value
        if id(value) in self.born and kind.__module__ in ("builtins", "itertools", "collections"):
            return value
        ask = inherited(kind, "__iter__")
        if type(ask) is FunctionType:
            return self.made(self.call(self._method(value, kind, "__iter__", ask))())
        self.fail(f"a '{kind.__name__}' is gone through")
        return value

    def iterables(self, value: Any) -> Any:
        """An iterable whose items are taken apart."""
        return map(iterable, self.iterable(value))

    def manager(self, value: Any) -> Any:
        if type(value).__module__ not in _MANAGERS:
            self.fail(f"'with' a '{type(value).__name__}'")
        return value

    def whole(self, value: Any) -> Any:
        if type(value) in (dict, OrderedDict):
            return self.content(value)
        self.fail(f"the keywords come from a '{type(value).__name__}'")
        return value

    # ------------------------------------------------------------------------------------------------------ stores
    def store_attribute(self, value: Any, o: Any, name: str) -> None:
        kind = type(o)
        if issubclass(type(o), Tensor) and name in ("grad", "requires_grad"):
            if name == "requires_grad" and (id(o) in self.known or id(o) in self.arguments):
                self.fail("a tensor's 'requires_grad' is set")
        elif issubclass(kind, FunctionCtx) or self._sets_the_same(o, kind, name, value):
            pass
        elif id(o) not in self.born or issubclass(type(o), (Module, type)) or kind.__setattr__ is not object.__setattr__ or (
                inherited(kind, name) is not MISSING and hasattr(type(inherited(kind, name)), "__set__")):
            self.fail(f"the attribute '{name}' of a '{o.__name__ if issubclass(type(o), type) else kind.__name__}' is set")
        setattr(o, name, value)

    def _sets_the_same(self, o: Any, kind: type, name: str, value: Any) -> bool:
        """Whether an attribute is set to what it is already: nothing changes then, as long as it still is."""
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
            self._operands(key, value, "a tensor's index")
        elif type(o) is dict and id(o) not in self.born and same(o.get(key, MISSING), value):
            self.note(Entry, o, key, o[key])  # set to what it is already
        elif id(o) not in self.born or type(o) not in _CONTAINERS:
            self.fail(f"an item of a '{type(o).__name__}' is set")
        o[key] = value

    def delete_attribute(self, o: Any, name: str) -> None:
        if issubclass(type(o), Tensor) and name == "grad":
            o.grad = None
            return
        if id(o) not in self.born:
            self.fail(f"the attribute '{name}' of a '{type(o).__name__}' is deleted")
        delattr(o, name)

    def delete_item(self, o: Any, key: Any) -> None:
        if id(o) not in self.born or type(o) not in _CONTAINERS:
            self.fail(f"an item of a '{type(o).__name__}' is deleted")
        del o[key]

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, f: Any) -> Any:
        """What to call in place of f."""
        kind = type(f)
        if kind is FunctionType:
            return self._function(f)
        if kind is MethodType:
            return self._bound_method(f)
        if kind is BuiltinFunctionType or kind is MethodDescriptorType:
            from .builtins_known import builtin
            return builtin(self, f)
        if issubclass(type(f), type):
            from .builtins_known import construct
            return construct(self, f)
        if kind is functools.partial:
            for name in ("func", "args", "keywords"):
                self.note(Slot, f, name, getattr(f, name)) if id(f) not in self.born else None
            self.content(f.keywords)
            inner = self.call(f.func)
            return functools.partial(inner, *f.args, **f.keywords)
        if issubclass(type(f), Module):
            return self._module(f, kind)
        ask = inherited(kind, "__call__")
        if type(ask) is FunctionType:
            return self.call(self._method(f, kind, "__call__", ask))
        self.fail(f"a '{kind.__name__}' is called")
        return f

    def _function(self, f: FunctionType) -> Any:
        code = f.__code__
        if code in REWRITTEN:
            return self._generating(f, f)
        compiled = f.__dict__.get("_compiled")
        if compiled is not None:
            self.note(Entry, f.__dict__, "_compiled", compiled)
            return self.call(compiled.function)
        home = where(code.co_filename)
        if home == "operation":
            return self._operation(f)
        if home == "foreign":
            if f.__name__ == "cast" and f.__module__ == "typing":
                return f
            self.fail(f"'{f.__module__}.{f.__name__}' is called")
            return f
        if f.__dict__.get("_flambeau_disabled"):
            self.fail(f"'{f.__name__}' is marked by compiler.disable")
            return f
        try:
            new = rewritten(f, HELPERS)
        except Unsupported as error:
            self.fail(f"'{f.__name__}' cannot be followed: {error}")
            return f
        self.function_read(f)
        return self._generating(f, new)

    def _generating(self, f: FunctionType, new: FunctionType) -> Any:
        if not f.__code__.co_flags & 0x20:  # no generator function
            return new
        return lambda *args, **kwargs: self.made(new(*args, **kwargs))

    def _bound_method(self, f: MethodType) -> Any:
        inner, owner = f.__func__, f.__self__
        if issubclass(type(owner), optimizers.Optimizer) and type(inner) is FunctionType and (
                inner.__name__ in ("step", "zero_grad") or getattr(inner, "hooked", False)) and (
                where(inner.__code__.co_filename) == "flambeau"):
            self._optimizer(owner)
            return f
        if inner is AutogradFunction.apply.__func__:
            for name in ("forward", "backward", "setup_context", "vjp", "jvp", "apply"):
                self.note(Inherited, owner, name, inherited(owner, name))
            return lambda *args, **kwargs: self._result("apply", f(*[a for a in args if self.operand(a) or True], **kwargs))
        new = self.call(inner)
        if type(new) is FunctionType and new is not inner:
            return MethodType(new, owner)
        return f if new is inner else functools.partial(new, owner)

    def _operation(self, f: FunctionType) -> Any:
        """A function of flambeau's: it looks at its arguments only."""
        name, inner = f.__name__, f.__dict__.get("__wrapped__")
        if inner is not None and where(getattr(getattr(inner, "__code__", None), "co_filename", "")) != "operation":
            return self._decorated(f, inner)
        if name in _EFFECTS or name.startswith("set_"):
            self.fail(f"'{name}' is called")
            return f

        def operation(*args: Any, **kwargs: Any) -> Any:
            for a in (*args, *kwargs.values()):
                if type(a) is not Tensor and type(a) is not Parameter:
                    self.operand(a, f"'{name}'")
                elif name in _VALUES:
                    self.metadata(a)
            return self._result(name, f(*args, **kwargs))
        return operation

    def _decorated(self, f: FunctionType, inner: Any) -> Any:
        """A function of somebody else's inside one of flambeau's decorators, such as @no_grad(): a copy of the decorator's
        function calls the rewritten one."""
        cells = {n: c for n, c in zip(f.__code__.co_freevars, f.__closure__ or ())}
        place = next((n for n, c in cells.items() if c.cell_contents is inner), None)
        if place is None:
            self.fail(f"'{f.__name__}' is decorated")
            return f
        self.note(Entry, f.__dict__, "__wrapped__", inner)
        cells[place] = CellType(self.call(inner))
        made = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, tuple(cells.values()))
        made.__kwdefaults__ = f.__kwdefaults__
        return made

    def _result(self, name: str, made: Any) -> Any:
        if issubclass(type(made), Tensor) or made is None:
            return made
        if type(made) is list:
            self.made(made)
        parts = made if issubclass(type(made), (list, tuple)) and type(made) is not Size else (made,)
        if name not in _VALUES and any([not isinstance(p, (Tensor, list, tuple, type(None))) for p in parts]) and (
                made is not NotImplemented):
            self.fail(f"'{name}' gives a Python value")
        return made

    def _module(self, f: Any, kind: type) -> Any:
        """A call of a module without hooks is a call of its forward."""
        ask = inherited(kind, "__call__")
        compiled = f.__dict__.get("_compiled")
        if ask is not Module.__call__ and compiled is not None and "_orig_mod" in f.__dict__.get("_modules", ()):
            return self.call(self.note(Entry, f.__dict__["_modules"], "_orig_mod", f.__dict__["_modules"]["_orig_mod"]))
        self.note(Inherited, kind, "__call__", ask)
        self.note(Kind, f, None, kind)
        if ask is not Module.__call__:
            return self.call(MethodType(ask, f)) if type(ask) is FunctionType else f
        own = f.__dict__
        if id(f) not in self.born:
            self.note(Slot, f, "__dict__", own)
        tables = [module_hooks.calls]
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            table = own.get(name, MISSING)
            if table is MISSING:
                return f
            self.note(Entry, own, name, table)
            tables.append(table)
        self.note(Entry, own, "_compiled_call_impl", own.get("_compiled_call_impl", MISSING))
        for table in tables:
            self.content(table)
        if any(tables) or "_compiled_call_impl" in own:
            self.fail(f"a '{kind.__name__}' has hooks")
            return f
        return self.call(self.attribute(f, "forward"))

    def _optimizer(self, o: Any) -> None:
        """What an optimizer's own methods read: its groups, their parameters and hooks (the rest: optimizers.py)."""
        own = o.__dict__
        self.note(Kind, o, None, type(o))
        groups = self.note(Entry, own, "param_groups", own["param_groups"])
        self.content(groups)
        for group in groups:
            self.content(self.note(Entry, group, "params", group["params"]))
        for table in (optimizers._global_pre_hooks, optimizers._global_post_hooks, own["_optimizer_step_pre_hooks"],
                      own["_optimizer_step_post_hooks"]):
            self.content(table)
            if table:
                self.fail("an optimizer has hooks")

    # ----------------------------------------------------------------------------------------------------- results
    def foreign_result(self, value: Any) -> str | None:
        """Why a part of the result that is no tensor cannot be given again by later calls."""
        if type(value) in _PLAIN or issubclass(type(value), (np.generic, type)):
            return None if type(value) is not tuple else next(filter(None, map(self.foreign_result, value)), None)
        if id(value) in self.known and id(value) not in self.born and id(value) not in self.given:
            return None
        return f"it returns a '{type(value).__name__}' that it made"

    # --------------------------------------------------------------------------------------------------- the net
    def __call__(self, frame: FrameType) -> bool:
        """A Python function starts. Whether others of the same code need not be shown."""
        code = frame.f_code
        if code in REWRITTEN or code in TRUSTED or str(frame.f_globals.get("__name__")).startswith("namedtuple_"):
            return True
        file = code.co_filename
        home = where(file)
        if home == "operation" or self.reason is not None or any(getattr(c, "__code__", None) is code for c in gc.callbacks):
            return True  # (the collector may run at any time: what it calls is not part of the function)
        if home == "flambeau" and (file.startswith(_TOLD) or file.endswith("__init__.py")):
            return True
        if home == "foreign" or self._of_operations(frame):
            return not self._allowed(frame)
        self._around(code)
        return True

    def _of_operations(self, frame: FrameType) -> bool:
        """Whether a module is being loaded."""
        back = frame.f_back
        while back is not None and back.f_code not in REWRITTEN:
            if back.f_code.co_filename.startswith("<frozen importlib"):
                return True
            back = back.f_back
        return False

    def _allowed(self, frame: FrameType) -> bool:
        """What operations use of Python's own library is their business; so is loading a module of flambeau's."""
        caller = frame.f_back
        while caller is not None and caller.f_code not in REWRITTEN:
            home = where(caller.f_code.co_filename)
            if home == "operation" or caller.f_code.co_filename.startswith(_TOLD):
                return True
            caller = caller.f_back
        if caller is not None and where(caller.f_code.co_filename) == "flambeau" and (
                frame.f_code.co_filename.startswith("<frozen importlib") or self._of_operations(frame)):
            return True
        self._around(frame.f_code)
        return False

    def _around(self, code: CodeType) -> None:
        _local.witness = self if present() is self else present()
        self.fail(f"'{code.co_qualname}' runs, called from outside of what can be followed")

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function for `sys.setprofile`."""
        if event == "call":
            self(frame)


# Files of flambeau's that run as they are: their state is noted by `_optimizer`, optimizers.py and `_module`.
_TOLD = tuple(_OURS + f for f in (f"optim{os.sep}", f"nn{os.sep}module.py", f"nn{os.sep}hooks.py", f"nn{os.sep}functional",
                                  "storage.py", "interop.py", "printing.py", "__init__.py", "missing.py", "compat.py"))


def _helper(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The function that rewritten code calls: the witness's method, or what Python would do where there is none."""
    method = getattr(Witness, name)

    def helper(*args: Any) -> Any:
        witness = getattr(_local, "witness", None)
        return plain(*args) if witness is None else method(witness, *args)

    helper.__name__ = name
    return helper


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": operator.is_, "is not": operator.is_not, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b}
_ITSELF = lambda value: value
_PYTHON: dict[str, Callable[..., Any]] = {
    "attribute": getattr, "item": operator.getitem, "binary": lambda n, a, b: _OPERATORS[n](a, b),
    "unary": lambda n, a: _OPERATORS[n](a), "augmented": lambda n, a, b: _OPERATORS[n](a, b),
    "compare": lambda n, a, b: (_COMPARISONS.get(n) or _OPERATORS[n])(a, b),
    "store_attribute": lambda v, o, n: setattr(o, n, v), "store_item": lambda v, o, k: operator.setitem(o, k, v),
    "delete_attribute": delattr, "delete_item": operator.delitem}
HELPERS: dict[str, Callable[..., Any]] = {f"_fl_{n}": _helper(n, _PYTHON.get(n, _ITSELF)) for n in (
    *_PYTHON, "call", "iterable", "iterables", "test", "compared", "made", "manager", "whole", "shown")}
HELPERS["_fl_slice"] = slice
iterable = HELPERS["_fl_iterable"]


class watching:
    """A `with` block in which a witness sees the calls of this thread."""

    def __init__(self, witness: Witness):
        self.witness = witness

    def __enter__(self) -> None:
        self.native = _native()
        if self.native is None:
            sys.setprofile(self.witness.profile)
        else:
            ctypes.pythonapi.PyEval_SetProfile(self.native.fl_watch, ctypes.py_object(self.witness))

    def __exit__(self, *exc: Any) -> None:
        sys.setprofile(None)
        if self.native is not None:
            self.native.fl_watch_end()


@functools.cache
def _native() -> Any:
    """The library of native/watch.c, or None: then Python sorts out the calls."""
    try:
        made = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "watch.c").read_text(), "watch")))
        found = toolchain.interpreter("PyFrame_GetCode", "Py_DecRef", "PyObject_CallFunctionObjArgs", "PyObject_IsTrue")
    except (toolchain.BuildError, OSError, AttributeError):
        return None
    made.fl_watch_attach((ctypes.c_void_p * len(found))(*found))
    return made
