"""Reading nested Python data into arrays: the shape, PyTorch's choice of dtype, and errors that name the place."""

from __future__ import annotations

from itertools import chain
from typing import Any

from ..backends.cpu import creation as _cpu
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor

_PLAIN = frozenset((bool, int, float, complex))
_LISTS = frozenset((list, tuple))
_ONE = {"b": True, "i": 1, "f": 1.0, "c": 1j}
_NOT_SEQUENCES = (str, bytes, dict, set, frozenset, Tensor)


def from_data(data: Any, dtype: _dtypes.dtype | None) -> Any:
    """An array of numbers, sequences of numbers, zero-dim tensors, NumPy scalars or arrays, nested to any depth."""
    if data.__class__ in _PLAIN:
        flat, shape = [data], ()
    elif data.__class__ is list and data and data[0].__class__ in _PLAIN:
        flat, shape = data, (len(data),)
    elif isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    else:
        flat, shape = _flatten(data)
    if flat.__class__ is _Empty:
        dtype, flat = dtype or flat.inferred(), []
    types = set(map(type, flat))
    if not types <= _PLAIN:
        flat, inferred = _plain_numbers(flat)
        types = set(map(type, flat))
        dtype = dtype or inferred
    kind = "c" if complex in types else "f" if float in types or not types else "i" if int in types else "b"
    if dtype is None:
        dtype = _dtypes.of_python(_ONE[kind])
    if kind == "c" and not dtype.is_complex and dtype is not _dtypes.bool_:
        raise TypeError("'complex' object cannot be interpreted as an integer" if not dtype.is_floating_point else
                        "must be real number, not complex")
    return _cpu.from_numbers(flat, kind, shape, dtype.native)


class _Empty(list):
    """Data of an empty tensor; what stands in it still decides the dtype."""

    def inferred(self) -> _dtypes.dtype:
        found = None
        for item in self:
            if _is_sequence(item):
                d = _Empty(item).inferred()
            else:
                d = _plain_numbers([item])[1]
            found = d if found is None else _dtypes.promote_types(found, d)
        return found or _dtypes.get_default_dtype()


def _is_sequence(x: Any) -> bool:
    if x.__class__ in _LISTS:
        return True
    if isinstance(x, _NOT_SEQUENCES) or _cpu.is_scalar(x):
        return False
    if _cpu.is_array(x):
        return x.ndim > 0
    return hasattr(x, "__len__") and hasattr(x, "__getitem__") and not hasattr(x, "keys")


def _flatten(data: Any) -> tuple[list[Any], tuple[int, ...]]:
    """All elements in one list, and the shape; the first element of each level says what the others must be."""
    level, shape, first = [data], [], data
    while _is_sequence(first):
        shape.append(len(first))
        if not shape[-1]:  # whatever stands beside an empty sequence, the tensor is empty
            return _Empty(level), tuple(shape)
        if len(shape) > 128:  # a list within itself has no end
            raise ValueError(f"too many dimensions '{type(first).__name__}'")
        first = first[0]
    shape = []
    warned = False
    while level and _is_sequence(level[0]):
        length = len(level[0])
        types = set(map(type, level))
        if types <= _LISTS:
            if set(map(len, level)) != {length}:
                _ragged(level, length, len(shape))
        else:
            for item in level:
                if not _is_sequence(item):
                    raise TypeError(f"not a sequence: expected a sequence of length {length} at dim {len(shape)}, got "
                                    f"{type(item).__name__}")
            if any(len(item) != length for item in level):
                _ragged(level, length, len(shape))
            if shape and not warned and any(_cpu.is_array(item) for item in level):
                import warnings
                warnings.warn("Creating a tensor from a list of numpy.ndarrays is extremely slow. Please consider "
                              "converting the list to a single numpy.ndarray with numpy.array() before converting to a "
                              "tensor.", UserWarning, stacklevel=5)
                warned = True
        shape.append(length)
        level = list(chain.from_iterable(level))
    if shape and level and isinstance(level[0], (str, bytes)):
        raise ValueError(f"too many dimensions '{type(level[0]).__name__}'")
    return level, tuple(shape)


def _ragged(level: list[Any], length: int, dim: int) -> None:
    got = next(len(item) for item in level if len(item) != length)
    raise ValueError(f"expected sequence of length {length} at dim {dim} (got {got})")


def _plain_numbers(flat: list[Any]) -> tuple[list[Any], _dtypes.dtype]:
    """Python numbers for tensors and NumPy scalars among the elements, and the dtype they all promote to."""
    inferred = None
    values = []
    for item in flat:
        if item.__class__ in _PLAIN:
            d = _dtypes.of_python(item)
        elif isinstance(item, Tensor):
            d = item.dtype
            if item.numel() != 1:
                if d.is_floating_point or d.is_complex:
                    raise ValueError("only one element tensors can be converted to Python scalars")
                raise TypeError("only integer tensors of a single element can be converted to an index")
            item = item.item()
        elif _cpu.is_scalar(item) or _cpu.is_array(item):
            d = from_native(item.dtype)
            item = item.item()
        elif isinstance(item, (bool, int, float, complex)):
            d = _dtypes.of_python(item)
            item = next(t for t in (bool, int, float, complex) if isinstance(item, t))(item)
        elif isinstance(item, (str, bytes)):
            raise TypeError(f"new(): invalid data type '{type(item).__name__}'")
        elif _is_sequence(item):
            raise TypeError(f"'{type(item).__name__}' object cannot be interpreted as a number: the elements before it "
                            "are numbers")
        else:
            raise RuntimeError(f"Could not infer dtype of {type(item).__name__}")
        values.append(item)
        inferred = d if inferred is None else d if d is inferred else _dtypes.promote_types(inferred, d)
    return values, inferred


def from_native(native: Any) -> _dtypes.dtype:
    """Our dtype of a NumPy one; PyTorch's errors for those that it has no type for."""
    found = _dtypes.BY_NUM.get(native.num)
    if found is None:
        raise TypeError(f"can't convert np.ndarray of type {native.type.__module__}.{native.type.__name__}. The only "
                        "supported types are: float64, float32, float16, complex64, complex128, int64, int32, int16, "
                        "int8, uint64, uint32, uint16, uint8, and bool.")
    return found
