"""Random numbers: generators, and every function that draws from them.

A seed gives PyTorch's CPU numbers (backends/cpu/random.py says how closely). Draws fill a tensor in the order of its
memory, as PyTorch's do. What is drawn has no derivative: an in-place draw sends back zeros.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Callable
from collections.abc import Generator as _Iterator
from typing import Any

from . import dtypes as _dtypes
from .autograd.state import BATCHED, CAPTURE, FOLLOW, looked_at, state
from .autograd.views import check_inplace, edge_of, written
from .backends import registry
from .backends.cpu import random as _cpu
from .backends.cpu import random_kernels as _kernels
from .backends.cpu.random_kernels import fill as _fill
from .backends.cpu.random_kernels import memory_order
from .creation import (
    _deliver,
    _into,
    _keyword,
    _side,
    _sizes,
    check_options,
    element_type,
    factory,
    finish,
    like,
    place,
    read_size,
    scalar,
)
from .device import device as _device
from .device import to_device
from .formats import preserve_format
from .ops import rules
from .ops.elementwise import untracked
from .ops.table import NO_RECORD, Row, _type_word, alias_of, check_writable, export, public, store
from .overrides import FRONTS
from .parameter import Parameter
from .shapes import numel
from .tensor import Tensor, wrap

__all__ = ["Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state"]


# ------------------------------------------------------------------------------------------------------- generators
class Generator:
    """A stream of random numbers with its own state."""

    def __init__(self, device: Any = "cpu"):
        self._device = to_device(device)
        if self._device.type != "cpu":
            raise RuntimeError(f"Generator: flambeau has generators for the CPU only, not for '{self._device}'")
        self._engine = _cpu.Engine()
        self._words = wrap(self._engine.words)  # as a tensor: draws are kernels that write into it
        self._lock = threading.Lock()

    @property
    def device(self) -> _device:
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Starts the stream of a seed."""
        seed = int(seed)
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError(f"Overflow when unpacking long long: the seed {seed} does not fit in 64 bits")
        if state.mode & (CAPTURE | FOLLOW):
            fresh = _cpu.Engine()
            fresh.seed(seed)
            self._words.copy_(wrap(fresh.words))
            if state.mode & FOLLOW:
                self._engine._seed = fresh.initial_seed
            return self
        with self._lock:
            self._engine.seed(seed)
        return self

    def seed(self) -> int:
        """Starts the stream of a seed that the operating system picks, and returns that seed."""
        chosen = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(chosen)
        return chosen

    def initial_seed(self) -> int:
        return self._engine.initial_seed

    def mark(self) -> Tensor:
        """What `set_state` takes to come back to here; while a call is captured, a copy of words that a program can make."""
        return self._words.clone() if state.mode & CAPTURE else self.get_state()

    def get_state(self) -> Tensor:
        """The state as a tensor of bytes, in PyTorch's layout."""
        if state.mode & CAPTURE:
            from .compiler.capture import give_up
            give_up("the state of a random generator was read")
        looked_at(self._words._array, "the state of a random generator was read")
        return wrap(self._engine.get_state())

    def set_state(self, new_state: Tensor) -> Generator:
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if new_state.dtype is self._words.dtype and new_state.shape == self._words.shape:  # of a call that was captured
            self._words.copy_(new_state)
            return self
        if new_state.dtype is not _dtypes.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        looked_at(new_state._array, "the state of a random generator was set")
        looked_at(self._words._array, "the state of a random generator was set", writing=True)
        with self._lock:
            self._engine.set_state(new_state._array)
        return self

    def clone_state(self) -> Generator:
        """Another generator that goes on from here on its own."""
        return Generator(self._device).set_state(self.get_state())

    def __reduce__(self):
        return _restored, (self.get_state(),)

    def __repr__(self) -> str:
        return f"<torch.Generator object on {self._device}>"


def _restored(saved: Tensor) -> Generator:
    return Generator().set_state(saved)


default_generator = Generator()
default_generator.seed()  # an unseeded program draws other numbers each time it runs


def manual_seed(seed: int) -> Generator:
    """Seeds the default generator."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seeds the default generator from the operating system."""
    return default_generator.seed()


def initial_seed() -> int:
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
             device_type: str = "cuda") -> _Iterator[None]:
    """What is drawn in the block leaves the default generator as it was."""
    if not enabled:
        yield
        return
    before = default_generator.mark()
    try:
        yield
    finally:
        set_rng_state(before)


