"""From groups to C: one function that runs the whole program.

`long program(char **p, const double *n)`: p holds the addresses of inputs, outputs, constants and the arena, n the run-time
numbers of the call, and behind them those of the program (template.py). Returns 0, or what went wrong (program.py knows the
codes). Its work is in parts of bounded length: a C compiler's time grows faster than a function does.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from typing import Any

from ... import native
from ...backends.cpu.pointwise import loops as pointwise
from ...native import toolchain
from ..capture.symbolic import to_c
from ..ir.literals import along, array, blank, literal, size, unmarked
from ..ir.parts import C_TYPES, CONSTANT, SCALAR, TEMPORARY, Number, Value
from ..passes.epilogues import Product
from ..passes.fusion import Access, Loop, Single, Step, collapsed
from .lower import lowered
from .nests import Folded, FoldNest, nest, piece
from .template import Function, Template

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
    memory; inits: statements that stand before a group, by its number (-1: before all); general: the text is to do for other
    sizes, too, with other numbers in it.
    """

    def __init__(self, groups: list[Any], slots: dict[int, tuple[int, int]], stored: set[int], inits: dict[int, list[str]],
                 timed: bool = False, general: bool = False):
        self.groups, self.slots, self.stored, self.inits, self.general = groups, slots, stored, inits, general
        self.timed = timed               # whether the time of each group is taken
        self.calls: list[Any] = []       # operations that call back into Python
        self.shared: list[Function] = []  # for loops that occur more than once, and for pieces of products
        self.texts = {id(g): _LoopText(g, stored, collapsed(g.dims, g.steps), general) for g in groups if g.__class__ is Loop}
        self.often = Counter(self._form(text) for text in self.texts.values())

    def _form(self, text: _LoopText) -> str:
        """What loops have in common that can be one function."""
        return blank(text.body_text) if self.general else text.body_text

    def template(self) -> Template:
        parts: list[list[str]] = [[f"    {line}" for line in self.inits.get(-1, ())]]
        for at, group in enumerate(self.groups):
            if len(parts[-1]) >= _PART:
                parts.append([])
            parts[-1] += self._group(at, group)
        self.scratch = max((sum(op.scratches) for g in self.groups for op in g.ops), default=0)
        calls = " || ".join(f"(status = part{i}(p, n))" for i in range(len(parts)))
        tail = ("long program(char **p, const double *n) {\n    long status;\n" + ("    tick(-1);\n" if self.timed else "")
                + f"    return {calls} ? status : 0;\n}}\n")
        return Template(self.shared, [(f"part{i}", self._part("\n".join(lines))) for i, lines in enumerate(parts)], tail)

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
        lines = [title + (f"   {unmarked(where[0].rpartition('/')[2])}:{where[1]}" if where else ""), *self.inits.get(at, ())]
        lines += {Loop: self.loop, Single: self.single, Product: self.product}[group.__class__](group)
        if self.timed:
            lines.append(f"tick({at});")
        return [f"    {line}" for line in lines]

    def _part(self, text: str) -> Function:
        """A function of its own for some of the groups; only the addresses that they use are named in it."""
        body = (f"    long status = 0;\n    char *scratch = p[1];\n{self._declared(text)}{text}\nfailed:\n    return status;\n")
        return Function("static __attribute__((noinline)) long {name}(char **p, const double *n)", body,
                        line="const double *m = n + {place};")

    def _declared(self, text: str) -> str:
        named = {int(i) for i in re.findall(r"\bs(\d+)\b", text)}
        return "".join(f"    char *const s{i} = p[{number}] + {0 if number else along(offset)};\n" for i, (number, offset)
                       in sorted(self.slots.items()) if i in named)

    # ---------------------------------------------------------------------------------------------- single operations
    def single(self, group: Single) -> list[str]:
        if group.code is not None:
            if not group.op.tables:
                return group.code.splitlines()
            tables = [line for i, rows in enumerate(group.op.tables) for line in self._table(f"table{i}", rows)]
            return ["{", *tables, *group.code.splitlines(), "}"]
        self.calls.append(group.op)
        return [f"if (((call_t)p[2])({len(self.calls) - 1})) {{ status = 2; goto failed; }}"]

    def _table(self, name: str, rows: list[list[Value | int]]) -> list[str]:
        def entry(value: Value | int) -> tuple[int, int]:
            """Place in p (-1: none), and what is to be added."""
            if value.__class__ is not Value:
                return -1, value
            if not value.size:  # has no place in memory
                return -1, 0
            number, offset = self.slots[value.storage.id]
            return number, offset + value.offset

        count, width = len(rows), len(rows[0])
        return [array(f"{name}_", [n for row in rows for value in row for n in entry(value)]),
                f"void *{name}[{count}][{width}];",
                f"for (long i = 0; i < {count * width}; i++)",
                f"    {name}[0][i] = ({name}_[2 * i] < 0 ? (char *)0 : p[{name}_[2 * i]]) + {name}_[2 * i + 1];"]

    def loop(self, group: Loop) -> list[str]:
        """A loop in place; a call where the same loop occurs more than once, on other memory: C compilers are slow."""
        text = self.texts[id(group)]
        if self.often[self._form(text)] == 1 or re.search(r"\bs\d+\b", text.body_text):  # it names memory of its own
            return ["{", *[f"    {line}" for line in (*text.pointers, *text.lines())], "}"]
        self.shared.append(text.function())
        number = len(self.shared) - 1
        return [f"«F{number}»({', '.join(['n', *text.addresses])}«N{number}»);"]

    def product(self, group: Product) -> list[str]:
        """The product, and a function for the loop: its pieces are called from inside the product."""
        op, loop = group.op, group.loop
        places = {id(a): a.strides for s in loop.steps for a in (s.out, *s.reads.values()) if a.__class__ is Access}
        text = _LoopText(loop, self.stored, (loop.dims, places), self.general)
        body = "\n".join(f"    {line}" for line in (*text.before, *piece(text.index, text.body)))
        given = "".join(f"    {kind}{name} = context[{i + 2}];\n" for i, (kind, name) in enumerate(text.kinds))
        self.shared.append(Function(
            "static void {name}(void **context, long row, long column, long rows, long columns)",
            f"    char **p = context[0];\n    const double *n = context[1];\n{self._declared(body)}{given}{body}\n",
            line=f"const double *m = context[{len(text.kinds) + 2}];"))
        number = len(self.shared) - 1
        op.after = f"«F{number}», context"
        context = f"void *context[] = {{{', '.join(['p', '(void *)n', *text.addresses])}«C{number}»}};"
        return ["{", *[f"    {line}" for line in (context, *(lowered(op) or "").splitlines())], "}"]


