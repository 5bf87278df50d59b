"""The words of C: types, addresses, numbers and expressions.

Numbers that come from sizes, places in memory and from the user stand between marks (../literals.py). `written` makes C of one,
`declared` makes a program read it when it runs.
"""

from __future__ import annotations

import math
from typing import Any

from ....backends.cpu.pointwise import loops as pointwise
from ...ir.literals import ARRAY, DOUBLE, LONG, MARK, along, literal, size
from ...ir.parts import Value
from ...ir.statements import Along, Long, Result, Scratch, Size
from ..nests import Constant, Element, Formula, Let, Put

TYPES = {"f32": "float", "f64": "double", "b8": "unsigned char", "i8": "signed char", "u8": "unsigned char", "i16": "short",
         "u16": "unsigned short", "i32": "int", "u32": "unsigned int", "i64": "long", "u64": "unsigned long"}


# ------------------------------------------------------------------------------------------------------- marked numbers
def written(kind: str, value: str) -> str:
    """A marked number in C."""
    if kind == ARRAY:
        name, _, numbers = value.partition("=")
        return f"static const long {name}[] = {{{numbers.replace(',', ', ')}}};"
    if kind == DOUBLE:
        return _double(float.fromhex(value))
    if kind == LONG and int(value) == -1 << 63:  # C has no negative literals: the number after the sign would not fit
        return f"({int(value) + 1}L - 1)"
    if kind == LONG:
        return f"({value}L)" if int(value) < 1 << 63 else f"{value}UL"
    return value


def _double(value: float) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"({value!r})" if value == int(value) and abs(value) < 1e15 else f"({value.hex()})"


def declared(kind: str, value: str, at: int) -> tuple[str, str]:
    """What stands in the text for a number that is read, the one at `at` of the function's own; and what declares it, at the
    function's head, where no write to memory has made the compiler forget what it has loaded."""
    if kind == ARRAY:
        return f"const long *const {value.partition('=')[0]} = ((const long *const *)m)[{at}];", ""
    if kind == DOUBLE:
        return f"f{at}", f"const double f{at} = m[{at}];"
    return f"d{at}", f"const long d{at} = ((const long *)m)[{at}];"


def passed(at: int) -> tuple[str, str]:
    """A function's own numbers, as one more argument and as one more entry of a list of pointers."""
    return f", n + {at}", f", (void *)(n + {at})"


def function(head: str, body: str) -> str:
    return f"{head} {{\n{body}}}\n"


def written_out(text: str) -> str:
    """The text as C, its numbers written out."""
    return MARK.sub(lambda m: written(m[1], m[2]), text)


# ------------------------------------------------------------------------------------------------------------ operands
def address(v: Value) -> str:
    at = f" + {size(v.offset)}" if v.offset else ""
    return f"(({TYPES[v.element]} *)(s{v.storage.id}{at}))"


def _scratch(s: Scratch) -> str:
    at = f"(scratch + {along(s.offset)})"
    return f"(({TYPES[s.kind]} *){at})" if s.kind else at


_WORDS = {"**": "pow({}, {})", "neg": "(-{})", "max": "fmax({}, {})", "min": "fmin({}, {})", "abs": "fabs({})",
          "sqrt": "sqrt({})"}


def number(expression: Any) -> str:
    """A floating-point number (symbolic.py); `n` is the array of the call's numbers."""
    if expression.__class__ is not tuple:
        return operand(expression)
    kind, *given = expression
    if kind == "number":
        return literal(given[0])
    if kind == "input":
        return f"n[{given[0]}]"
    if kind == "load":
        return f"((double)*{address(given[0])})"
    return _WORDS.get(kind, f"({{}} {kind} {{}})").format(*map(number, given))


_OPERANDS = {Value: address, type(None): lambda _: "0", int: str, float: str, Size: size, Along: along, Long: literal,
             tuple: number, Scratch: _scratch, Result: lambda r: r.name}


def operand(a: Any) -> str:
    """What a statement names, see ../statements.py."""
    return _OPERANDS[a.__class__](a)


# ------------------------------------------------------------------------------------------------------- loops' bodies
def index(dims: list[int]) -> list[str]:
    return [f"i{d}" for d in range(len(dims))]


def element(e: Element) -> str:
    steps = [f"i{d}" if s == 1 else f"i{d} * {size(s)}" for d, s in enumerate(e.steps) if s]
    return f"{e.place}[{' + '.join(steps) or '0'}]"


def statement(s: Let | Put) -> str:
    """What happens at an element of a nest, or before it."""
    if s.__class__ is Put:
        return f"{element(s.element)} = {s.name};"
    kind, value = TYPES[s.kind], s.value
    if value.__class__ is Formula:
        # A truth value is an int: the compiler makes no vectors of bytes that are made from and become floats.
        return f"int {s.name} = ({_formula(value)}) != 0;" if s.kind == "b8" else f"{kind} {s.name} = {_formula(value)};"
    return f"{kind} {s.name} = {element(value) if value.__class__ is Element else number(value)};"


def _formula(f: Formula) -> str:
    operands = {n: _constant(x) if x.__class__ is Constant else x for n, x in f.operands.items()}
    return operands["a"] if f.kind == "copy" else pointwise.to_c(f.expression, f.kind, operands)


def _constant(c: Constant) -> str:
    text = literal(c.value)
    return f"({TYPES[c.kind]}){text}" if c.kind in ("f32", "f64") else text