# ------------------------------------------------------------------------------------------------------------ drawing
def _source(name: str, generator: Any) -> Generator:
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator


def _call(generator: Generator, kernel: str, *args: Any) -> Any:
    """A draw: one kernel of whatever backend the generator's words are on now."""
    if state.mode & BATCHED and state.levels:
        from .func import randomness
        return randomness.call(generator, kernel, args)
    words = generator._words._array
    with generator._lock:
        return registry.backend_of(words).call(kernel, (words, *args))


def _draw(array: Any, generator: Generator, kernel: str, *args: Any, keep: bool = False) -> Any:
    """Draws for an array, in the order of its memory: the array itself, filled, or (unless `keep`) another one like it.

    Arrays without memory stay as they are.
    """
    if state.mode & BATCHED and state.levels:
        from .func import randomness
        return randomness.draw(array, generator, kernel, args, keep)
    backend = registry.backend_of(array)
    if backend is registry.cpu:
        if array.size:
            with generator._lock:
                _fill(generator._engine.words, array, kernel, args)
        return array
    if backend.NAME != "cpu" or not array.size:
        return array
    shape, order, back = array.shape, *memory_order(array)
    if order is not None:
        args = tuple([backend.call("permute", (backend.call("expand", (a, shape)), order)) if hasattr(a, "ndim") else a
                      for a in args])
        shape = tuple([shape[i] for i in order])
    made = _call(generator, kernel, shape, array.dtype, *args)
    if order is None and not keep:
        return made
    backend.write(array, made if order is None else backend.call("permute", (made, back)))
    return array


def _fresh(shape: tuple[int, ...], native: Any, device: Any, generator: Generator, kernel: str, *args: Any) -> Any:
    """A new contiguous array of draws."""
    backend = place(device)
    if backend.NAME != "cpu" or 0 in shape:
        return backend.empty(shape, native)
    registry.cpu.check_bytes(numel(shape) * native.itemsize, shape)
    return _call(generator, kernel, shape, native, *args)


def _real(name: str, d: _dtypes.dtype, complex_ok: bool = True, error: type = NotImplementedError) -> None:
    if not (d.is_floating_point or (d.is_complex and complex_ok)):
        raise error(f'"{name}" not implemented for \'{_type_word(d)}\'')


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
        source = _source(name, generator)
        d = element_type(dtype, name)
        if out is not None:
            d = _into(name, out, d, device)
            device = out.device
        d = d or _dtypes.get_default_dtype()
        _real(word, d)
        return _deliver(name, _fresh(shape, d.native, device, source, kernel), out, requires_grad)

    function.__name__ = name
    general = public(function, **factory)
    draw = getattr(_kernels, name)

    def quick(*size, **options):
        """Plain sizes and no options: without a look at what was not given."""
        if not options and state.mode < 2 and size and len(size) < 5 and place(None) is registry.cpu:
            count = _count(size)
            if count:
                with default_generator._lock:
                    return wrap(draw(default_generator._engine.words, size, _dtypes.get_default_dtype().native, count))
        return general(*size, **options)

    functools.update_wrapper(quick, general)
    FRONTS[general] = quick
    export(name, quick, method=False)
    return quick


rand = _factory("rand", "draw_uniform", "check_uniform_bounds")
rand.__doc__ = "Uniform numbers of [0, 1)."
randn = _factory("randn", "draw_normal", "normal_kernel_cpu")
randn.__doc__ = "Numbers of the standard normal distribution."


def _plain(input: Any) -> bool:
    """Whether it is a contiguous float32 CPU tensor that holds something."""
    if not isinstance(input, Tensor) or state.mode & FOLLOW:
        return False
    x = input._array
    return type(x) is registry.CPU_ARRAY and x.dtype.char == "f" and x.flags.c_contiguous and (
        x.size > 0 and 1 not in x.shape)


def _few(draw: Callable, x: Any) -> Any:
    with default_generator._lock:
        return draw(default_generator._engine.words, x.shape, x.dtype, x.size)


