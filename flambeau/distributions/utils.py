"""What the distributions share: broadcasting of parameters, probabilities and logits, and values made on demand."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import Tensor, broadcast_tensors, finfo, get_default_dtype, is_tensor, normal, ones, tensor, tril_indices, zeros
from ..autograd.modes import enable_grad
from ..nn import functional as F
from ..types import _Number

__all__ = ["broadcast_all", "logits_to_probs", "clamp_probs", "probs_to_logits", "lazy_property", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060  # Euler Mascheroni Constant


def _tensor_like(value: Any) -> bool:
    return is_tensor(value) or hasattr(value, "__torch_function__")


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """The values as tensors of one shape; numbers take the dtype and device of the first tensor."""
    for v in values:
        if not (_tensor_like(v) or isinstance(v, _Number)):
            raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                             f"__torch_function__, but got {type(v).__name__}")
    if all(map(_tensor_like, values)):
        return broadcast_tensors(*values)
    options: dict[str, Any] = {"dtype": get_default_dtype()}
    for v in values:
        if isinstance(v, Tensor):
            options = {"dtype": v.dtype, "device": v.device}
            break
    return broadcast_tensors(*[v if _tensor_like(v) else tensor(v, **options) for v in values])


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Tensor:
    return normal(zeros(shape, dtype=dtype, device=device), ones(shape, dtype=dtype, device=device))


def _sum_rightmost(value: Any, dim: int) -> Any:
    """Sums over the last `dim` dimensions."""
    if dim == 0:
        return value
    return value.reshape(value.shape[:-dim] + (-1,)).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: log odds where is_binary, else unnormalised log probabilities along the last dim."""
    return logits.sigmoid() if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept away from 0 and 1 by the dtype's resolution, so that their logarithms are finite."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logits of probabilities (log odds where is_binary); 0 and 1 give large finite numbers."""
    inside = clamp_probs(probs)
    return inside.log() - (-inside).log1p() if is_binary else inside.log()


class lazy_property:
    """A property that is computed when first read and then kept in the instance."""

    def __init__(self, wrapped: Callable[[Any], Any]):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with enable_grad():  # what is kept may be differentiated later, wherever it is read first
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What a class shows for a lazy property: documentation tools want a property."""

    def __init__(self, wrapped: Callable[[Any], Any]):
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of matrices (up to the diagonal `diag`), row after row, as vectors."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Lower triangular matrices (up to the diagonal `diag`) whose entries are, row after row, those of vectors."""
    n = _side_of_triangle(vec.shape[-1], diag)
    rows, columns = tril_indices(n, n, diag, device=vec.device)
    mat = vec.new_zeros(vec.shape[:-1] + (n, n))
    mat[..., rows, columns] = vec
    return mat


def _side_of_triangle(count: int, diag: int) -> int:
    """The n for which the n x n matrix has `count` entries up to the diagonal `diag`."""
    n = 0
    while True:
        entries = sum(min(max(i + 1 + diag, 0), n) for i in range(n))
        if entries == count and n >= -diag:
            return n
        if entries > count:
            raise ValueError(f"The size of last dimension is {count} which cannot be expressed as the lower triangular "
                             "part of a square D x D matrix.")
        n += 1
