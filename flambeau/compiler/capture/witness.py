"""The witness of a captured call: hears of every read and effect of Python state, and says whether that is all there is.

While a call is captured, the user's functions (and flambeau's own layers, optimizers' rules and utilities) run rewritten
(rewrite.py): each attribute, subscript, call, operator, loop, test and store comes to a method here, which does it, and
- notes the read (reads.py), where the place was there before the call;
- lets it pass, where only things are involved that the call itself made, or values that cannot change;
- or calls `fail`, where it cannot be proved that the next call would find or do the same. Then the rest of the call runs as
  it would without a witness, and the program is not one that can stand for a call whose Python does not run.

What may be called: the user's own Python (rewritten), flambeau's operations (which look at their arguments and at settings
that are part of a call's signature), and the builtins of builtins_known.py. Below all that is a net (watch.py).
"""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ...autograd.frames import user_frame
from ...autograd.function import FunctionCtx
from ...autograd.state import state
from ...creation.random import Generator
from ...tensors import dtypes as _dtypes
from ...tensors.device import device as _device
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor
from .attributes import attribute
from .calling import callee
from .helpers import _OPERATORS, _local, called_plainly, handled, helpers_of, is_same
from .reads import (
    CONTAINERS,
    MISSING,
    PLAIN,
    SCALARS,
    Behaviour,
    Content,
    Entry,
    Function,
    Inherited,
    Kind,
    Metadata,
    Reads,
    Variable,
    by_value,
    changeable,
    inherited,
)
from .rewrite import BUILTINS, REWRITTEN, global_names
from .stores import Stores
from .symbolic import SymFloat, settled
from .traced import active
from .tracing import Refused
from .trees import is_record
from .watch import Net, present

_MANAGERS = ("flambeau.autograd.grad_mode", "flambeau.autograd.modes", "flambeau.amp.autocast_mode")
_MANAGED = {"wanted", "outer", "mode", "device", "fast_dtype", "_enabled", "_cache_enabled"}  # what those go by
_LONG = 2000  # bits of a number that Python may refuse to show (sys.set_int_max_str_digits)