@public(method=False, out=False)
def rand_like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
              memory_format=preserve_format) -> Tensor:
    """Uniform numbers of [0, 1) in another tensor's shape."""
    if generator is dtype is device is layout is None and memory_format is preserve_format and _plain(input) and not pin_memory:
        return finish(_few(_kernels.rand, input._array), requires_grad)
    array = like("rand_like", input, dtype, layout, device, memory_format, pin_memory)
    _real("check_uniform_bounds", _dtypes.BY_NUM[array.dtype.num])
    return finish(_draw(array, _source("rand_like", generator), "draw_uniform"), requires_grad)


@public(method=False, out=False)
def randn_like(input, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
               memory_format=preserve_format) -> Tensor:
    """Standard normal numbers in another tensor's shape."""
    if generator is dtype is device is layout is None and memory_format is preserve_format and _plain(input) and not pin_memory:
        return finish(_few(_kernels.randn, input._array), requires_grad)
    array = like("randn_like", input, dtype, layout, device, memory_format, pin_memory)
    _real("normal_kernel_cpu", _dtypes.BY_NUM[array.dtype.num])
    whole = registry.backend_of(array).is_contiguous(array)
    return finish(_draw(array, _source("randn_like", generator), "draw_normal", 0.0, 1.0, whole), requires_grad)


# ----------------------------------------------------------------------------------------------------------- integers
def _c_word(d: _dtypes.dtype) -> str:
    return d.c_word.partition(" int")[0] if d.is_signed else d.c_word


_DIGITS = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}


@functools.cache
def _limits(d: _dtypes.dtype) -> tuple[Any, Any]:
    """The least and the largest number of a dtype."""
    if d is _dtypes.bool_:
        return 0, 1
    info = _dtypes.finfo(d) if d.is_floating_point or d.is_complex else _dtypes.iinfo(d)
    return info.min, info.max


