"""`SparseTensor`: a tensor that holds places and values, and the table of what operations do with it."""

from __future__ import annotations

import math
from typing import Any

from ..backends.cpu.sparse import placeholder
from ..ops.core import overrides as _overrides
from ..tensors.formats import sparse_coo
from ..tensors.tensor import Tensor
from .held import Handlers, Held

_new = object.__new__
handler = HANDLERS = Handlers()


class SparseTensor(Held):
    """A tensor of layout sparse_coo."""

    is_sparse = True
    _handlers, _refusal = HANDLERS, "sparse tensors in flambeau; to_dense() makes an ordinary tensor"

    @property
    def layout(self) -> Any:
        return sparse_coo

    # ------------------------------------------------------------------------------------------------- what it holds
    def sparse_dim(self) -> int:
        return self._held_indices._array.shape[0]

    def dense_dim(self) -> int:
        return self._held_values._array.ndim - 1

    def _nnz(self) -> int:
        return self._held_values._array.shape[0]

    def _indices(self) -> Tensor:
        return self._held_indices

    def _values(self) -> Tensor:
        return self._held_values

    def is_coalesced(self) -> bool:
        return self._coalesced

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self._coalesced = coalesced
        return self

    def indices(self) -> Tensor:
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._held_indices

    def values(self) -> Tensor:
        if not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._held_values

    def coalesce(self) -> SparseTensor:
        """Sorted places without repetitions; values of one place are added."""
        if self._coalesced:
            return self
        indices, values = self._held_indices, self._held_values
        if values._array.shape[0] < 2:
            return make(indices, values, self.shape, True)
        flat = _flat_places(indices, self.shape)
        if values.requires_grad:
            places, where = flat.unique(return_inverse=True)
            total = values.new_zeros((places._array.shape[0], *values._array.shape[1:])).index_add(0, where, values)
        else:
            from ..ops.index.embedding import coalesced_rows
            places, total = coalesced_rows(flat, values, math.prod(self.shape[:self.sparse_dim()]))
        return make(_spread_places(places, tuple(self.shape[:self.sparse_dim()])), total, self.shape, True)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """An ordinary tensor; gradients flow to the values."""
        n = self.sparse_dim()
        shape, values = tuple(self.shape), self._held_values
        count = 1
        for size in shape[:n]:
            count *= size
        rows = values.new_zeros((count, *shape[n:]))
        made = rows.index_add(0, _flat_places(self._held_indices, shape), values).reshape(shape)
        return made if dtype is None else made.to(dtype)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
                  dense_dim: int | None = None) -> Any:
        if layout is None or layout is sparse_coo:
            if sparse_dim not in (None, self.sparse_dim()):
                raise RuntimeError("to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() "
                                   "is not supported")
            return self
        return self._compressed(str(layout).rpartition("_")[2], blocksize)

    to_sparse_coo = to_sparse

    def _compressed(self, name: str, blocksize: Any = None) -> Any:
        from .compressed import coo_to_compressed
        if self.sparse_dim() != 2:
            raise RuntimeError(f"coo_to_sparse_{name}: conversion from Sparse to Sparse{name.capitalize()} for input tensors "
                               "with sparse_dim()!=2 is not supported")
        return coo_to_compressed(self, name, blocksize)

    def to_sparse_csr(self, dense_dim: int | None = None) -> Any:
        return self._compressed("csr")

    def to_sparse_csc(self, dense_dim: int | None = None) -> Any:
        return self._compressed("csc")

    def to_sparse_bsr(self, blocksize: Any, dense_dim: int | None = None) -> Any:
        return self._compressed("bsr", blocksize)

    def to_sparse_bsc(self, blocksize: Any, dense_dim: int | None = None) -> Any:
        return self._compressed("bsc", blocksize)

    def _rebuilt(self, values: Tensor) -> SparseTensor:
        return make(self._held_indices.to(values.device), values, self.shape, self._coalesced)

    def _take(self, other: SparseTensor) -> None:
        self._held_indices, self._held_values = other._held_indices, other._held_values
        self._coalesced, self._array = other._coalesced, other._array

    def clone(self, *, memory_format: Any = None) -> SparseTensor:
        return make(self._held_indices.clone(), self._held_values.clone(), self.shape, self._coalesced)

    @property
    def mT(self) -> SparseTensor:
        return HANDLERS["transpose"](self, -2, -1)

    @property
    def T(self) -> SparseTensor:
        return HANDLERS["permute"](self, *range(self.ndim - 1, -1, -1))

    @property
    def mH(self) -> SparseTensor:
        turned = self.mT
        return _with(turned, turned._held_values.conj())

    @property
    def H(self) -> SparseTensor:
        return self.mH

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return False

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return self._printed(True, indices=self._held_indices, values=self._held_values)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (self._held_indices, self._held_values, tuple(self.shape), self._coalesced)

    def __deepcopy__(self, memo: Any) -> SparseTensor:
        made = self.clone().detach()
        return made.requires_grad_() if self.requires_grad else made


def _flat_places(indices: Tensor, shape: Any) -> Tensor:
    """One number per place, over the sparse dimensions."""
    n = indices._array.shape[0]
    if n == 1:
        return indices.select(0, 0)
    if n == 0:
        return indices.new_zeros(indices._array.shape[1])
    flat = indices.select(0, 0)
    for d in range(1, n):
        flat = flat * shape[d] + indices.select(0, d)
    return flat


def _spread_places(flat: Tensor, shape: tuple[int, ...]) -> Tensor:
    from ..ops.core.row import FUNCTIONS
    if len(shape) == 1:
        return flat.unsqueeze(0)
    if not shape:
        return flat.new_zeros((0, flat.shape[0]))
    parts = []
    for size in reversed(shape):
        parts.append(flat % max(size, 1))
        flat = flat.div(max(size, 1), rounding_mode="floor")
    return FUNCTIONS["stack"](parts[::-1], 0)


def make(indices: Tensor, values: Tensor, shape: Any, coalesced: bool = False) -> SparseTensor:
    """A sparse tensor over given places and values, which are not checked."""
    _overrides.activate()
    t = _new(SparseTensor)
    t._array = placeholder(tuple(shape), values._array.dtype)
    t._node = t._counter = None
    t._held_indices, t._held_values, t._coalesced = indices, values, coalesced
    return t


def of_rows(rows: Tensor, values: Tensor, shape: tuple[int, ...]) -> SparseTensor:
    """A matrix with some rows given: what the gradient of an embedding is."""
    return make(rows.unsqueeze(0), values, shape)


# ---------------------------------------------------------------------------------------------------- what one can do
def _sparse(x: Any) -> bool:
    return isinstance(x, SparseTensor)


def _with(x: SparseTensor, values: Tensor) -> SparseTensor:
    return x._rebuilt(values)
