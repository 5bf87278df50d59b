"""Numbers in the text of a program, written so that they can be taken out of it again.

What comes from sizes, strides, places in memory and from the user's own numbers stands between marks that no dialect has. A
dialect writes the numbers out; without them the text is a template (template.py): programs that differ in nothing else can
share one library, which reads the numbers when it runs. A number without marks belongs to the program's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

MARK = re.compile("«([a-z])([^»]*)»")
SIZE, ALONG, LONG, DOUBLE, ARRAY = "i", "o", "l", "f", "a"  # kinds of numbers


def size(n: int) -> str:
    """A size, a stride, a distance in memory."""
    return f"«{SIZE}{int(n)}»"


def along(n: int) -> str:
    """A number that follows from sizes (statements.py)."""
    return f"«{ALONG}{int(n)}»"


def literal(value: Any) -> str:
    """A number, exact."""
    value = getattr(value, "item", lambda: value)()  # of NumPy's, the plain one
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return f"«{LONG}{value:d}»"
    return f"«{DOUBLE}{float(value).hex()}»"


def array(name: str, numbers: Iterable[int]) -> str:
    """The declaration of an array of longs."""
    return f"«{ARRAY}{name}={','.join(map(str, map(int, numbers)))}»"


def blank(text: str) -> str:
    """The text without its numbers."""
    return MARK.sub(lambda m: f"«{m[1]}{m[2].partition('=')[0] if m[1] == ARRAY else ''}»", text)


def unmarked(text: str) -> str:
    """Foreign text, such as a file's name, without anything that could be taken for a mark."""
    return re.sub("[«»]", "?", text)
