"""The functions that rewritten code calls: a method of the witness, or what Python would do where there is none."""

from __future__ import annotations

import operator
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ...autograd.state import state
from .symbolic import SymFloat, itself, settled, with_plain_numbers

_OPERATORS = {name: getattr(operator, name) for name in (
    "add sub mul truediv floordiv mod pow matmul lshift rshift or_ xor and_ neg pos invert lt le gt ge eq ne "
    "iadd isub imul itruediv ifloordiv imod ipow imatmul ilshift irshift ior ixor iand").split()}
_local = threading.local()
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _hidden(level: int) -> int:
    """How many frames of this folder lie between here and the caller that is `level` above the rewritten code."""
    frame, found = sys._getframe(2), 0
    while frame is not None:
        if frame.f_code.co_filename.startswith(_HERE):
            found += 1
        elif level == 0:
            break
        else:
            level -= 1
        frame = frame.f_back
    return found


def _warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None) -> None:
    warnings.warn(message, category, stacklevel + 1 + _hidden(stacklevel - 1), source)


def _frame(depth: int = 0) -> Any:
    return sys._getframe(depth + 1 + _hidden(depth))


def handled(kinds: Any = None) -> Any:
    """What a handler catches, while an error goes by: its traceback has the frames that it would have without helpers."""
    error, parts = sys.exception(), []
    part = error.__traceback__
    while part is not None:
        parts.append(part)
        part = part.tb_next
    shown = [p for p in parts if not p.tb_frame.f_code.co_filename.startswith(_HERE)]
    if len(shown) < len(parts):
        rest = None
        for p in reversed(shown):
            rest = TracebackType(rest, p.tb_frame, p.tb_lasti, p.tb_lineno)
        error.__traceback__ = rest
    return kinds


_CALLERS: dict[Any, Any] = {warnings.warn: _warn, sys._getframe: _frame}  # they count the frames above them


def called_plainly(f: Any) -> Any:
    """What to call in place of f when a capture was given up: run-time numbers in its arguments are floats again."""
    if f.__class__ is _BUILTIN:
        f = _CALLERS.get(f, f)
    if not getattr(_local, "numbers", False):
        return f
    return lambda *args, **kwargs: f(*map(with_plain_numbers, args), **with_plain_numbers(kwargs))


def _plainly(value: Any) -> Any:
    return with_plain_numbers(value) if getattr(_local, "numbers", False) else value


def _helper(witness_class: type, name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """The function that rewritten code calls: the witness's method, or what Python would do where there is none."""
    method = getattr(witness_class, name)

    def helper(*args: Any) -> Any:
        witness = state.witness
        return otherwise(*args) if witness is None else method(witness, *args)

    helper.__name__ = name
    return helper


def is_same(a: Any, b: Any) -> bool:
    """a is b; a run-time number is the float that it stands for."""
    return itself(a) is itself(b)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": is_same, "is not": lambda a, b: not is_same(a, b), "in": lambda a, b: a in b, "not in": lambda a, b: a not in b}
_BUILTIN = type(len)
_ITSELF = lambda value: value
_PYTHON: dict[str, Callable[..., Any]] = {
    "attribute": lambda o, n: getattr(settled(o) if type(o) is SymFloat else o, n), "item": operator.getitem,
    "binary": lambda n, a, b: _OPERATORS[n](a, b),
    "unary": lambda n, a: _OPERATORS[n](a), "augmented": lambda n, a, b: _OPERATORS[n](a, b),
    "compare": lambda n, a, b: (_COMPARISONS.get(n) or _OPERATORS[n])(a, b),
    "store_attribute": lambda v, o, n: setattr(o, n, _plainly(v)),
    "store_item": lambda v, o, k: operator.setitem(o, k, _plainly(v)), "call": called_plainly, "made": _plainly,
    "delete_attribute": delattr, "delete_item": operator.delitem, "caught": handled}


def helpers_of(witness_class: type) -> dict[str, Callable[..., Any]]:
    """The helpers by the names that rewritten code has for them, over the methods of the witness's class."""
    made = {n: _helper(witness_class, n, _PYTHON.get(n, _ITSELF)) for n in (
        *_PYTHON, "iterable", "iterables", "collected", "test", "compared", "manager", "keywords", "shown", "raised")}
    return {**made, "slice": slice}
