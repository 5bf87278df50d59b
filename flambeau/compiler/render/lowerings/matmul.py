"""Matrix products as C: calls of native/gemm.c, and loops with constant bounds where a call would cost more than the product.

Transposed operands are flags, never copies. Where other sizes must be served as well, a product that may be small for some of
them is written both ways, and the program chooses.
"""

from __future__ import annotations

from typing import Any

from ...ir.literals import along, size, sizes
from ...ir.parts import C_TYPES, INPUT
from . import lower

TINY = 1 << 14   # multiplications up to which a product is written out
_UNROLLED = 8    # rows of the right factor that are added up at once in a tiny product
_SHARED = 1 << 17  # multiplications from which many tiny products are shared among threads
_REGISTERS = 8   # vectors of a row of the result that are kept at a time


def _layout(v: Any) -> tuple[int, int] | None:
    """(whether the last two dimensions are stored transposed, elements from one stored row to the next)."""
    (rows, columns), (down, across) = v.shape[-2:], v.strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return 0, max(down, columns)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return 1, max(across, rows)
    return None


def _suits(*values: Any) -> bool:
    return all(v.dtype.char in "fd" and v.dtype == values[0].dtype and v.size for v in values)


def _product(op: Any, a: Any, b: Any, alpha: str, beta: str, before: str = "") -> str | None:
    """op.outs[0] = alpha * a @ b + beta * what it holds after `before`."""
    out = op.outs[0]
    if not _suits(a, b, out):
        return None
    one, two, three = _layout(a), _layout(b), _layout(out)
    if one is None or two is None or three is None or three[0]:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    plain = not before and (alpha, beta) == ("1", "0")
    if plain and not a.shape[:-2]:
        return _chosen(op, a, b, None, three[1])
    left, right = f"{one[0]}, {two[0]}, {sizes(m, n, k)}, {alpha}", f"{beta}, {out}, {size(three[1])}"
    if not a.shape[:-2]:
        return before + f"fl_gemm_{a.suffix}({left}, {a}, {size(one[1])}, {b}, {size(two[1])}, {right});"
    strides = [size(v.strides[0] if v.shape[0] > 1 else 0) for v in (a, b, out)]
    call = (f"fl_bgemm_{a.suffix}({size(a.shape[0])}, {left}, {a}, {size(one[1])}, {strides[0]}, "
            f"{b}, {size(two[1])}, {strides[1]}, {right}, {strides[2]});")
    written = _written_batch(a, b, out, op.general) if plain else None
    if op.general and written is not None:
        return _either(m * n * k <= TINY, written, call)
    return written if written is not None and m * n * k <= TINY else before + call


def _either(tiny: bool, written: str, call: str) -> str:
    """A product in two ways, of which the program takes one."""
    return f"if ({along(tiny)}) {{\n{written}\n}} else {call}"


def _chosen(op: Any, a: Any, b: Any, bias: Any, step: int, turned: int = 0) -> str | None:
    """out = a @ b (its transpose, if turned) + bias, written out or called. step: from row to row of the result."""
    (m, k), n, out = a.shape, op.outs[0].shape[-1], op.outs[0]
    tiny = m * n * k <= TINY
    written = None
    if tiny if not op.general else _may_be_tiny(a, b, n):
        written = _written(a, b, bias, out, b.strides[::-1] if turned else b.strides)
    one, two = _layout(a), _layout(b)
    if one is None or two is None or (written is not None and not op.general):
        return written if tiny else None
    call = _call(op, (one[0], two[0] ^ turned, m, n, k), (a, one[1]), (b, two[1]), bias, (out, step))
    if written is None:
        return call
    op.tile = None  # no loop runs on pieces of what may be made at once
    return _either(tiny, written, call)


def _may_be_tiny(a: Any, b: Any, n: int) -> bool:
    """Whether the product is tiny for some number of examples. They are rows where a factor is a weight; in a weight's gradient
    they are summed over. Of other products nothing is known."""
    m, k = a.shape
    if _is_weight(b):
        return 2 * n * k <= TINY
    if _is_weight(a):
        return 2 * m * k <= TINY
    return (m == 1 or (_layout(a) or (0,))[0] == 1) and 2 * m * n <= TINY


