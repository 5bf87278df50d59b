"""Numbers in the C text of a program, written so that they can be taken out of it again.

What comes from sizes, strides, places in memory and from the user's own numbers stands between marks that C does not have. A
text is made C by `plain`, which writes the numbers out; without them it is a template (template.py): programs that differ in
nothing else can share one library, which reads the numbers when it runs. A number without marks belongs to the program's form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

MARK = re.compile("«([a-z])([^»]*)»")
SIZE, ALONG, LONG, DOUBLE, ARRAY = "i", "o", "l", "f", "a"  # kinds of numbers


def size(n: int) -> str:
    """A size, a stride, a distance in memory."""
    return f"«{SIZE}{int(n)}»"


def sizes(*numbers: int) -> str:
    return ", ".join(map(size, numbers))


def along(n: int) -> str:
    """A number that follows from sizes in such a way that it may be the same for some of them and another for others: a place
    in the arena, a decision. Where sizes are read at run time, it is too."""
    return f"«{ALONG}{int(n)}»"


def literal(value: Any) -> str:
    """A Python or NumPy number, exact."""
    if isinstance(value, (bool, np.bool_)):
        return "1" if value else "0"
    if isinstance(value, (int, np.integer)):
        value = int(value)
        return f"«{LONG}{value}»" if value < 1 << 63 else f"{value}UL"
    return f"«{DOUBLE}{float(value).hex()}»"


def array(name: str, numbers: Iterable[int]) -> str:
    """The declaration of an array of longs."""
    return f"«{ARRAY}{name}={','.join(map(str, map(int, numbers)))}»"


def plain(text: str) -> str:
    """The text as C, its numbers written out."""
    return MARK.sub(lambda m: written(m[1], m[2]), text)


def blank(text: str) -> str:
    """The text without its numbers."""
    return MARK.sub(lambda m: f"«{m[1]}{m[2].partition('=')[0] if m[1] == ARRAY else ''}»", text)


def unmarked(text: str) -> str:
    """Foreign text, such as a file's name, without anything that could be taken for a mark."""
    return re.sub("[«»]", "?", text)


def written(kind: str, value: str) -> str:
    """A number in C."""
    if kind == ARRAY:
        name, _, numbers = value.partition("=")
        return f"static const long {name}[] = {{{numbers.replace(',', ', ')}}};"
    if kind == DOUBLE:
        return _double(float.fromhex(value))
    if kind == LONG:  # C has no negative literals: the number after the sign would not fit
        return f"({int(value) + 1}L - 1)" if int(value) == -1 << 63 else f"({value}L)"
    return value


def _double(value: float) -> str:
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"({value!r})" if value == int(value) and abs(value) < 1e15 else f"({value.hex()})"
