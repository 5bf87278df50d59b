"""A program's text with its numbers taken out, and the programs that share such a text.

`Template.source` writes some of the numbers into the text and lets the program read the others when it runs, from an array that
each program has of its own. `Family` says which: none at first (compilers make most of a number they know), then those that
were seen to change.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..ir.literals import ALONG, ARRAY, DOUBLE, MARK, blank

Number = tuple[str, str]  # kind and value, see literals.py
_CALL = re.compile("«[FNC]\\d+»")


class Function:
    """One function of a program.

    signature: with places for its {name} and for {own}, a further parameter `m`: where its own numbers are. One that cannot
    have another parameter declares m by a line, given the {place} of its numbers among all.
    """

    def __init__(self, signature: str, body: str, own: str = "", line: str = ""):
        self.signature, self.own, self.line, self.body = signature, own, line, body
        parts = MARK.split(body)
        self.text, self.numbers = parts[::3], list(zip(parts[1::3], parts[2::3]))

    def head(self, name: str, reads: bool) -> str:
        return self.signature.format(name=name, own=self.own if reads else "")

    def filled(self, dialect: Any, first: int, lifted: frozenset[int], place: int) -> tuple[str, list[Number]]:
        """The body, and the numbers that it reads. Those of this function count from `first`."""
        made, declared, read = [self.text[0]], [], []
        for i, ((kind, value), text) in enumerate(zip(self.numbers, self.text[1:])):
            if first + i in lifted:
                name, line = dialect.declared(kind, value, len(read))
                made += [name, text]
                declared += [line] if line else []
                read.append((kind, value))
            else:
                made += [dialect.written(kind, value), text]
        if self.line and read:
            declared.insert(0, self.line.format(place=place))
        return "".join([*[f"    {line}\n" for line in declared], *made]), read


class Template:
    """shared: functions that others call; those that turn out to be the same become one. parts: the others, with their names.
    tail: what follows, without numbers. dialect: its words for numbers (dialects/c.py).

    In the text of a part «F3» is the name of shared function 3, and «N3» (in a list of pointers, «C3») passes it its numbers.
    """

    def __init__(self, shared: list[Function], parts: list[tuple[str, Function]], tail: str, dialect: Any):
        self.shared, self.parts, self.tail, self.dialect = shared, parts, tail, dialect
        self.numbers = [n for f in self._functions() for n in f.numbers]

    def _functions(self) -> Iterator[Function]:
        yield from self.shared
        for _, f in self.parts:
            yield f

    @property
    def digest(self) -> str:
        """Of all but the numbers."""
        text = "\0".join([*[f"{f.signature}\0{f.own}\0{f.line}\0{blank(f.body)}" for f in self._functions()], self.tail])
        return hashlib.sha256(text.encode()).hexdigest()

    def source(self, lifted: frozenset[int], place: int) -> tuple[str, list[Number]]:
        """The text, and the numbers that it reads, in the order of the array, from `place` on."""
        read: list[Number] = []
        names: dict[tuple[str, str], str] = {}
        calls: dict[str, str] = {}
        first, texts, dialect = 0, [], self.dialect
        for number, f in enumerate(self.shared):
            at = place + len(read)
            body, own = f.filled(dialect, first, lifted, at)
            body = _called(body, calls)
            key = f.head("", bool(own)), body
            if key not in names:
                names[key] = f"shared{len(names)}"
                texts.append(dialect.function(f.head(names[key], bool(own)), body))
            calls[f"«F{number}»"] = names[key]
            calls[f"«N{number}»"], calls[f"«C{number}»"] = dialect.passed(at) if own else ("", "")
            first += len(f.numbers)
            read += own
        for name, f in self.parts:
            body, own = f.filled(dialect, first, lifted, place + len(read))
            texts.append(dialect.function(f.head(name, bool(own)), _called(body, calls)))
            first += len(f.numbers)
            read += own
        return "\n".join([*texts, self.tail]), read


def _called(body: str, calls: dict[str, str]) -> str:
    return _CALL.sub(lambda m: calls[m[0]], body)


def enter(numbers: list[Number], into: Any, place: int) -> list[Any]:
    """Writes numbers that a text reads into an array of doubles, from `place` on. Returns what must live as long as it."""
    longs = (ctypes.c_long * len(into)).from_buffer(into)
    arrays = []
    for at, (kind, value) in enumerate(numbers, place):
        if kind == DOUBLE:
            into[at] = float.fromhex(value)
        elif kind == ARRAY:
            parts = value.partition("=")[2].split(",") if not value.endswith("=") else []
            arrays.append((ctypes.c_long * len(parts))(*map(int, parts)))
            longs[at] = ctypes.addressof(arrays[-1])
        else:
            longs[at] = int(value)
    return arrays


class Kind:
    """Programs with one template. first: the numbers of the first; lifted: places of those that are read (by all but the first,
    if that is fixed)."""

    def __init__(self, numbers: list[Number]):
        self.first, self.lifted, self.fixed = numbers, frozenset[int](), True

    def lift(self, changed: set[int]) -> frozenset[int]:
        """Adds to what is read; with sizes comes what follows from them."""
        self.lifted |= changed
        if any(self.first[i][0] != DOUBLE for i in self.lifted):
            self.lifted |= {i for i, (kind, _) in enumerate(self.first) if kind == ALONG}
        return self.lifted


class Family:
    """The programs of one function.

    dynamic: None: numbers are written into the text until they are seen to change; True: all are read from the first program
    on; False: all are always written into the text.
    """

    def __init__(self, dynamic: bool | None = None):
        self.dynamic = dynamic
        self.kinds: dict[str, Kind] = {}
        self.lock = threading.Lock()

    def drafted(self, make: Callable[[bool], Any]) -> tuple[Any, frozenset[int]]:
        """The draft of a new program, and the numbers that it reads. make(general): drafts it, for any size or for its own."""
        if self.dynamic is False:
            return make(False), frozenset()
        general = make(True)
        lifted = self._lifted(general.template)
        return (make(False), frozenset()) if lifted is None else (general, lifted)

    def _lifted(self, template: Template) -> frozenset[int] | None:
        """None: a program of its own."""
        with self.lock:
            digest, numbers = template.digest, template.numbers
            kind = self.kinds.get(digest)
            if kind is None:
                changed = set(range(len(numbers))) if self.dynamic else self._guessed(numbers)
                kind = self.kinds[digest] = Kind(numbers)
                kind.fixed = not changed
            else:
                changed = {i for i, (a, b) in enumerate(zip(kind.first, numbers)) if a != b}
            return kind.lift(changed) if changed or not kind.fixed else None

    def _guessed(self, numbers: list[Number]) -> set[int]:
        """Which numbers of a new kind are likely to change: where programs of other kinds read some, those that none of these
        has for certain. (A dimension of length one makes another kind.)"""
        moved = [k for k in self.kinds.values() if k.lifted]
        constant = {n for k in moved for i, n in enumerate(k.first) if i not in k.lifted}
        return {i for i, n in enumerate(numbers) if n not in constant} if moved else set()