def _is_weight(factor: Any) -> bool:
    storage = getattr(factor, "value", factor).storage
    return storage.kind is INPUT and getattr(storage.source, "requires_grad", False)


def _written(a: Any, b: Any, bias: Any, out: Any, steps: tuple[int, ...]) -> str | None:
    """A tiny product as loops that build a row of the result in registers; b[p][j] lies at p * steps[0] + j * steps[1]."""
    (m, k), n = a.shape, out.shape[-1]
    (down, across), to = map(size, a.strides), size(n if len(out.shape) != 2 else out.strides[0])
    if not out.contiguous:
        return None
    kind = C_TYPES[out.dtype.char]
    start = f"const {kind} *a = {a}, *b = {b}, *bias = {0 if bias is None else bias}; {kind} *c = {out};"
    if n == 1:
        return (f"{{ {start}\n  for (long i = 0; i < {size(m)}; i++) {{\n    {kind} s = 0;\n"
                f"#pragma omp simd reduction(+ : s)\n    for (long p = 0; p < {size(k)}; p++) "
                f"s += a[i * {down} + p * {across}] * b[p * {size(steps[0])}];\n"
                f"    c[i * {to}] = s{'' if bias is None else ' + bias[0]'};\n  }}\n}}")
    lanes = next((w for w in (16, 8, 4) if n % w == 0 and w * out.dtype.itemsize <= 64), 0)
    if not lanes or n // lanes > _REGISTERS:
        return None
    turn = ""
    if steps[1] != 1:  # its columns first become rows
        turn = (f"  {kind} turned[{size(k * n)}];\n  for (long j = 0; j < {n}; j++)\n    for (long p = 0; p < {size(k)}; p++) "
                f"turned[p * {n} + j] = b[p * {size(steps[0])} + j * {size(steps[1])}];\n  b = turned;\n")
        steps = n, 1
    each = range(n // lanes)
    begin = " ".join(f"V c{v} = {{0}};" if bias is None else f"V c{v} = ((const V *)bias)[{v}];" for v in each)
    add = " ".join(f"c{v} += w * ((const V *)(b + p * {size(steps[0])}))[{v}];" for v in each)
    put = " ".join(f"((V *)(c + i * {to}))[{v}] = c{v};" for v in each)
    return (f"{{ typedef {kind} V __attribute__((vector_size({lanes * out.dtype.itemsize}), aligned({out.dtype.itemsize}), "
            f"may_alias));\n  {start}\n{turn}  for (long i = 0; i < {size(m)}; i++) {{\n    {begin}\n"
            f"    for (long p = 0; p < {size(k)}; p++) {{ {kind} w = a[i * {down} + p * {across}]; {add} }}\n"
            f"    {put}\n  }}\n}}")


def _written_batch(a: Any, b: Any, out: Any, general: bool) -> str | None:
    """Many tiny products as loops: sums along rows of both factors, or sums of the right factor's rows."""
    (count, m, k), n = a.shape, out.shape[-1]
    if not out.contiguous:
        return None
    kind, x, y = C_TYPES[out.dtype.char], "a", "b"
    (za, ia, pa), (zb, pb, jb) = a.strides, b.strides
    worth = count * m * n * k > _SHARED
    team = f"{along(worth)} ? fl_threads : 1" if general else "fl_threads"
    shared = f"#pragma omp parallel for num_threads({team}) schedule(static)\n" if general or worth else ""
    start = (f"{shared}for (long z = 0; z < {size(count)}; z++) {{\n"
             f"  const {kind} *a = {a} + z * {size(za)}, *b = {b} + z * {size(zb)};\n"
             f"  {kind} *c = {out} + z * {size(m * n)};\n")
    if n == 1 and ia == 1:  # a column is a row of the factors turned and swapped
        m, n, x, y, ia, pa, pb, jb = 1, m, y, x, jb, pb, pa, ia
    rows, columns, depth, down = map(size, (m, n, k, ia))
    if jb == 1 and n > 1 and k <= _UNROLLED and not general:
        terms = " + ".join(f"{x}[i * {down} + {size(p * pa)}] * {y}[{size(p * pb)} + j]" for p in range(k))
        row = f"#pragma omp simd\n    for (long j = 0; j < {columns}; j++) c[i * {columns} + j] = {terms};"
    elif jb == 1 and n > 1:
        row = (f"{kind} s[{columns}];\n    memset(s, 0, sizeof(s));\n    for (long p = 0; p < {depth}; p++) {{\n"
               f"      {kind} w = {x}[i * {down} + p * {size(pa)}];\n#pragma omp simd\n"
               f"      for (long j = 0; j < {columns}; j++) s[j] += w * {y}[p * {size(pb)} + j];\n    }}\n"
               f"    for (long j = 0; j < {columns}; j++) c[i * {columns} + j] = s[j];")
    elif pa == pb == 1:
        row = (f"for (long j = 0; j < {columns}; j++) {{\n      {kind} s = 0;\n#pragma omp simd reduction(+ : s)\n"
               f"      for (long p = 0; p < {depth}; p++) s += {x}[i * {down} + p] * {y}[j * {size(jb)} + p];\n"
               f"      c[i * {columns} + j] = s;\n    }}")
    else:
        return None
    return f"{start}  for (long i = 0; i < {rows}; i++) {{\n    {row}\n  }}\n}}"


@lower("mm", "matmul_2d", "bmm")
def mm(op: Any) -> str | None:
    a, b = op.args[:2]
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3):
        return None
    return _product(op, a, b, "1", "0")


