"""Pointwise work in C: every kernel's expression, and loops made from it on demand.

Rows of operations (ops/pointwise/families.py) enter an expression per kernel. The compiler fuses them (`expression`, `to_c`);
eager mode builds a small library per expression and dtype when a large array first asks for it (`run`). In an expression the
letters a, b, c... are the kernel's arguments in order, numbers included; `T` is the element type, and functions are those of
vmath.h without their suffix. Constants have no suffix either: `to_c` makes them fit the dtype.

Half precision is computed in float: a strip of each argument is widened into a buffer that stays in the first cache, and the
strip of the result is rounded from another (half.h).
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy import ndarray

from ....native import Library, Postponed, library, pointer, postponed
from ....native.hashing import sha256
from ...strides import elementwise_strides
from .. import memory
from ..arrays import strides
from ..table import KERNELS
from . import expressed

C_TYPES = {"f32": "float", "f64": "double", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
           "u8": "uint8_t", "b8": "uint8_t"}
SUFFIXES = {np.dtype(t): s for t, s in ((np.float32, "f32"), (np.float64, "f64"), (np.int8, "i8"), (np.int16, "i16"),
                                        (np.int32, "i32"), (np.int64, "i64"), (np.uint8, "u8"), (np.bool_, "b8"))}
HALVES = {np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(np.float16): "f16"}  # elements that are computed as f32
_CHEAP = frozenset("""
    atleast atmost ceil copysign fabs floor fmax fmin isfinite isinf isnan largest max min rint signbit square
    sizeof trunc""".split())  # functions of vmath.h that cost no more than an addition
_TOKEN = re.compile(r"(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[-+]?\d+)?|[A-Za-z_]\w*")
_BOOL = np.dtype(np.bool_)
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
FLAGS = ("-fno-tree-pre",)  # it would make choices between numbers branches again, and keep loops from vector code
FIXED: set[str] = set()  # kernels whose expression does not depend on the arguments
MASKS: dict[str, int] = {}  # kernel -> the argument that is bool whatever the others are, where it has one


class Expression(NamedTuple):
    """args: a letter per argument of the kernel; kinds: the dtypes it is right for (f: floats, i: integers, b: bool)."""

    args: tuple[str, ...]
    c: str
    kinds: str


class _Entry(NamedTuple):
    count: int
    c: str | Callable[..., str | None]
    kinds: str
    numbers_only: frozenset[int]
    is_bool: bool


_entries: dict[str, _Entry] = {}


def enter(kernel: str, count: int, c: str | Callable[..., str | None], kinds: str = "f", numbers_only: Any = (),
          is_bool: bool = False, mask: int | None = None) -> Callable[..., Any]:
    """Makes an expression known. c: C text, or a function of the kernel's arguments that gives it (or None).

    numbers_only: arguments that are always numbers. Rows that share a kernel share its expression. Where nobody wrote a kernel,
    the expression is the kernel.
    """
    numbers_only = frozenset(numbers_only) - {mask}
    if mask is not None:
        MASKS[kernel] = mask
    known = _entries.get(kernel)
    if known is not None:
        numbers_only &= known.numbers_only
    (FIXED.add if isinstance(c, str) else FIXED.discard)(kernel)
    _entries[kernel] = _Entry(count, c, kinds, numbers_only, is_bool)
    return KERNELS.setdefault(kernel, _expressed(kernel))


def _expressed(kernel: str) -> Callable[..., Any]:
    def call(x: ndarray, *rest: Any) -> ndarray:
        if x.size and (made := run(kernel, x, *rest)) is not None:
            return made
        e = expression(kernel, (x, *rest))
        wide = x.astype(np.int64) if _narrow(x.dtype, rest) else x
        made = np.asanyarray(expressed.function(e.args, e.c)(wide, *rest))
        return made if _entries[kernel].is_bool else made.astype(x.dtype, copy=False)

    call.__name__ = call.__qualname__ = kernel
    return call


def _narrow(dtype: np.dtype, numbers: tuple[Any, ...]) -> bool:
    """Whether one of the numbers does not fit into integers of a dtype, which NumPy refuses and C takes modulo their range."""
    if dtype.kind not in "iu":
        return False
    info = np.iinfo(dtype)
    return any([type(n) is int and not info.min <= n <= info.max for n in numbers])


def expression(kernel: str, arguments: tuple[Any, ...] | None = None) -> Expression | None:
    """The expression of a kernel, or None. Some depend on the arguments (a bound that is None, an exponent of 2)."""
    entry = _entries.get(kernel)
    if entry is None:
        return None
    c = entry.c if isinstance(entry.c, str) else entry.c(*arguments) if arguments is not None else entry.c()
    return None if c is None else Expression(tuple(_LETTERS[:entry.count]), c, entry.kinds)


def kernels() -> list[str]:
    """The names of all kernels that have an expression."""
    return list(_entries)


def result_is_bool(kernel: str) -> bool:
    return _entries[kernel].is_bool


def to_c(c: str, suffix: str, names: dict[str, str]) -> str:
    """C for an expression: arguments by `names` (of type T), functions and constants for the dtype of that suffix."""
    single = suffix == "f32"
    kind = C_TYPES[suffix]

    def token(match: re.Match[str]) -> str:
        word = match[0]
        if word[0] in "0123456789.":
            return word + "f" if single else word
        if word in names:
            return names[word]
        if word == "T":
            return kind
        if c[match.end():match.end() + 1] == "(" and word != "sizeof":
            return f"{word}_{suffix}"
        return f"({kind}){word}" if word.startswith("M_") else word

    made = f"({_TOKEN.sub(token, c)})"
    return f"(!!{made.replace('~', '!')})" if suffix == "b8" else made  # one and one is one


# -------------------------------------------------------------------------------------------------------- eager loops
_ROW = """
static inline __attribute__((always_inline)) void row(R *o, long so, {parameters}long n) {{
    {fixed}
    #pragma omp simd
    for (long i = 0; i < n; i++) {{
        {loads}
        o[i * so] = {value};
    }}
}}

