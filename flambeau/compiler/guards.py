"""What a program takes for granted about Python: globals, closures, defaults, attributes of modules and other objects.

During capture a profile function sees which functions of the user's run (`Watch`). The names they read are followed from
globals, closures and arguments into the attributes of objects; what is found is remembered: numbers, strings and containers of
such by value, everything else by identity. Modules (nn.Module) are remembered whole, and compared only when some module has
changed since (nn/hooks.py counts).
"""

from __future__ import annotations

import ctypes
import dis
import functools
import gc
import os
import random
import sys
import weakref
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import numpy as np

from ..native import toolchain
from ..nn import hooks as module_hooks
from ..nn.hooks import changes
from ..nn.module import Module
from ..optim import optimizer
from ..tensor import Tensor
from .capture import give_up
from .trees import flatten, is_record

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_SIMPLE = (int, float, complex, bool, str, bytes, type(None))
MISSING = object()
_GLOBALS, _STORES = ("LOAD_GLOBAL", "LOAD_NAME"), ("STORE_ATTR",)
_COMPREHENSIONS = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")  # their functions live for one call
_DEPTH = 4        # how far attributes of attributes are followed
LONGEST = 4096   # elements of a container that are compared one by one
DEEPEST = 8      # how far containers in containers are compared
_TABLES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
           "_backward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs",
           "_forward_hooks_always_called")


def copied(value: Any, depth: int = 0) -> Any:
    """A value to compare with later: containers are copied, anything else is itself."""
    if value.__class__ in (tuple, list) and len(value) <= LONGEST and depth < DEEPEST:
        return value.__class__([copied(v, depth + 1) for v in value])
    if value.__class__ is dict and len(value) <= LONGEST and depth < DEEPEST:
        return {k: copied(v, depth + 1) for k, v in value.items()}
    if value.__class__ is set or (value.__class__ is np.ndarray and value.size <= LONGEST):
        return value.copy()
    return value


def same(now: Any, then: Any) -> bool:
    if now is then and then.__class__ not in (list, dict):
        return True
    if now.__class__ is not then.__class__:
        return False
    if isinstance(then, _SIMPLE):
        return now == then or (now != now and then != then)
    if then.__class__ in (tuple, list):
        return len(now) == len(then) and all(map(same, now, then))
    if then.__class__ is dict:
        return now.keys() == then.keys() and all(same(now[k], v) for k, v in then.items())
    if then.__class__ is set:
        return now == then
    if then.__class__ is np.ndarray:
        return now.dtype == then.dtype and now.shape == then.shape and now.tobytes() == then.tobytes()
    return False


@functools.cache
def foreign(file: str) -> bool:
    """Whether a file is Python's own or NumPy's: what they read is no user's choice."""
    return file.startswith(("<frozen", _NUMPY)) or (file.startswith(_STDLIB) and "site-packages" not in file)


def _library(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_OURS) or foreign(file)


