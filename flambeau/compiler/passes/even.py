"""Products with uneven sizes (50,257 words) without copies: temporaries that they read and write have rows of an even length.

The library's products are several times as fast where rows start at multiples of 16 bytes. Kernels copy operands to larger
matrices for that, and cut the result out of one (backends/cuda/products.py). In a program the matrices are larger from the
start: whoever makes one writes to a window of it, and zeros are around the window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...backends.cuda.cublas import matrices
from ...backends.cuda.fitted import even_sizes, is_uneven
from ...backends.cuda.table import INTO, PITCHED, PRODUCTS
from ..ir.parts import TEMPORARY, Op, Storage, Value, new_numbers, replaced, values_in
from .narrow import Uses, is_fresh


class _Grown(NamedTuple):
    """Rows and columns of a temporary as it lies in memory, now and later."""

    rows: int
    columns: int
    new_rows: int
    new_columns: int


def evened(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    """The operations with even products. brought: storages that the caller sees; single: whether an operation has to stay as it
    is."""
    products = {id(op): needs for op in ops if op.kernel in PRODUCTS and not single(op) and (needs := _needs(op))}
    uses = Uses(ops)
    while products:
        grown = _together(products)
        bad = {i for i, g in grown.items() if i in brought or not _can_grow(i, g, uses[i], products, single)}
        if not bad:
            return _grown(ops, products, grown)
        products = {key: needs for key, needs in products.items() if not any([v.storage.id in bad for v, _, _ in needs])}
    return ops


_Need = tuple[Value, tuple[int, int], bool]  # a window, rows and columns that it has to have, whether columns lie densely


def _needs(op: Op) -> list[_Need] | None:
    """What of an uneven product has to grow; None if it is even, or not a product of two matrices that can."""
    a, b, out = *op.args[:2], op.outs[0]
    if len(op.args) != 2 or len(a.shape) != 2 or a.dtype != b.dtype:
        return None
    first, second = matrices(a.shape, a.strides), matrices(b.shape, b.strides)
    if first is None or second is None or not is_uneven(first, second, a.dtype):
        return None
    rows, depth, columns = even_sizes(first, second)
    made = []
    for v, size, turned in ((a, (rows, depth), first.transposed), (b, (depth, columns), second.transposed),
                            (out, (rows, columns), False)):
        if v.shape != size:
            lies = Value(v.storage, v.offset, v.shape[::-1], v.strides[::-1], v.dtype) if turned else v
            if not lies.contiguous or not v.covers_storage:
                return None
            made.append((v, size, turned))
    return made


def _together(products: dict[int, list[_Need]]) -> dict[int, _Grown]:
    """How storages have to grow so that all products find what they need."""
    grown: dict[int, _Grown] = {}
    for needs in products.values():
        for v, size, turned in needs:
            now, later = (v.shape[::-1], size[::-1]) if turned else (v.shape, size)
            before = grown.get(v.storage.id, _Grown(*now, *now))
            grown[v.storage.id] = _Grown(*now, *map(max, later, before[2:])) if before[:2] == now else _Grown(*now, 0, 0)
    return grown


def _can_grow(storage: int, grown: _Grown, touching: list[Op], products: dict[int, list[_Need]],
              single: Callable[[Op], bool]) -> bool:
    """Whether all who touch a storage can do so with rows of another length."""
    maker = touching[0]
    windows = [v for op in touching for v in (*op.reads, *op.writes) if v.storage.id == storage]
    if not grown.new_rows or not is_fresh(windows[0].storage) or any([_moved(v, grown) is None for v in windows]):
        return False
    if any([w.storage.id == storage for op in touching[1:] for w in op.writes]) or any([single(op) for op in touching]):
        return False
    mine = [o for o in maker.outs if o.storage.id == storage]
    if len(mine) != 1 or not mine[0].covers_storage:
        return False
    pitched = maker.kernel in PITCHED and mine[0] is maker.outs[0] and grown.new_rows == grown.rows
    return id(maker) in products or maker.kernel in INTO or (pitched and mine[0].shape == grown[:2])


def _moved(v: Value, grown: _Grown) -> Value | None:
    """A window after its storage has grown; None if it goes over the ends of rows."""
    row, column = divmod(v.offset // v.dtype.itemsize, grown.columns)
    strides, reach = [], column
    for n, s in zip(v.shape, v.strides):
        if n != 1 and s % grown.columns:
            reach += (n - 1) * s
            strides.append(s)
        else:
            strides.append(s // grown.columns * grown.new_columns)
    if reach >= grown.columns or v.offset % v.dtype.itemsize:
        return None
    return Value(v.storage, (row * grown.new_columns + column) * v.dtype.itemsize, v.shape, tuple(strides), v.dtype)


def _grown(ops: list[Op], products: dict[int, list[_Need]], grown: dict[int, _Grown]) -> list[Op]:
    storages: dict[int, Storage] = {}
    left = []

    def change(v: Value) -> Value:
        g = grown.get(v.storage.id)
        if g is None:
            return v
        if v.storage.id not in storages:
            made = storages[v.storage.id] = Storage(new_numbers.next(), TEMPORARY, 0, 0, None)
            made.nbytes, made.device = g.new_rows * g.new_columns * v.dtype.itemsize, True
        return _moved(v, g).over(storages[v.storage.id])

    for op in ops:
        makes = [o for o in op.outs if o.storage.id in grown and o.storage.id not in storages]
        sizes = {id(v): size for v, size, _ in products.get(id(op), ())}
        whole = lambda v, sizes=sizes: _resized(change(v), sizes[id(v)]) if id(v) in sizes else change(v)
        zeros = [] if id(op) in products else [z for o in makes if op.kernel not in PITCHED for z in _zeros(change(o), grown[
            o.storage.id], op)]
        if op.kernel in PITCHED and makes:
            op.args = [*op.args[:PITCHED[op.kernel]], grown[makes[0].storage.id].new_columns, *op.args[PITCHED[op.kernel] + 1:]]
        op.args, inside = replaced(op.args, whole), op.writes[len(op.outs):]
        op.outs, op.reads = [whole(o) for o in op.outs], list(values_in(op.args))
        op.writes = [*op.outs, *[change(w) for w in inside]]
        left += [op, *zeros]
    return left


def _resized(v: Value, shape: tuple[int, int]) -> Value:
    """As large a matrix as a product wants."""
    return Value(v.storage, v.offset, shape, v.strides, v.dtype)


def _zeros(made: Value, grown: _Grown, maker: Op) -> list[Op]:
    """What fills a storage around the window that its maker writes."""
    pitch, size = grown.new_columns, made.dtype.itemsize
    windows = [Value(made.storage, grown.columns * size, (grown.rows, pitch - grown.columns), (pitch, 1), made.dtype),
               Value(made.storage, grown.rows * pitch * size, (grown.new_rows - grown.rows, pitch), (pitch, 1), made.dtype)]
    return [Op("copy_into", [w, 0], [], [w], maker.where) for w in windows if w.size]