static __attribute__((noinline)) void strip(R *o, long so, {parameters}long n) {{
    {choices}
    row(o, so, {arguments}n);
}}

{halves}
void fl_flat_TAG(E *o, {pointers}{numbers}long mask, long n) {{
    {flat_steps}
    int team = fl_team(n * {cost});
    if (team == 1) {{
        STRIP(o, 1, {flat_arguments}n);
        return;
    }}
    #pragma omp parallel num_threads(team)
    {{
        long from, to;
        fl_share(n, 64, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        if (from < to) STRIP(o + from, 1, {shifted}to - from);
    }}
}}

void fl_walk_TAG(E *o, {pointers}{numbers}const long *g, long dims) {{
    long inner = g[dims - 1], rows = 1;
    for (long d = 0; d < dims - 1; d++) rows *= g[d];
    #pragma omp parallel num_threads(fl_team(rows * inner * {cost}))
    {{
        long from, to, at[{arrays} + 1] = {{0}}, index[16];
        if (dims == 1) {{
            fl_share(inner, 64, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
            for (long k = 0; k <= {arrays}; k++) at[k] = from * g[k + 1];
            if (from < to) STRIP(o + at[0], g[1], {walked}to - from);
        }} else {{
            fl_share(rows, 1, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
            long rest = from;
            for (long d = dims - 2; d >= 0; d--) {{
                index[d] = rest % g[d];
                rest /= g[d];
                for (long k = 0; k <= {arrays}; k++) at[k] += index[d] * g[(k + 1) * dims + d];
            }}
            for (long r = from; r < to; r++) {{
                STRIP(o + at[0], g[2 * dims - 1], {walked}inner);
                for (long d = dims - 2; d >= 0; d--) {{
                    for (long k = 0; k <= {arrays}; k++) at[k] += g[(k + 1) * dims + d];
                    if (++index[d] < g[d]) break;
                    for (long k = 0; k <= {arrays}; k++) at[k] -= index[d] * g[(k + 1) * dims + d];
                    index[d] = 0;
                }}
            }}
        }}
    }}
}}
"""

# What stands between memory in half precision and the loop over floats. An argument that is a number comes without an address.
_HALVES = """
static __attribute__((noinline)) void half_strip(E *o, long so, {parameters}long n) {{
    {buffers}
    for (long at = 0; at < n; at += 512) {{
        long m = n - at < 512 ? n - at : 512;
        {widened}
        {computed}
    }}
}}
"""


class Loops:
    """The compiled loops of one expression for one dtype."""

    def __init__(self, kernel: str, e: Expression, dtype: np.dtype):
        entry = _entries[kernel]
        used = set(re.findall(r"\b[a-z]\b", e.c))
        self.positions = [i for i, letter in enumerate(e.args) if letter in used and i not in entry.numbers_only]
        self.numbers = [i for i, letter in enumerate(e.args) if letter in used and i in entry.numbers_only]
        self.mask_position = MASKS.get(kernel)
        self.half = HALVES.get(dtype)
        self.alike = not self.numbers and self.mask_position is None and len(self.positions) == len(e.args) and not self.half
        self.dtype, self.result = dtype, _BOOL if entry.is_bool else dtype
        text = self._source(e)
        self.tag = sha256(text.encode()).hexdigest()[:16]  # no two libraries have functions of one name
        self.source = text.replace("TAG", self.tag)

    def load(self) -> None:
        """Builds the loops, or finds them built."""
        if postponed(self.source, "pointwise", FLAGS):
            raise Postponed
        from ....native import toolchain
        made = ctypes.CDLL(str(toolchain.build(self.source, "pointwise", FLAGS)))
        each = ["pd" if self.half and i != self.mask_position else "p" for i in self.positions]
        kinds = "".join(each) + ("l" if self.dtype.kind in "iub" else "d") * len(self.numbers)
        flat, walk = f"fl_flat_{self.tag}", f"fl_walk_{self.tag}"
        functions = Library(made, {flat: f":p{kinds}ll", walk: f":p{kinds}pl"})
        self.flat, self.walk = getattr(functions, flat), getattr(functions, walk)

    def fits(self, value: Any) -> bool:
        """Whether a Python number is one of this dtype's."""
        kind = value.__class__
        return kind is int or kind is bool or (kind is float and self.dtype.kind in "fV")

    def _source(self, e: Expression) -> str:
        suffix = "f32" if self.half else SUFFIXES[self.dtype]
        kind, integer = C_TYPES[suffix], self.dtype.kind in "iub"
        arrays = [(e.args[i], "uint8_t" if i == self.mask_position else "T") for i in self.positions]
        numbers = [e.args[i] for i in self.numbers]
        number_parameters = "".join(f"{'long' if integer else 'double'} {x}_, " for x in numbers)
        number_arguments = "".join(f"{x}_, " for x in numbers)
        calls = sum(f not in _CHEAP for f in re.findall(r"(\w+)\(", e.c))

        def choice(steps: tuple[int, ...]) -> str:
            test = " && ".join(["so == 1", *[f"s{x} == {s}" for (x, _), s in zip(arrays, steps)]])
            given = "".join(f"p{x}, {s}, " for (x, _), s in zip(arrays, steps))
            return f"if ({test}) {{ row(o, 1, {given}{number_arguments}n); return; }}"

        def stored(text: str) -> str:
            """Text for each array as it lies in memory: {x} is its letter, {k} its place; a half one may be a number."""
            return "".join(text.format(x=x, k=k, k1=k + 1, k3=k + 3) + (f"n{x}, " if self.half and t == "T" else "")
                           for k, (x, t) in enumerate(arrays))

        combinations = [s for s in itertools.product((1, 0), repeat=len(arrays)) if any(s) or len(s) == 1]
        element = {x: "uint16_t" if self.half and t == "T" else t for x, t in arrays}
        number = {x: f"double n{x}, " if self.half and t == "T" else "" for x, t in arrays}
        text = _ROW.format(
            parameters="".join(f"const {t} *p{x}, long s{x}, " for x, t in arrays) + number_parameters,
            fixed=" ".join([f"{t} f{x} = *p{x};" for x, t in arrays] + [f"T {x} = (T){x}_;" for x in numbers]),
            loads=" ".join(f"{t} {x} = s{x} ? p{x}[i * s{x}] : f{x};" for x, t in arrays),
            value=to_c(e.c, suffix, {}),
            choices="\n    ".join(map(choice, combinations)),
            arguments="".join(f"p{x}, s{x}, " for x, _ in arrays) + number_arguments,
            pointers="".join(f"const {element[x]} *p{x}, {number[x]}" for x, t in arrays), numbers=number_parameters,
            cost=1 + 4 * calls, flat_steps=" ".join(f"long s{x} = !(mask >> {k} & 1);" for k, (x, _) in enumerate(arrays)),
            flat_arguments=stored("p{x}, s{x}, ") + number_arguments,
            shifted=stored("p{x} + from * s{x}, s{x}, ") + number_arguments,
            walked=stored("p{x} + at[{k1}], g[{k3} * dims - 1], ") + number_arguments, arrays=len(arrays),
            halves=self._halves(arrays, number_parameters, number_arguments) if self.half else "")
        result = C_TYPES["f32" if self.half and self.result is self.dtype else SUFFIXES[self.result]]
        header = '#include "half.h"\n' if self.half else ""
        return (f"// {e.c}\n#include \"runtime.h\"\n#include \"vmath.h\"\n{header}typedef {kind} T;\n"
                f"typedef {result} R;\ntypedef {'uint16_t' if self.half and self.result is self.dtype else 'R'} E;\n"
                f"#define STRIP {'half_strip' if self.half else 'strip'}\n{text}")

    def _halves(self, arrays: list[tuple[str, str]], number_parameters: str, number_arguments: str) -> str:
        """The function that widens, computes and rounds, a strip at a time."""
        wide = [x for x, t in arrays if t == "T"]
        rounds = self.result is self.dtype
        given = "".join(f"w{x}, p{x} && s{x}, " if t == "T" else f"p{x} + at * s{x}, s{x}, " for x, t in arrays)
        computed = f"strip({'wo, 1' if rounds else 'o + at * so, so'}, {given}{number_arguments}m);"
        return _HALVES.format(
            parameters="".join(f"const uint16_t *p{x}, long s{x}, double n{x}, " if t == "T" else
                               f"const uint8_t *p{x}, long s{x}, " for x, t in arrays) + number_parameters,
            buffers=" ".join([f"T w{x}[512];" for x in wide] + ["T wo[512];"] * rounds),
            widened=" ".join(f"if (p{x}) fl_widen_{self.half}(p{x} + at * s{x}, s{x}, w{x}, s{x} ? m : 1); else w{x}[0] = n{x};"
                             for x in wide),
            computed=computed + (f" fl_round_{self.half}(wo, o + at * so, so, m);" if rounds else ""))


def suits(e: Expression, dtype: np.dtype) -> bool:
    """Whether an expression is right for a dtype, and can be written in C for it."""
    return (dtype in SUFFIXES and {"u": "i"}.get(dtype.kind, dtype.kind) in e.kinds) or (dtype in HALVES and "f" in e.kinds)


_loops: dict[tuple[str, str], Loops | None] = {}
_ready: dict[tuple[str, np.dtype], Loops | None] = {}  # of kernels whose expression does not depend on the arguments
_lock = threading.Lock()


def _find(kernel: str, dtype: np.dtype, arguments: tuple[Any, ...]) -> Loops | None:
    e = expression(kernel, arguments)
    if e is None:
        return None
    try:
        return _loops[e.c, dtype.char]
    except KeyError:
        pass
    with _lock:
        if (e.c, dtype.char) not in _loops:
            made = None
            if suits(e, dtype):
                try:
                    made = Loops(kernel, e, dtype)
                    made.load()
                except Postponed:
                    return None  # for now
                except (RuntimeError, OSError):  # the build failed
                    made = None  # the NumPy kernel is there
            _loops[e.c, dtype.char] = made
            if isinstance(_entries[kernel].c, str):
                _ready[kernel, dtype] = made
        return _loops[e.c, dtype.char]


def run(kernel: str, *args: Any, out: ndarray | None = None) -> ndarray | None:
    """kernel(*args) by a native loop; None where there is none for it. Arguments are arrays of one dtype, and numbers."""
    main = args[0] if kernel not in MASKS else args[1]
    if type(main) is not ndarray:
        return None
    dtype = main.dtype
    try:
        loops = _ready[kernel, dtype]
        if out is None and loops is not None and loops.alike and main.ndim and main.flags.c_contiguous and (
                library("runtime") is not None) and (made := _of_contiguous(loops, main, args)) is not None:
            return made
    except KeyError:
        loops = _find(kernel, dtype, args) if library("runtime") is not None else None
    if loops is None or library("runtime") is None or (out is not None and out.dtype is not loops.result):
        return None
    if loops.mask_position is not None or not main.ndim:
        main = max((x for x in args if type(x) is ndarray), key=_dimensions)
    if loops.half:
        return _run_halves(loops, main, args, out)
    shape, scalars, arrays, bit = main.shape, 0, [], 1
    flat = main.flags.c_contiguous
    for i in loops.positions:
        x = args[i]
        if type(x) is not ndarray:
            if not loops.fits(x):
                return None
            x = np.asarray(x, dtype)
        elif x is not main:
            if x.dtype is not dtype and (i != loops.mask_position or x.dtype is not _BOOL):
                return None
            if flat and x.ndim and (x.shape != shape or not x.flags.c_contiguous):
                flat = False
        if not x.ndim:
            scalars |= bit
        arrays.append(x)
        bit <<= 1
    numbers = _numbers(loops, args)
    if numbers is None:
        return None
    if flat and (out is None or out is main or (out.flags.c_contiguous and out.shape == shape)):
        if out is None:
            out = memory.empty(shape, loops.result)
        loops.flat(out, *arrays, *numbers, scalars, out.size)
        return out
    return _walk(loops, main, arrays, numbers, out)


def _numbers(loops: Loops, args: tuple[Any, ...]) -> list[Any] | None:
    """The arguments that are numbers; None where one is not of the loops' dtype."""
    numbers = []
    for i in loops.numbers:
        x = args[i]
        if not loops.fits(x):
            if type(x) is not ndarray or x.ndim or x.dtype is not loops.dtype:
                return None
            x = x.item()
        numbers.append(x)
    return numbers


def _run_halves(loops: Loops, main: ndarray, args: tuple[Any, ...], out: ndarray | None) -> ndarray | None:
    """The same for half precision, where a Python number is not rounded before it is used."""
    dtype, shape, flat = loops.dtype, main.shape, main.flags.c_contiguous and main.ndim
    arrays, given, scalars = [], [], 0
    for k, i in enumerate(loops.positions):
        x = args[i]
        if i == loops.mask_position:
            if type(x) is not ndarray or x.dtype is not _BOOL:
                return None
            given.append(x)
        elif type(x) is not ndarray:
            if not loops.fits(x):
                return None
            given += None, x
            scalars |= 1 << k
            continue
        elif x.dtype is dtype and x.ndim:
            given += x, 0.0
        elif x.dtype is dtype:
            given += None, float(x)
            scalars |= 1 << k
            continue
        else:
            return None
        arrays.append(x)
        flat = flat and x.shape == shape and x.flags.c_contiguous
    numbers = _numbers(loops, args)
    if numbers is None or not arrays:
        return None
    if flat and (out is None or (out.flags.c_contiguous and out.shape == shape)):
        if out is None:
            out = memory.empty(shape, loops.result)
        loops.flat(out, *given, *numbers, scalars, out.size)
        return out
    if loops.mask_position is not None:
        return None if len(arrays) < len(loops.positions) else _walk(loops, main, arrays, [*given, *numbers], out)
    places = [given[2 * k] if given[2 * k] is not None else _NUMBER for k in range(len(loops.positions))]
    return _walk(loops, main, places, [*given, *numbers], out)


_NUMBER = np.zeros((), np.uint16)  # stands for a number among arrays: its step is 0


def _of_contiguous(loops: Loops, x: ndarray, args: tuple[Any, ...]) -> ndarray | None:
    """One contiguous array, or two of one shape and dtype: what most calls bring, with the fewest steps around the loop."""
    if len(args) == 1:
        out = memory.empty(x.shape, loops.result)
        loops.flat(out, x, 0, x.size)
        return out
    y = args[1]
    if len(args) == 2 and type(y) is ndarray and y.dtype is x.dtype and y.shape == (shape := x.shape) and (
            y.flags.c_contiguous):
        out = memory.empty(shape, loops.result)
        loops.flat(out, x, y, 0, x.size)
        return out
    return None


def _dimensions(x: ndarray) -> int:
    return x.ndim


class _Plan(NamedTuple):
    """How arguments of certain shapes and strides are walked through: found once."""

    shape: tuple[int, ...]
    strides: Any           # of the result, in bytes; None: it is contiguous
    address: int | None    # of the geometry: sizes, the result's steps and those of each argument
    dims: int
    geometry: ndarray


_plans: dict[Any, _Plan | None] = {}


def _walk(loops: Loops, main: ndarray, arrays: list[ndarray], numbers: list[Any], out: ndarray | None) -> ndarray | None:
    """Broadcast and strided arguments."""
    key = (loops.dtype, loops.result, main.shape, main.strides, out if out is None else (out.shape, out.strides),
           *[(x.shape, x.strides) for x in arrays])
    try:
        plan = _plans[key]
    except KeyError:
        if len(_plans) > 4096:
            _plans.clear()
        plan = _plans[key] = _make_plan(loops, arrays, out)
    if plan is None:
        return None
    if out is None:
        out = memory.empty(plan.shape, loops.result)
        if plan.strides is not None:
            out = ndarray(plan.shape, loops.result, out, 0, plan.strides)
    if out.size:
        loops.walk(out, *([] if loops.half else arrays), *numbers, plan.address, plan.dims)
    return out


def _make_plan(loops: Loops, arrays: list[ndarray], out: ndarray | None) -> _Plan | None:
    shape = np.broadcast_shapes(*[x.shape for x in arrays])
    if out is None:
        backwards = min([min(x.strides, default=0) for x in arrays]) < 0
        operands = [(x.shape, strides(x)) for x in arrays if x.ndim or not shape]
        stride = None if backwards else elementwise_strides(shape, operands)
        out = np.empty(shape, loops.result)
        if stride is not None:
            out = ndarray(shape, loops.result, out, 0, [s * out.itemsize for s in stride])
    elif out.shape != shape:
        return None  # NumPy knows the error
    steps = [[s // out.itemsize for s in out.strides]]
    for x in arrays:
        if any(s % x.itemsize for s in x.strides):
            return None
        lead = len(shape) - x.ndim
        steps.append([0] * lead + [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)])
    sizes, merged = collapse(shape, steps)
    geometry = np.array([sizes, *merged], np.int64)
    return None if len(sizes) > 16 else _Plan(
        shape, None if out.flags.c_contiguous else out.strides, pointer(geometry), len(sizes), geometry)


def collapse(shape: tuple[int, ...], steps: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Sizes and steps with the result's largest step outermost; dimensions that all step through alike become one."""
    order = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -steps[0][d])
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in steps]
    for d in order:
        n = shape[d]
        if sizes and all(m[-1] == s[d] * n for m, s in zip(merged, steps)):
            sizes[-1] *= n
            for m, s in zip(merged, steps):
                m[-1] = s[d]
            continue
        sizes.append(n)
        for m, s in zip(merged, steps):
            m.append(s[d])
    return sizes or [1], merged if sizes else [[0] for _ in steps]
