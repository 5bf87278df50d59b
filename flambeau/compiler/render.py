"""From groups to C: one function that runs the whole program.

`long program(char **p, const double *n)`: p holds the addresses of inputs, outputs, constants and the arena, n the run-time
numbers. Returns 0, or what went wrong (runtime.py knows the codes).
"""

from __future__ import annotations

import ctypes
import math
import re
from typing import Any

import numpy as np

from ..native import pointwise, toolchain
from .fusion import Access, Loop, Single, Step
from .ir import C_TYPES, CONSTANT, SCALAR, TEMPORARY, Number, Value, literal
from .symbolic import to_c

PARALLEL = 1 << 15  # element operations from which a loop is shared among threads
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
    """Writes the C of one program. slots: C expression of each storage's address; live: storages read after each group."""

    def __init__(self, groups: list[Any], slots: dict[int, str], stored: set[int], inits: dict[int, list[str]],
                 timed: bool = False):
        self.groups, self.slots, self.stored, self.inits = groups, slots, stored, inits
        self.timed = timed               # whether the time of each group is taken
        self.calls: list[Any] = []       # operations that call back into Python
        self.functions: set[str] = set()

    def source(self) -> str:
        body = [f"    {line}" for line in self.inits.get(-1, ())]
        for at, group in enumerate(self.groups):
            where = next((op.where for op in group.ops if op.where), None)
            names = [op.kernel for op in group.ops]
            body.append(f"    // {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
                        + (f"   {where[0].rpartition('/')[2]}:{where[1]}" if where else ""))
            body += [f"    {line}" for line in self.inits.get(at, ())]
            if group.__class__ is Loop:
                body += [f"    {line}" for line in self.loop(group, self.stored)]
            else:
                body += [f"    {line}" for line in self.single(group)]
            if self.timed:
                body.append(f"    tick({at});")
        text = "\n".join(body)
        scratch = max((sum(op.scratches) for g in self.groups for op in g.ops), default=0)
        self.scratch = scratch
        named = {int(i) for i in re.findall(r"\bs(\d+)\b", text)}
        declared = [f"    char *const s{i} = {slot};" for i, slot in sorted(self.slots.items()) if i in named]
        enter = "    fl_blas_enter();\n" if "fl_blas_enter" in signatures() else ""
        leave = "    fl_blas_leave();\n" if enter else ""
        enter += "    tick(-1);\n" if self.timed else ""
        whole = ("long program(char **p, const double *n) {\n    long status = 0;\n    char *scratch = p[1];\n"
                 + "\n".join(declared) + "\n" + enter + text
                 + f"\nfailed:\n{leave}    return status;\n}}\n")
        self.functions = {f for f in re.findall(r"\bfl_\w+", whole) if f in signatures()}
        prototypes = "\n".join(prototype(f) for f in sorted(self.functions))
        clock = _CLOCK.format(count=len(self.groups), id=id(self)) if self.timed else ""
        return ('#include "runtime.h"\n#include "vmath.h"\n'
                f"{clock}typedef long (*call_t)(long);\n{prototypes}\n\n{whole}")

    # ---------------------------------------------------------------------------------------------- single operations
    def single(self, group: Single) -> list[str]:
        if group.code is not None:
            return group.code.splitlines()
        self.calls.append(group.op)
        return [f"if (((call_t)p[2])({len(self.calls) - 1})) {{ status = 2; goto failed; }}"]

    # ---------------------------------------------------------------------------------------------------------- loops
    def loop(self, group: Loop, stored: set[int]) -> list[str]:
        dims, strides = _collapsed(group)
        total = math.prod(dims)
        lines: list[str] = []
        hoisted: list[str] = []
        body: list[str] = []
        names: dict[Any, str] = {}      # (storage, offset, strides, dtype) -> register that holds the value there
        pointers: dict[Any, str] = {}
        depth = len(dims)
        index = [f"i{d}" for d in range(depth)]

        def at(access: Access) -> str:
            s = strides[id(access)]
            terms = [index[d] if s[d] == 1 else f"{index[d]} * {s[d]}" for d in range(depth) if s[d]]
            return " + ".join(terms) or "0"

        def base(access: Access) -> str:
            v = access.value
            key = (v.storage.id, v.offset, v.dtype.char)
            if key not in pointers:
                pointers[key] = f"v{len(pointers)}"
                hoisted.append(f"{C_TYPES[v.dtype.char]} *{pointers[key]} = {v};")
            return pointers[key]

        def read(access: Any, compute: str) -> str:
            if access.__class__ is not Access:
                if access.__class__ is Number:
                    name = f"k{len(hoisted)}"
                    hoisted.append(f"const {compute} {name} = {to_c(access.expression)};")
                    return name
                return _constant(access, compute)
            v = access.value
            key = (v.storage.id, v.offset, strides[id(access)], v.dtype.char)
            if key in names:
                return names[key]
            if v.storage.kind is SCALAR:
                name = names[key] = f"k{len(hoisted)}"
                hoisted.append(f"const {C_TYPES[v.dtype.char]} {name} = {to_c(v.storage.expression)};")
                return name
            if v.storage.kind is CONSTANT and not any(strides[id(access)]):
                return _constant(_peek(v), C_TYPES[v.dtype.char])
            name = names[key] = f"r{len(names)}"
            line = f"{C_TYPES[v.dtype.char]} {name} = {base(access)}[{at(access)}];"
            if not any(strides[id(access)]) and v.storage.id not in group.written:
                hoisted.append("const " + line)
            else:
                body.append(line)
            return name

        for step in group.steps:
            self._step(step, read, names, strides, stored, body, base, at)
        lines += hoisted
        lines += self._nest(dims, index, body, total * max(1, len(group.steps)), group)
        return ["{", *[f"    {line}" for line in lines], "}"]

    def _step(self, step: Step, read: Any, names: dict[Any, str], strides: dict[int, Any], stored: set[int], body: list[str],
              base: Any, at: Any) -> None:
        out = step.out.value
        kind = C_TYPES[out.dtype.char]
        compute = pointwise.C_TYPES.get(step.suffix, kind)
        operands = {n: read(r, compute) for n, r in step.reads.items()}
        if step.suffix == "copy":
            text = operands["a"]
            if out.dtype.char == "?":
                text = f"{text} != 0"
        else:
            text = pointwise.to_c(step.expression, step.suffix, operands)
            if out.dtype.char == "?":
                text = f"({text}) != 0"
        name = f"r{len(names)}"
        body.append(f"{kind} {name} = {text};")
        names[out.storage.id, out.offset, strides[id(step.out)], out.dtype.char] = name
        names[object()] = name  # keeps the numbering unique when a place is written twice
        if out.storage.id in stored or out.storage.kind is not TEMPORARY:
            body.append(f"{base(step.out)}[{at(step.out)}] = {name};")

    def _nest(self, dims: list[int], index: list[str], body: list[str], work: int, group: Loop) -> list[str]:
        heavy = any("exp" in line or "tanh" in line or "erf" in line or "log" in line for line in body)
        parallel = work * (8 if heavy else 1) >= PARALLEL and math.prod(dims) >= 1024
        lines = []
        for d, n in enumerate(dims):
            pragma = None
            inner = d == len(dims) - 1
            if parallel and d == 0:
                pragma = "omp parallel for simd" if inner else "omp parallel for"
                pragma += " num_threads(fl_threads) schedule(static)"
                if not inner and n < 64 and len(dims) > 2:
                    pragma += " collapse(2)"
            elif inner and n > 1:
                pragma = "omp simd"
            pad = "    " * d
            if pragma and not (parallel and d == 1 and "collapse" in "".join(lines)):
                lines.append(f"{pad}#pragma {pragma}")
            lines.append(f"{pad}for (long {index[d]} = 0; {index[d]} < {n}; {index[d]}++)" + (" {" if inner else ""))
        pad = "    " * len(dims)
        lines += [pad + line for line in body]
        lines.append("    " * (len(dims) - 1) + "}")
        return lines


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
    """name -> (library, result, arguments) of every function in native/*.c, from the comments before them."""
    if not _signatures:
        for path in sorted(toolchain.HERE.glob("*.c")):
            for line in path.read_text().splitlines():
                if line.startswith("//: "):
                    what, _, rest = line[4:].partition("(")
                    result, _, name = what.strip().rpartition(" ")
                    _signatures[name] = path.stem, result, rest.partition(")")[0]
    return _signatures


_KINDS = {"p": "void *", "l": "long", "d": "double", "f": "float", "i": "int", "": "void"}


def prototype(name: str) -> str:
    _, result, arguments = signatures()[name]
    return f"{_KINDS[result]} {name}({', '.join(_KINDS[a] for a in arguments) or 'void'});"
