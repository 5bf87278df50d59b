"""What a program takes for granted about Python: globals, closures, attributes of modules and other objects.

During capture a profile function sees which functions of the user's run (`Watch`). The names they read, the attributes of the
objects they are methods of and the modules that are called are remembered with their values: numbers, strings and such by
value, everything else by identity. Modules are compared only when some module has changed since (nn/hooks.py counts).
"""

from __future__ import annotations

import os
import sys
from functools import cache
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..nn.hooks import changes
from ..nn.module import Module
from ..tensor import Tensor

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_SIMPLE = (int, float, complex, bool, str, bytes, type(None))
_MISSING = object()
_TABLES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
           "_backward_pre_hooks")


def copied(value: Any, depth: int = 0) -> Any:
    """A value to compare with later: containers of simple values are copied, anything else is itself."""
    if value.__class__ in (tuple, list) and len(value) <= 32 and depth < 3:
        return value.__class__([copied(v, depth + 1) for v in value])
    if value.__class__ is dict and len(value) <= 32 and depth < 3 and all(k.__class__ is str for k in value):
        return {k: copied(v, depth + 1) for k, v in value.items()}
    return value


def same(now: Any, then: Any) -> bool:
    if now is then:
        return True
    if now.__class__ is not then.__class__:
        return False
    if isinstance(then, _SIMPLE):
        return now == then or (now != now and then != then)
    if then.__class__ in (tuple, list):
        return len(now) == len(then) and all(map(same, now, then))
    if then.__class__ is dict:
        return now.keys() == then.keys() and all(same(now[k], v) for k, v in then.items())
    return False


@cache
def foreign(file: str) -> bool:
    """Whether a file is Python's own or NumPy's: what they read is no user's choice."""
    return file.startswith(("<frozen", _NUMPY)) or (file.startswith(_STDLIB) and "site-packages" not in file)


class Watch:
    """Collects, while a function is captured, what its Python code reads."""

    def __init__(self, function: Any):
        self.codes: set[CodeType] = set()
        self.globals: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self.cells: list[tuple[Any, Any]] = []
        self.attributes: dict[tuple[int, str], tuple[dict[str, Any], str, Any, Any]] = {}
        self.modules: dict[int, tuple[Any, Any]] = {}
        self._functions(function, set())

    def _functions(self, function: Any, seen: set[int]) -> None:
        """The closures of a function and of the functions it closes over."""
        function = getattr(function, "__func__", function)
        if not isinstance(function, FunctionType) or id(function) in seen or function.__code__.co_filename.startswith(_OURS):
            return
        seen.add(id(function))
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self.cells.append((cell, copied(value)))
            self._functions(value, seen)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        code = frame.f_code
        ours = code.co_filename.startswith(_OURS)
        if (ours and code.co_name != "forward") or foreign(code.co_filename):
            return
        if code.co_argcount and code.co_varnames[0] == "self":
            owner = frame.f_locals.get("self")
            if isinstance(owner, Module):
                if id(owner) not in self.modules:
                    self.modules[id(owner)] = owner, module_state(owner)
            elif not ours and hasattr(owner, "__dict__"):
                self._attributes(owner, code)
        if ours or code in self.codes:
            return
        self.codes.add(code)
        for name in code.co_names:
            if name in frame.f_globals:
                self.globals[id(frame.f_globals), name] = frame.f_globals, name, copied(frame.f_globals[name])

    def _attributes(self, owner: Any, code: CodeType) -> None:
        table = owner.__dict__
        for name in code.co_names:
            if name in table and (id(table), name) not in self.attributes:
                self.attributes[id(table), name] = table, name, copied(table[name]), owner

    def guards(self) -> Guards:
        return Guards(self)


def module_state(module: Any) -> tuple[dict[str, Any], list[Any]]:
    own = module.__dict__
    values = {k: copied(v) for k, v in own.items() if k not in _TABLES}
    return values, [dict(own.get(name) or {}) for name in _TABLES]


class Guards:
    """The collected values; `hold` compares them with the present ones."""

    def __init__(self, watch: Watch):
        constant = (ModuleType, type, FunctionType)
        self.globals = [(t, n, v) for t, n, v in watch.globals.values() if not isinstance(v, constant)]
        self.fixed = [(t, n, v) for t, n, v in watch.globals.values() if isinstance(v, constant)]
        self.cells = list({id(c): (c, v) for c, v in watch.cells}.values())
        self.attributes = [(t, n, v) for t, n, v, _ in watch.attributes.values()]
        self.modules = list(watch.modules.values())
        self.changes = changes[0]

    def hold(self) -> bool:
        for table, name, value in self.globals:
            now = table.get(name, _MISSING)
            if now is not value and not same(now, value):
                return False
        for table, name, value in self.fixed:
            if table.get(name) is not value:
                return False
        for cell, value in self.cells:
            now = cell.cell_contents
            if now is not value and not same(now, value):
                return False
        for table, name, value in self.attributes:
            now = table.get(name, _MISSING)
            if now is not value and not same(now, value):
                return False
        if self.changes != changes[0]:
            if not self.modules_hold():
                return False
            self.changes = changes[0]
        return True

    def modules_hold(self) -> bool:
        return not any(changed_attribute(m, state) for m, state in self.modules)

    def broken(self) -> str | None:
        """What differs now, in words."""
        for table, name, value in (*self.globals, *self.fixed):
            if not same(table.get(name, _MISSING), value):
                return f"the global '{name}'"
        for cell, value in self.cells:
            if not same(cell.cell_contents, value):
                return "a variable of an enclosing function"
        for table, name, value in self.attributes:
            if not same(table.get(name, _MISSING), value):
                return f"the attribute '{name}'"
        for m, state in self.modules:
            name = changed_attribute(m, state)
            if name:
                return f"{type(m).__name__}.{name}"
        return None

    def describe(self) -> list[str]:
        lines = [f"global {n} = {_short(v)}" for _, n, v in self.globals]
        lines += [f"closure {_short(v)}" for _, v in self.cells if isinstance(v, _SIMPLE)]
        lines += [f"attribute {n} = {_short(v)}" for _, n, v in self.attributes]
        return lines + [f"{type(m).__name__}: training={s[0].get('training')}" for m, s in self.modules]


def changed_attribute(module: Any, state: tuple[dict[str, Any], list[Any]]) -> str | None:
    values, tables = state
    own = module.__dict__
    for key, value in own.items():
        if key not in _TABLES:
            then = values.get(key, _MISSING)
            if value is not then and not same(value, then):
                return key
    for name, then in zip(_TABLES, tables):
        now = own.get(name) or {}
        if len(now) != len(then) or any(now.get(k, _MISSING) is not v for k, v in then.items()):
            return name
    return None


def _short(value: Any) -> str:
    text = f"tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
    return text if len(text) < 60 else text[:57] + "..."


class watching:
    """A `with` block in which `watch` sees the calls of this thread."""

    def __init__(self, watch: Watch):
        self.watch = watch

    def __enter__(self) -> None:
        self.before = sys.getprofile()
        sys.setprofile(self.watch)

    def __exit__(self, *exc: Any) -> None:
        sys.setprofile(self.before)
