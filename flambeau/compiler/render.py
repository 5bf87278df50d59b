"""From groups to C: one function that runs the whole program.

`long program(char **p, const double *n)`: p holds the addresses of inputs, outputs, constants and the arena, n the run-time
numbers. Returns 0, or what went wrong (program.py knows the codes). Its work is in parts of bounded length: a C compiler's
time grows faster than a function does.
"""

from __future__ import annotations

import ctypes
import math
import re
from typing import Any

import numpy as np

from .. import native
from ..native import pointwise, toolchain
from .fusion import Access, Loop, Single, Step
from .ir import C_TYPES, CONSTANT, SCALAR, TEMPORARY, Number, Value, literal
from .symbolic import to_c

PARALLEL = 1 << 15  # element operations from which a loop is shared among threads
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
    memory; inits: statements that stand before a group, by its number (-1: before all).
    """

    def __init__(self, groups: list[Any], slots: dict[int, tuple[int, int]], stored: set[int], inits: dict[int, list[str]],
                 timed: bool = False):
        self.groups, self.slots, self.stored, self.inits = groups, slots, stored, inits
        self.timed = timed               # whether the time of each group is taken
        self.calls: list[Any] = []       # operations that call back into Python
        self.functions: set[str] = set()

    def source(self) -> str:
        parts: list[list[str]] = [[f"    {line}" for line in self.inits.get(-1, ())]]
        for at, group in enumerate(self.groups):
            if len(parts[-1]) >= _PART:
                parts.append([])
            parts[-1] += self._group(at, group)
        self.scratch = max((sum(op.scratches) for g in self.groups for op in g.ops), default=0)
        texts = [self._part(i, "\n".join(lines)) for i, lines in enumerate(parts)]
        calls = " || ".join(f"(status = part{i}(p, n))" for i in range(len(parts)))
        texts.append("long program(char **p, const double *n) {\n    long status;\n" + ("    tick(-1);\n" if self.timed else "")
                     + f"    return {calls} ? status : 0;\n}}\n")
        whole = "\n".join(texts)
        self.functions = {f for f in re.findall(r"\bfl_\w+", whole) if f in signatures()}
        prototypes = "\n".join(prototype(f) for f in sorted(self.functions))
        clock = _CLOCK.format(count=len(self.groups), id=id(self)) if self.timed else ""
        return ('#include "runtime.h"\n#include "vmath.h"\n'
                f"{clock}typedef long (*call_t)(long);\n{prototypes}\n\n{whole}")

    def _group(self, at: int, group: Loop | Single) -> list[str]:
        """The C of one group, below a comment that names its kernels and the user's line."""
        where = next((op.where for op in group.ops if op.where), None)
        names = [op.kernel for op in group.ops]
        title = f"// {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
        lines = [title + (f"   {where[0].rpartition('/')[2]}:{where[1]}" if where else ""), *self.inits.get(at, ())]
        lines += self.loop(group) if group.__class__ is Loop else self.single(group)
        if self.timed:
            lines.append(f"tick({at});")
        return [f"    {line}" for line in lines]

    def _part(self, number: int, text: str) -> str:
        """A function of its own for some of the groups; only the addresses that they use are named in it."""
        named = {int(i) for i in re.findall(r"\bs(\d+)\b", text)}
        declared = "".join(f"    char *const s{i} = p[{number}] + {offset};\n" for i, (number, offset) in sorted(
            self.slots.items()) if i in named)
        return (f"static __attribute__((noinline)) long part{number}(char **p, const double *n) {{\n    long status = 0;\n"
                f"    char *scratch = p[1];\n{declared}{text}\nfailed:\n    return status;\n}}\n")

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
        def entry(value: Value | int) -> str:
            if value.__class__ is not Value:
                return f"{{-1, {value}}}"
            if not value.size:  # has no place in memory
                return "{-1, 0}"
            number, offset = self.slots[value.storage.id]
            return f"{{{number}, {offset + value.offset}}}"

        count, width = len(rows), len(rows[0])
        return [f"static const struct {{ long slot, add; }} {name}_[{count}][{width}] = {{",
                *[f"    {{{', '.join(map(entry, row))}}}," for row in rows],
                f"}};\nvoid *{name}[{count}][{width}];",
                f"for (long i = 0; i < {count * width}; i++)",
                f"    {name}[0][i] = ({name}_[0][i].slot < 0 ? (char *)0 : p[{name}_[0][i].slot]) + {name}_[0][i].add;"]

    def loop(self, group: Loop) -> list[str]:
        text = _LoopText(group, self.stored)
        for step in group.steps:
            text.add(step)
        lines = [*text.before, *_nest(text.dims, text.index, text.body, math.prod(text.dims) * len(group.steps))]
        return ["{", *[f"    {line}" for line in lines], "}"]


