"""Element types: the `dtype` objects a user holds, PyTorch's promotion rules, `finfo` and `iinfo`.

Every dtype wraps one NumPy dtype (bfloat16 and float8 come from ml_dtypes). `BY_NUM` goes the other way, from a NumPy
dtype's type number to ours; it is on the path of `Tensor.dtype`.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

from ..backends import dtypes as _native

_BOOL, _INT, _FLOAT, _COMPLEX = range(4)


class dtype:
    """The type of a tensor's elements, such as `flambeau.float32`.

    >>> torch.ones(2).dtype
    torch.float32
    >>> torch.float16.itemsize, torch.float16.is_floating_point
    (2, True)
    """

    __slots__ = ("c_word", "category", "is_complex", "is_floating_point", "is_signed", "itemsize", "letter", "name", "native",
                 "rank", "word")

    def __init__(self, name: str, category: int, rank: int = 0, c_word: str | None = None, word: str | None = None):
        self.name = name
        self.c_word = c_word or name  # how PyTorch's errors spell it: as C++ does,
        self.word = word or name      # and as in FloatTensor
        self.native = _native.native(name)
        self.category = category
        self.letter = "bifc"[category] if name != "complex32" else "h"  # of its kind, in what rows take
        self.rank = rank
        self.itemsize = self.native.itemsize
        self.is_floating_point = category == _FLOAT
        self.is_complex = category == _COMPLEX
        self.is_signed = category != _BOOL and not name.startswith("uint")

    @property
    def scalar_word(self) -> str:
        """How PyTorch's errors about numbers that do not fit spell it."""
        return self.c_word if self.category != _INT or self.name == "int32" else f"{self.name}_t"

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return _by_name, (self.name,)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def to_complex(self) -> dtype:
        """The complex type of this precision."""
        if self.category < _FLOAT:
            raise RuntimeError(f"Unknown Complex ScalarType for {self.name}")
        return {float16: complex32, bfloat16: complex64, float32: complex64, float64: complex128}.get(self, self)

    def limits(self) -> Any:
        """NumPy's `finfo` of it."""
        return _native.finfo(self.native)

    def to_real(self) -> dtype:
        return {complex32: float16, complex64: float32, complex128: float64}.get(self, self)


def _by_name(name: str) -> dtype:
    return globals()[_GLOBAL.get(name, name)]


bool_ = dtype("bool", _BOOL, 0, "bool", "Bool")
uint8 = dtype("uint8", _INT, 1, "unsigned char", "Byte")
int8 = dtype("int8", _INT, 1, "signed char", "Char")
uint16 = dtype("uint16", _INT, 2, "unsigned short")
int16 = dtype("int16", _INT, 2, "short int", "Short")
uint32 = dtype("uint32", _INT, 3, "unsigned int")
int32 = dtype("int32", _INT, 3, "int", "Int")
uint64 = dtype("uint64", _INT, 4, "unsigned long")
int64 = dtype("int64", _INT, 4, "long int", "Long")
float8_e4m3fn = dtype("float8_e4m3fn", _FLOAT, 0)
float8_e5m2 = dtype("float8_e5m2", _FLOAT, 0)
float16 = dtype("float16", _FLOAT, 1, "c10::Half", "Half")
bfloat16 = dtype("bfloat16", _FLOAT, 1, "c10::BFloat16", "BFloat16")
float32 = dtype("float32", _FLOAT, 2, "float", "Float")
float64 = dtype("float64", _FLOAT, 3, "double", "Double")
complex32 = dtype("complex32", _COMPLEX, 1, "c10::complex<c10::Half>", "ComplexHalf")
complex64 = dtype("complex64", _COMPLEX, 2, "c10::complex<float>", "ComplexFloat")
complex128 = dtype("complex128", _COMPLEX, 3, "c10::complex<double>", "ComplexDouble")

_GLOBAL = {"bool": "bool_"}
ALL = (bool_, uint8, int8, uint16, int16, uint32, int32, uint64, int64, float8_e4m3fn, float8_e5m2, float16, bfloat16,
       float32, float64, complex64, complex128, complex32)
BY_NUM: dict[int, dtype] = {d.native.num: d for d in ALL}
# The C "long" and "long long" are two NumPy types of one size: both are int64 here.
for _num, _name in _native.same_size_aliases().items():
    BY_NUM.setdefault(_num, _by_name(_name))

half, float_, double, chalf, cfloat, cdouble = float16, float32, float64, complex32, complex64, complex128
short, int_, long = int16, int32, int64

ALIASES = {"bool": bool_, "float": float32, "double": float64, "half": float16, "int": int32, "long": int64,
           "short": int16, "chalf": complex32, "cfloat": complex64, "cdouble": complex128, **{d.name: d for d in ALL}}

HALF_NUMS = frozenset(d.native.num for d in (float16, bfloat16, float8_e4m3fn, float8_e5m2))
FLOAT_NUMS = frozenset(d.native.num for d in ALL if d.is_floating_point)
GRAD_NUMS = frozenset(d.native.num for d in ALL if d.is_floating_point or d.is_complex)

_default = [float32]


def get_default_dtype() -> dtype:
    return _default[0]