class Witness(Net, Stores):
    """Collects the reads of one captured call; `reason` says why they cannot be all, or is None."""

    helpers: dict[str, Callable[..., Any]]

    def __init__(self, function: Callable[..., Any], leaves: list[Any], args: Any, kwargs: Any):
        self.reads = Reads()
        self.reason: str | None = None
        self.born: dict[int, Any] = {}     # containers and objects that the call made
        self.given: dict[int, Any] = {}    # containers among the arguments, which the signature takes apart
        self.known: dict[int, Any] = {}    # objects that were there before
        self.arguments = {id(a) for a in leaves if issubclass(type(a), Tensor)}
        self.when_failed: list[Callable[[], None]] = []
        self.paused = False                # nothing of the user's runs
        self.trials = 0                    # whether what runs is only tried (control.py)
        self.groups: set[int] = set()      # optimizers' groups, whose numbers each call reads anew
        self.gradients: dict[int, Any] = {}  # gradients that were looked at: the next call may find others in their place
        self.tuples: dict[int, Any] = {}   # those that were there before
        self.around: set[int] = set()      # containers that are being looked through
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
        if self.trials:
            raise Refused(reason)
        if self.reason is None:
            frame = user_frame()
            self.reason = reason + (f" ({frame.f_code.co_filename}, line {frame.f_lineno})" if frame is not None else "")
        state.witness, recorder = None, active()
        _local.numbers = recorder is not None and bool(recorder.numbers)
        for undo in self.when_failed:
            undo()

    def __enter__(self) -> Witness:
        self.before = present()
        state.witness = self
        return self

    def __exit__(self, *exc: Any) -> None:
        state.witness, _local.numbers = self.before, False

    # ------------------------------------------------------------------------------------------------------ noting
    def made(self, value: Any) -> Any:
        self.born[id(value)] = value
        if issubclass(type(value), (dict, set, frozenset)):
            for key in value:
                self.identity(key)
        return value

    def gradient(self, grad: Any) -> Any:
        if grad is not None:
            self.gradients[id(grad)] = grad
        return grad

    def own(self, value: Any) -> bool:
        """Whether an object is the call's own, or one that the signature takes apart."""
        return id(value) in self.born or id(value) in self.given

    def note(self, kind: Any, owner: Any, name: Any, value: Any) -> Any:
        self.reads.add(kind, owner, name, value)
        if id(value) in self.given:
            self.fail("an argument is reached by another way, too")
        if id(name) in self.given:
            self.fail("an argument is a key")
        if issubclass(type(value), tuple):
            self.tuples[id(value)] = value
        if type(value) not in PLAIN:
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
                self.known.update({id(v): v for v in found.value if type(v) not in PLAIN})
        return owner

    def behaviour(self, kind: type) -> None:
        """What a class of the user's may be given later: that changes what operators and builtins do with its objects."""
        if changeable(kind):
            self.reads.once(Behaviour, kind)

    def plain_object(self, value: Any) -> None:
        """An object is compared or hashed, and its class leaves that to Python: as long as it does, it counts as itself."""
        kind = type(value)
        if any([type(inherited(kind, name)) is FunctionType for name in ("__eq__", "__hash__")]):
            self.fail(f"a '{kind.__name__}' is compared or hashed in its own way")
            return
        self.behaviour(kind)
        if id(value) not in self.born and (changeable(kind) or issubclass(kind, ModuleType)):
            self.note(Kind, value, None, kind)

    def by_numpy(self, a: Any, b: Any = None) -> None:
        """NumPy's scalars warn or raise as its settings say."""
        if issubclass(type(a), np.generic) or (issubclass(type(b), np.generic) and not issubclass(type(a), Tensor)):
            self.fail("NumPy computes")

    def identity(self, value: Any) -> None:
        """A value is searched for, hashed, or compared as a part of something: Python asks first whether it is the same object.
        Of arguments and gradients, and of what is not a number, another one may be there at the next call."""
        if self.reason is not None:
            return
        kind = type(value)
        if issubclass(kind, Tensor):
            if id(value) in self.arguments or id(value) in self.gradients:
                self.fail("the identity of an argument or a gradient is looked at")
        elif issubclass(kind, (tuple, frozenset)) or kind in CONTAINERS:
            for v in value.values() if issubclass(kind, dict) else value:
                self.identity(v)
        elif issubclass(kind, (float, complex, np.generic)):
            if value != value:
                self.fail("the identity of a value that is not a number is looked at")
        elif kind not in PLAIN:
            self.plain_object(value)

    def metadata(self, tensor: Any) -> None:
        if id(tensor) in self.known and id(tensor) not in self.arguments:
            self.reads.once(Metadata, tensor)

    def function_read(self, function: FunctionType) -> None:
        """The function itself, its closure and the globals that its code names."""
        if function.__code__ in REWRITTEN:
            return
        names = self.unwatched(global_names, function.__code__)
        self.reads.once(Function, function)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            try:
                self.note(Variable, cell, name, cell.cell_contents)
            except ValueError:
                self.note(Variable, cell, name, MISSING)
        table = function.__globals__
        for name in names:
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
        if kind in PLAIN or kind is Tensor or kind is Parameter:
            if kind is tuple or kind is frozenset:
                return all([self.operand(v, what) for v in value])
            if kind is slice:
                return all([self.operand(v, what) for v in (value.start, value.stop, value.step)])
            return True
        if kind in CONTAINERS:
            self.content(value)
            inside = list(value.values()) if issubclass(type(value), dict) else list(value)
            if id(value) in self.around:
                self.fail("a list or dict holds itself")
                return False
            self.around.add(id(value))
            try:
                return all([self.operand(v, what) for v in inside])
            finally:
                self.around.discard(id(value))
        if issubclass(kind, (np.generic, Tensor)):
            return True
        if issubclass(kind, BaseException) and id(value) in self.born:
            self.behaviour(kind)
            return all([self.operand(v, what) for v in value.args])
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            self.behaviour(kind)
            return all([self.operand(v, what) for v in value])
        if issubclass(type(value), enum.Enum) and kind.__eq__ is object.__eq__:
            return True
        if kind.__module__ in ("flambeau.tensors.formats", "flambeau.device") or issubclass(kind, (Generator, FunctionCtx)):
            return True
        if issubclass(type(value), type) and value.__module__ in ("builtins", "flambeau.tensors.dtypes"):
            return True
        if id(value) in self.born and inherited(kind, "__next__") is not MISSING:
            return True
        self.fail(f"an object of type '{kind.__name__}' is given to {what}")
        return False

    # -------------------------------------------------------------------------------------------------- attributes
    def attribute(self, o: Any, name: str) -> Any:
        return attribute(self, o, name)

    # ------------------------------------------------------------------------------------------------------- items
    def item(self, o: Any, key: Any) -> Any:
        kind = type(o)
        if issubclass(type(o), Tensor):
            self._method_of(o, "__getitem__")
            self.operand(key, "a tensor's index")
            return o[key]
        if kind is list:
            self.content(o)
            return self.made(o[key]) if type(key) is slice else o[key]
        if kind in (dict, OrderedDict, defaultdict):
            return self._entry(o, kind, key)
        if kind in PLAIN or (issubclass(type(o), tuple) and kind.__getitem__ is tuple.__getitem__):
            if kind not in PLAIN:
                self.behaviour(kind)
            return o[key]
        ask = inherited(kind, "__getitem__")
        if type(ask) is FunctionType:
            return self.call(self._method(o, kind, "__getitem__", ask))(key)
        self.fail(f"an item of a '{kind.__name__}' is read")
        return o[key]

    def _entry(self, o: Any, kind: type, key: Any) -> Any:
        self.identity(key)
        if self.reason is not None:  # (the key's class may count how often it is asked)
            return o[key]
        value = dict.get(o, key, MISSING)
        if type(value) is SymFloat:  # an optimizer's number, which each call reads anew
            return value
        if not self.own(o):
            if id(o) in self.groups and type(value) is float:
                from .traced import active
                recorder = active()
                if recorder is not None:
                    number = recorder.number(o, key, None, value)
                    recorder.asked.add(number.expression[1])
                    return number
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
        self.by_numpy(a, b)
        if name == "mod" and type(a) in (str, bytes):
            self.shown(b)
        if type(a) in (str, bytes, complex):
            b = settled(b)
        self._method_of(a, f"__{name.strip('_')}__")
        self._method_of(b, f"__r{name.strip('_')}__")
        made = _OPERATORS[name](a, b)
        return self.made(made) if type(made) in CONTAINERS else made

    def _method_of(self, value: Any, *names: str) -> None:
        """Somebody may put another method in the place of a tensor's own."""
        if issubclass(type(value), Tensor):
            for name in names:
                self.note(Inherited, type(value), name, inherited(type(value), name))

    def _operands(self, a: Any, b: Any, what: str) -> None:
        self.operand(a, what)
        self.operand(b, what)

    def unary(self, name: str, a: Any) -> Any:
        self.operand(a, f"'{name}'")
        self.by_numpy(a)
        self._method_of(a, f"__{name}__")
        return _OPERATORS[name](a)

    def augmented(self, name: str, a: Any, b: Any) -> Any:
        if type(a) in CONTAINERS and id(a) not in self.born:
            self.fail(f"a {type(a).__name__} is changed")
        self._operands(a, b, f"'{name[1:]}='")
        self.by_numpy(a, b)
        self._method_of(a, f"__{name}__", f"__{name[1:]}__")
        self._method_of(b, f"__r{name[1:]}__")
        return _OPERATORS[name](a, b)

    def compare(self, name: str, a: Any, b: Any) -> Any:
        if name in ("is", "is not"):
            self._identity(a, b)
            return is_same(a, b) is (name == "is")
        if name in ("in", "not in"):
            return self._contains(b, a) is (name == "in")
        self.compared(a)
        self.compared(b)
        self.by_numpy(a, b)
        return _OPERATORS[name](a, settled(b) if type(a) is complex else b)

    def compared(self, a: Any) -> Any:
        kind = type(a)
        if inherited(kind, "__eq__") in (object.__eq__, type.__eq__):
            if id(a) in self.given:
                self.fail("the identity of an argument is looked at")
            self.plain_object(a)
            return a
        self._method_of(a, "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
        self.operand(a, "a comparison")
        if issubclass(kind, (tuple, frozenset)) or kind in CONTAINERS:
            self.identity(a)
        return a

    def _identity(self, a: Any, b: Any) -> None:
        if a is None or b is None or type(a) is bool or type(b) is bool:
            return
        if id(a) in self.given or id(b) in self.given:
            self.fail("the identity of an argument is looked at")
        if issubclass(type(a), Tensor) or issubclass(type(b), Tensor):
            if (id(a) in self.arguments) is not (id(b) in self.arguments):
                self.fail("the identity of an argument is looked at")
            if id(a) in self.gradients or id(b) in self.gradients:
                self.fail("the identity of a gradient is looked at")
        elif by_value(type(a)) or by_value(type(b)):
            self.fail("the identity of a plain value is looked at")

    def _contains(self, container: Any, value: Any) -> bool:
        kind = type(container)
        self.compared(value)
        self.identity(value)
        if self.reason is not None:
            return value in container
        if type(value) not in SCALARS and issubclass(kind, (list, tuple)):
            self.identity(tuple(container))
        if kind in CONTAINERS or kind in PLAIN or issubclass(type(container), tuple):
            if issubclass(type(container), dict):
                if not self.own(container):
                    self.note(Entry, container, value, dict.get(container, value, MISSING))
            elif kind in CONTAINERS or issubclass(type(container), (tuple, frozenset)):
                for v in self.content(container) if kind in CONTAINERS else container:
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
        if kind in PLAIN or issubclass(type(value), (Tensor, np.generic)) or issubclass(type(value), tuple):
            if kind not in PLAIN and issubclass(kind, tuple):
                self.behaviour(kind)
            self._method_of(value, "__bool__")
            return value
        if kind in CONTAINERS:
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
        kind = type(value)
        if kind is int and value.bit_length() > _LONG:
            self.fail("a long number is shown or read")
        if kind not in SCALARS:
            self.operand(value, "a text")
            if not issubclass(kind, (tuple, BaseException, _dtypes.dtype, _device)):
                self.fail(f"a '{kind.__name__}' is shown")  # (a tensor's text depends on settings, too)
            for part in value.args if issubclass(kind, BaseException) else value if issubclass(kind, tuple) else ():
                self.shown(part)
        return value

    # ------------------------------------------------------------------------------------------------------- loops
    def iterable(self, value: Any) -> Any:
        kind = type(value)
        if kind in CONTAINERS:
            return self.content(value)
        if kind in PLAIN or issubclass(kind, Tensor) or (issubclass(kind, tuple) and kind.__iter__ is tuple.__iter__):
            if kind not in PLAIN and issubclass(kind, tuple):
                self.behaviour(kind)
            self._method_of(value, "__iter__")
            return value
        if id(value) in self.born and kind.__module__ in ("builtins", "itertools", "collections"):
            return value
        ask = inherited(kind, "__iter__")
        if type(ask) is FunctionType:
            made = self.call(self._method(value, kind, "__iter__", ask))()
            if id(made) not in self.born:
                self.fail(f"a '{type(made).__name__}' from elsewhere is gone through")
            return made
        self.fail(f"a '{kind.__name__}' is gone through")
        return value

    def collected(self, value: Any) -> Any:
        """An iterable whose items go to a list or tuple: that asks for its length, too."""
        kind = type(value)
        if kind in CONTAINERS or kind in PLAIN or issubclass(kind, (Tensor, tuple)) or id(value) in self.born:
            return self.iterable(value)
        length, hint = [self.note(Inherited, kind, name, inherited(kind, name)) for name in ("__len__", "__length_hint__")]
        if hint is not MISSING or type(length) not in (FunctionType, type(MISSING)):
            self.fail(f"a '{kind.__name__}' is asked for its length")
            return value
        made = self.iterable(value)
        if length is not MISSING and self.reason is None:
            self.call(self._method(value, kind, "__len__", length))()
        return made

    def iterables(self, value: Any) -> Any:
        """An iterable whose items are taken apart."""
        return map(iterable, self.iterable(value))

    def manager(self, value: Any) -> Any:
        if type(value).__module__ not in _MANAGERS:
            self.fail(f"'with' a '{type(value).__name__}'")
            return value
        self.behaviour(type(value))
        if id(value) not in self.born:
            for name in _MANAGED & value.__dict__.keys():
                self.note(Entry, value.__dict__, name, value.__dict__[name])
        return value

    def caught(self, kinds: Any) -> Any:
        """What a handler catches, while an error goes by: its class says whether it is one of those."""
        kind = type(sys.exception())
        if changeable(kind):
            self.note(Inherited, kind, None, kind.__mro__)
        return handled(kinds)

    def raised(self, error: Any) -> Any:
        """An error, or the class of one, which Python makes of it."""
        return self.call(error)() if issubclass(type(error), type) and issubclass(error, BaseException) else error

    def keywords(self, value: Any) -> Any:
        if type(value) in (dict, OrderedDict):
            return self.content(value)
        self.fail(f"the keywords come from a '{type(value).__name__}'")
        return value

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, f: Any) -> Any:
        """What to call in place of f."""
        made = callee(self, f)
        return made if self.reason is None else called_plainly(made)

    # ----------------------------------------------------------------------------------------------------- results
    def foreign_result(self, value: Any) -> str | None:
        """Why a part of the result that is no tensor cannot be given again by later calls."""
        if type(value) in PLAIN or issubclass(type(value), (np.generic, type)):
            inside = value if type(value) in (tuple, frozenset) else (
                value.start, value.stop, value.step) if type(value) is slice else ()
            return next(filter(None, map(self.foreign_result, inside)), None)
        if id(value) in self.known and id(value) not in self.born and id(value) not in self.given:
            return None
        return f"it returns a '{type(value).__name__}' that it made"


HELPERS = Witness.helpers = helpers_of(Witness)
iterable = HELPERS["iterable"]