class _LoopText:
    """The C of a loop as it grows: declarations that stand before it, and its body."""

    def __init__(self, group: Loop, stored: set[int]):
        self.dims, self.strides = _collapsed(group)
        self.index = [f"i{d}" for d in range(len(self.dims))]
        self.written, self.stored = group.written, stored
        self.before: list[str] = []
        self.body: list[str] = []
        self.registers: dict[Any, str] = {}  # (storage, offset, strides, dtype) -> name of the variable with the value there
        self.pointers: dict[Any, str] = {}   # (storage, offset, dtype) -> name of the variable with the address
        self.count = 0                       # of variables

    def add(self, step: Step) -> None:
        out = step.out.value
        kind = C_TYPES[out.dtype.char]
        operands = {n: self._read(r, pointwise.C_TYPES.get(step.suffix, kind)) for n, r in step.reads.items()}
        text = operands["a"] if step.suffix == "copy" else pointwise.to_c(step.expression, step.suffix, operands)
        name = self.registers[self._key(step.out)] = self._name("r")
        self.body.append(f"{kind} {name} = " + (f"({text}) != 0;" if out.dtype.char == "?" else f"{text};"))
        if out.storage.id in self.stored or out.storage.kind is not TEMPORARY:
            self.body.append(f"{self._place(step.out)} = {name};")

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
        if key not in self.pointers:
            self.pointers[key] = self._name("v")
            self.before.append(f"{C_TYPES[v.dtype.char]} *{self.pointers[key]} = {v};")
        steps = zip(self.index, self.strides[id(access)])
        return f"{self.pointers[key]}[{' + '.join(i if s == 1 else f'{i} * {s}' for i, s in steps if s) or '0'}]"

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
            return _constant(_peek(v), kind)
        name = self.registers[key] = self._name("r")
        if v.storage.kind is SCALAR:
            self.before.append(f"const {kind} {name} = {to_c(v.storage.expression)};")
        elif moves or v.storage.id in self.written:
            self.body.append(f"{kind} {name} = {self._place(operand)};")
        else:
            self.before.append(f"const {kind} {name} = {self._place(operand)};")
        return name


def _nest(dims: list[int], index: list[str], body: list[str], work: int) -> list[str]:
    """The loops around a body, shared among threads where there is work enough."""
    heavy = any("exp" in line or "tanh" in line or "erf" in line or "log" in line for line in body)
    parallel = work * (8 if heavy else 1) >= PARALLEL and math.prod(dims) >= 1024
    together = parallel and len(dims) > 2 and dims[0] < 64  # too few rows: the two outer loops are shared as one
    lines = []
    for d, n in enumerate(dims):
        inner = d == len(dims) - 1
        pad = "    " * d
        if parallel and d == 0:
            what = "for simd" if inner else "for"
            lines.append(f"{pad}#pragma omp parallel {what} num_threads(fl_threads) schedule(static)"
                         + (" collapse(2)" if together else ""))
        elif inner and n > 1:
            lines.append(f"{pad}#pragma omp simd")
        lines.append(f"{pad}for (long {index[d]} = 0; {index[d]} < {n}; {index[d]}++)" + (" {" if inner else ""))
    pad = "    " * len(dims)
    return [*lines, *[pad + line for line in body], "    " * (len(dims) - 1) + "}"]


def _constant(value: Any, compute: str) -> str:
    text = literal(value)
    return f"({compute}){text}" if compute in ("float", "double") else text


def _peek(v: Value) -> Any:
    """The value of a constant that is one element."""
    raw = ctypes.string_at(v.storage.start + v.offset, v.dtype.itemsize)
    return np.frombuffer(raw, v.dtype)[0].item()


def _collapsed(group: Loop) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """The loop's dimensions, outermost first in memory order, with neighbours merged where every access allows it, and the
    strides of each access (by its id)."""
    accesses = list(group.accesses())
    main = max((s.out for s in group.steps), key=lambda a: sum(1 for x in a.strides if x))
    order = sorted(range(len(group.dims)), key=lambda d: (-abs(main.strides[d]), d))
    dims = [group.dims[d] for d in order]
    strides = {id(a): [a.strides[d] for d in order] for a in accesses}
    d = 0
    while d < len(dims) - 1:
        if all(s[d] == s[d + 1] * dims[d + 1] for s in strides.values()):
            dims[d] *= dims.pop(d + 1)
            for s in strides.values():
                s.pop(d)
        else:
            d += 1
    return dims, {k: tuple(s) for k, s in strides.items()}


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