@lower("mv")
def mv(op: Any) -> str | None:
    a, v = op.args[:2]
    out = op.outs[0]
    found = _layout(a)
    if not _suits(a, v, out) or found is None or not v.contiguous or not out.contiguous:
        return None
    m, k = a.shape
    return f"fl_gemm_{a.suffix}({found[0]}, 0, {size(m)}, 1, {size(k)}, 1, {a}, {size(found[1])}, {v}, 1, 0, {out}, 1);"


@lower("addmm", "baddbmm")
def addmm(op: Any) -> str | None:
    self, a, b, beta, alpha = op.args[:5]
    out = op.outs[0]
    if not _suits(self, a, b, out) or not out.contiguous or not self.contiguous:
        return None
    if self.shape == out.shape:
        return _product(op, a, b, op.number(alpha), op.number(beta),
                        f"if ({out} != {self}) memcpy({out}, {self}, {size(out.nbytes)});\n")
    if len(out.shape) != 2 or self.shape not in ((out.shape[1],), (1, out.shape[1])) or [beta, alpha] != [1, 1]:
        return None
    return _chosen(op, a, b, self, out.shape[1])


def _call(op: Any, shape: tuple[int, ...], a: tuple[Any, int], b: tuple[Any, int], bias: Any, out: tuple[Any, int]) -> str:
    """shape: whether the factors are stored transposed, m, n, k. Matrices come with the elements from row to row."""
    op.tile = shape[2:4]
    matrices = [f"{matrix}, {size(step)}" for matrix, step in (a, b)]
    given = ", ".join([*map(str, shape[:2]), sizes(*shape[2:]), *matrices, str(bias or 0), f"{out[0]}, {size(out[1])}"])
    kind = op.outs[0].suffix
    return f"fl_product_{kind}({given}, {op.after});" if op.after else f"fl_linear_{kind}({given});"


class _Flat:
    """A contiguous value of more dimensions as the matrix of its rows."""

    def __init__(self, v: Any):
        self.value, self.suffix = v, v.suffix
        self.shape, self.strides = (v.size // v.shape[-1], v.shape[-1]), (v.shape[-1], 1)

    def __str__(self) -> str:
        return str(self.value)


@lower("linear")
def linear(op: Any) -> str | None:
    bias, x, w = op.args[:3]
    out = op.outs[0]
    if not _suits(x, w, out) or not out.contiguous:
        return None
    if bias is not None and (bias.dtype != x.dtype or not bias.contiguous):
        return None
    if len(x.shape) != 2:
        if not x.contiguous:
            return None
        x = _Flat(x)
    return _chosen(op, x, w, bias, out.shape[-1], 1)
