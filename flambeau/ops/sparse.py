"""The names by which ordinary tensors meet sparse ones.

The sparse tensors themselves are in flambeau/sparse.py, which is imported when the first one is made.
"""

from __future__ import annotations

from typing import Any

from ..tensor import Tensor
from .table import FUNCTIONS, public


@public(method=False, out=False)
def sparse_coo_tensor(*args: Any, **kwargs: Any) -> Tensor:
    """sparse_coo_tensor(indices, values, size=None): a tensor that has values at some places only."""
    from ..sparse import sparse_coo_tensor as made
    return made(*args, **kwargs)


def _to_sparse(self: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None,
               dense_dim: Any = None) -> Tensor:
    """The tensor in coordinate form."""
    from ..sparse import to_sparse
    return to_sparse(self, sparse_dim, layout=layout, blocksize=blocksize)


public(_to_sparse, name="to_sparse", toplevel=False, out=False, aliases=("to_sparse_coo",))


@public(method=False, out=False)
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of a sparse and a dense matrix."""
    if not input.is_sparse and not mat2.is_sparse:
        return FUNCTIONS["mm"](input, mat2)
    from ..sparse import mm
    return mm(input, mat2)


def add_rows_(target: Tensor, rows: Tensor, values: Tensor, alpha: float = 1.0) -> Tensor:
    """target[rows] += alpha * values, in place: what it costs depends on the rows, not on the table."""
    return target.index_add_(0, rows, values, alpha=alpha)
