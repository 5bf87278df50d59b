"""Random tensors from nothing: rand, randn, randint, randperm and their `_like` forms."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...autograd.state import FOLLOW, state
from ...backends import registry
from ...backends.cpu.random import kernels as _kernels
from ...creation.like import like
from ...creation.options import (
    _deliver,
    _into,
    _keyword,
    _side,
    _sizes,
    check_options,
    element_type,
    factory,
    finish,
    place,
    read_size,
)
from ...creation.random import call, call_on, check_real, default_generator, draw, fresh, source_of
from ...tensors import dtypes as _dtypes
from ...tensors.formats import preserve_format
from ...tensors.tensor import Tensor, wrap
from ..core.overrides import STAND_INS
from ..core.row import _type_word, export, public


def _count(size: tuple[Any, ...]) -> int:
    """The number of elements of a plain size; 0 for any other, which takes the general way."""
    count = 1
    for n in size:
        if n.__class__ is not int or not 0 < n < 1 << 20:
            return 0
        count *= n
    return count if count < 1 << 28 else 0


def _factory(name: str, kernel: str, word: str) -> Callable:
    def function(*size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
                 pin_memory=False, **named):
        shape = _sizes(name, size, _keyword(name, named))
        check_options(name, layout, pin_memory)
        source = source_of(name, generator)
        d = element_type(dtype, name)
        if out is not None:
            d = _into(name, out, d, device)
            device = out.device
        d = d or _dtypes.get_default_dtype()
        check_real(word, d)
        return _deliver(name, fresh(shape, d.native, device, source, kernel), out, requires_grad)

    function.__name__ = name
    general = public(function, **factory)
    draw = getattr(_kernels, name)

    def fast(*size, **options):
        """Plain sizes and no options: without a look at what was not given."""
        if not options and state.mode < 2 and size and len(size) < 5 and place(None) is registry.cpu:
            count = _count(size)
            if count:
                with default_generator._lock:
                    return wrap(draw(default_generator._engine.words, size, _dtypes.get_default_dtype().native, count))
        return general(*size, **options)

    functools.update_wrapper(fast, general)
    STAND_INS[general] = fast
    export(name, fast, method=False)
    return fast


rand = _factory("rand", "draw_uniform", "check_uniform_bounds")
rand.__doc__ = "Uniform numbers of [0, 1)."
randn = _factory("randn", "draw_normal", "normal_kernel_cpu")
randn.__doc__ = "Numbers of the standard normal distribution."


def contiguous_floats(input: Any) -> bool:
    """Whether it is a contiguous float32 CPU tensor that holds something."""
    if not isinstance(input, Tensor) or state.mode & FOLLOW:
        return False
    x = input._array
    return type(x) is registry.CPU_ARRAY and x.dtype.char == "f" and x.flags.c_contiguous and (
        x.size > 0 and 1 not in x.shape)


def _drawn_like(name: str, word: str, kernel: str, numbers: Callable[[Any], tuple[Any, ...]], input: Any, generator: Any,
                dtype: Any, layout: Any, device: Any, requires_grad: bool, pin_memory: bool, memory_format: Any) -> Tensor:
    """numbers: the kernel's further arguments for an array."""
    if generator is dtype is device is layout is None and memory_format is preserve_format and not pin_memory and (
            contiguous_floats(input)):
        x = input._array
        with default_generator._lock:
            made = getattr(_kernels, name)(default_generator._engine.words, x.shape, x.dtype, x.size)
        return finish(made, requires_grad)
    array = like(f"{name}_like", input, dtype, layout, device, memory_format, pin_memory)
    check_real(word, _dtypes.BY_NUM[array.dtype.num])
    return finish(draw(array, source_of(f"{name}_like", generator), kernel, *numbers(array)), requires_grad)


@public(method=False, out=False)
def rand_like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
              memory_format=preserve_format) -> Tensor:
    """Uniform numbers of [0, 1) in another tensor's shape."""
    return _drawn_like("rand", "check_uniform_bounds", "draw_uniform", lambda array: (), input, generator, dtype, layout,
                       device, requires_grad, pin_memory, memory_format)


@public(method=False, out=False)
def randn_like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
               memory_format=preserve_format) -> Tensor:
    """Standard normal numbers in another tensor's shape."""
    return _drawn_like("randn", "normal_kernel_cpu", "draw_normal",
                       lambda array: (0.0, 1.0, registry.backend_of(array).is_contiguous(array)), input, generator, dtype,
                       layout, device, requires_grad, pin_memory, memory_format)


# ----------------------------------------------------------------------------------------------------------- integers
def c_word(d: _dtypes.dtype) -> str:
    """PyTorch's word for a dtype in errors about bounds."""
    return d.c_word.partition(" int")[0] if d.is_signed else d.c_word


_DIGITS = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}


@functools.cache
def limits_of(d: _dtypes.dtype) -> tuple[Any, Any]:
    """The least and the largest number of a dtype."""
    if d is _dtypes.bool_:
        return 0, 1
    info = _dtypes.finfo(d) if d.is_floating_point or d.is_complex else _dtypes.iinfo(d)
    return info.min, info.max


