"""Loop nests in C, shared among threads where there is work enough; and those that also fold elements into sums.

Folded elements are added up in their own precision for a while (`_BLOCK` along memory, `_DEEP` across it) and go on in double,
as native/reduce.c does it. Which elements a thread adds up depends on sizes and the number of threads alone.

A loop that is general has one form whatever its sizes: what depends on them is decided when it runs.
"""

from __future__ import annotations

import math
from functools import cached_property

from ...ir.literals import along, size
from ..nests import Fold, Nest
from ..template import Function
from .c import TYPES, address, element, index, statement

PARALLEL = 1 << 15  # element operations from which a loop is shared among threads
_FEW = 1 << 12      # elements that are added up in double at once: there is nothing to gain
_BLOCK = 512        # elements added in one go along memory
_DEEP = 32          # rows added in one go across memory
_WIDE, _NARROW = 1024, 64  # columns worked on together across memory: what fits the first cache; the least that is worth it


class NestText:
    """The C of a nest: declarations that stand before it, and its body."""

    def __init__(self, made: Nest):
        self.nest = made
        self.index = index(made.dims)
        self.kinds = [(f"{TYPES[v.element]} *", name) for name, v in made.places.items()]  # of variables with addresses
        self.addresses = [address(v) for v in made.places.values()]
        self.before = [f"const {line}" for line in map(statement, made.before)]
        self.body = list(map(statement, made.body))

    @property
    def pointers(self) -> list[str]:
        return [f"{kind}{name} = {at};" for (kind, name), at in zip(self.kinds, self.addresses)]

    @cached_property
    def lines(self) -> list[str]:
        made = self.nest
        if not made.folds:
            return [*self.before, *_nest(made, self.index, self.body)]
        return [*self.before, *FoldNest(made, self.index, self.body).lines()]

    @cached_property
    def text(self) -> str:
        """The nest as the body of a function, below its parameters."""
        parameters = ", ".join(["const double *n", *[kind + variable for kind, variable in self.kinds]])
        return parameters + "\n" + "".join(f"    {line}\n" for line in self.lines)

    def function(self) -> Function:
        """The nest as a function of the addresses."""
        parameters, _, body = self.text.partition("\n")
        return Function(f"static __attribute__((noinline)) void {{name}}({parameters}{{own}})", body, own=", const double *m")


class Folded:
    """A reduction of a nest in C: the type of an element, the variable that holds one, and where the total goes."""

    def __init__(self, fold: Fold, number: int):
        self.how, self.kind, self.value, self.result = fold.how, TYPES[fold.kind], fold.value, element(fold.result)
        self.total, self.part, self.shares = f"t{number}", f"s{number}_", f"q{number}"
        self.finish = fold.finish

    def finished(self, total: str) -> str:
        """What becomes of a total."""
        return f"sqrt({total})" if self.finish == "sqrt" else f"{total} / {size(self.finish)}" if self.finish else total

    def wide(self, along: bool) -> str:
        """C type of a total; one that is a single number may be as exact as it likes."""
        if self.how != "sum" or self.kind == "long":
            return self.kind
        return "long double" if along and self.kind == "double" else "double"

    @property
    def start(self) -> str:
        return {"sum": "0", "max": "-INFINITY", "min": "INFINITY"}[self.how]

    def joined(self, a: str, b: str) -> str:
        """Two totals as one; nan wins."""
        return f"{a} + {b}" if self.how == "sum" else f"{self.how}_{'f32' if self.kind == 'float' else 'f64'}({a}, {b})"


def _nest(made: Nest, index: list[str], body: list[str]) -> list[str]:
    """Loops around a body."""
    dims, team = made.dims, _team(made, body)
    together = team and len(dims) > 2 and (made.general or dims[0] < 64)  # too few rows: the two outer loops are shared as one
    lines = []
    for d, n in enumerate(dims):
        inner = d == len(dims) - 1
        pad = "    " * d
        if team and d == 0:
            what = "for simd" if inner else "for"
            lines.append(f"{pad}#pragma omp parallel {what} num_threads({team}) schedule(static)"
                         + (" collapse(2)" if together else ""))
        elif inner and n > 1:
            lines.append(f"{pad}#pragma omp simd")
        lines.append(f"{pad}{_for(index[d], '0', size(n))}" + (" {" if inner else ""))
    return [*lines, *["    " * len(dims) + line for line in body], "    " * (len(dims) - 1) + "}"]


def _team(made: Nest, body: list[str]) -> str:
    """How many threads share a loop; nothing where one does it all, whatever the sizes are."""
    count = math.prod(made.dims)
    heavy = any("exp" in line or "tanh" in line or "erf" in line or "log" in line for line in body)
    worth = made.work * (8 if heavy else 1) >= PARALLEL and count >= 1024
    if made.general and count > 1:
        return f"{along(worth)} ? fl_threads : 1"
    return "fl_threads" if worth else ""


