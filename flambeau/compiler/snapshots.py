"""Python objects that a call changes although nothing of that shows in a program: counters in objects, iterators, closures.

guards.py compares, before each call, what decides over the program. This compares once, after the capture, what the call can
have changed: a function that counts on such things has to run as it is written.
"""

from __future__ import annotations

import dis
import functools
import itertools
import random
import sys
import weakref
from collections import deque
from types import CellType, CodeType, FunctionType, GeneratorType, ModuleType
from typing import Any

import numpy as np

from ..nn.module import Module
from ..optim.optimizer import Optimizer
from ..tensor import Tensor
from .guards import LONGEST, copied, same

_PLAIN = (int, float, complex, bool, str, bytes, type(None), Tensor, Module, Optimizer, ModuleType, np.ndarray)
_BUILT_IN = (tuple, list, dict, set, frozenset)  # these guards.py copies
_POSITIONS = (itertools.count, itertools.cycle, itertools.islice, type(iter([])), type(iter(())), type(iter(range(1))))
_KINDS = frozenset((*_POSITIONS, deque, bytearray, GeneratorType))
_DEEP = 3
_EMPTY = CellType()


class Snapshots:
    """What the objects around a call were like when it first reached them."""

    def __init__(self) -> None:
        self.taken: dict[int, tuple[Any, Any, str]] = {}
        self.functions: list[tuple[Any, Any, str]] = []  # weakly: those that the call makes may change as they like

    def take(self, value: Any, name: str, depth: int = 0) -> None:
        """Remembers an object and those inside it."""
        if isinstance(value, _PLAIN) or id(value) in self.taken or depth > _DEEP:
            return
        if value.__class__ in _BUILT_IN:
            for inside in list(value.values() if value.__class__ is dict else value)[:LONGEST]:
                self.take(inside, name, depth + 1)
            return
        state = _state(value)
        if state is not None:
            self.taken[id(value)] = value, state, name
            for inside in state.values() if state.__class__ is dict else ():
                self.take(inside, name, depth + 1)

    def take_container(self, value: Any, what: str, name: Any = None) -> None:
        """Remembers a value if it is of a kind that Python itself has: other objects guards.py looks into."""
        if value.__class__ in _KINDS or isinstance(value, (dict, random.Random)) or _is_numpy_generator(value):
            self.take(value, f"{what} '{name}'" if isinstance(name, str) else what)  # a key may be a tensor

    def take_function(self, function: Any) -> None:
        """Remembers the variables around a function that writes to them, and its defaults, which everybody may write to."""
        if function.__defaults__ or function.__kwdefaults__ or _writes_outside(function.__code__):
            self.functions.append((weakref.ref(function), _numbers(_function(function)), function.__name__))

    def take_module(self, module: Any) -> None:
        """Remembers what a module of the user's and its classes hold, apart from what guards.py compares."""
        for name, value in list(module.__dict__.items()):
            if value.__class__ not in _COMMON:
                self.take(value, f"{type(module).__name__}.{name}")
        for kind in type(module).__mro__:
            self.take(kind, kind.__name__)

    def changed(self) -> str | None:
        """The name of an object that is not what it was. After that nothing is held any more."""
        taken, self.taken = self.taken, {}
        for value, state, name in taken.values():
            if not same(_state(value), state):
                return name
        for reference, state, name in self.functions:
            function = reference()
            if function is not None and not same(_numbers(_function(function)), state):
                return f"a variable of '{name}'"
        return None


_COMMON = frozenset((int, float, bool, str, type(None), Tensor))


def _state(value: Any) -> Any:
    """What an object holds, in a form to compare; None if it is nobody's business."""
    kind = value.__class__
    if isinstance(value, dict):
        return copied(dict(value))
    if kind is deque or kind is bytearray:
        return copied([value[i] for i in range(len(value))]) if len(value) <= LONGEST else len(value)
    if kind in _POSITIONS:
        return repr(value) if kind is itertools.count else _position(value)
    if kind is GeneratorType:
        frame = value.gi_frame
        return () if frame is None else (frame.f_lasti, copied(dict(frame.f_locals)))
    if isinstance(value, random.Random):
        return value.getstate()
    if _is_numpy_generator(value):
        return repr(value.bit_generator.state if hasattr(value, "bit_generator") else value.get_state())
    if kind is FunctionType:
        return _function(value)
    if kind is functools.partial:
        return {"args": copied(value.args), "keywords": copied(value.keywords), "func": value.func}
    owner = value if isinstance(value, type) else kind
    if owner.__module__.partition(".")[0] in ("flambeau", "builtins", "torch") or owner.__module__ in sys.stdlib_module_names:
        return None
    if isinstance(value, type):
        return {k: copied(v) for k, v in vars(value).items() if not k.startswith("__") and not hasattr(v, "__get__")}
    return copied(dict(vars(value))) if hasattr(value, "__dict__") else None


def _position(iterator: Any) -> Any:
    """How far an iterator is, as its pickled form has it."""
    return tuple(copied(part) for part in iterator.__reduce__()[1:])


def _numbers(value: Any) -> Any:
    """A state without the objects in it, which must not be kept alive."""
    if value.__class__ is dict:
        return {k: _numbers(v) for k, v in value.items()}
    if value.__class__ in (list, tuple):
        return [_numbers(v) for v in value]
    return value if value.__class__ in _COMMON and value.__class__ is not Tensor else id(value)


@functools.cache
def _writes_outside(code: CodeType) -> bool:
    """Whether a function assigns variables of an enclosing one (`nonlocal`)."""
    free = set(code.co_freevars)
    return bool(free) and any(i.opname == "STORE_DEREF" and i.argval in free for i in dis.get_instructions(code))


def _is_numpy_generator(value: Any) -> bool:
    loaded = sys.modules.get("numpy.random")
    return loaded is not None and isinstance(value, (loaded.Generator, loaded.RandomState))


def _function(function: Any) -> dict[str, Any] | None:
    """The closure and the defaults of a function."""
    if function.__code__.co_filename.startswith(_OURS):
        return None
    cells = [c.cell_contents for c in function.__closure__ or () if c != _EMPTY]
    defaults = copied([function.__defaults__, function.__kwdefaults__])
    return {"cells": copied(cells), "defaults": defaults} if cells or function.__defaults__ or function.__kwdefaults__ else None


_OURS = __file__.rpartition("compiler")[0]