class _LoopText:
    """The C of a loop: declarations that stand before it, and its body. places: dimensions, and the strides of each access."""

    def __init__(self, group: Loop, stored: set[int], places: tuple[list[int], dict[int, tuple[int, ...]]], general: bool):
        self.dims, self.strides = places
        self.general = general
        self.index = [f"i{d}" for d in range(len(self.dims))]
        self.written, self.stored = group.written, stored
        self.before: list[str] = []
        self.body: list[str] = []
        self.registers: dict[Any, str] = {}  # (storage, offset, strides, dtype) -> name of the variable with the value there
        self.places: dict[Any, tuple[str, str, str]] = {}  # (storage, offset, dtype) -> a variable: its type, name, address
        self.folds: list[Folded] = []
        self.reduced: list[bool] = []        # of each dimension, whether the folds fold it away
        self.count = 0                       # of variables
        self.work = math.prod(self.dims) * len(group.steps)
        for step in group.steps:
            self.add(step)

    @property
    def kinds(self) -> list[tuple[str, str]]:
        """C types and names of the variables that hold addresses."""
        return [(kind, name) for kind, name, _ in self.places.values()]

    @property
    def addresses(self) -> list[str]:
        return [address for _, _, address in self.places.values()]

    @property
    def pointers(self) -> list[str]:
        return [f"{kind}{name} = {address};" for kind, name, address in self.places.values()]

    @functools.cached_property
    def body_text(self) -> str:
        """The loop as the body of a function, below its parameters."""
        parameters = ", ".join(["const double *n", *[kind + variable for kind, variable in self.kinds]])
        return parameters + "\n" + "".join(f"    {line}\n" for line in self.lines())

    def function(self) -> Function:
        """The loop as a function of the addresses."""
        parameters, _, body = self.body_text.partition("\n")
        return Function(f"static __attribute__((noinline)) void {{name}}({parameters}{{own}})", body, own=", const double *m")

    def lines(self) -> list[str]:
        if self.folds:
            loops = FoldNest(self.dims, self.reduced, self.index, self.body, self.folds, self.work, self.general).lines()
        else:
            loops = nest(self.dims, self.index, self.body, self.work, self.general)
        return [*self.before, *loops]

    def add(self, step: Step) -> None:
        if step.fold is not None:
            self._fold(step)
            return
        out = step.out.value
        kind = C_TYPES[out.dtype.char]
        operands = {n: self._read(r, pointwise.C_TYPES.get(step.suffix, kind)) for n, r in step.reads.items()}
        text = operands["a"] if step.suffix == "copy" else pointwise.to_c(step.expression, step.suffix, operands)
        name = self.registers[self._key(step.out)] = self._name("r")
        # A truth value is an int: the compiler makes no vectors of bytes that are made from and become floats.
        self.body.append(f"int {name} = ({text}) != 0;" if out.dtype.char == "?" else f"{kind} {name} = {text};")
        if out.storage.id in self.stored or out.storage.kind is not TEMPORARY:
            self.body.append(f"{self._place(step.out)} = {name};")

    def _fold(self, step: Step) -> None:
        how, finish = step.fold
        kind = C_TYPES[step.out.value.dtype.char]
        source = self._read(step.reads["a"], kind)
        name = self._name("r")
        self.body.append(f"{kind} {name} = {pointwise.to_c(step.expression, step.suffix, {'a': source})};")
        self.reduced = [s == 0 for s in self.strides[id(step.out)]]
        self.folds.append(Folded(how, kind, name, self._place(step.out), finish, len(self.folds)))

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _key(self, access: Access) -> tuple[Any, ...]:
        v = access.value
        return v.storage.id, v.offset, self.strides[id(access)], v.dtype.char

    def _place(self, access: Access) -> str:
        """The element that the access is at."""
        v = access.value
        key = v.storage.id, v.offset, v.dtype.char
        if key not in self.places:
            self.places[key] = f"{C_TYPES[v.dtype.char]} *", self._name("v"), str(v)
        steps = zip(self.index, self.strides[id(access)])
        return f"{self.places[key][1]}[{' + '.join(i if s == 1 else f'{i} * {size(s)}' for i, s in steps if s) or '0'}]"

    def _read(self, operand: Any, compute: str) -> str:
        """The name of a variable that holds an operand: what does not change in the loop is read before it."""
        if operand.__class__ is Number:
            name = self._name("k")
            self.before.append(f"const {compute} {name} = {to_c(operand.expression)};")
            return name
        if operand.__class__ is not Access:
            return _constant(operand, compute)
        v, key = operand.value, self._key(operand)
        if key in self.registers:
            return self.registers[key]
        moves, kind = any(self.strides[id(operand)]), C_TYPES[v.dtype.char]
        if v.storage.kind is CONSTANT and not moves:
            return _constant(v.item(), kind)
        name = self.registers[key] = self._name("r")
        if v.storage.kind is SCALAR:
            self.before.append(f"const {kind} {name} = {to_c(v.storage.expression)};")
        elif moves or v.storage.id in self.written:
            self.body.append(f"{kind} {name} = {self._place(operand)};")
        else:
            self.before.append(f"const {kind} {name} = {self._place(operand)};")
        return name


def _constant(value: Any, compute: str) -> str:
    text = literal(value)
    return f"({compute}){text}" if compute in ("float", "double") else text


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
