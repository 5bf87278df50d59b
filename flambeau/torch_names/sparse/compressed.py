"""Compressed layouts: CSR, CSC, and BSR, BSC, whose elements are blocks.

Of a matrix the rows (or columns) are compressed: `compressed` says where each begins in the list of elements, `plain` in which
column (or row) each element is. Dimensions before those two are batches, dimensions after them belong to the elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..backends.cpu.sparse import placeholder
from ..ops.core import overrides as _overrides
from ..ops.core.row import FUNCTIONS
from ..tensors import formats
from ..tensors.tensor import Tensor
from .held import Held

_new = object.__new__
HANDLERS: dict[str, Callable] = {}
LAYOUTS = {name: getattr(formats, f"sparse_{name}") for name in ("csr", "csc", "bsr", "bsc")}
_NAMES = {layout: name for name, layout in LAYOUTS.items()}


class CompressedTensor(Held):
    """A tensor of layout sparse_csr, sparse_csc, sparse_bsr or sparse_bsc."""

    _handlers = HANDLERS
    _called = "tensors of compressed sparse layouts"

    @property
    def layout(self) -> Any:
        return self._held_layout

    @property
    def is_sparse_csr(self) -> bool:
        return self._held_layout is formats.sparse_csr

    # ------------------------------------------------------------------------------------------------- what it holds
    @property
    def _name(self) -> str:
        return _NAMES[self._held_layout]

    @property
    def by_rows(self) -> bool:
        return self._name.endswith("r")

    @property
    def blocksize(self) -> tuple[int, int]:
        batch = self._held_plain.ndim
        return tuple(self._held_values.shape[batch:batch + 2]) if self._name.startswith("b") else (1, 1)

    def _batch(self) -> tuple[int, ...]:
        return tuple(self._held_plain.shape[:-1])

    def sparse_dim(self) -> int:
        return 2

    def dense_dim(self) -> int:
        return self._held_values.ndim - self._held_plain.ndim - 2 * self._name.startswith("b")

    def _nnz(self) -> int:
        return self._held_plain.shape[-1]

    def values(self) -> Tensor:
        return self._held_values

    def _asked(self, what: str, rows: bool, held: Tensor) -> Tensor:
        if self.by_rows is not rows:
            raise RuntimeError(f"{what} expected sparse {'row' if rows else 'column'} compressed tensor layout but got "
                               f"{self._layout_word()}")
        return held.detach()

    def crow_indices(self) -> Tensor:
        return self._asked("crow_indices", True, self._held_compressed)

    def col_indices(self) -> Tensor:
        return self._asked("col_indices", True, self._held_plain)

    def ccol_indices(self) -> Tensor:
        return self._asked("ccol_indices", False, self._held_compressed)

    def row_indices(self) -> Tensor:
        return self._asked("row_indices", False, self._held_plain)

    def _only_coo(name: str) -> Callable:
        def refused(self, *args: Any) -> Any:
            raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {self._layout_word()}")
        return refused

    indices, _indices, _values, coalesce, is_coalesced = map(
        _only_coo, ("indices", "_indices", "_values", "coalesce", "is_coalesced"))

    def stride(self, dim: Any = None) -> Any:
        raise RuntimeError(f"Sparse {self._name.upper()} tensors do not have strides")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        raise RuntimeError(f"Sparse {self._name.upper()} tensors do not have is_contiguous")

    def _rebuilt(self, values: Tensor) -> CompressedTensor:
        return make(self._held_layout, self._held_compressed.to(values.device), self._held_plain.to(values.device), values,
                    self.shape)

    def _take(self, other: CompressedTensor) -> None:
        self._held_layout, self._held_compressed, self._held_plain, self._held_values = (
            other._held_layout, other._held_compressed, other._held_plain, other._held_values)
        self._array = other._array

    def clone(self, *, memory_format: Any = None) -> CompressedTensor:
        return make(self._held_layout, self._held_compressed.clone(), self._held_plain.clone(), self._held_values.clone(),
                    self.shape)

    # ------------------------------------------------------------------------------------------------- other layouts
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """Batch, row and column of each element (or block), as numbers, one after the other."""
        batch = math.prod(self._batch())
        compressed = self._held_compressed.reshape(batch, -1)
        lines = compressed.shape[1] - 1
        flat = FUNCTIONS["arange"](batch * lines).repeat_interleave(compressed.diff(dim=1).reshape(-1))
        one, plain = flat % max(lines, 1), self._held_plain.reshape(-1).to(flat.dtype)
        rows, columns = (one, plain) if self.by_rows else (plain, one)
        return flat.div(max(lines, 1), rounding_mode="floor"), rows, columns

    def _grid(self) -> tuple[int, int]:
        """How many blocks there are each way."""
        batch, (high, wide) = len(self._batch()), self.blocksize
        return self.shape[batch] // high, self.shape[batch + 1] // wide

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """An ordinary tensor; gradients flow to the values."""
        batch, (high, wide), (down, across) = self._batch(), self.blocksize, self._grid()
        which, rows, columns = self._places()
        count, inner = math.prod(batch), tuple(self.shape[len(batch) + 2:])
        values = self._held_values.reshape(-1, high, wide, *inner)
        cells = values.new_zeros((count * down * across, high, wide, *inner)).index_add(
            0, (which * down + rows) * across + columns, values)
        made = cells.view(count, down, across, high, wide, *inner).transpose(2, 3).reshape(*self.shape)
        return made if dtype is None else made.to(dtype)

    def _elements(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Batch, row, column and value of every element, those within blocks one by one."""
        which, rows, columns = self._places()
        high, wide = self.blocksize
        inner = self._held_values.shape[self._held_values.ndim - self.dense_dim():]
        if (high, wide) == (1, 1):
            return which, rows, columns, self._held_values.reshape(-1, *inner)
        arange = FUNCTIONS["arange"]
        down = (rows[:, None, None] * high + arange(high)[:, None]).expand(-1, high, wide)
        across = (columns[:, None, None] * wide + arange(wide)).expand(-1, high, wide)
        return (which[:, None, None].expand(-1, high, wide).reshape(-1), down.reshape(-1), across.reshape(-1),
                self._held_values.reshape(-1, *inner))

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
                  dense_dim: int | None = None) -> Any:
        if layout is None or layout is formats.sparse_coo:
            return self._to_coo()
        return convert(self, _NAMES[layout], blocksize)

    to_sparse_coo = to_sparse

    def _to_coo(self) -> Any:
        from .coo import make as make_coo
        which, rows, columns, values = self._elements()
        parts = []
        for n in reversed(self._batch()):
            parts.append(which % n)
            which = which.div(n, rounding_mode="floor")
        places = FUNCTIONS["stack"]([*parts[::-1], rows, columns])
        made = make_coo(places, values, self.shape, self._name == "csr")
        return made if self._name == "csr" else made.coalesce()

    def to_sparse_csr(self, dense_dim: int | None = None) -> CompressedTensor:
        return convert(self, "csr")

    def to_sparse_csc(self, dense_dim: int | None = None) -> CompressedTensor:
        return convert(self, "csc")

    def to_sparse_bsr(self, blocksize: Any, dense_dim: int | None = None) -> CompressedTensor:
        return convert(self, "bsr", blocksize)

    def to_sparse_bsc(self, blocksize: Any, dense_dim: int | None = None) -> CompressedTensor:
        return convert(self, "bsc", blocksize)

    # -------------------------------------------------------------------------------------------------------- views
    def _turned(self) -> CompressedTensor:
        """Rows and columns exchanged: the same lists, in the other layout."""
        values, batch = self._held_values, self._held_plain.ndim
        if self._name.startswith("b"):
            values = values.transpose(batch, batch + 1)
        shape, at = list(self.shape), len(self._batch())
        shape[at], shape[at + 1] = shape[at + 1], shape[at]
        other = LAYOUTS[self._name[:2] + ("c" if self.by_rows else "r")]
        return make(other, self._held_compressed, self._held_plain, values, shape)

    @property
    def mT(self) -> CompressedTensor:
        return self._turned()

    T = mT

    @property
    def mH(self) -> CompressedTensor:
        turned = self._turned()
        return turned._rebuilt(turned._held_values.conj())

    H = mH

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        names = ("crow_indices", "col_indices") if self.by_rows else ("ccol_indices", "row_indices")
        return self._printed(False, **dict(zip(names, (self._held_compressed, self._held_plain))), values=self._held_values)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuild, (self._name, self._held_compressed, self._held_plain, self._held_values, tuple(self.shape))

    def __deepcopy__(self, memo: Any) -> CompressedTensor:
        made = self.clone().detach()
        return made.requires_grad_() if self.requires_grad else made