def check_range(low: int, high: int | None, d: _dtypes.dtype) -> None:
    """PyTorch's bounds of integer draws: the ends must be numbers of the dtype, exact ones for the floating types."""
    if d.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    least, most = map(int, limits_of(d))
    for name, value in (("from", low), ("to - 1", most if high is None else high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {c_word(d)}")
        digits = _DIGITS.get(d.name)
        if digits is not None and high is not None and abs(value) > 1 << digits:
            warnings.warn(f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
                          f"{_type_word(d)} "
                          "can support discrete uniform distribution only within this range. This warning will become an "
                          "error in later versions, please fix the code in advance", UserWarning, stacklevel=4)


def _randint_bounds(name: str, args: tuple[Any, ...], low: Any, high: Any, size: Any) -> tuple[int, int, tuple[int,
                                                                                                               ...]]:
    """(low, high, size) of randint(high, size) and randint(low, high, size), by position or by name."""
    args = list(args)
    if size is None and args and not isinstance(args[-1], int) and not (isinstance(args[-1], Tensor)):
        size = args.pop()
    if high is None and args:
        high = args.pop()
    if args:
        if low is not None:
            raise TypeError(f"{name}() got multiple values for argument 'low'")
        low = args.pop()
    if args or high is None or size is None:
        raise TypeError(f"{name}() received an invalid combination of arguments: expected (high, size) or (low, high, size)")
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"{name}(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    return (0 if low is None else _side(name, "low", low)), _side(name, "high", high), read_size(name, tuple(size),
                                                                                                 single=True)


@public(**factory)
def randint(*args, low=None, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
            requires_grad=False, pin_memory=False) -> Tensor:
    """Integers from low (or 0) up to but not including high."""
    first, last, shape = _randint_bounds("randint", args, low, high, size)
    check_options("randint", layout, pin_memory)
    source = source_of("randint", generator)
    d = element_type(dtype, "randint")
    if out is not None:
        d = _into("randint", out, d, device)
        device = out.device
    d = d or _dtypes.int64
    if d is not _dtypes.int64 or not -_I62 < first < last < _I62:
        check_range(first, last, d)
    return _deliver("randint", fresh(shape, d.native, device, source, "draw_int", first, last), out, requires_grad)


def _fast_randint(*args, **options):
    """Plain numbers and sizes and no options, as `rand` and `randn` have it."""
    if not options and state.mode < 2 and 1 < len(args) < 4 and args[-1].__class__ is tuple and place(None) is registry.cpu:
        low, high = (0, args[0]) if len(args) == 2 else args[:2]
        if low.__class__ is high.__class__ is int and -_I62 < low < high < _I62 and _count(args[-1]):
            with default_generator._lock:
                return wrap(_kernels.draw_int(default_generator._engine.words, args[-1], _dtypes.int64.native, low, high))
    return _general_randint(*args, **options)


_I62 = 1 << 62
_general_randint = randint
functools.update_wrapper(_fast_randint, randint)
STAND_INS[randint] = randint = _fast_randint
export("randint", randint, method=False)


@public(method=False, out=False)
def randint_like(input, *args, low=None, high=None, generator=None, dtype=None, layout=None, device=None,
                 requires_grad=False, pin_memory=False, memory_format=preserve_format) -> Tensor:
    """Integers from low (or 0) up to but not including high, in another tensor's shape and dtype."""
    first, last, _ = _randint_bounds("randint_like", args, low, high, ())
    array = like("randint_like", input, dtype, layout, device, memory_format, pin_memory)
    check_range(first, last, _dtypes.BY_NUM[array.dtype.num])
    return finish(draw(array, source_of("randint_like", generator), "draw_int", first, last), requires_grad)


@public(**factory)
def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
             pin_memory=False) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    count = _side("randperm", "n", n)
    if count < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {count}: [{count}]")
    check_options("randperm", layout, pin_memory)
    source = source_of("randperm", generator)
    d = element_type(dtype, "randperm")
    if out is not None:
        d = _into("randperm", out, d, device)
        device = out.device
    d = d or _dtypes.int64
    if d is _dtypes.bool_ or d.is_complex:
        raise NotImplementedError(f'"randperm" not implemented for \'{_type_word(d)}\'')
    if count and count > (1 << _DIGITS[d.name] if d.name in _DIGITS else limits_of(d)[1]):
        raise RuntimeError(f"value cannot be converted to type {d.name}_t without overflow: n={count}")
    backend = place(device)
    if backend.NAME == "cuda":
        return _deliver("randperm", call_on(backend, source, "draw_permutation", count, d.native), out, requires_grad)
    if backend.NAME != "cpu":
        return _deliver("randperm", backend.empty((count,), d.native), out, requires_grad)
    registry.cpu.check_bytes(count * 8, (count,))
    return _deliver("randperm", call(source, "draw_permutation", count, d.native), out, requires_grad)
