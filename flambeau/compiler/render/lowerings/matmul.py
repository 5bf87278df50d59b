"""Matrix products: calls of native/gemm.c, and loops with constant bounds where a call would cost more than the product.

Transposed operands are flags, never copies. Where other sizes must be served as well, a product that may be small for some of
them is written both ways, and the program chooses.
"""

from __future__ import annotations

from typing import Any

from ...ir.parts import INPUT, Value
from ...ir.statements import Along, Branch, Call, Copy, Size, SmallProduct, number, sizes
from . import lower

TINY = 1 << 14   # multiplications up to which a product is written out
_SHARED = 1 << 17  # multiplications from which many tiny products are shared among threads
_REGISTERS = 8   # vectors of a row of the result that are kept at a time


def _layout(v: Value) -> tuple[int, int] | None:
    """(whether the last two dimensions are stored transposed, elements from one stored row to the next)."""
    (rows, columns), (down, across) = v.shape[-2:], v.strides[-2:]
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return 0, max(down, columns)
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return 1, max(across, rows)
    return None


def _suits(*values: Value) -> bool:
    return all(v.dtype.char in "fd" and v.dtype == values[0].dtype and v.size for v in values)


def _product(op: Any, a: Value, b: Value, alpha: Any = 1, beta: Any = 0, before: Copy | None = None) -> Any:
    """op.outs[0] = alpha * a @ b + beta * what it holds after `before`."""
    out = op.outs[0]
    if not _suits(a, b, out):
        return None
    one, two, three = _layout(a), _layout(b), _layout(out)
    if one is None or two is None or three is None or three[0]:
        return None
    (m, k), n, first = a.shape[-2:], b.shape[-1], [] if before is None else [before]
    if before is None and not a.shape[:-2]:
        return _chosen(op, a, b, None, three[1])
    left, right = [one[0], two[0], *sizes(m, n, k), alpha], [beta, out, Size(three[1])]
    if not a.shape[:-2]:
        return [*first, Call("gemm", a.element, [*left, a, Size(one[1]), b, Size(two[1]), *right])]
    za, zb, zc = sizes(*[v.strides[0] if v.shape[0] > 1 else 0 for v in (a, b, out)])
    call = Call("bgemm", a.element, [Size(a.shape[0]), *left, a, Size(one[1]), za, b, Size(two[1]), zb, *right, zc])
    written = _written_batch(a, b, out, op.general) if before is None else None
    if op.general and written is not None:
        return Branch(Along(m * n * k <= TINY), written, call)
    return written if written is not None and m * n * k <= TINY else [*first, call]


def _chosen(op: Any, a: Value, b: Value, bias: Value | None, step: int, turned: int = 0) -> Any:
    """out = a @ b (its transpose, if turned) + bias, written out or called. step: from row to row of the result."""
    (m, k), n, out = a.shape, op.outs[0].shape[-1], op.outs[0]
    tiny = m * n * k <= TINY
    written = None
    if tiny if not op.general else _may_be_tiny(a, b, n):
        written = _written(a, b, bias, out, b.strides[::-1] if turned else b.strides)
    one, two = _layout(a), _layout(b)
    if one is None or two is None or (written is not None and not op.general):
        return written if tiny else None
    given = [one[0], two[0] ^ turned, *sizes(m, n, k), a, Size(one[1]), b, Size(two[1]), bias, out, Size(step)]
    if written is None:
        return Call("linear", out.element, given, tile=(m, n))
    # No loop runs on pieces of what may be made at once.
    return Branch(Along(tiny), written, Call("linear", out.element, given))


def _may_be_tiny(a: Value, b: Value, n: int) -> bool:
    """Whether the product is tiny for some number of examples. They are rows where a factor is a weight; in a weight's gradient
    they are summed over. Of other products nothing is known."""
    m, k = a.shape
    if _is_weight(b):
        return 2 * n * k <= TINY
    if _is_weight(a):
        return 2 * m * k <= TINY
    return (m == 1 or (_layout(a) or (0,))[0] == 1) and 2 * m * n <= TINY


def _is_weight(factor: Value) -> bool:
    storage = factor.storage
    return storage.kind is INPUT and getattr(storage.source, "requires_grad", False)


def _written(a: Value, b: Value, bias: Value | None, out: Value, steps: tuple[int, ...]) -> SmallProduct | None:
    """A tiny product as loops that build a row of the result in registers, if it fits them; steps: of b, by row and column."""
    (m, k), n, width = a.shape, out.shape[-1], out.dtype.itemsize
    lanes = 1 if n == 1 else next((w for w in (16, 8, 4) if n % w == 0 and w * width <= 64), 0)
    if not out.contiguous or not lanes or n // lanes > _REGISTERS:
        return None
    return SmallProduct(a, b, bias, out, (None, m, n, k), (a.strides, steps), lanes)


def _written_batch(a: Value, b: Value, out: Value, general: bool) -> SmallProduct | None:
    """Many tiny products as loops: sums along rows of both factors, or sums of the right factor's rows."""
    (count, m, k), n = a.shape, out.shape[-1]
    worth = count * m * n * k > _SHARED
    if n == 1 and a.strides[1] == 1:  # a column is a row of the factors turned and swapped
        a, b, m, n = _turned(b), _turned(a), 1, m
    (_, _, pa), (_, pb, across) = a.strides, b.strides
    if not out.contiguous or not ((across == 1 and n > 1) or pa == pb == 1):
        return None
    return SmallProduct(a, b, None, out, (count, m, n, k), (a.strides, b.strides), worth=worth, general=general)


def _turned(v: Value) -> Value:
    z, rows, columns = v.shape
    return Value(v.storage, v.offset, (z, columns, rows), (v.strides[0], v.strides[2], v.strides[1]), v.dtype)


@lower("mm", "matmul_2d", "bmm")
def mm(op: Any) -> Any:
    a, b = op.args[:2]
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3):
        return None
    return _product(op, a, b)


@lower("mv")
def mv(op: Any) -> Call | None:
    a, v = op.args[:2]
    out = op.outs[0]
    found = _layout(a)
    if not _suits(a, v, out) or found is None or not v.contiguous or not out.contiguous:
        return None
    m, k = sizes(*a.shape)
    return Call("gemm", a.element, [found[0], 0, m, 1, k, 1, a, Size(found[1]), v, 1, 0, out, 1])


@lower("addmm", "baddbmm")
def addmm(op: Any) -> Any:
    self, a, b, beta, alpha = op.args[:5]
    out = op.outs[0]
    if not _suits(self, a, b, out) or not out.contiguous or not self.contiguous:
        return None
    if self.shape == out.shape:
        return _product(op, a, b, number(alpha), number(beta), Copy(out, self, maybe=True))
    if len(out.shape) != 2 or self.shape not in ((out.shape[1],), (1, out.shape[1])) or [beta, alpha] != [1, 1]:
        return None
    return _chosen(op, a, b, self, out.shape[1])


@lower("linear")
def linear(op: Any) -> Any:
    bias, x, w = op.args[:3]
    out = op.outs[0]
    if not _suits(x, w, out) or not out.contiguous:
        return None
    if bias is not None and (bias.dtype != x.dtype or not bias.contiguous):
        return None
    if len(x.shape) != 2:
        if not x.contiguous:
            return None
        x = Value(x.storage, x.offset, (x.size // x.shape[-1], x.shape[-1]), (x.shape[-1], 1), x.dtype)  # its rows
    return _chosen(op, x, w, bias, out.shape[-1], 1)
