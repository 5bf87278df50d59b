"""`assert_close` with PyTorch's tolerances and messages, and `make_tensor`."""

from __future__ import annotations

import cmath
import collections.abc
import importlib
import math
from collections.abc import Callable
from typing import Any

from .file_check import FileCheck
from .tensors import dtypes as _dtypes
from .tensors.tensor import Tensor

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["FileCheck", "assert_close", "assert_allclose", "make_tensor"]

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
               "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7)}


def default_tolerances(*values: Any) -> tuple[float, float]:
    """(rtol, atol): the widest of the dtypes."""
    pairs = [_TOLERANCES.get(_type_of(v).name, (0.0, 0.0)) for v in values]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


def _type_of(value: Any) -> _dtypes.dtype:
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, bool):
        return _dtypes.bool_
    if isinstance(value, int):
        return _dtypes.int64
    return _dtypes.float64 if isinstance(value, float) else _dtypes.complex128


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
                 check_dtype: bool = True,
                 check_layout: bool = True, check_stride: bool = False, msg: str | Callable[[str],
                                                                                            str] | None = None) -> None:
    """Fails unless |actual - expected| <= atol + rtol * |expected| everywhere; containers are compared item by item."""
    __tracebackhide__ = True
    if (rtol is None) != (atol is None):
        raise ValueError("Both 'rtol' and 'atol' must be either specified or omitted, but got no "
                         f"{'rtol' if rtol is None else 'atol'}.")
    compare = _Comparison(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses)
    try:
        compare.any(actual, expected, ())
    except _Different as found:
        text = str(found)
    else:
        return
    raise AssertionError(msg(text) if callable(msg) else msg if msg is not None else text)


def assert_allclose(actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None,
                    equal_nan: bool = True, msg: str = "") -> None:
    """The old form of assert_close: no check of dtype, device or layout."""
    if not isinstance(actual, Tensor):
        actual = _tensor(actual)
    if not isinstance(expected, Tensor):
        expected = _tensor(expected).to(actual.dtype)
    if rtol is None and atol is None:
        rtol, atol = default_tolerances(actual, expected)
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False,
                 check_stride=False, msg=msg or None)


def _tensor(value: Any) -> Tensor:
    from .creation.factories import as_tensor
    return as_tensor(value)


class _Different(Exception):
    """What is different, with the place in the containers."""

    def __init__(self, text: str, path: tuple[Any, ...]):
        if path:
            text += "\n\nThe failure occurred for item " + "".join(f"[{p!r}]" for p in path)
        super().__init__(text)


