"""Sparse tensors: the places of some elements (or rows, or blocks) and their values; all others are zero.

A SparseTensor (coo.py) has a list of places, a CompressedTensor (compressed.py: CSR, CSC, BSR, BSC) lists where its rows or
columns begin. Both keep their numbers in an ordinary tensor of values (held.py), whose gradient is theirs. What operations do
with them are the tables `HANDLERS` of these two files, which they reach through `__torch_function__`. An operation that is
not there says so.
"""

from __future__ import annotations

from typing import Any

from ..creation.legacy import LEGACY, TensorTypeClass
from ..tensors.formats import sparse_coo
from ..tensors.tensor import Tensor
from . import compressed_ops as _compressed_ops
from .arithmetic import _sum
from .checked import CONSTRUCTORS, sparse_compressed_tensor
from .compressed import CompressedTensor, to_compressed  # noqa: F401
from .compressed_ops import sampled_addmm
from .coo import HANDLERS, SparseTensor, make, of_rows  # noqa: F401
from .functions import as_sparse_gradcheck, log_softmax, softmax, spdiags
from .making import sparse_coo_tensor, to_sparse
from .products import _addmm, _product

__all__ = ["CompressedTensor", "SparseTensor", "addmm", "as_sparse_gradcheck", "log_softmax", "mm", "sampled_addmm", "softmax",
           "spdiags", "sum"]
for _public in (SparseTensor, make, of_rows, sparse_coo_tensor, to_sparse, sampled_addmm, softmax, log_softmax, spdiags,
                as_sparse_gradcheck, sparse_compressed_tensor, *CONSTRUCTORS.values()):
    _public.__module__ = __name__  # where users find it, and how it is pickled


def mm(mat1: Any, mat2: Any, reduce: str | None = None) -> Any:
    """The product of a sparse and a dense (or sparse) matrix.

    reduce: what becomes of the products that a sum would add up, for a CSR matrix: "sum", "mean", "amax" or "amin".

    >>> a = torch.tensor([[1.0, 2.0], [0.0, 3.0]]).to_sparse_csr()
    >>> torch.sparse.mm(a, torch.tensor([[1.0], [5.0]]), "amax")
    tensor([[10.],
            [15.]])
    """
    if reduce is not None:
        return _compressed_ops.reduced_product(mat1, mat2, reduce)
    compressed = isinstance(mat1, CompressedTensor) or isinstance(mat2, CompressedTensor)
    return (_compressed_ops._product if compressed else _product)(mat1, mat2)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of a sparse tensor: of all its values, or along dimensions (then dense)."""
    return input.sum(dtype=dtype) if dim is None else _sum(input, dim, dtype=dtype)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """beta * mat + alpha * mat1 @ mat2."""
    compressed = any(isinstance(m, CompressedTensor) for m in (mat, mat1, mat2))
    return (_compressed_ops._addmm if compressed else _addmm)(mat, mat1, mat2, beta=beta, alpha=alpha)


class SparseTypeClass(TensorTypeClass):
    """The old name of a dtype in coordinate form, such as `sparse.FloatTensor`."""

    def __call__(cls, *args: Any, device: Any = None) -> SparseTensor:
        if (args and isinstance(args[0], Tensor)) or (len(args) > 1 and not isinstance(args[0], int)):
            return sparse_coo_tensor(*args, dtype=cls.dtype, device=device)
        size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or (0,)
        return sparse_coo_tensor(tuple(size), dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, SparseTensor) and instance.dtype is cls.dtype


for _word, _dtype in LEGACY.items():
    globals()[_word + "Tensor"] = SparseTypeClass(_word + "Tensor", (), dict(dtype=_dtype, is_cuda=False, layout=sparse_coo,
                                                                             __module__="torch.sparse"))


class check_sparse_tensor_invariants:
    """Whether sparse tensors are checked when they are made: here they always are; the switch is remembered."""

    _on = False

    def __init__(self, enable: bool = True):
        self.wanted, self.before = enable, None

    @staticmethod
    def is_enabled() -> bool:
        return check_sparse_tensor_invariants._on

    @staticmethod
    def enable() -> None:
        check_sparse_tensor_invariants._on = True

    @staticmethod
    def disable() -> None:
        check_sparse_tensor_invariants._on = False

    def __enter__(self) -> None:
        if self.before is not None:
            raise RuntimeError("This context manager instance is already activated. Use a different context manager "
                               "instance.")
        self.before = self.is_enabled()
        check_sparse_tensor_invariants._on = self.wanted

    def __exit__(self, *exc: Any) -> None:
        check_sparse_tensor_invariants._on, self.before = self.before, None

    def __call__(self, function: Any) -> Any:
        import functools

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.wanted):
                return function(*args, **kwargs)

        return inside


def __getattr__(name: str) -> Any:
    if name in ("spsolve", "to_sparse_semi_structured", "SparseSemiStructuredTensor"):
        from ..missing import refusal
        return refusal(f"sparse.{name}", "this sparse operation is not implemented")
    raise AttributeError(f"module 'flambeau.sparse' has no attribute '{name}'")
