"""Functions of each element. Two arrays first become arrays of the dtype that the standard says they give together:
PyTorch's rule makes arrays without dimensions count for less, and knows no pairs of wide unsigned types."""

from __future__ import annotations

from typing import Any

import flambeau

from ..tensors.tensor import Tensor
from .dtypes import isdtype, same_dtype

# The standard's names of functions of one array and of two; `name=other` where flambeau calls it otherwise.
_UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert=bitwise_not ceil conj cos cosh exp expm1 floor imag isfinite
            isinf isnan log log10 log1p log2 logical_not negative positive real reciprocal signbit sin sinh sqrt square tan tanh
            trunc"""
_BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal=eq
             greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum
             multiply nextafter not_equal pow subtract"""


def _unary(name: str, function: Any) -> Any:
    def call(x: Tensor, /) -> Tensor:
        return function(x)
    call.__doc__ = f"flambeau.{function.__name__} of each element."
    call.__name__ = call.__qualname__ = name
    return call


def _binary(name: str, function: Any) -> Any:
    def call(x1: Any, x2: Any, /) -> Tensor:
        return function(*same_dtype(x1, x2))
    call.__doc__ = f"flambeau.{function.__name__} of each pair of elements; one of the arguments may be a Python number."
    call.__name__ = call.__qualname__ = name
    return call


for _names, _make in ((_UNARY, _unary), (_BINARY, _binary)):
    for _name, _, _other in (entry.partition("=") for entry in _names.split()):
        globals()[_name] = _make(_name, getattr(flambeau, _other or _name))

__all__ = [entry.partition("=")[0] for entry in (_UNARY + " " + _BINARY).split()]
__all__ += ["clip", "floor_divide", "remainder", "round", "sign"]


def round(x: Tensor, /) -> Tensor:
    """Each element rounded to the nearest integer, ties to the even one; complex numbers part by part."""
    if x.is_complex():
        return flambeau.complex(flambeau.round(x.real), flambeau.round(x.imag))
    return flambeau.round(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1 for each element, nan for nan; x / abs(x) for complex numbers."""
    made = flambeau.sgn(x)
    return flambeau.where(flambeau.isnan(x), x, made) if x.is_floating_point() else made


def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The quotient rounded down. Where infinities take part it is that of the division, where Python gives nan or -1."""
    x1, x2 = same_dtype(x1, x2)
    made = flambeau.floor_divide(x1, x2)
    if not made.is_floating_point():
        return made
    return flambeau.where(flambeau.isfinite(x1) & flambeau.isfinite(x2), made, flambeau.floor(x1 / x2))


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """The remainder of the division, with the sign of the divisor: a zero has it, too."""
    x1, x2 = same_dtype(x1, x2)
    made = flambeau.remainder(x1, x2)
    if not made.is_floating_point():
        return made
    return flambeau.where(made == 0, flambeau.copysign(made, x2), made)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Each element, or the nearer of the bounds where it is outside of them. The dtype stays."""
    made = x.clone()
    for bound, choose in ((min, flambeau.maximum), (max, flambeau.minimum)):
        if bound is not None:
            if isdtype(x.dtype, "integral") and isinstance(bound, int):  # a bound that the dtype cannot hold bounds nothing
                limits = flambeau.iinfo(x.dtype)
                bound = sorted((limits.min, bound, limits.max))[1]
            made = choose(*same_dtype(made, bound)).to(x.dtype)
    return made
