"""Numbers that are read anew at each call of a compiled program: learning rates and other hyper-parameters.

During capture an optimizer's groups hold `SymFloat`s: floats that remember how they were computed. Where one reaches a kernel,
the program computes it from what the call reads; where one is compared or tested, the outcome becomes a guard, and so does its
value where something takes the plain number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from .trees import is_record

_PYTHON = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
           "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
           "neg": lambda a: -a, "abs": abs, "sqrt": math.sqrt, "max": max, "min": min,
           "is": lambda a, b: type(a) is type(b) and repr(a) == repr(b)}
bare_float = float.__float__  # the number alone, for those who remember the origin themselves


class SymFloat(float):
    """A float with its origin: ("input", n), ("load", Value), or (operator, operands...)."""

    expression: Any
    origin: float | None = None  # the float that it stands for, where it is one that was read

    def __new__(cls, value: float, expression: Any):
        made = super().__new__(cls, value)
        made.expression = expression
        return made

    def __float__(self) -> float:
        """NumPy, too, asks here."""
        self._compare("is", bare_float(self))
        return bare_float(self)

    def _compare(self, sign: str, other: Any) -> bool:
        if isinstance(other, complex):
            return _PYTHON[sign](float(self), other)
        if not isinstance(other, (int, float)):
            return NotImplemented
        outcome = _PYTHON[sign](bare_float(self), bare_float(other) if isinstance(other, float) else other)
        from .traced import active
        recorder = active()
        if recorder is not None:
            recorder.guard_number((sign, self.expression, expression_of(other)), outcome)
        return outcome

    def __bool__(self) -> bool:
        return self._compare("!=", 0.0)

    def __hash__(self) -> int:
        self._compare("is", bare_float(self))
        return float.__hash__(self)

    def conjugate(self) -> SymFloat:
        return self

    @property
    def real(self) -> SymFloat:
        return self

    def __reduce__(self) -> tuple[type, tuple[float]]:
        return float, (bare_float(self),)


SymFloat.__name__ = SymFloat.__qualname__ = "float"  # Python's errors name the class


def _arithmetic(sign: str, swapped: bool = False) -> Callable[[SymFloat, Any], Any]:
    def method(self: SymFloat, other: Any) -> Any:
        if isinstance(other, complex):
            return _PYTHON[sign](*((other, float(self)) if swapped else (float(self), other)))
        if not isinstance(other, (int, float)):
            return NotImplemented
        pair = (other, self) if swapped else (self, other)
        compute = lambda: _PYTHON[sign](*[bare_float(p) if isinstance(p, float) else p for p in pair])
        from .traced import active
        if active() is None:  # the capture is over: from here on it is a number like others
            return compute()
        return checked(compute, (sign, *[expression_of(p) for p in pair]))
    return method


def checked(compute: Callable[[], Any], expression: Any) -> Any:
    """The result of an operation. Division, powers and roots are not defined for all numbers: where they are not, a program
    does not do what Python does, so that becomes a guard. (What the program loads is an optimizer's count.)"""
    from .traced import active
    recorder, known = active(), next(loads(expression), None) is None
    try:
        value = compute()
    except (ArithmeticError, ValueError):
        recorder.guard_number(("defined", expression), False)
        raise
    if not isinstance(value, float):  # a root of a negative number
        for part in expression[1:]:
            number = evaluate(part, recorder.number_values) if known else math.nan
            recorder.guard_number(("is", part, ("number", number)), True)
        return value
    if expression[0] in ("/", "**", "sqrt") and known:
        recorder.guard_number(("defined", expression), True)
    return SymFloat(value, expression)


for _sign, _name in (("+", "add"), ("-", "sub"), ("*", "mul"), ("/", "truediv"), ("**", "pow")):
    setattr(SymFloat, f"__{_name}__", _arithmetic(_sign))
    setattr(SymFloat, f"__r{_name}__", _arithmetic(_sign, True))
for _sign, _name in (("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge"), ("==", "eq"), ("!=", "ne")):
    setattr(SymFloat, f"__{_name}__", lambda self, other, sign=_sign: self._compare(sign, other))
for _name in ("mod", "floordiv", "divmod"):
    setattr(SymFloat, f"__{_name}__", lambda self, other, name=f"__{_name}__": getattr(float(self), name)(other))
    setattr(SymFloat, f"__r{_name}__", lambda self, other, name=f"__r{_name}__": getattr(float(self), name)(other))
for _name in ("__int__", "__trunc__", "__floor__", "__ceil__", "__round__", "__format__", "__str__", "__repr__", "is_integer",
              "as_integer_ratio", "hex"):
    setattr(SymFloat, _name, lambda self, *args, name=_name: getattr(float(self), name)(*args))
SymFloat.__neg__ = lambda self: SymFloat(-bare_float(self), ("neg", self.expression))
SymFloat.__pos__ = lambda self: self
SymFloat.__abs__ = lambda self: SymFloat(abs(bare_float(self)), ("abs", self.expression))


def settled(value: Any) -> Any:
    """A number, or the numbers in a tuple or dict, for C code that takes floats without asking."""
    if value.__class__ is SymFloat:
        return float(value)
    if value.__class__ is tuple:
        return tuple(map(settled, value))
    return {k: settled(v) for k, v in value.items()} if value.__class__ is dict else value


def itself(value: Any) -> Any:
    """The object that a number stands for."""
    return value.origin if value.__class__ is SymFloat and value.origin is not None else value


def with_plain_numbers(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """A result of a captured call, whose lists and dicts stay the same objects. seen: those around it."""
    kind = type(value)
    if kind is SymFloat:
        return bare_float(value) if value.origin is None else value.origin
    if id(value) in seen:
        return value
    seen = (*seen, id(value))
    if issubclass(kind, tuple) or kind is list:
        new = [with_plain_numbers(v, seen) for v in value]
        if all(map(operator.is_, new, value)):
            return value
        if kind is not list:
            return tuple.__new__(kind, new)
        value[:] = new
    elif issubclass(kind, dict) or is_record(value):
        table = value if issubclass(kind, dict) else value.__dict__
        for key, v in list(dict.items(table)):
            if (new := with_plain_numbers(v, seen)) is not v:
                dict.__setitem__(table, key, new)
    return value


def extreme(which: str, a: Any, b: Any) -> Any:
    """max or min of two numbers, without a branch on them."""
    value = _PYTHON[which](*[bare_float(v) if isinstance(v, float) else v for v in (a, b)])
    if not isinstance(a, SymFloat) and not isinstance(b, SymFloat):
        return value
    return SymFloat(value, (which, expression_of(a), expression_of(b)))


def expression_of(value: Any) -> Any:
    return value.expression if isinstance(value, SymFloat) else ("number", float(value))


def evaluate(expression: Any, numbers: Any, array: Callable[[Any], Any] | None = None) -> Any:
    """The value of an expression, given the numbers a call reads; array gives the memory of a Value that it loads."""
    kind = expression[0]
    if kind == "number":
        return expression[1]
    if kind == "input":
        return numbers[expression[1]]
    if kind == "load":
        return float(array(expression[1]))
    if kind == "defined":
        try:
            return isinstance(evaluate(expression[1], numbers), float)
        except (ArithmeticError, ValueError):
            return False
    return _PYTHON[kind](*[evaluate(e, numbers, array) for e in expression[1:]])


def loads(expression: Any) -> Iterator[Any]:
    """The Values whose memory an expression reads."""
    if expression[0] == "load":
        yield expression[1]
    elif expression[0] not in ("number", "input"):
        for e in expression[1:]:
            yield from loads(e)
