"""Sparse tensors in coordinate form: the places of some elements (or rows) and their values; all others are zero.

They are what `Embedding(sparse=True)` gives as gradients, and enough for programs that build one by hand and multiply
it with dense matrices. A SparseTensor keeps its numbers in two ordinary tensors; what operations do with it is the
table `HANDLERS`, which they reach through `__torch_function__`. An operation that is not there says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arithmetic import _addmm, _product, _sum
from .coo import HANDLERS, SparseTensor, make, of_rows  # noqa: F401
from .making import sparse_coo_tensor, to_sparse

__all__ = ["SparseTensor", "mm", "sum", "addmm"]
for _public in (SparseTensor, make, of_rows, sparse_coo_tensor, to_sparse):
    _public.__module__ = __name__  # where users find it, and how it is pickled


def mm(mat1: Any, mat2: Any) -> Any:
    """The product of a sparse and a dense (or sparse) matrix."""
    return _product(mat1, mat2)


def sum(input: Any, dim: Any = None, dtype: Any = None) -> Any:
    """The sum of a sparse tensor: of all its values, or along dimensions (then dense)."""
    return _sum(input, dim, dtype=dtype)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: Any = 1.0, alpha: Any = 1.0) -> Any:
    """beta * mat + alpha * mat1 @ mat2."""
    return _addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def _legacy(dtype_name: str) -> Callable:
    def construct(indices: Any, values: Any = None, size: Any = None) -> SparseTensor:
        from ..tensors import dtypes
        kind = getattr(dtypes, dtype_name)
        return sparse_coo_tensor(indices, values, size, dtype=kind)

    return construct


FloatTensor, DoubleTensor, LongTensor, IntTensor = map(_legacy, ("float32", "float64", "int64", "int32"))


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
    if name in ("softmax", "log_softmax", "spsolve", "sampled_addmm", "spdiags", "to_sparse_semi_structured",
                "SparseSemiStructuredTensor", "as_sparse_gradcheck"):
        from ..missing import refusal
        return refusal(f"sparse.{name}", "this sparse operation is not implemented")
    raise AttributeError(f"module 'flambeau.sparse' has no attribute '{name}'")
