"""Functions of flambeau.sparse: softmax along a dimension, matrices from diagonals, gradcheck with sparse inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from .coo import SparseTensor, _flat_places, make
from .held import Held
from .shapes import _number_list


def _along(a: SparseTensor, dim: int, dtype: Any, log: bool) -> SparseTensor:
    a = a.coalesce()
    dim, n = dim % a.ndim, a.sparse_dim()
    values = a._held_values if dtype is None else a._held_values.to(dtype)
    if dim >= n:
        made = FUNCTIONS["log_softmax" if log else "softmax"](values, dim - n + 1)
        return make(a._held_indices, made, a.shape, True)
    others = [d for d in range(n) if d != dim]
    group = _flat_places(a._held_indices.index_select(0, _number_list(others)), [a.shape[d] for d in others]) if others else (
        a._held_indices.new_zeros(a._nnz()))
    _, where = group.unique(return_inverse=True)
    count = int(where.max()) + 1 if where.numel() else 0
    index = where.view(-1, *[1] * (values.ndim - 1)).expand(values.shape)
    blank = values.detach().new_full((count, *values.shape[1:]), float("-inf"))
    shifted = values - blank.scatter_reduce(0, index, values.detach(), "amax").index_select(0, where)
    totals = values.new_zeros((count, *values.shape[1:])).index_add(0, where, shifted.exp())
    made = shifted - totals.log().index_select(0, where) if log else shifted.exp() / totals.index_select(0, where)
    return make(a._held_indices, made, a.shape, True)


def softmax(input: Any, dim: int, *, dtype: Any = None) -> SparseTensor:
    """softmax along a dimension over the elements that are there: those that are not count as minus infinity."""
    return _along(input, dim, dtype, False)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> SparseTensor:
    """The logarithm of softmax along a dimension, over the elements that are there."""
    return _along(input, dim, dtype, True)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix with the rows of `diagonals` on its diagonals `offsets`, each element in the column of its own number.

    >>> torch.sparse.spdiags(torch.arange(1, 5).view(2, 2), torch.tensor([0, 1]), (2, 2)).to_dense()
    tensor([[1, 4],
            [0, 2]])
    """
    lines = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    at = offsets if offsets.ndim else offsets.unsqueeze(0)
    if lines.ndim != 2 or at.ndim != 1:
        raise RuntimeError("Diagonals must be vector or matrix, and offsets scalar or vector")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if lines.shape[0] != at.shape[0]:
        raise RuntimeError(f"Number of diagonals ({lines.shape[0]}) does not match the number of offsets ({at.shape[0]})")
    if at.dtype.name != "int64":
        raise RuntimeError("Offset Tensor must have dtype Long but got " + at.dtype.word)
    if at.unique().shape[0] != at.shape[0]:
        raise RuntimeError("Offset tensor contains duplicate values")
    name = str(layout).rpartition("_")[2] if layout is not None else "coo"
    if name not in ("coo", "csr", "csc"):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    columns = FUNCTIONS["arange"](lines.shape[1]).expand(lines.shape)
    rows = columns - at.unsqueeze(1)
    kept = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    made = make(FUNCTIONS["stack"]([rows[kept], columns[kept]]), lines[kept], tuple(shape))
    return made if name == "coo" else made._compressed(name)


def as_sparse_gradcheck(gradcheck: Callable) -> Callable:
    """gradcheck for functions of sparse tensors: they are varied at the places that they have.

    >>> gradcheck = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)
    >>> x = torch.eye(2, dtype=torch.float64).to_sparse().requires_grad_(True)
    >>> gradcheck(lambda x: x.to_dense(), x)
    True
    """

    @functools.wraps(gradcheck)
    def checked(func: Callable, inputs: Any, **options: Any) -> bool:
        """The same function of the values, each sparse tensor built around them again."""
        given = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        sparse = [(i, t) for i, t in enumerate(given) if isinstance(t, Held)]
        options.pop("masked", None)
        options.pop("check_sparse_nnz", None)

        def of_values(*args: Any) -> Any:
            args = list(args)
            for i, t in sparse:
                args[i] = t._rebuilt(args[i])
            made = func(*args)
            outputs = made if isinstance(made, (list, tuple)) else (made,)
            dense = tuple(o.to_dense() if isinstance(o, Held) else o for o in outputs)
            return dense if isinstance(made, (list, tuple)) else dense[0]

        plain = [t._held_values.detach().requires_grad_(t.requires_grad) if isinstance(t, Held) else t for t in given]
        return gradcheck(of_values, tuple(plain), **options)

    return checked