def _for(name: str, start: str, end: str, step: str = "") -> str:
    return f"for (long {name} = {start}; {name} < {end}; {f'{name} += {step}' if step else f'{name}++'})"


def _inside(heads: list[str], body: list[str]) -> list[str]:
    """The body inside of some statements' braces, the first outermost."""
    for head in reversed(heads):
        body = [f"{head} {{".lstrip(), *[f"    {line}" for line in body], "}"]
    return body


def _least(a: str, b: str) -> str:
    return f"({a} < {b} ? {a} : {b})"


def piece(index: list[str], body: list[str]) -> list[str]:
    """Loops around a body over a piece of a matrix."""
    rows, columns = _for(index[0], "row", "row + rows"), _for(index[1], "column", "column + columns")
    return _inside([rows], ["#pragma omp simd", *_inside([columns], body)])


def _started(name: str, f: Folded, kind: str, n: str) -> list[str]:
    """Totals or sums before the first element."""
    if f.how == "sum":
        return [f"memset({name}, 0, sizeof({kind}) * {n});"]
    return _inside([_for("j", "0", n)], [f"{name}[j] = {f.start};"])


class FoldNest:
    """Loops that fold."""

    def __init__(self, made: Nest, index: list[str], body: list[str]):
        self.dims, self.general, self.index, self.body = made.dims, made.general, index, body
        self.folds = [Folded(f, n) for n, f in enumerate(made.folds)]
        self.along = made.reduced[-1]  # the innermost loop is folded away; else it is kept, and totals are arrays
        last = len(made.dims) - 1
        self.kept = [d for d in range(last) if not made.reduced[d]]
        self.outer = [d for d in range(last) if made.reduced[d]]
        self.team = _team(made, body)

    def lines(self) -> list[str]:
        return self._along() if self.along else self._across()

    def _each(self, template: str) -> list[str]:
        """A line for each fold: {t} its total, {s} the sum that goes on, {q} totals of threads."""
        return [template.format(t=f.total, s=f.part, q=f.shares, kind=f.kind, wide=f.wide(self.along), start=f.start,
                                result=f.result) for f in self.folds]

    # ------------------------------------------------------------------------------------------------ along memory
    def _along(self) -> list[str]:
        put = [f"{f.result} = {f.finished(f.total)};" for f in self.folds]
        begin = self._each("{wide} {t} = {start};")
        if not self.team or self.kept:
            return self._inside_kept([*begin, *self._rows({}), *put], len(self.kept))
        first = self.outer[0] if self.outer else len(self.dims) - 1
        share = [*begin, *self._rows({first: ("from", "to")}), *self._each("{q}[share] = {t};")]
        join = [f"{f.total} = {f.joined(f.total, f'{f.shares}[s]')};" for f in self.folds]
        return [*self._shares(first, 1 if self.outer else _BLOCK, share, "1"), *begin,
                *_inside(["for (int s = 0; s < team; s++)"], join), *put]

    def _rows(self, bounds: dict[int, tuple[str, str]]) -> list[str]:
        """All that belongs to one total, in blocks."""
        last = len(self.dims) - 1
        start, end = self._limits(last, bounds)
        blocked = last in bounds or self.general or self.dims[last] > _BLOCK
        limits = ("block", _least(f"block + {_BLOCK}", end)) if blocked else (start, end)
        clauses, add, after = [], [], []
        for f in self.folds:
            s, v = f.part, f.value
            if f.how == "sum":
                clauses.append(f"reduction(+ : {s})")
                add.append(f"{s} += {v};")
                after.append(f"{f.total} += {s};")
            else:
                clauses.append(f"reduction({f.how} : {s}) reduction(| : {s}nan)")
                add += [f"{s} = {v} {'>' if f.how == 'max' else '<'} {s} ? {v} : {s};", f"{s}nan |= {v} != {v};"]
                after.append(f"{f.total} = {f.joined(f.total, f'({s}nan ? NAN : {s})')};")
        few = math.prod(self.dims) <= _FEW or self.general  # there may be few
        begin = [f"{f.wide(False) if few else f.kind} {f.part} = {f.start}; int {f.part}nan = 0;" for f in self.folds]
        block = [*begin, f"#pragma omp simd {' '.join(clauses)}",
                 *_inside([_for(self.index[last], *limits)], [*self.body, *add]), *after]
        heads = self._heads(self.outer, bounds) + ([_for("block", start, end, str(_BLOCK))] if blocked else [])
        return _inside(heads or [""], block)

    # ----------------------------------------------------------------------------------------------- across memory
    def _across(self) -> list[str]:
        """Totals are arrays of columns, in strips; or threads share the rows, where that leaves them more to do."""
        n = self.dims[-1]
        if self.general:
            if self.kept:
                return self._by_strips(_WIDE)
            rows, strips = self._by_rows(), self._by_strips(_WIDE)
            return [*_inside([f"if ({size(n)} < {4 * _WIDE})"], rows), *_inside(["else"], strips)]
        few = bool(self.team) and math.prod([self.dims[d] for d in self.kept]) * n < 4 * _WIDE  # columns
        if few and self.dims[self.outer[0]] >= 32:
            return self._by_rows()
        return self._by_strips(_NARROW if few else _WIDE)

    def _put(self) -> list[str]:
        """Totals go where they belong."""
        name = self.index[-1]
        return _inside([_for(name, "column", "right")],
                       [f"{f.result} = {f.finished(f'{f.total}[{name} - column]')};" for f in self.folds])

    def _by_strips(self, most: int) -> list[str]:
        """Strips of `most` columns, which threads share."""
        n = self.dims[-1]
        wide = _least(size(n), str(most)) if self.general else size(min(n, most))
        even = n % min(n, most) == 0 and not self.general
        right = f"column + {wide}" if even else _least(f"column + {wide}", size(n))
        strip = [f"const long right = {right};", *self._each(f"{{wide}} {{t}}[{wide}];"), *self._strip(wide, {}), *self._put()]
        return self._inside_kept(_inside([_for("column", "0", size(n), wide)], strip), len(self.kept) + 1)

    def _by_rows(self) -> list[str]:
        """The rows are shared out, and the totals of threads are added up."""
        first, n = self.outer[0], size(self.dims[-1])
        share = [*self._each(f"{{wide}} *{{t}} = {{q}} + share * {n};"), *self._strip(n, {first: ("from", "to")})]
        join = [line for f in self.folds for line in self._carried(f, f.shares, f"({f.shares} + s * {n})", n)]
        all_ = [f"const long column = 0, right = {n};", *self._shares(first, 1, share, n), *self._each("{wide} *{t} = {q};"),
                *_inside(["for (int s = 1; s < team; s++)"], join), *self._put()]
        return _inside(self._heads(self.kept, {}), all_)

    def _strip(self, width: str, bounds: dict[int, tuple[str, str]]) -> list[str]:
        """The totals of columns `column` to `right`."""
        name, row = self.index[-1], self.outer[-1]
        start, end = self._limits(row, bounds)
        parts = [f for f in self.folds if f.how == "sum" and f.kind != "long"]  # the others lose nothing
        if row not in bounds and math.prod([self.dims[d] for d in self.outer]) <= _DEEP and not self.general:
            parts = []
        begin = [line for f in self.folds for line in _started(f.total, f, f.wide(False), width)]
        begin += [line for f in parts for line in (f"{f.kind} {f.part}[{width}];", *_started(f.part, f, f.kind, width))]
        add = [f"{to} = {f.joined(to, f.value)};" for f in self.folds
               for to in (f"{f.part if f in parts else f.total}[{name} - column]",)]
        columns = ["#pragma omp simd", *_inside([_for(name, "column", "right")], [*self.body, *add])]
        heads = self._heads(self.outer, bounds)
        if not parts:
            return [*begin, *_inside(heads, columns)]
        carry = [line for f in parts for line in self._carried(f, f.total, f.part, width)]
        block = [*_inside([_for(self.index[row], "block", _least(f"block + {_DEEP}", end))], columns), *carry]
        return [*begin, *_inside([*heads[:-1], _for("block", start, end, str(_DEEP))], block)]

    def _carried(self, f: Folded, to: str, part: str, n: str) -> list[str]:
        """Totals take in other totals or sums (which begin anew)."""
        if f.how == "sum" and f.kind != "long":
            return [f"fl_carry_{'f32' if part == f.part and f.kind == 'float' else 'f64'}({to}, {part}, {n});"]
        return _inside([_for("j", "0", n)], [f"{to}[j] = {f.joined(f'{to}[j]', f'{part}[j]')};"])

    # ----------------------------------------------------------------------------------------------------- threads
    def _limits(self, d: int, bounds: dict[int, tuple[str, str]]) -> tuple[str, str]:
        return bounds.get(d, ("0", size(self.dims[d])))

    def _heads(self, dims: list[int], bounds: dict[int, tuple[str, str]]) -> list[str]:
        return [_for(self.index[d], *self._limits(d, bounds)) for d in dims]

    def _inside_kept(self, body: list[str], loops: int) -> list[str]:
        """The loops over what is kept, the outer `loops` of them (one may be in the body) shared among threads."""
        lines = _inside(self._heads(self.kept, {}), body)
        if not self.team:
            return lines
        collapse = f" collapse({loops})" if loops > 1 else ""
        return [f"#pragma omp parallel for num_threads({self.team}) schedule(static)" + collapse, *lines]

    def _shares(self, first: int, unit: int, body: list[str], count: str) -> list[str]:
        """Each thread folds its share of a loop, into `count` totals of its own."""
        return [f"const int team = {self.team};", *self._each(f"{{wide}} {{q}}[team * {count}];"),
                "#pragma omp parallel for num_threads(team) schedule(static)",
                *_inside(["for (int share = 0; share < team; share++)"],
                         ["long from, to;", f"fl_share({size(self.dims[first])}, {unit}, share, team, &from, &to);", *body])]
