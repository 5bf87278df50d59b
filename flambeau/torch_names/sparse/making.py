"""Sparse tensors from places and values that are checked, and from dense tensors."""

from __future__ import annotations

from typing import Any

from ..tensors.formats import sparse_coo
from ..tensors.tensor import Size, Tensor
from .coo import SparseTensor, _flat_places, make


def sparse_coo_tensor(indices: Any = None, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
                      pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> SparseTensor:
    """A sparse tensor with values at indices (dimensions x places); called with a size alone, one of zeros."""
    from ..creation.factories import as_tensor, empty, tensor
    from ..tensors.dtypes import int64
    if values is None:  # sparse_coo_tensor(size)
        if (indices is None) is (size is None):
            raise TypeError("sparse_coo_tensor() received an invalid combination of arguments: expected (indices, values, "
                            "size) or (size)")
        size = tuple(indices if size is None else size)
        places = empty((len(size), 0), dtype=int64, device=device)
        return make(places, empty((0,), dtype=dtype, device=device), size, True)
    i = as_tensor(indices)
    i = i.to(int64) if i.dtype is not int64 else i.detach()
    v = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    if dtype is not None:
        v = v.to(dtype)
    v = v if device is None else v.to(device)
    i = i.to(v.device)
    if i.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(i.shape)}")
    if not v.ndim:
        v = v.unsqueeze(0)
    if v.shape[0] != i.shape[1]:
        raise RuntimeError(f"indices and values must have same nnz, but got nnz from indices: {i.shape[1]}, nnz from "
                           f"values: {v.shape[0]}")
    if size is None:
        size = (*((i.max(1)[0] + 1).tolist() if i.shape[1] else [0] * i.shape[0]), *v.shape[1:])
    size = tuple(int(n) for n in size)
    _check(i, v, size)
    if requires_grad:
        v = v.detach().requires_grad_()
    return make(i, v, Size(size), bool(is_coalesced))


def _check(i: Tensor, v: Tensor, size: tuple[int, ...]) -> None:
    n = i.shape[0]
    if n + v.ndim - 1 != len(size):
        raise RuntimeError(f"number of dimensions must be sparse_dim ({n}) + dense_dim ({v.ndim - 1}), but got {len(size)}")
    if tuple(v.shape[1:]) != size[n:]:
        raise RuntimeError(f"values has incorrect size, expected {[v.shape[0], *size[n:]]}, got {list(v.shape)}")
    if not i.numel():
        return
    for d, (low, high) in enumerate(zip(i.min(1)[0].tolist(), i.max(1)[0].tolist())):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if high >= size[d]:
            raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high}")


def to_sparse(dense: Tensor, sparse_dim: int | None = None, **options: Any) -> SparseTensor:
    """The places of a dense tensor that are not zero; with sparse_dim only over the first dimensions."""
    if options.get("layout") not in (None, sparse_coo):
        from .compressed import to_compressed
        name = str(options["layout"]).rpartition("_")[2]
        return to_compressed(dense, name, options.get("blocksize"), options.get("dense_dim"))
    n = dense.ndim if sparse_dim is None else sparse_dim
    if not min(dense.ndim, 1) <= n <= dense.ndim:
        raise RuntimeError(f"sparse_dim argument must be in >={1} and <= {dense.ndim}, got {n}")
    mask = dense.detach() != 0
    for _ in range(dense.ndim - n):
        mask = mask.any(-1)
    places = mask.nonzero().t().contiguous()
    flat = dense.reshape(-1, *dense.shape[n:])
    return make(places, flat.index_select(0, _flat_places(places, dense.shape)), dense.shape, True)
