"""A whole program in C: one function that runs it.

`long program(char **p, const double *n)`: p holds the addresses of inputs, outputs, constants and the arena, n the run-time
numbers of the call, and behind them those of the program (template.py). Returns 0, or what went wrong (program.py knows the
codes). Its work is in parts of bounded length: a C compiler's time grows faster than a function does.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from .... import native
from ....native import toolchain
from ...ir.literals import along, blank, size, unmarked
from ...ir.parts import Storage, Value
from ...passes.epilogues import Product
from ...passes.fusion import Control, Loop, Single
from ..nests import Nest
from ..template import Function, Template
from . import c
from .c_loops import NestText, piece
from .c_statements import call, code

_PART = 400         # lines of C after which another function begins
_CLOCK = """// {id}: libraries of one text share their variables
#include <time.h>
double seconds[{count} + 1];
static double last;
static void tick(long group) {{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double now = t.tv_sec + 1e-9 * t.tv_nsec;
    if (group >= 0) seconds[group] += now - last;
    last = now;
}}
"""


class Renderer:
    """Writes the C of one program.

    slots: place in p of each storage's address, and what is to be added to it; stored: storages whose values must reach
    memory; inits: temporaries that are filled before a group, by its number (-1: before all), from which place in p (None: with
    zeros); general: the text is to do for other sizes, too, with other numbers in it.
    """

    def __init__(self, groups: list[Any], slots: dict[int, tuple[int, int]], stored: set[int],
                 inits: dict[int, list[tuple[Storage, int | None]]], timed: bool = False, general: bool = False):
        self.groups, self.slots, self.stored, self.inits, self.general = groups, slots, stored, inits, general
        self.timed = timed               # whether the time of each group is taken
        self.calls: list[Any] = []       # operations that call back into Python
        self.shared: list[Function] = []  # for loops that occur more than once, and for pieces of products
        self.free = 0                    # where its scratch memory begins
        self.call_slots: list[Any] = []  # where what those work on is
        self.texts = {id(g): NestText(Nest(g, stored, general)) for g in groups if g.__class__ is Loop}
        self.often = Counter(self._form(text) for text in self.texts.values())

    def _form(self, nest: NestText) -> str:
        """What loops have in common that can be one function."""
        return blank(nest.text) if self.general else nest.text

    def _filled(self, at: int) -> list[str]:
        """What happens to memory before a group."""
        return [f"memset(s{s.id}, 0, {size(s.nbytes)});" if number is None else
                f"memcpy(s{s.id}, p[{number}], {size(s.nbytes)});" for s, number in self.inits.get(at, ())]

    def _place(self, v: Value) -> tuple[int, int]:
        number, offset = self.slots[v.storage.id]
        return number, offset + v.offset

    def template(self) -> Template:
        parts: list[list[str]] = [[f"    {line}" for line in self._filled(-1)]]
        for at, group in enumerate(self.groups):
            if len(parts[-1]) >= _PART:
                parts.append([])
            parts[-1] += self._group(at, group)
        self.scratch = max((sum(op.scratches) for g in self.groups for op in g.ops), default=0)
        calls = " || ".join(f"(status = part{i}(p, n))" for i in range(len(parts)))
        tail = ("long program(char **p, const double *n) {\n    long status;\n" + ("    tick(-1);\n" if self.timed else "")
                + f"    return {calls} ? status : 0;\n}}\n")
        return Template(self.shared, [(f"part{i}", self._part("\n".join(lines))) for i, lines in enumerate(parts)], tail, c)

    def complete(self, text: str) -> tuple[str, list[str]]:
        """The whole C file around the text of the functions, and the native functions that they call."""
        functions = sorted({f for f in re.findall(r"\bfl_\w+", text) if f in signatures()})
        prototypes = "\n".join(map(prototype, functions))
        clock = _CLOCK.format(count=len(self.groups), id=id(self)) if self.timed else ""
        return ('#include "runtime.h"\n#include "vmath.h"\n#include "folds.h"\n'
                f"{clock}typedef long (*call_t)(long);\n{prototypes}\n\n{text}"), functions

    def _group(self, at: int, group: Loop | Single | Product) -> list[str]:
        """The C of one group, below a comment that names its kernels and the user's line."""
        where = next((op.where for op in group.ops if op.where), None)
        names = [op.kernel for op in group.ops]
        title = f"// {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
        lines = [title + (f"   {unmarked(where[0].rpartition('/')[2])}:{where[1]}" if where else ""), *self._filled(at)]
        lines += {Loop: self.loop, Single: self.single, Product: self.product, Control: self.control}[group.__class__](group)
        if self.timed:
            lines.append(f"tick({at});")
        return [f"    {line}" for line in lines]

    def _part(self, text: str) -> Function:
        """A function of its own for some of the groups; only the addresses that they use are named in it."""
        return Function("static __attribute__((noinline)) long {name}(char **p, const double *n)", self._whole(text),
                        line="const double *m = n + {place};")

    def _whole(self, text: str) -> str:
        free = f" + {along(self.free)}" if self.free else ""
        head = f"    long status = 0;\n    char *scratch = p[1]{free};\n"
        return f"{head}{self._declared(text)}{text}\nfailed:\n    return status;\n"

    def _declared(self, text: str) -> str:
        named = {int(i) for i in re.findall(r"\bs(\d+)\b", text)}
        return "".join(f"    char *const s{i} = p[{number}] + {0 if number > 1 else along(offset)};\n" for i, (number, offset)
                       in sorted(self.slots.items()) if i in named)

    # ---------------------------------------------------------------------------------------------- single operations
    def single(self, group: Single) -> list[str]:
        if group.code is not None:
            return code(group.code, self._place)
        self.calls.append(group.op)
        self.call_slots.append(self.slots)
        return [f"if (((call_t)p[2])({len(self.calls) - 1})) {{ status = 2; goto failed; }}"]

    def loop(self, group: Loop) -> list[str]:
        """A loop in place; a call where the same loop occurs more than once, on other memory: C compilers are slow."""
        nest = self.texts[id(group)]
        if self.often[self._form(nest)] == 1 or re.search(r"\bs\d+\b", nest.text):  # it names memory of its own
            return ["{", *[f"    {line}" for line in (*nest.pointers, *nest.lines)], "}"]
        self.shared.append(nest.function())
        number = len(self.shared) - 1
        return [f"«F{number}»({', '.join(['n', *nest.addresses])}«N{number}»);"]

    def product(self, group: Product) -> list[str]:
        """The product, and a function for the loop: its pieces are called from inside the product."""
        nest = NestText(Nest(group.loop, self.stored, self.general, whole=True))
        body = "\n".join(f"    {line}" for line in (*nest.before, *piece(nest.index, nest.body)))
        given = "".join(f"    {kind}{name} = context[{i + 2}];\n" for i, (kind, name) in enumerate(nest.kinds))
        self.shared.append(Function(
            "static void {name}(void **context, long row, long column, long rows, long columns)",
            f"    char **p = context[0];\n    const double *n = context[1];\n{self._declared(body)}{given}{body}\n",
            line=f"const double *m = context[{len(nest.kinds) + 2}];"))
        number = len(self.shared) - 1
        context = f"void *context[] = {{{', '.join(['p', '(void *)n', *nest.addresses])}«C{number}»}};"
        made = call(group.call, self._place, f", «F{number}», context", "product")
        return ["{", *[f"    {line}" for line in (context, *made)], "}"]

    # -------------------------------------------------------------------------------------------- branches and loops
    def control(self, group: Control) -> list[str]:
        """Each body is a function of its own; where a loop asks whether to go on, that is part of it."""
        inner, bodies = group.op.inner, group.bodies
        if inner.test is not None:
            return [f"if ((status = {self._body(group, bodies[0], inner.test)})) goto failed;"]
        if not inner.turns:
            test = f"*{c.address(group.op.args[0])} != 0"
            return [f"if ((status = {test} ? {self._body(group, bodies[0])} : {self._body(group, bodies[1])})) goto failed;"]
        slots = bodies[0].slots
        count = size(inner.turns)
        turn = f"({count} - 1 - turn)" if inner.backwards else "turn"
        return [f"for (long turn = 0; turn < {count}; turn++) {{",
                *[f"    p[{slots[s.storage.id][0]}] = {self._at(slots[s.of.id])} + {size(s.offset)} + {turn} * {size(s.step)};"
                  for s in inner.slices],
                f"    if ((status = {self._body(group, bodies[0])})) goto failed;", "}"]

    @staticmethod
    def _at(slot: tuple[int, int]) -> str:
        number, offset = slot
        return f"p[{number}]" if number > 1 else f"(p[{number}] + {along(offset)})"

    def _body(self, group: Control, body: Any, test: Value | None = None) -> str:
        """Writes a body as a function; returns the call of it."""
        own = Renderer(body.groups, body.slots, body.stored, body.inits, False, self.general)
        own.calls, own.call_slots, own.shared, own.free = self.calls, self.call_slots, self.shared, body.free
        parts = [own._group(at, g) for at, g in enumerate(body.groups)]
        lines = [line for part in parts[:body.turn] for line in part]
        if test is not None:
            lines = ["    for (;;) {", *lines, f"    if (!(*{c.address(test)} != 0)) break;",
                     *[line for part in parts[body.turn:] for line in part], "    }"]
        inside = max((sum(op.scratches) for g in body.groups for op in g.ops), default=0)
        group.op.scratches = [max(body.arena_bytes + inside, sum(group.op.scratches))]
        self.shared.append(Function("static __attribute__((noinline)) long {name}(char **p, const double *n{own})",
                                    own._whole("\n".join(lines)), own=", const double *m"))
        number = len(self.shared) - 1
        return f"«F{number}»(p, n«N{number}»)"


# --------------------------------------------------------------------------------------------------- native functions
_signatures: dict[str, tuple[str, str, str]] = {}


def signatures() -> dict[str, tuple[str, str, str]]:
    """name -> (library, result, arguments) of every function in native/*.c."""
    if not _signatures:
        for path in sorted(toolchain.HERE.glob("*.c")):
            for name, letters in native.signatures(path.read_text()).items():
                result, _, arguments = letters.partition(":")
                _signatures[name] = path.stem, result, arguments
    return _signatures


_KINDS = {"p": "void *", "l": "long", "d": "double", "f": "float", "i": "int", "": "void"}


def prototype(name: str) -> str:
    _, result, arguments = signatures()[name]
    return f"{_KINDS[result]} {name}({', '.join(_KINDS[a] for a in arguments) or 'void'});"
