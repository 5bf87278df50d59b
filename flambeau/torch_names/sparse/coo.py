"""`SparseTensor`: a tensor that holds places and values, and the table of what operations do with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..backends.cpu.sparse import placeholder
from ..ops.core import overrides as _overrides
from ..tensors.formats import sparse_coo
from ..tensors.tensor import Tensor

_new = object.__new__
HANDLERS: dict[str, Callable] = {}


class SparseTensor(Tensor):
    """A tensor of layout sparse_coo. `_array` has its shape and dtype but no memory of that size."""

    _plain = False
    is_sparse = True

    @property
    def layout(self) -> Any:
        return sparse_coo

    @property
    def device(self) -> Any:
        return self._held_values.device

    @property
    def requires_grad(self) -> bool:
        return self._held_values.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held_values.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._held_values.requires_grad_(requires_grad)
        return self

    @property
    def grad_fn(self) -> Any:
        return self._held_values.grad_fn

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        handler = HANDLERS.get(name)
        if handler is None:
            raise NotImplementedError(f"{name}: not implemented for sparse tensors in flambeau; to_dense() makes an "
                                      "ordinary tensor")
        return handler(*args, **(kwargs or {}))

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

    def to_sparse(self, *args: Any, **kwargs: Any) -> SparseTensor:
        return self

    to_sparse_coo = to_sparse

    def detach(self) -> SparseTensor:
        return make(self._held_indices, self._held_values.detach(), self.shape, self._coalesced)

    @property
    def data(self) -> SparseTensor:
        return self.detach()

    @data.setter
    def data(self, other: SparseTensor) -> None:
        self._take(other)

    def _take(self, other: SparseTensor) -> None:
        """Becomes what the other one is."""
        self._held_indices, self._held_values = other._held_indices, other._held_values
        self._coalesced = other._coalesced

    def detach_(self) -> SparseTensor:
        self._held_values = self._held_values.detach()
        return self

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

    def numpy(self, **kwargs: Any) -> Any:
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        pad = "\n       "
        indices, values = [f"tensor([], size={_tuple(t)})" if not t.numel() else repr(t.detach())
                           for t in (self._held_indices, self._held_values)]
        indices, values = indices.replace("\n", "\n" + " " * 15), values.replace("\n", "\n" + " " * 14)
        more = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        from ..tensors.dtypes import get_default_dtype
        if self.dtype not in (get_default_dtype(),) and self.dtype.name not in ("int64", "bool", "complex64"):
            more.append(f"dtype={self.dtype}")
        more.append("layout=torch.sparse_coo")
        if self.requires_grad:
            more.append(f"grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else "requires_grad=True")
        return f"tensor(indices={indices},{pad}values={values},{pad}{', '.join(more)})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return make, (self._held_indices, self._held_values, tuple(self.shape), self._coalesced)

    def __deepcopy__(self, memo: Any) -> SparseTensor:
        return self.clone().detach()


def _tuple(t: Tensor) -> tuple[int, ...]:
    return tuple(t.shape)


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
def handler(*names: str) -> Callable:
    def enter(function: Callable) -> Callable:
        for n in names:
            HANDLERS[n] = function
        return function

    return enter


def _sparse(x: Any) -> bool:
    return isinstance(x, SparseTensor)


def _with(x: SparseTensor, values: Tensor) -> SparseTensor:
    return make(x._held_indices.to(values.device), values, x.shape, x._coalesced)
