"""The functions that rewritten code calls: a method of the witness, or what Python would do where there is none."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

from ...autograd.state import state
from .symbolic import SymFloat, settled, with_plain_numbers

_OPERATORS = {name: getattr(operator, name) for name in (
    "add sub mul truediv floordiv mod pow matmul lshift rshift or_ xor and_ neg pos invert lt le gt ge eq ne "
    "iadd isub imul itruediv ifloordiv imod ipow imatmul ilshift irshift ior ixor iand").split()}
_local = threading.local()


def _called_plainly(f: Any) -> Any:
    """What to call in place of f when a capture was given up: run-time numbers in its arguments are floats again."""
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


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": operator.is_, "is not": operator.is_not, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b}
_ITSELF = lambda value: value
_PYTHON: dict[str, Callable[..., Any]] = {
    "attribute": lambda o, n: getattr(settled(o) if type(o) is SymFloat else o, n), "item": operator.getitem,
    "binary": lambda n, a, b: _OPERATORS[n](a, b),
    "unary": lambda n, a: _OPERATORS[n](a), "augmented": lambda n, a, b: _OPERATORS[n](a, b),
    "compare": lambda n, a, b: (_COMPARISONS.get(n) or _OPERATORS[n])(a, b),
    "store_attribute": lambda v, o, n: setattr(o, n, _plainly(v)),
    "store_item": lambda v, o, k: operator.setitem(o, k, _plainly(v)), "call": _called_plainly, "made": _plainly,
    "delete_attribute": delattr, "delete_item": operator.delitem}


def helpers_of(witness_class: type) -> dict[str, Callable[..., Any]]:
    """The helpers by the names that rewritten code has for them, over the methods of the witness's class."""
    made = {f"_fl_{n}": _helper(witness_class, n, _PYTHON.get(n, _ITSELF)) for n in (
        *_PYTHON, "iterable", "iterables", "collected", "test", "compared", "manager", "keywords", "shown")}
    return {**made, "_fl_slice": slice}