class _Comparison:
    def __init__(self, rtol, atol, equal_nan, device, dtype, layout, stride, subclasses):
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.device, self.dtype, self.layout, self.stride, self.subclasses = device, dtype, layout, stride, subclasses

    def any(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        if isinstance(actual, collections.abc.Mapping) and isinstance(expected, collections.abc.Mapping):
            return self.mappings(actual, expected, path)
        if _is_sequence(actual) and _is_sequence(expected):
            return self.sequences(actual, expected, path)
        if actual is None or expected is None:
            if actual is not expected:
                raise _Different(f"None mismatch: {actual} is not {expected}", path)
            return None
        if isinstance(actual, (bool, int, float, complex)) and isinstance(expected, (bool, int, float, complex)):
            return self.numbers(actual, expected, path)
        if _is_array(actual) and _is_array(expected):
            if not self.subclasses and type(actual) is not type(expected):
                raise _unsupported(actual, expected, path)
            related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
            if related:
                return self.tensors(_tensor(actual), _tensor(expected), path)
        raise _unsupported(actual, expected, path)

    def mappings(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        missing, extra = set(expected) - set(actual), set(actual) - set(expected)
        if missing or extra:
            raise _Different("The keys of the mappings do not match:\n"
                             f"Missing keys in the actual mapping: {_sorted(missing)}\n"
                             f"Additional keys in the actual mapping: {_sorted(extra)}", path)
        for key in _sorted(set(actual)):
            self.any(actual[key], expected[key], (*path, key))

    def sequences(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        if len(actual) != len(expected):
            raise _Different(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path)
        for i in range(len(actual)):
            self.any(actual[i], expected[i], (*path, i))

    def tolerances(self, *values: Any) -> tuple[float, float]:
        return default_tolerances(*values) if self.rtol is None else (self.rtol, self.atol)

    def numbers(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        if self.dtype and type(actual) is not type(expected):
            raise _Different(f"The (d)types do not match: {type(actual)} != {type(expected)}.", path)
        rtol, atol = self.tolerances(actual, expected)
        if actual == expected or (self.equal_nan and _nan(actual) and _nan(expected)):
            return
        difference = abs(actual - expected)
        bound = atol + rtol * abs(expected)
        if cmath.isfinite(difference) and difference <= bound:
            return
        word = "equal" if rtol == atol == 0 else "close"
        if type(actual) is bool:
            raise _Different(f"Booleans mismatch: {actual} is not {expected}", path)
        relative = math.inf if expected == 0 else difference / abs(expected)
        raise _Different(
            f"Scalars are not {word}!\n\nExpected {expected} but got {actual}.\n"
            f"Absolute difference: {difference}{_allowed(atol)}\nRelative difference: {relative}{_allowed(rtol)}", path)

    def tensors(self, actual: Tensor, expected: Tensor, path: tuple[Any, ...]) -> None:
        self.attributes(actual, expected, path)
        rtol, atol = self.tolerances(actual, expected)
        if "meta" in (actual.device.type, expected.device.type):
            return
        close, absolute, relative = _differences(actual, expected, rtol, atol, self.equal_nan)
        if all(close):
            return
        wrong, total = sum(not c for c in close), len(close)
        word = "equal" if rtol == atol == 0 else "close"
        lines = [f"Tensor-likes are not {word}!", ""]
        if actual.dim() == 0:
            lines[0] = f"Scalars are not {word}!"
            lines += [f"Expected {expected.item()} but got {actual.item()}.", f"Absolute difference: "
                                                                              f"{absolute[0]}{_allowed(atol)}",
                      f"Relative difference: {relative[0]}{_allowed(rtol)}"]
            raise _Different("\n".join(lines), path)
        lines.append(f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})")
        for name, values, tolerance in (("absolute", absolute, atol), ("relative", relative, rtol)):
            worst = max((i for i in range(total) if not close[i]), key=lambda i: (not math.isnan(values[i]), values[i])
                        if not any(math.isnan(v) for v in values) else (math.isnan(values[i]), 0))
            lines.append(f"Greatest {name} difference: {values[worst]} at index {_place(worst, actual.shape)}"
                         f"{_allowed(tolerance)}")
        raise _Different("\n".join(lines), path)

    def attributes(self, actual: Tensor, expected: Tensor, path: tuple[Any, ...]) -> None:
        def check(name: str, a: Any, b: Any) -> None:
            if a != b:
                raise _Different(f"The values for attribute '{name}' do not match: {a} != {b}.", path)

        check("shape", actual.shape, expected.shape)
        if self.device:
            check("device", actual.device, expected.device)
        if self.dtype:
            check("dtype", actual.dtype, expected.dtype)
        if self.layout:
            check("layout", actual.layout, expected.layout)
        if self.stride:
            check("stride()", actual.stride(), expected.stride())


def _unsupported(actual: Any, expected: Any, path: tuple[Any, ...]) -> TypeError:
    return TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _is_sequence(x: Any) -> bool:
    return isinstance(x, collections.abc.Sequence) and not isinstance(x, str)


def _is_array(x: Any) -> bool:
    return isinstance(x, Tensor) or hasattr(x, "__array__")


def _sorted(keys: set[Any]) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


def _nan(x: Any) -> bool:
    return x != x


def _allowed(tolerance: float) -> str:
    return f" (up to {tolerance} allowed)" if tolerance else ""


def _place(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    out = []
    for n in reversed(shape):
        flat, i = divmod(flat, n)
        out.append(i)
    return tuple(reversed(out))


def _differences(actual: Tensor, expected: Tensor, rtol: float, atol: float,
                 equal_nan: bool) -> tuple[list[bool], list[float], list[float]]:
    """Per element: whether it is close, and the absolute and relative differences."""
    wide = _dtypes.promote_types(actual.dtype, expected.dtype)
    if wide is _dtypes.bool_:
        wide = _dtypes.int64
    a, b = actual.detach().to(wide).reshape(-1), expected.detach().to(wide).reshape(-1)
    if (a == b).all().item():
        return [True] * a.numel(), [], []
    if not (wide.is_floating_point or wide.is_complex):
        return _integer_differences(a.tolist(), b.tolist(), rtol, atol)
    absolute = (a - b).abs()
    size = b.abs()
    bound = atol + rtol * size
    close = (a == b).logical_or((absolute <= bound).logical_and(absolute.isfinite()))
    if equal_nan:
        close = close.logical_or((a != a).logical_and(b != b))
    hidden = absolute.masked_fill(close, 0)  # what is close takes no part in the report
    relative = (absolute / size).masked_fill(close, 0)
    return close.tolist(), hidden.tolist(), relative.tolist()


def _integer_differences(a: list[int], b: list[int], rtol: float, atol: float):
    absolute = [abs(x - y) for x, y in zip(a, b)]
    relative = [(d / abs(y) if y else math.inf) if d else 0.0 for d, y in zip(absolute, b)]
    from .creation.factories import tensor
    return [d <= atol + rtol * abs(y) for d, y in zip(absolute, b)], absolute, tensor(relative).tolist()


# ------------------------------------------------------------------------------------------------------- make_tensor
def make_tensor(*shape: Any, dtype: _dtypes.dtype, device: Any, low: float | None = None, high: float | None = None,
                requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False,
                memory_format: Any = None) -> Tensor:
    """A tensor of random numbers between low and high, for tests; draws as PyTorch's."""
    from .creation.factories import empty
    from .ops.random.factories import randint
    if len(shape) == 1 and isinstance(shape[0], collections.abc.Sequence):
        shape = tuple(shape[0])
    if noncontiguous and memory_format is not None:
        raise ValueError(f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
                         f"{noncontiguous=} and {memory_format=}")
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype=}")
    low, high = _limits(dtype, low, high)
    spread = noncontiguous and math.prod(shape) > 1
    if spread:
        shape = (*shape[:-1], 2 * shape[-1])  # every second element is then left out
    if dtype.is_floating_point or dtype.is_complex:
        result = empty(shape, device=device, dtype=dtype)
        (_real_parts(result) if dtype.is_complex else result).uniform_(low, high)
    else:
        result = randint(low, high, shape, device=device, dtype=dtype)
    if spread:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = 1 if not (dtype.is_floating_point or dtype.is_complex) else _dtypes.finfo(dtype).tiny
    return result.requires_grad_(True) if requires_grad else result


def _real_parts(t: Tensor) -> Tensor:
    from .ops.core.row import FUNCTIONS
    return FUNCTIONS["view_as_real"](t)


def _limits(dtype: _dtypes.dtype, low: Any, high: Any) -> tuple[Any, Any]:
    if dtype is _dtypes.bool_:
        default = (0, 2)
    elif dtype.is_floating_point or dtype.is_complex:
        default = (-9, 9)
    else:
        default = (-9, 10) if dtype.is_signed else (0, 10)
    low, high = default[0] if low is None else low, default[1] if high is None else high
    for name, value in (("low", low), ("high", high)):
        if isinstance(value, complex):
            raise ValueError(f"`{name}` must not be complex, got {value}")
        if value != value:
            raise ValueError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    if low > high or (low == high and dtype is not _dtypes.bool_ and not dtype.is_floating_point):
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if dtype.is_floating_point or dtype.is_complex:
        most = _dtypes.finfo(dtype).max
        return max(-most, min(most, low)), max(-most, min(most, high))
    least, end = (0, 2) if dtype is _dtypes.bool_ else (_dtypes.iinfo(dtype).min, _dtypes.iinfo(dtype).max + 1)
    end -= dtype is _dtypes.int64  # what randint takes
    if high < least or low >= end:
        raise ValueError(f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} only supports "
                         f"[{least}, {end})")
    return math.ceil(min(max(low, least), end)), math.ceil(min(max(high, least), end))


def __getattr__(name: str) -> Any:
    if name in ("_comparison", "_creation", "_utils"):  # PyTorch's files: stand-ins (internals.py)
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'flambeau.testing' has no attribute '{name}'")
