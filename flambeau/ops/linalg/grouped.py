"""Products of groups of rows with a matrix each, as layers of experts need them: `grouped_mm`."""

from __future__ import annotations

from typing import Any

from ...tensors.tensor import Tensor
from ..core.row import Row, public
from ..rules import products
from .matmul import _same_dtype, check_tensor, swapped

# A gradient of each form of the product is another of its forms, over the same groups.
_product = Row("grouped_mm", "self mat2 offs", shape=products.grouped, node="GroupedMmBackward0", backward=dict(
    self=lambda grad, mat2, offs: _product(grad, swapped(mat2), offs),
    mat2=lambda grad, self, offs: _product(swapped(self), grad, offs)))


def _check(mat_a: Tensor, mat_b: Tensor, offs: Tensor | None, bias: Tensor | None, out_dtype: Any) -> None:
    check_tensor("_grouped_mm", self=mat_a, mat2=mat_b)
    for name, t in (("mat_a", mat_a), ("mat_b", mat_b)):
        if t.dtype.name not in ("float32", "bfloat16", "float16"):
            raise RuntimeError(f"Expected {name} to be Float32, BFloat16 or Float16 matrix, got {t.dtype.word}")
        if t.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    both = mat_a.ndim == 3 and mat_b.ndim == 3
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError("contraction dimension of mat_a and mat_b must match")
    if both != (offs is None):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if both and mat_a.shape[0] != mat_b.shape[0]:
        raise RuntimeError("batched dimension has to match")
    if offs is not None:
        _check_offsets(mat_a, mat_b, offs)
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if out_dtype is not None and out_dtype is not mat_a.dtype:
        raise RuntimeError("Grouped gemm output dtype must match `mat_a` dtype")
    _same_dtype(mat_a, mat_b, "mm")


def _check_offsets(mat_a: Tensor, mat_b: Tensor, offs: Tensor) -> None:
    if offs.ndim != 1:
        raise RuntimeError("offs has to be 1D")
    if offs.dtype.name != "int32":
        raise RuntimeError("Offsets have to be int32")
    batch = mat_a if mat_a.ndim == 3 else mat_b
    if batch.ndim == 3 and batch.shape[0] != offs.shape[0]:
        raise RuntimeError("matrix batch sizes have to match")


@public(name="_grouped_mm", method=False, toplevel=False, out=False)
def _grouped_mm(self: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None,
                out_dtype: Any = None) -> Tensor:
    """One product per group. offs: where the groups end in the rows (or columns) of the 2-D operand.

    (M, K) with (G, K, N) gives (M, N); (G, M, K) with (K, N) gives (M, N); two 2-D operands are cut along K and give
    (G, M, N); two 3-D ones are a plain batch. What lies behind the last group is zero.
    """
    _check(self, mat2, offs, bias, out_dtype)
    return _product(self, mat2, offs)


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
               out_dtype: Any = None) -> Tensor:
    """One product per group of rows: see `_grouped_mm`.

    >>> a, b = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(2, 8, 8, dtype=torch.bfloat16)
    >>> F.grouped_mm(a, b, offs=torch.tensor([1, 4], dtype=torch.int32)).shape
    torch.Size([4, 8])
    """
    return _grouped_mm(mat_a, mat_b, offs, bias, out_dtype)