class Watch:
    """Collects, while a function is captured, what its Python code reads."""

    def __init__(self, function: Any):
        self.function = function
        self.codes: dict[CodeType, dict[str, Any]] = {}   # code of the user's -> its globals
        self.entries: dict[tuple[int, Any], tuple[Any, Any, Any]] = {}  # (container, name) -> container, name, value
        self.modules: dict[int, tuple[Any, Any]] = {}
        self.functions: dict[int, Any] = {}               # functions that ran; weakly: those made inside are gone at the end
        self.unknown: set[CodeType] = set()               # code that ran for a function that was not found
        self.stored: set[str] = set()                     # attributes that the code writes
        self.passed: set[int] = set()                     # objects that the call makes, and arguments that the signature knows
        self.owners: dict[int, Any] = {}                  # objects with attributes, weakly: those that the call makes may die
        self.random = random.getstate(), _numpy_random()
        from .snapshots import Snapshots
        self.snapshots = Snapshots()
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if code is not None:
            self.stored.update(_names_of(code, _STORES))
        owner = getattr(function, "__self__", None)
        if isinstance(function, Module):
            self._module(function)
        elif owner is not None and hasattr(function, "__func__"):
            self._follow(owner, function.__func__.__code__.co_names, 0)
        self._closures({getattr(function, "__func__", function)})

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function for `sys.setprofile`."""
        if event == "call":
            self(frame)

    def __call__(self, frame: FrameType) -> bool:
        """Looks at a call that begins. Whether further calls of the same code need not be shown."""
        code = frame.f_code
        file = code.co_filename
        if file.startswith(_OURS):
            if code.co_name == "forward" and code.co_argcount:
                owner = frame.f_locals.get("self")
                if isinstance(owner, Module):
                    self._module(owner)
                return False
            if code.co_name == "step" and file.endswith("lr_scheduler.py"):
                give_up("a learning-rate scheduler steps inside the call; step it outside")
            return True
        if foreign(file) or str(frame.f_globals.get("__name__")).startswith("namedtuple_"):
            return True
        self._users(frame)
        return False

    def _users(self, frame: FrameType) -> None:
        """A call of a function of the user's."""
        code = frame.f_code
        if code not in self.codes:
            self.stored.update(_names_of(code, _STORES))
        arguments = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        if arguments:
            values = frame.f_locals
            if not self.codes:  # the function itself
                self._take([values.get(name) for name in code.co_varnames[:len(arguments) + 2]])
            elif code.co_name == "__init__":
                self.passed.add(id(values.get(arguments[0])))
            for name in arguments:
                self._follow(values.get(name), code.co_names, 0)
        if code not in self.codes:
            self.codes[code] = frame.f_globals
            self._globals(code, frame.f_globals)
            self._seek(frame)
        elif code.co_freevars:  # the same text may run for several functions, with a closure each
            self._seek(frame)

    def _take(self, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            for v in value:
                self._take(v)
        elif isinstance(value, dict):
            self._take(list(value.values()))
        elif is_record(value):
            self.passed.add(id(value))
            self._take(list(value.__dict__.values()))

    def _globals(self, code: CodeType, table: dict[str, Any]) -> None:
        names = _names(code)
        for name in _names_of(code, _GLOBALS):
            if name in table:
                self._enter(table, name, table[name])
                self._follow(table[name], names, 0)

    def _enter(self, container: Any, name: Any, value: Any) -> None:
        if (id(container), name) not in self.entries:
            self.snapshots.take_container(value, "the global", name)
            self.entries[id(container), name] = container, name, copied(value)

    def _follow(self, value: Any, names: tuple[str, ...], depth: int) -> None:
        """Remembers the attributes of an object that code with these names can read."""
        if isinstance(value, _SIMPLE) or isinstance(value, Tensor) or depth > _DEPTH:
            return
        if isinstance(value, Module):
            self._module(value)
            return
        if isinstance(value, (list, tuple)):
            for v in value[:LONGEST]:
                self._follow(v, names, depth + 1)
            return
        if isinstance(value, dict):
            for k, v in list(value.items())[:LONGEST]:
                if value.__class__ is not dict:  # `same` compares only plain ones
                    self._attribute(value, k, v)
                self._follow(v, names, depth + 1)
            return
        if isinstance(value, ModuleType) and _library(value):
            return
        if isinstance(value, FunctionType) or id(value) in self.passed:
            return
        if isinstance(value, optimizer.Optimizer):  # its numbers are read at each call, the rest is compared by optimizers.py
            names = tuple([n for n in names if n not in ("param_groups", "defaults")])
        if not isinstance(value, (type, ModuleType)):
            self._slots(value, names, depth)
            if hasattr(type(value), "__getattr__"):  # which may look anywhere
                names = (*names, *getattr(value, "__dict__", ()))
        for owner in (value, *(type(value).__mro__ if not isinstance(value, (type, ModuleType)) else ())):
            if str(getattr(owner, "__module__", "")).partition(".")[0] in ("flambeau", "builtins", "numpy"):
                continue
            table = getattr(owner, "__dict__", None)
            if table is None:
                continue
            for name in names:
                if owner is value and name not in table and not isinstance(value, (type, ModuleType)) and (
                        name in self.stored or hasattr(type(value), name)) and hasattr(value, "__dict__"):
                    # It may be set later, or by this very call; the class's own is then hidden.
                    self._attribute(owner, name, MISSING)
                if name in table and (id(owner), name) not in self.entries:
                    found = table[name]
                    if isinstance(found, (FunctionType, property, classmethod, staticmethod)) and owner is not value:
                        continue
                    self._attribute(owner, name, found)
                    self._follow(found, names, depth + 1)

    def _attribute(self, owner: Any, name: Any, value: Any) -> None:
        """Remembers an attribute or an entry, for as long as the object lives: what the call makes and drops again is its own
        business."""
        if (id(owner), name) in self.entries:
            return
        self.snapshots.take_container(value, "the attribute", name)
        container: Any = self.owners.get(id(owner))
        if container is None:
            try:
                container = weakref.ref(owner, functools.partial(self._forget, id(owner)))
            except TypeError:
                container = _container(owner)
            self.owners[id(owner)] = container
        self.entries[id(owner), name] = container, name, copied(value)

    def _forget(self, number: int, _: Any) -> None:
        self.owners.pop(number, None)
        for key in [k for k in self.entries if k[0] == number]:
            del self.entries[key]

    def _slots(self, value: Any, names: tuple[str, ...], depth: int) -> None:
        for name in names:
            slot = isinstance(getattr(type(value), name, None), MemberDescriptorType)
            if slot and hasattr(value, name) and (id(value), (name,)) not in self.entries:
                found = getattr(value, name)
                self._attribute(value, (name,), found)
                self._follow(found, names, depth + 1)

    def _module(self, module: Any) -> None:
        if id(module) in self.modules or "_modules" not in module.__dict__:  # being made: Module.__init__ is yet to run
            return
        for m in module.modules():
            if id(m) not in self.modules:
                self.modules[id(m)] = m, module_state(m)
                if not m.__class__.__module__.startswith("flambeau."):
                    self.snapshots.take_module(m)

    def _seek(self, frame: FrameType) -> None:
        """Finds the function that a frame runs, for its closure and defaults. Python does not tell, so this looks where its
        caller can have it from; if it is not there, `guards` looks at all functions."""
        code = frame.f_code
        if code.co_name in _COMPREHENSIONS or not (code.co_freevars or code.co_argcount or code.co_kwonlyargcount):
            return
        free = {name: frame.f_locals.get(name, MISSING) for name in code.co_freevars}
        found = [f for f in _callables(frame, self.function) if f.__code__ is code and all(
            Cell(c).get(None, MISSING) is v for c, v in zip(f.__closure__ or (), free.values()))]
        if not found:
            self.unknown.add(code)
        for f in found:
            self.functions[id(f)] = weakref.ref(f)
            self.snapshots.take_function(f)

    def _closures(self, functions: Any) -> None:
        """Closures and defaults of functions."""
        for function in functions:
            if not isinstance(function, FunctionType) or function.__code__.co_filename.startswith(_OURS):
                continue
            names = _names(function.__code__)
            for cell in function.__closure__ or ():
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                self.snapshots.take_container(value, "a variable of an enclosing function")
                self.entries.setdefault((id(cell), None), (Cell(cell), None, copied(value)))
                self._follow(value, names, 0)
            for part in ("__defaults__", "__kwdefaults__"):
                value = getattr(function, part)
                if value:
                    self.entries.setdefault((id(function), part), (Attributes(function), (part,), copied(value)))

    def guards(self) -> Guards:
        self._closures([f for r in self.functions.values() if (f := r()) is not None])
        if self.unknown:
            self._closures([f for f in gc.get_objects() if type(f) is FunctionType and f.__code__ in self.unknown])
        owners = {n: _container(r()) for n, r in self.owners.items() if isinstance(r, weakref.ref)}
        self.entries = {key: (owners[key[0]] if isinstance(c, weakref.ref) else c, name, value)
                        for key, (c, name, value) in self.entries.items()}
        return Guards(self)

    def drew(self) -> str | None:
        """Python's or NumPy's own random numbers were drawn: later calls would get the same ones again."""
        now = random.getstate(), _numpy_random()
        return None if now == self.random else "random numbers of Python or NumPy were drawn"


def _callables(frame: FrameType, function: Any) -> list[FunctionType]:
    """Functions that the caller of a frame has at hand: variables, globals, attributes of its objects and classes."""
    caller = frame.f_back
    names = (frame.f_code.co_name, *(caller.f_code.co_names if caller else ()))
    local = list(caller.f_locals.values()) if caller else []
    owners = [*local, *list(frame.f_locals.values())[:1]]
    found = [function, *local, *[frame.f_globals.get(n) for n in names]]
    if caller is not None:
        found += [caller.f_globals.get(n) for n in names]
    for owner in owners:
        kind = owner if isinstance(owner, type) else type(owner)
        if kind.__module__ != "builtins":
            tables = [getattr(owner, "__dict__", {}), *[vars(k) for k in kind.__mro__[:-1]]]
            found += [table[n] for table in tables for n in names if n in table]
    functions = [getattr(f, "__func__", None) or getattr(f, "fget", None) or f for f in found if callable(f) or isinstance(
        f, (property, classmethod, staticmethod))]
    return [f for f in functions if type(f) is FunctionType]


def _names(code: CodeType) -> tuple[str, ...]:
    """The names that code reads, functions written inside it included."""
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names(constant)
    return tuple(found)


def _names_of(code: CodeType, instructions: tuple[str, ...]) -> list[str]:
    """The names that these instructions have. `co_names` has globals and attributes alike, and a script's variables are often
    called like some attribute."""
    found = [i.argval for i in dis.get_instructions(code) if i.opname in instructions]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found += _names_of(constant, instructions)
    return list(dict.fromkeys(found))


def _numpy_random() -> Any:
    if "numpy.random" not in sys.modules:
        return None
    kind, words, position, has, cached = np.random.get_state()
    return kind, words.tobytes(), position, has, cached


class Cell:
    """A closure's variable as a container."""

    __slots__ = ("cell",)

    def __init__(self, cell: Any):
        self.cell = cell

    def get(self, name: Any, default: Any) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return default


class Attributes:
    """An object's own attributes as a container."""

    __slots__ = ("owner",)

    def __init__(self, owner: Any):
        self.owner = owner

    def get(self, name: Any, default: Any) -> Any:
        if name.__class__ is tuple:
            return getattr(self.owner, name[0], default)
        return self.owner.__dict__.get(name, default)


def _container(owner: Any) -> Any:
    return owner if isinstance(owner, dict) else Attributes(owner)


def module_state(module: Any) -> tuple[dict[str, Any], list[Any]]:
    own = module.__dict__
    values = {k: copied(v) for k, v in own.items() if k not in _TABLES}
    return values, [dict(own.get(name) or {}) for name in _TABLES]


def _global_hooks() -> list[tuple[Any, Any]]:
    """The tables of hooks for all modules and all optimizers, as they are now."""
    tables = [t for n, t in vars(module_hooks).items() if n.startswith("_global") and isinstance(t, dict)]
    return [(t, dict(t)) for t in (*tables, optimizer._global_pre_hooks, optimizer._global_post_hooks)]


class Guards:
    """The collected values; `hold` compares them with the present ones."""

    def __init__(self, watch: Watch):
        self.entries = list(watch.entries.values())
        self.modules = list(watch.modules.values())
        self.hooks = _global_hooks()
        self.changes = changes[0]
        # Containers among a module's attributes can change without the module noticing.
        self.inner = [(m.__dict__, k, v) for m, (values, _) in self.modules for k, v in values.items()
                      if v.__class__ in (list, dict)]

    def hold(self) -> bool:
        for container, name, value in self.entries:
            now = container.get(name, MISSING)
            if (now is not value or value.__class__ in (list, dict)) and not same(now, value):
                return False
        for table, name, value in self.inner:
            if not same(table.get(name), value):
                return False
        for table, then in self.hooks:
            if table != then:
                return False
        if self.changes != changes[0]:
            if any(changed_attribute(m, state) for m, state in self.modules):
                return False
            self.changes = changes[0]
        return True

    def broken(self) -> str | None:
        """What differs now, in words."""
        for container, name, value in self.entries:
            if not same(container.get(name, MISSING), value):
                if container.__class__ is Cell:
                    return "a variable of an enclosing function"
                return f"the {'attribute' if container.__class__ is Attributes else 'global'} '{name}'"
        for m, state in self.modules:
            name = changed_attribute(m, state)
            if name:
                return f"{type(m).__name__}.{name}"
        return None

    def tensors(self) -> set[int]:
        """Addresses of the tensors that the call can reach without its arguments."""
        found: list[Any] = []
        for _, _, value in self.entries:
            flatten(value, found)
        for _, (_, tables) in self.modules:
            found += [t for table in tables[:2] for t in table.values()]  # parameters, buffers
        return {id(t) for t in found if isinstance(t, Tensor)}

    def describe(self) -> list[str]:
        kinds = (ModuleType, type, FunctionType)
        lines = [f"{'closure' if c.__class__ is Cell else n} = {_short(v)}" for c, n, v in self.entries
                 if not isinstance(v, (*kinds, Module)) and not callable(v)]
        return lines + [f"{type(m).__name__}: training={s[0].get('training')}" for m, s in self.modules]


def changed_attribute(module: Any, state: tuple[dict[str, Any], list[Any]]) -> str | None:
    values, tables = state
    own = module.__dict__
    for key, value in own.items():
        if key not in _TABLES and not same(value, values.get(key, MISSING)):
            return key
    for name, then in zip(_TABLES, tables):
        now = own.get(name) or {}
        if len(now) != len(then) or any(now.get(k, MISSING) is not v for k, v in then.items()):
            return name
    return None


def _short(value: Any) -> str:
    text = f"tensor {list(value.shape)}" if isinstance(value, Tensor) else " ".join(repr(value).split())
    return text if len(text) < 60 else text[:57] + "..."


class watching:
    """A `with` block in which `watch` sees the calls of this thread."""

    def __init__(self, watch: Watch):
        self.watch = watch

    def __enter__(self) -> None:
        self.before = sys.getprofile()
        self.native = _native()
        if self.native is None:
            sys.setprofile(self.watch.profile)
        else:
            ctypes.pythonapi.PyEval_SetProfile(self.native.fl_watch, ctypes.py_object(self.watch))

    def __exit__(self, *exc: Any) -> None:
        # A profiler written in C cannot be set again from here: it only misses the rest of this run.
        sys.setprofile(self.before if callable(self.before) else None)
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
