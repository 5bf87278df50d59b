"""Statements of lowerings in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.literals import along, array, size
from ...ir.parts import Value
from ...ir.statements import Addresses, Branch, Call, Cell, Copy, Longs, SmallProduct, Statement, Sums, Table
from .c import TYPES, address, number, operand

Place = Callable[[Value], tuple[int, int]]  # a window's place among the addresses of a call, and what is to be added
_TESTS = {"true": "", "negative": " < 0", "found": " >= 0"}
_UNROLLED = 8    # rows of the right factor that are added up at once in a tiny product


def code(statements: list[Statement], place: Place) -> list[str]:
    """The lines of an operation."""
    lines = [line for s in statements for line in _PRINTED[s.__class__](s, place)]
    return ["{", *lines, "}"] if len(statements) > 1 and any(s.__class__ is Call and s.result for s in statements) else lines


# ---------------------------------------------------------------------------------------------------------------- calls
def call(c: Call, place: Place, more: str = "", name: str = "") -> list[str]:
    """more: further arguments. name: of another function that takes them."""
    lines: list[str] = []
    given = [_filled(a, place, lines) for a in c.arguments]
    text = f"fl_{name or c.function}{'_' if c.kind else ''}{c.kind}({', '.join(given)}{more})"
    if c.result:
        lines.append(f"long {c.result} = {text};")
        text = c.result
    end = f"{text};"
    if c.fails is not None:
        how, status = c.fails
        end = f"if ({text}{_TESTS[how]}) {{ status = {status}; goto failed; }}"
    return ["{", *lines, end, "}"] if lines and not c.result else [*lines, end]


def _filled(a: Any, place: Place, lines: list[str]) -> str:
    """An argument; what must be declared for it goes into `lines`."""
    kind = a.__class__
    if kind is Longs:
        lines.append(array(a.name, a.numbers))
        return f"(void *){a.name}"
    if kind is Addresses:
        lines.append(f"void *table[] = {{{', '.join(map(operand, a.entries))}}};")
        return "table"
    if kind is Table:
        lines += _table("table0", a.rows, place)
        return "table0"
    if kind is Cell:
        lines.append(f"{TYPES[a.kind]} v = ({TYPES[a.kind]}){number(a.value)};")
        return "&v"
    return operand(a)


def _table(name: str, rows: list[list[Value | int]], place: Place) -> list[str]:
    """An array of rows of addresses, made in a loop: a compiler chokes on thousands of expressions."""
    def entry(value: Value | int) -> tuple[int, int]:
        """Place in p (-1: none), and what is to be added."""
        if value.__class__ is not Value:
            return -1, value
        return place(value) if value.size else (-1, 0)  # what is empty has no place in memory

    count = len(rows) * len(rows[0])  # end to end: a compiler may take it for granted that an index stays in its row
    return [array(f"{name}_", [n for row in rows for value in row for n in entry(value)]),
            f"void *{name}[{count}];",
            f"for (long i = 0; i < {count}; i++)",
            f"    {name}[i] = (void *)(({name}_[2 * i] < 0 ? 0 : (long)p[{name}_[2 * i]]) + {name}_[2 * i + 1]);"]


# ---------------------------------------------------------------------------------------------------------- small loops
def _copy(c: Copy, _: Place) -> list[str]:
    to, source = operand(c.to), address(c.source)
    if c.source.contiguous:
        return [f"{f'if ({to} != {source}) ' if c.maybe else ''}memcpy({to}, {source}, {size(c.source.nbytes)});"]
    (rows, columns), (down, right) = map(size, c.source.shape), map(size, c.source.strides)
    return [f"for (long i = 0; i < {rows}; i++) for (long j = 0; j < {columns}; j++) "
            f"{to}[i * {columns} + j] = {source}[i * {down} + j * {right}];"]


def _sums(s: Sums, _: Place) -> list[str]:
    outer, n, inner = s.grid
    kind, wide, out = TYPES[s.kind], TYPES[s.wide], operand(s.out)
    total = f"s / ({kind}){size(s.divisor)}" if s.divisor != 1 else "s"
    rows, columns = size(n), size(inner)
    head = [f"for (long o = 0; o < {size(outer)}; o++) {{",
            f"    const {kind} *p = {operand(s.source)} + o * {size(n * inner)};"]
    if inner == 1:
        return [*head, f"    {wide} s = 0;", "    #pragma omp simd reduction(+ : s)",
                f"    for (long i = 0; i < {rows}; i++) s += p[i];", f"    {out}[o] = {total};", "}"]
    return [*head, f"    {wide} t[{columns}];", f"    for (long j = 0; j < {columns}; j++) t[j] = p[j];",
            f"    for (long i = 1; i < {rows}; i++) {{", "        #pragma omp simd",
            f"        for (long j = 0; j < {columns}; j++) t[j] += p[i * {columns} + j];", "    }",
            f"    for (long j = 0; j < {columns}; j++) {{ {wide} s = t[j]; {out}[o * {columns} + j] = {total}; }}", "}"]


def _branch(b: Branch, place: Place) -> list[str]:
    return [f"if ({along(b.choice)}) {{", *code([b.chosen], place), "} else", *code([b.otherwise], place)]


# ------------------------------------------------------------------------------------------------------ small products
def _product(s: SmallProduct, _: Place) -> list[str]:
    if s.shape[0] is not None:
        return _batch(s)
    return _column(s) if s.lanes == 1 else _rows(s)


def _start(s: SmallProduct) -> str:
    kind = TYPES[s.out.element]
    return f"const {kind} *a = {address(s.a)}, *b = {address(s.b)}, *bias = {operand(s.bias)}; {kind} *c = {address(s.out)};"


def _column(s: SmallProduct) -> list[str]:
    """A result of one column."""
    (_, m, _, k), kind = s.shape, TYPES[s.out.element]
    (down, across), step = map(size, s.steps[0]), size(s.steps[1][0])
    to = size(1 if len(s.out.shape) != 2 else s.out.strides[0])
    return [f"{{ {_start(s)}", f"  for (long i = 0; i < {size(m)}; i++) {{", f"    {kind} s = 0;",
            "#pragma omp simd reduction(+ : s)",
            f"    for (long p = 0; p < {size(k)}; p++) s += a[i * {down} + p * {across}] * b[p * {step}];",
            f"    c[i * {to}] = s{'' if s.bias is None else ' + bias[0]'};", "  }", "}"]


def _rows(s: SmallProduct) -> list[str]:
    """Rows of the result are built in vector registers."""
    (_, m, n, k), kind, lanes = s.shape, TYPES[s.out.element], s.lanes
    (down, across), (step, turn), width = map(size, s.steps[0]), s.steps[1], s.out.dtype.itemsize
    to = size(n if len(s.out.shape) != 2 else s.out.strides[0])
    lines = [f"{{ typedef {kind} V __attribute__((vector_size({lanes * width}), aligned({width}), may_alias));",
             f"  {_start(s)}"]
    if turn != 1:  # its columns first become rows
        lines += [f"  {kind} turned[{size(k * n)}];", f"  for (long j = 0; j < {n}; j++)",
                  f"    for (long p = 0; p < {size(k)}; p++) turned[p * {n} + j] = b[p * {size(step)} + j * {size(turn)}];",
                  "  b = turned;"]
        step = n
    each = range(n // lanes)
    begin = " ".join(f"V c{v} = {{0}};" if s.bias is None else f"V c{v} = ((const V *)bias)[{v}];" for v in each)
    add = " ".join(f"c{v} += w * ((const V *)(b + p * {size(step)}))[{v}];" for v in each)
    put = " ".join(f"((V *)(c + i * {to}))[{v}] = c{v};" for v in each)
    return [*lines, f"  for (long i = 0; i < {size(m)}; i++) {{", f"    {begin}",
            f"    for (long p = 0; p < {size(k)}; p++) {{ {kind} w = a[i * {down} + p * {across}]; {add} }}",
            f"    {put}", "  }", "}"]


def _batch(s: SmallProduct) -> list[str]:
    """Many products: sums along rows of both factors, or sums of the right factor's rows."""
    (count, m, n, k), kind = s.shape, TYPES[s.out.element]
    (za, ia, pa), (zb, pb, jb) = s.steps
    team = f"{along(s.worth)} ? fl_threads : 1" if s.general else "fl_threads"
    shared = [f"#pragma omp parallel for num_threads({team}) schedule(static)"] if s.general or s.worth else []
    rows, columns, depth, down = map(size, (m, n, k, ia))
    if jb == 1 and n > 1 and k <= _UNROLLED and not s.general:
        terms = " + ".join(f"a[i * {down} + {size(p * pa)}] * b[{size(p * pb)} + j]" for p in range(k))
        row = ["#pragma omp simd", f"    for (long j = 0; j < {columns}; j++) c[i * {columns} + j] = {terms};"]
    elif jb == 1 and n > 1:
        row = [f"    {kind} s[{columns}];", "    memset(s, 0, sizeof(s));", f"    for (long p = 0; p < {depth}; p++) {{",
               f"      {kind} w = a[i * {down} + p * {size(pa)}];", "#pragma omp simd",
               f"      for (long j = 0; j < {columns}; j++) s[j] += w * b[p * {size(pb)} + j];", "    }",
               f"    for (long j = 0; j < {columns}; j++) c[i * {columns} + j] = s[j];"]
    else:
        row = [f"    for (long j = 0; j < {columns}; j++) {{", f"      {kind} s = 0;", "#pragma omp simd reduction(+ : s)",
               f"      for (long p = 0; p < {depth}; p++) s += a[i * {down} + p] * b[j * {size(jb)} + p];",
               f"      c[i * {columns} + j] = s;", "    }"]
    return [*shared, f"for (long z = 0; z < {size(count)}; z++) {{",
            f"  const {kind} *a = {address(s.a)} + z * {size(za)}, *b = {address(s.b)} + z * {size(zb)};",
            f"  {kind} *c = {address(s.out)} + z * {size(m * n)};", f"  for (long i = 0; i < {rows}; i++) {{", *row, "  }", "}"]


_PRINTED = {Call: call, Copy: _copy, Sums: _sums, SmallProduct: _product, Branch: _branch}