def set_default_dtype(d: dtype) -> None:
    """Sets the type of new floating tensors; only floating types are accepted."""
    if not isinstance(d, dtype):
        raise TypeError("invalid dtype object: only floating-point types are supported as the default type, got "
                        f"{type(d).__name__}")
    if not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {d}")
    _default[0] = d


def from_native(native: Any) -> dtype:
    """Our dtype of a NumPy dtype; TypeError for those PyTorch has no type for."""
    found = BY_NUM.get(native.num)
    if found is None or not native.isnative:
        raise TypeError(f"can't convert np.ndarray of type {native}. The only supported types are: "
                        + ", ".join(d.name for d in ALL))
    return found


def of_python(value: Any) -> dtype:
    """The dtype a Python scalar stands for."""
    if isinstance(value, builtins.bool):
        return bool_
    if isinstance(value, builtins.int):
        return int64
    if isinstance(value, builtins.float):
        return _default[0]
    if isinstance(value, builtins.complex):
        return _default[0].to_complex()
    raise TypeError(f"expected a number, got {type(value).__name__}")


_WIDE_UNSIGNED = frozenset((uint16, uint32, uint64))
_FLOAT8 = frozenset((float8_e4m3fn, float8_e5m2))


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type that both convert to without losing their kind."""
    a, b = type1, type2
    if a is b:
        return a
    if a.__class__ is not dtype or b.__class__ is not dtype:
        wrong = a if a.__class__ is not dtype else b
        raise TypeError(f"promote_types(): argument '{'type1' if wrong is a else 'type2'}' must be torch.dtype, not "
                        f"{type(wrong).__name__}")
    if a.category > b.category:
        a, b = b, a
    if a in _FLOAT8 or b in _FLOAT8:
        raise RuntimeError(f"Promotion for Float8 Types is not supported, attempted to promote {type1} and {type2}")
    if b.category != _FLOAT and (a in _WIDE_UNSIGNED or b in _WIDE_UNSIGNED):
        raise RuntimeError("Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
                           f"{type1} and {type2}")
    if a.category < b.category:
        return promote_types(a.to_complex(), b) if b.is_complex and a.category == _FLOAT else b
    if a.rank == b.rank:
        return int16 if a.category == _INT else float32  # uint8 with int8; float16 with bfloat16
    return a if a.rank > b.rank else b


def result_type_of(dims: dtype | None, zeros: dtype | None, scalars: dtype | None) -> dtype:
    """PyTorch's categories: tensors with dimensions first, then zero-dim tensors, then Python numbers.

    A lower category only counts when it is of a higher kind (bool < integer < floating < complex), and a complex one
    leaves the precision of a floating higher one as it is.
    """
    result = dims
    for lower in (zeros, scalars):
        if lower is None:
            continue
        if result is None:
            result = lower
        elif lower.category > result.category:
            if result.category == _FLOAT:
                result = result.to_complex()
            elif lower.category >= _FLOAT:
                result = lower
            else:
                result = promote_types(result, lower)
    assert result is not None
    return result


def can_cast(from_: dtype, to: dtype) -> bool:
    """Whether PyTorch converts from one kind to the other without being asked: never to a lower kind."""
    for name, value in (("from_", from_), ("to", to)):
        if value.__class__ is not dtype:
            raise TypeError(f"can_cast(): argument '{name}' must be torch.dtype, not {type(value).__name__}")
    return from_.category <= to.category


class _Info:
    def __init__(self, native_info: Any, d: dtype):
        self.bits, self.dtype = d.itemsize * 8, d.name
        self.min, self.max = native_info.min, native_info.max


def _check_type(name: str, value: Any) -> None:
    if not isinstance(value, dtype):
        raise TypeError(f"{name}(): argument 'type' (position 1) must be torch.dtype, not {value.__class__.__name__}")


class iinfo(_Info):
    """Limits of an integer type.

    >>> torch.iinfo(torch.int8).min, torch.iinfo(torch.int8).max
    (-128, 127)
    """

    def __init__(self, type: dtype):
        _check_type("iinfo", type)
        if type.is_floating_point or type.is_complex:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        if type is bool_:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        info = _native.iinfo(type.native)
        super().__init__(info, type)
        self.min, self.max = builtins.int(info.min), builtins.int(info.max)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


class finfo(_Info):
    """Limits of a floating type.

    >>> torch.finfo(torch.float32).eps
    1.1920928955078125e-07
    >>> torch.finfo(torch.bfloat16).bits
    16
    """

    def __init__(self, type: dtype | None = None):
        type = _default[0] if type is None else type
        _check_type("finfo", type)
        if not (type.is_floating_point or type.is_complex):
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        real = type.to_real()
        info = real.limits()
        super().__init__(info, real)
        for name in ("min", "max", "eps", "tiny", "smallest_normal"):
            setattr(self, name, builtins.float(getattr(info, name)))
        # The decimal digits that any number keeps on its way through the type.
        self.resolution = builtins.float(f"1e-{builtins.int(-math.log2(self.eps) * math.log10(2))}")

    def __repr__(self) -> str:
        return (f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
                f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})")
