"""The standard's extension for Fourier transforms: flambeau.fft, with the standard's names of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau

from ..tensors.tensor import Tensor
from .dtypes import DType

_lib = flambeau.fft
__all__ = ["fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
           "rfftfreq", "rfftn"]


def _along(name: str) -> Any:
    function = getattr(_lib, name)

    def call(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return function(x, n, axis, norm)
    call.__name__, call.__qualname__, call.__doc__ = name, name, f"flambeau.fft.{name} along an axis."
    return call


def _over(name: str) -> Any:
    function = getattr(_lib, name)

    def call(x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
             norm: str = "backward") -> Tensor:
        return function(x, s, axes, norm)
    call.__name__, call.__qualname__, call.__doc__ = name, name, f"flambeau.fft.{name} over several axes."
    return call


fft, ifft, rfft, irfft, hfft, ihfft = map(_along, ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = map(_over, ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of `fft` of n samples at a distance of d."""
    return _lib.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The frequencies of the elements of `rfft` of n samples at a distance of d."""
    return _lib.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """The elements with frequency 0 moved to the middle."""
    return x.clone() if axes == () else _lib.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: Any = None) -> Tensor:
    """`fftshift` undone."""
    return x.clone() if axes == () else _lib.ifftshift(x, axes)