def make(layout: Any, compressed: Tensor, plain: Tensor, values: Tensor, shape: Any) -> CompressedTensor:
    """A compressed tensor over given lists, which are not checked."""
    _overrides.activate()
    t = _new(CompressedTensor)
    t._array = placeholder(tuple(shape), values._array.dtype)
    t._node = t._counter = None
    t._held_layout, t._held_compressed, t._held_plain, t._held_values = layout, compressed, plain, values
    return t


def rebuild(name: str, compressed: Tensor, plain: Tensor, values: Tensor, shape: Any) -> CompressedTensor:
    """What a pickle holds."""
    return make(LAYOUTS[name], compressed, plain, values, shape)


# ------------------------------------------------------------------------------------------------- from other tensors
def convert(a: CompressedTensor, name: str, blocksize: Any = None) -> CompressedTensor:
    """The same tensor in another compressed layout; places without a number of their own stay so."""
    size = _checked_blocks(name, a.shape, len(a._batch()), blocksize)
    if name == a._name and size == a.blocksize:
        return a
    which, rows, columns, values = a._elements()
    return of_elements(name, a.shape, len(a._batch()), size, which, rows, columns, values)


def of_elements(name: str, shape: Any, batch: int, size: tuple[int, int], which: Tensor, rows: Tensor, columns: Tensor,
                values: Tensor) -> CompressedTensor:
    """A compressed tensor from a list of elements, each with its batch, row and column."""
    high, wide = size
    down, across = shape[batch] // high, shape[batch + 1] // wide
    r, c = rows.div(high, rounding_mode="floor"), columns.div(wide, rounding_mode="floor")
    lines, others = (down, across) if name.endswith("r") else (across, down)
    line, other = (r, c) if name.endswith("r") else (c, r)
    places, where = ((which * lines + line) * others + other).unique(return_inverse=True)
    inner = values.shape[1:]
    cells = values.new_zeros((places.shape[0] * high * wide, *inner)).index_add(
        0, (where * high + rows % high) * wide + columns % wide, values)
    batches = tuple(shape[:batch])
    count = math.prod(batches)
    counts = (places.div(max(others, 1), rounding_mode="floor")).bincount(minlength=count * lines).view(count, lines)
    totals = counts.sum(1)
    if count > 1 and bool((totals != totals[0]).any()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    zeros = counts.new_zeros((count, 1))
    compressed = FUNCTIONS["cat"]([zeros, counts.cumsum(1)], 1).view(*batches, lines + 1)
    each = (places.shape[0] // count if count else 0)
    block = (high, wide) if name.startswith("b") else ()
    return make(LAYOUTS[name], compressed, (places % max(others, 1)).view(*batches, each),
                cells.view(*batches, each, *block, *inner), shape)


def _checked_blocks(name: str, shape: Any, batch: int, blocksize: Any) -> tuple[int, int]:
    if not name.startswith("b"):
        if blocksize is not None:
            raise RuntimeError(f"to_sparse for Strided to Sparse{name.capitalize()} conversion does not use specified "
                               "blocksize")
        return 1, 1
    if blocksize is None:
        raise RuntimeError(f"to_sparse for Sparse{name.capitalize()} requires blocksize but none provided")
    size = tuple(int(n) for n in blocksize)
    if len(size) != 2 or min(size) < 1:
        raise RuntimeError(f"blocksize needs to be a tuple of size 2 with positive numbers, got {size}")
    down, across = shape[batch:batch + 2]
    if down % size[0] or across % size[1]:
        raise RuntimeError(f"dense_to_sparse_{name}: tensor sparse size ({down},{across}) must be divisible by given blocksize "
                           f"({size[0]},{size[1]})")
    return size


def to_compressed(dense: Tensor, name: str, blocksize: Any = None, dense_dim: int | None = None) -> CompressedTensor:
    """The elements (or blocks) of a dense tensor that are not zero."""
    inner = dense_dim or 0
    batch = dense.ndim - 2 - inner
    if batch < 0:
        raise IndexError(f"to_sparse_{name}: expected at least {2 + inner} dimensions, got a tensor of shape "
                         f"{list(dense.shape)}")
    size = _checked_blocks(name, dense.shape, batch, blocksize)
    mask = dense.detach() != 0
    for _ in range(inner):
        mask = mask.any(-1)
    count, down, across = math.prod(dense.shape[:batch]), *dense.shape[batch:batch + 2]
    high, wide = size
    blocks = mask.reshape(count, down // high, high, across // wide, wide).any(4).any(2)
    full = blocks[:, :, None, :, None].expand(-1, -1, high, -1, wide).reshape(count, down, across)
    which, rows, columns = full.nonzero().unbind(1)
    values = dense.reshape(count * down * across, *dense.shape[batch + 2:]).index_select(
        0, (which * down + rows) * across + columns)
    return of_elements(name, dense.shape, batch, size, which, rows, columns, values)


def coo_to_compressed(a: Any, name: str, blocksize: Any = None) -> CompressedTensor:
    if a.sparse_dim() < 2:
        raise RuntimeError(f"to_sparse_{name}: expected a tensor with at least 2 sparse dimensions, got {a.sparse_dim()}")
    a = a.coalesce()
    batch = a.sparse_dim() - 2
    size = _checked_blocks(name, a.shape, batch, blocksize)
    places = a._held_indices
    which = places.new_zeros(places.shape[1])
    for d in range(batch):
        which = which * a.shape[d] + places[d]
    return of_elements(name, a.shape, batch, size, which, places[batch], places[batch + 1], a._held_values)
