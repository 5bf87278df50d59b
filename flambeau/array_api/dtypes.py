"""Types of elements: their kinds, which type two of them give, their limits."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau

from ..tensors.dtypes import dtype as DType
from ..tensors.tensor import Tensor

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

KINDS = {
    "bool": (flambeau.bool,),
    "signed integer": (flambeau.int8, flambeau.int16, flambeau.int32, flambeau.int64),
    "unsigned integer": (flambeau.uint8, flambeau.uint16, flambeau.uint32, flambeau.uint64),
    "real floating": (flambeau.float32, flambeau.float64),
    "complex floating": (flambeau.complex64, flambeau.complex128),
}
KINDS["integral"] = KINDS["signed integer"] + KINDS["unsigned integer"]
KINDS["numeric"] = KINDS["integral"] + KINDS["real floating"] + KINDS["complex floating"]


def isdtype(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is the one given, or of the kind named, or of one of several."""
    if isinstance(kind, tuple):
        return any([isdtype(dtype, k) for k in kind])
    if isinstance(kind, DType):
        return dtype is kind
    if not isinstance(kind, str):
        raise TypeError(f"kind must be a dtype, a string, or a tuple of these, not {kind!r}")
    if kind not in KINDS:
        raise ValueError(f"unknown kind of dtype: {kind!r} (there are {', '.join(KINDS)})")
    return dtype in KINDS[kind]


def _promote(a: DType, b: DType) -> DType:
    """The dtype that two give: unlike PyTorch's rule this knows the wide unsigned types."""
    signed, unsigned = KINDS["signed integer"], KINDS["unsigned integer"]
    if a in unsigned and b in unsigned:
        return max(a, b, key=lambda d: d.itemsize)
    if a in signed and b in unsigned:
        a, b = b, a
    if a in unsigned and b in signed:
        wide = [d for d in signed if d.itemsize >= b.itemsize and d.itemsize > a.itemsize]
        if not wide:
            raise TypeError(f"no integer dtype holds all values of {a} and {b}")
        return wide[0]
    if a in unsigned or b in unsigned:  # with bool or a floating type: a choice of our own, and PyTorch's for uint8
        other = b if a in unsigned else a
        return (a if a in unsigned else b) if other is flambeau.bool else other
    return flambeau.promote_types(a, b)


def _of_scalar(value: Any, dtype: DType) -> DType:
    """The dtype of an array of that dtype together with a Python number."""
    if isinstance(value, bool) or (isinstance(value, int) and dtype is not flambeau.bool):
        return dtype
    return flambeau.result_type(flambeau.empty(1, dtype=dtype, device="meta"), value)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of a result of all these arrays, dtypes and Python numbers."""
    scalars = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float, complex))]
    found = [x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes
             if not isinstance(x, (bool, int, float, complex))]
    if not found:
        raise ValueError("result_type needs at least one array or dtype")
    for x in found:
        if not isinstance(x, DType):
            raise TypeError(f"result_type takes arrays, dtypes and Python numbers, not {type(x).__name__}")
    made = found[0]
    for dtype in found[1:]:
        made = _promote(made, dtype)
    for value in scalars:
        made = _of_scalar(value, made)
    return made


def same_dtype(*arrays: Any) -> list[Tensor]:
    """Arrays and Python numbers as arrays of one dtype."""
    dtype = result_type(*arrays)
    device = next(x.device for x in arrays if isinstance(x, Tensor))
    return [x.to(dtype) if isinstance(x, Tensor) else flambeau.full((), x, dtype=dtype, device=device) for x in arrays]


def can_cast(from_: Any, to: DType, /) -> bool:
    """Whether a dtype (or an array's) becomes the other by promotion: without loss, and within a kind."""
    if isinstance(from_, Tensor):
        from_ = from_.dtype
    related = ("bool", "integral", ("real floating", "complex floating"))
    if not any(isdtype(from_, kind) and isdtype(to, kind) for kind in related):
        return False
    if {from_, to} > {flambeau.uint64} and not isdtype(from_, "unsigned integer") & isdtype(to, "unsigned integer"):
        return False
    return _promote(from_, to) is to


def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """The array with elements of another dtype; copy=False gives the array itself where nothing changes."""
    if isdtype(x.dtype, "complex floating") and not isdtype(dtype, "complex floating"):
        raise TypeError(f"astype from {x.dtype} to {dtype} would lose the imaginary part: take real(x) or imag(x)")
    return x.to(device=x.device if device is None else device, dtype=dtype, copy=copy)


class FloatLimits(NamedTuple):
    """What `finfo` tells of a floating-point dtype."""
    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """What `iinfo` tells of an integer dtype."""
    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point dtype, or of an array's; those of its parts for a complex one."""
    found = flambeau.finfo(type.dtype if isinstance(type, Tensor) else type)
    part = next(d for d in (flambeau.float16, flambeau.bfloat16, *KINDS["real floating"])
                if flambeau.finfo(d).dtype == found.dtype)
    return FloatLimits(found.bits, found.eps, found.max, found.min, found.smallest_normal, part)


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or of an array's."""
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = flambeau.iinfo(dtype)
    return IntegerLimits(found.bits, found.max, found.min, dtype)
