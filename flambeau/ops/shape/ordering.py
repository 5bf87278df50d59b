"""Views with dimensions in another order: permute, transpose and their kin."""

from __future__ import annotations

import warnings
from typing import Any

from ...backends.registry import CPU_ARRAY
from ...tensors.shapes import shape_of, wrap_dim
from ...tensors.tensor import Tensor
from ..core.row import public
from .views import _alias, _permute, _t, _transpose


def _permute_args(self: Tensor, dims: tuple[Any, ...]) -> tuple[Tensor, tuple[int, ...]]:
    dims, ndim = shape_of(dims), self._array.ndim
    if len(dims) != ndim:
        raise RuntimeError("permute(sparse_coo): number of dimensions in the tensor input does not match the length of the "
                           f"desired ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}")
    dims = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(dims)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return self, dims


@public(out=False)
def permute(input: Tensor, *args: Any, dims: Any = None) -> Tensor:
    """The dimensions in another order."""
    if not args and dims is None:
        raise TypeError('permute() missing 1 required positional arguments: "dims"')
    return _permute(*_permute_args(input, args if dims is None else (dims,)))


def _transpose_args(self: Tensor, dim0: int, dim1: int) -> tuple[Tensor, int, int]:
    ndim = self._array.ndim
    return self, wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)


@public(out=False)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    return _transpose(*_transpose_args(input, dim0, dim1))


@public(out=False)
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """transpose under NumPy's name."""
    return transpose(input, axis0, axis1)


@public(out=False)
def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """transpose under another name."""
    return transpose(input, dim0, dim1)


def _t_args(self: Tensor) -> tuple[Tensor]:
    if self._array.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {self._array.ndim}D")
    return (self,)


@public(out=False)
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and numbers stay as they are."""
    return _t(*_t_args(input))


def _warn_dims(name: str, self: Tensor, instead: str) -> None:
    if self._array.ndim == 0:
        import warnings
        warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors. This function is the identity in these cases.",
                      UserWarning, stacklevel=3)
    elif self._array.ndim > 2:
        import warnings
        warnings.warn(f"The use of `x.{name}` on tensors of dimension other than 0 or 2 is deprecated and it will "
                      f"throw an error in a future release. Consider `x.{instead}` to transpose batches of matrices or "
                      "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.",
                      UserWarning, stacklevel=3)


def _T(self: Tensor) -> Tensor:
    """All dimensions in reverse order."""
    if self._array.ndim == 2 and type(self._array) is not CPU_ARRAY and self.__class__ is Tensor:
        return Tensor.permute(self, 1, 0)  # the quicker way on another device
    _warn_dims("T", self, "mT")
    return _permute(self, tuple(range(self._array.ndim))[::-1])


def _matrix(self: Tensor, name: str) -> Tensor:
    if self._array.ndim < 2:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got "
                           f"{self._array.ndim}-D tensor.")
    return _transpose(self, self._array.ndim - 2, self._array.ndim - 1)


def _mT(self: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    if self._array.ndim == 0:
        _warn_zero("mT")
        return self
    return _matrix(self, "mT")


def _warn_zero(name: str) -> None:
    warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors. This function is the identity in these cases.",
                  UserWarning, stacklevel=3)


def _H(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    if self._array.ndim == 0:
        _warn_zero("H")
        return self.conj() if self.is_complex() else self
    if self._array.ndim != 2:
        raise RuntimeError(f"tensor.H is only supported on matrices (2-D tensors). Got {self._array.ndim}-D tensor. "
                           "For batches of matrices, consider using tensor.mH")
    return _mH(self)


def _mH(self: Tensor) -> Tensor:
    """The last two dimensions exchanged, and conjugated."""
    if self._array.ndim == 0:
        _warn_zero("mH")
        return self.conj() if self.is_complex() else self
    made = _matrix(self, "mH")
    return made.conj() if made.is_complex() else made


@public(out=False)
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    if input._array.ndim == 1:
        raise RuntimeError("tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return _mH(input)


Tensor.T, Tensor.mT, Tensor.H, Tensor.mH = property(_T), property(_mT), property(_H), property(_mH)


@public(out=False, aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Moves dimensions to other places; the rest keep their order."""
    ndim = input._array.ndim
    source = (source,) if isinstance(source, int) else tuple(source)
    destination = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(source) != len(destination):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain the "
                           f"same number of dims as destination ({list(destination)} dims)")
    source, destination = _distinct(source, ndim, "source"), _distinct(destination, ndim, "destination")
    if not ndim:
        return _alias(input)
    order: list[int] = [-1] * ndim
    for s, d in zip(source, destination):
        order[d] = s
    rest = iter([i for i in range(ndim) if i not in source])
    return _permute(input, tuple([next(rest) if d < 0 else d for d in order]))


def _distinct(dims: tuple[int, ...], ndim: int, what: str) -> tuple[int, ...]:
    out = tuple([wrap_dim(d, ndim) for d in dims])
    if len(set(out)) != len(out):
        raise RuntimeError(f"movedim: repeated dim in `{what}` ({list(dims)})")
    return out


__all__ = ["adjoint", "movedim", "permute", "t", "transpose"]