def _check_range(low: int, high: int | None, d: _dtypes.dtype) -> None:
    """PyTorch's bounds of integer draws: the ends must be numbers of the dtype, exact ones for the floating types."""
    if d.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    least, most = map(int, _limits(d))
    for name, value in (("from", low), ("to - 1", most if high is None else high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {_c_word(d)}")
        digits = _DIGITS.get(d.name)
        if digits is not None and high is not None and abs(value) > 1 << digits:
            warnings.warn(f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations "
                          f"{_type_word(d)} "
                          "can support discrete uniform distribution only within this range. This warning will become "
                          "an "
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
        raise TypeError(f"{name}() received an invalid combination of arguments: expected (high, size) or (low, high, "
                        "size)")
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
    source = _source("randint", generator)
    d = element_type(dtype, "randint")
    if out is not None:
        d = _into("randint", out, d, device)
        device = out.device
    d = d or _dtypes.int64
    if d is not _dtypes.int64 or not -_I62 < first < last < _I62:
        _check_range(first, last, d)
    return _deliver("randint", _fresh(shape, d.native, device, source, "draw_int", first, last), out,
                    requires_grad)


def _quick_randint(*args, **options):
    """Plain numbers and sizes and no options, as `rand` and `randn` have it."""
    if not options and state.mode < 2 and 1 < len(args) < 4 and args[-1].__class__ is tuple and place(None) is registry.cpu:
        low, high = (0, args[0]) if len(args) == 2 else args[:2]
        if low.__class__ is high.__class__ is int and -_I62 < low < high < _I62 and _count(args[-1]):
            with default_generator._lock:
                return wrap(_kernels.draw_int(default_generator._engine.words, args[-1], _dtypes.int64.native, low, high))
    return _general_randint(*args, **options)


_I62 = 1 << 62
_general_randint = randint
functools.update_wrapper(_quick_randint, randint)
FRONTS[randint] = randint = _quick_randint
export("randint", randint, method=False)


@public(method=False, out=False)
def randint_like(input, *args, low=None, high=None, generator=None, dtype=None, layout=None, device=None,
                 requires_grad=False, pin_memory=False, memory_format=preserve_format) -> Tensor:
    """Integers from low (or 0) up to but not including high, in another tensor's shape and dtype."""
    first, last, _ = _randint_bounds("randint_like", args, low, high, ())
    array = like("randint_like", input, dtype, layout, device, memory_format, pin_memory)
    _check_range(first, last, _dtypes.BY_NUM[array.dtype.num])
    return finish(_draw(array, _source("randint_like", generator), "draw_int", first, last), requires_grad)


@public(**factory)
def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
             pin_memory=False) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    count = _side("randperm", "n", n)
    if count < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {count}: [{count}]")
    check_options("randperm", layout, pin_memory)
    source = _source("randperm", generator)
    d = element_type(dtype, "randperm")
    if out is not None:
        d = _into("randperm", out, d, device)
        device = out.device
    d = d or _dtypes.int64
    if d is _dtypes.bool_ or d.is_complex:
        raise NotImplementedError(f'"randperm" not implemented for \'{_type_word(d)}\'')
    if count and count > (1 << _DIGITS[d.name] if d.name in _DIGITS else _limits(d)[1]):
        raise RuntimeError(f"value cannot be converted to type {d.name}_t without overflow: n={count}")
    backend = place(device)
    if backend.NAME != "cpu":
        return _deliver("randperm", backend.empty((count,), d.native), out, requires_grad)
    registry.cpu.check_bytes(count * 8, (count,))
    return _deliver("randperm", _call(source, "draw_permutation", count, d.native), out, requires_grad)


# ------------------------------------------------------------------------------------------- distributions, in place
def _zeros(grad: Tensor) -> Tensor:
    from .creation import zeros_like
    return zeros_like(grad)


def _history(node: str) -> Row:
    """A row that replaces a tensor by drawn values: nothing of the old value is left, so its gradient is zero."""
    return Row(f"draw_{node}", "self values", kernel="drawn", node=node, backward={"self": lambda grad: _zeros(grad)})


_HISTORIES = {name: _history(node) for name, node in {
    "uniform_": "UniformBackward0", "normal_": "NormalBackward0", "random_": "RandomBackward2",
    "random_to": "RandomBackward1",
    "random_from": "RandomBackward0", "exponential_": "ExponentialBackward0", "geometric_": "GeometricBackward0",
    "cauchy_": "CauchyBackward0", "log_normal_": "LogNormalBackward0", "bernoulli_": "BernoulliBackward2",
    "bernoulli_tensor": "BernoulliBackward1"}.items()}


def _refill(self: Tensor, name: str, generator: Any, kernel: str, *args: Any) -> Tensor:
    """Overwrites a tensor with draws; the arguments are already checked."""
    check_inplace(self)
    check_writable(self)
    source = _source(name.rstrip("_"), generator)
    if edge_of(self) is not None and not state.mode & NO_RECORD:
        fresh = _draw(registry.backend_of(self._array).like(self._array, self._array.dtype), source, kernel, *args)
        return store(self, _HISTORIES[name](alias_of(self), fresh))
    _draw(self._array, source, kernel, *args, keep=True)
    written(self)
    return self


method = {"toplevel": False, "out": False}


def _number(name: str, argument: str, value: Any) -> float:
    value = scalar(name, argument, value)
    if value.__class__ is complex:
        raise TypeError(f"{name}(): argument '{argument}' must be a real number, not complex")
    return float(value)


@public(**method, name="uniform_")
def uniform_(self, from_=0, to=1, *, generator=None, **named) -> Tensor:
    """Fills with uniform numbers of [from, to)."""
    low, high = _number("uniform_", "from", named.pop("from", from_)), _number("uniform_", "to", to)
    if named:
        raise TypeError(f"uniform_() got an unexpected keyword argument '{next(iter(named))}'")
    d = self.dtype
    _real("check_uniform_bounds", d)
    _, most = _limits(d)
    for word, value in (("from", low), ("to", high)):
        if not -most <= value <= most:
            raise RuntimeError(f"{word} is out of bounds for {_c_word(d)}")
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > most:
        raise RuntimeError(f"uniform_ expects to-from <= std::numeric_limits<{_c_word(d)}>::max(), "
                           "but found "
                           f"to={high:g} and from={low:g} which result in to-from to exceed the limit")
    return _refill(self, "uniform_", generator, "draw_uniform", low, high)


def _check_std(std: float) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")


@public(**method, name="normal_")
def normal_(self, mean=0, std=1, *, generator=None) -> Tensor:
    """Fills with normal numbers."""
    centre, width = _number("normal_", "mean", mean), _number("normal_", "std", std)
    _check_std(width)
    _real("normal_kernel_cpu", self.dtype)
    whole = registry.backend_of(self._array).is_contiguous(self._array)
    return _refill(self, "normal_", generator, "draw_normal", centre, width, whole)


def _refilled(general: Callable, draw: Callable, sound: Callable[[float, float], bool]) -> None:
    """In front of uniform_ and normal_: a plain float32 tensor without history, by no numbers or two sound ones."""
    def quick(*args, **options):
        mode = state.mode
        if not options and (len(args) == 1 or len(args) == 3) and mode < 2 and args[0].__class__ in _OURS:
            self, (first, second) = args[0], args[1:] or (0.0, 1.0)
            if first.__class__ in _REAL and second.__class__ in _REAL and sound(first, second) and _plain(self) and (
                    (mode or untracked(self)) and not self._inference and self._array.flags.writeable):
                x = self._array
                with default_generator._lock:
                    draw(default_generator._engine.words, x.shape, x.dtype, float(first), float(second), out=x)
                written(self)
                return self
        return general(*args, **options)

    functools.update_wrapper(quick, general)
    FRONTS[general] = quick
    setattr(Tensor, general.__name__, quick)


_OURS, _REAL = frozenset((Tensor, Parameter)), frozenset((float, int))
_refilled(uniform_, _kernels.draw_uniform, lambda low, high: -1e37 < low <= high < 1e37)
_refilled(normal_, _kernels.draw_normal, lambda mean, std: -1e37 < mean < 1e37 and 0 <= std < 1e37)
_ALL = object()  # stands for an argument that was not given, where None means "up to the largest number"


@public(**method, name="random_")
def random_(self, from_=None, to=_ALL, *, generator=None, **named) -> Tensor:
    """Fills with integers: random_() over the whole range, random_(to), or random_(from, to)."""
    low = named.pop("from", from_)
    if named:
        raise TypeError(f"random_() got an unexpected keyword argument '{next(iter(named))}'")
    if to is _ALL and from_ is not None:
        low, to, which = 0, from_, "random_to"
    elif low is None:
        low, which = 0, "random_to"
    else:
        which = "random_from"
    if to is _ALL and not low:
        if self.dtype.is_complex:
            raise NotImplementedError(f'"random_kernel_cpu" not implemented for \'{_type_word(self.dtype)}\'')
        return _refill(self, "random_", generator, "draw_full")
    first, last = _side("random_", "from", low), None if to is None or to is _ALL else _side("random_", "to", to)
    _check_range(first, last, self.dtype)
    return _refill(self, which, generator, "draw_int", first, last)


def _continuous(name: str, d: _dtypes.dtype) -> None:
    if not d.is_floating_point:
        raise RuntimeError(f"{name} distribution is a continuous probability distribution. dtype must be a floating "
                           "point but "
                           f"you specified {_type_word(d)}")


@public(**method, name="exponential_")
def exponential_(self, lambd=1, *, generator=None) -> Tensor:
    """Fills with numbers of the exponential distribution of rate lambd."""
    rate = _number("exponential_", "lambd", lambd)
    _continuous("Exponential", self.dtype)
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    return _refill(self, "exponential_", generator, "draw_exponential", rate)


@public(**method, name="geometric_")
def geometric_(self, p, *, generator=None) -> Tensor:
    """Fills with how many trials of probability p it took to succeed."""
    chance = _number("geometric_", "p", p)
    if not 0 < chance < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={chance:g}")
    if self.dtype.is_complex or self.dtype is _dtypes.bool_:
        raise NotImplementedError(f'"geometric_cpu" not implemented for \'{_type_word(self.dtype)}\'')
    return _refill(self, "geometric_", generator, "draw_geometric", chance)


@public(**method, name="cauchy_")
def cauchy_(self, median=0, sigma=1, *, generator=None) -> Tensor:
    """Fills with numbers of the Cauchy distribution."""
    centre, width = _number("cauchy_", "median", median), _number("cauchy_", "sigma", sigma)
    _continuous("Cauchy", self.dtype)
    if not width > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={width:g}")
    return _refill(self, "cauchy_", generator, "draw_cauchy", centre, width)


@public(**method, name="log_normal_")
def log_normal_(self, mean=1, std=2, *, generator=None) -> Tensor:
    """Fills with the exponentials of normal numbers."""
    centre, width = _number("log_normal_", "mean", mean), _number("log_normal_", "std", std)
    if not width > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={width:g}")
    _real("log_normal_cpu", self.dtype, complex_ok=False)
    return _refill(self, "log_normal_", generator, "draw_log_normal", centre, width)


def _check_chance(p: float) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")


def _chances(p: Tensor) -> Any:
    _real("bernoulli_tensor_cpu_p_", p.dtype, complex_ok=False)
    return p._array


@public(**method, name="bernoulli_")
def bernoulli_(self, p=0.5, *, generator=None) -> Tensor:
    """Fills with ones of probability p (a number, or a tensor of numbers) and zeros."""
    if self.dtype.is_complex:
        raise NotImplementedError(f'"bernoulli_scalar_cpu_" not implemented for \'{_type_word(self.dtype)}\'')
    if isinstance(p, Tensor):
        return _refill(self, "bernoulli_tensor", generator, "draw_bernoulli", _chances(p))
    chance = _number("bernoulli_", "p", p)
    _check_chance(chance)
    return _refill(self, "bernoulli_", generator, "draw_bernoulli", chance)


# ---------------------------------------------------------------------------------------- distributions as functions
_bernoulli_row = Row("bernoulli", "self values", safe=True, kernel="drawn", shape=rules.drawn,
                     backward={"self": lambda grad: _zeros(grad)})
_poisson_row = Row("poisson", "self values", kernel="drawn", backward={"self": lambda grad: _zeros(grad)})
_not_differentiable = Row("binomial", "count prob values", safe=True, batch="drawn", kernel="drawn_third", shape=rules.drawn,
                          node="NotImplemented",
                          backward={
    "count": lambda grad: _refuse("binomial"), "prob": lambda grad: _refuse("binomial")})
_normal_rows = {
    "mean": Row("normal_mean", "mean std values", kernel="drawn_third", node="NormalBackward1",
                backward={"mean": lambda grad, mean_shape: _summed(grad, mean_shape)}),
    "std": Row("normal_std", "mean std values", kernel="drawn_third", node="NormalBackward2",
               backward={"std": lambda grad, std_shape: _summed(grad, std_shape)}),
    "both": Row("normal_both", "mean std values", kernel="drawn_third", node="NormalBackward3",
                backward={"mean": lambda grad, mean_shape: _summed(grad, mean_shape),
                          "std": lambda grad, std_shape: _summed(grad, std_shape)})}


def _summed(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    return grad.new_zeros(shape)


def _refuse(name: str) -> Tensor:
    raise NotImplementedError(f"derivative for aten::{name} is not implemented: what it draws is not differentiable")


@public
def bernoulli(input, p=None, *, generator=None) -> Tensor:
    """Ones with the probabilities in `input` (or all with probability p), else zeros."""
    mode = state.mode
    if p is generator is None and mode < 2 and _plain(input) and (mode or untracked(input)):
        x = input._array
        with default_generator._lock:
            return wrap(_kernels.draw_bernoulli(default_generator._engine.words, x.shape, x.dtype, x))
    source = _source("bernoulli", generator)
    x = input._array
    if p is not None:
        chance = _number("bernoulli", "p", p)
        _check_chance(chance)
        made = _draw(registry.backend_of(x).like(x, x.dtype), source, "draw_bernoulli", chance)
    else:
        chances = _chances(input)
        made = _draw(registry.maker(x).empty(x.shape, x.dtype), source, "draw_bernoulli", chances)
    return _bernoulli_row(input, made)


@public
def normal(mean=0.0, std=1.0, size=None, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False,
           pin_memory=False) -> Tensor:
    """Normal numbers: of one mean and deviation in a given size, or of a mean or deviation for each element."""
    source = _source("normal", generator)
    tensors = [v for v in (mean, std) if isinstance(v, Tensor)]
    if size is not None or not tensors:
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments: a size is needed when neither mean "
                            "nor std "
                            "is a Tensor")
        centre, width = _number("normal", "mean", mean), _number("normal", "std", std)
        _check_std(width)
        check_options("normal", layout, pin_memory)
        d = element_type(dtype, "normal") or _dtypes.get_default_dtype()
        _real("normal_kernel_cpu", d)
        shape = read_size("normal", tuple(size) if isinstance(size, (tuple, list)) else (size,))
        return finish(_fresh(shape, d.native, device, source, "draw_normal", centre, width), requires_grad)
    return _normal_of(mean, std, source, tensors)


def _normal_of(mean: Any, std: Any, source: Generator, tensors: list[Tensor]) -> Tensor:
    from .ops.elementwise import broadcast_error
    from .shapes import broadcast_shapes
    for t in tensors:
        _real("normal_kernel_cpu", t.dtype)
    if not isinstance(std, Tensor):
        _check_std(_number("normal", "std", std))
    elif std.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    else:
        looked_at(std._array, "deviations of random numbers were checked")
        if type(std._array) is registry.CPU_ARRAY and _cpu.any_negative(std._array):
            raise RuntimeError("normal expects all elements of std >= 0.0")
    try:
        shape = broadcast_shapes(*[t._array.shape for t in tensors])
    except RuntimeError:
        raise broadcast_error(*[t._array.shape for t in tensors]) from None
    first = tensors[0]
    native = first._array.dtype
    values = [v._array if isinstance(v, Tensor) else float(v) for v in (mean, std)]
    made = _draw(registry.maker(first._array).empty(shape, native), source, "draw_normal", *values)
    which = "both" if len(tensors) == 2 else "mean" if isinstance(mean, Tensor) else "std"
    return _normal_rows[which](mean, std, made)


@public
def poisson(input, generator=None) -> Tensor:
    """Counts of the Poisson distribution with the rates in `input`."""
    _real("poisson_cpu", input.dtype, complex_ok=False)
    return _poisson_row(input, _sampled(input, _source("poisson", generator), "draw_poisson"))


def _sampled(input: Tensor, source: Generator, kernel: str, *args: Any) -> Any:
    x = input._array
    if registry.backend_of(x).NAME not in ("cpu", "batched"):
        return registry.backend_of(x).empty(x.shape, x.dtype)
    return _call(source, kernel, x, *args)


@public(method=False)
def binomial(count, prob, generator=None) -> Tensor:
    """How many of `count` trials of probability `prob` succeed."""
    if count.dtype is not prob.dtype:
        raise RuntimeError(f"Found dtype {_type_word(prob.dtype)} but expected {_type_word(count.dtype)}")
    _real("binomial_cpu", count.dtype, complex_ok=False)
    return _not_differentiable(count, prob, _sampled(count, _source("binomial", generator), "draw_binomial", prob._array))


@public(out="exact apart")
def multinomial(input, num_samples, replacement=False, *, generator=None) -> Tensor:
    """Indices drawn with the weights in `input` (each row by itself)."""
    x = input._array
    if not input.is_floating_point():
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {_type_word(input.dtype)}")
    if x.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    count = _side("multinomial", "num_samples", num_samples)
    if count <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if x.shape[-1] > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if not replacement and count > x.shape[-1]:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    backend = registry.backend_of(x)
    shape = (*x.shape[:-1], count)
    if backend.NAME not in ("cpu", "batched") or 0 in shape:
        return wrap(backend.empty(shape, _dtypes.int64.native))
    looked_at(x, "the weights of a draw were checked")
    if type(x) is registry.CPU_ARRAY:
        problem = _cpu.multinomial_problem(x)
        if problem:
            raise RuntimeError(problem)
    return wrap(_call(_source("multinomial", generator), "draw_multinomial", x, count, replacement))


def _standard_gamma(self, generator=None) -> Tensor:
    """Samples of the gamma distributions of shape `self` and rate 1, differentiable in `self`."""
    from .ops.sampling import standard_gamma
    _real("_standard_gamma_cpu", self.dtype, complex_ok=False)
    return standard_gamma(self, wrap(_sampled(self, _source("_standard_gamma", generator), "draw_gamma")))


def _sample_dirichlet(self, generator=None) -> Tensor:
    """Samples of the Dirichlet distributions with concentrations along the last dimension, differentiable in them."""
    from .ops.sampling import sample_dirichlet
    _real("dirichlet", self.dtype, complex_ok=False)
    return sample_dirichlet(self, wrap(_sampled(self, _source("_sample_dirichlet", generator), "draw_dirichlet")))


def _standard_gamma_grad(self, output) -> Tensor:
    from .ops.sampling import standard_gamma_grad
    return standard_gamma_grad(self, output)


def _dirichlet_grad(x, alpha, total) -> Tensor:
    from .ops.sampling import dirichlet_grad
    return dirichlet_grad(x, alpha, total)


__all__ += ["_standard_gamma", "_sample_dirichlet", "_standard_gamma_grad", "_dirichlet_grad"]
