"""Random numbers: generators, and every function that draws from them.

A seed gives PyTorch's CPU numbers (backends/cpu/random/draws.py says how closely). Draws fill a tensor in the order of its
memory, as PyTorch's do. What is drawn has no derivative: an in-place draw sends back zeros.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Generator as _Iterator
from typing import Any

from ..autograd.state import BATCHED, CAPTURE, FOLLOW, looked_at, not_repeatable, state
from ..backends import registry
from ..backends.cpu.random import draws as _cpu
from ..backends.cpu.random.kernels import fill as _fill
from ..backends.cpu.random.kernels import memory_order
from ..ops.core.row import _type_word
from ..tensors import dtypes as _dtypes
from ..tensors.device import device as _device
from ..tensors.device import to_device
from ..tensors.shapes import numel
from ..tensors.tensor import Tensor, wrap
from .options import place

__all__ = ["Generator", "default_generator", "manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state"]


# ------------------------------------------------------------------------------------------------------- generators
class Generator:
    """A stream of random numbers with its own state.

    >>> generator = torch.Generator().manual_seed(1)
    >>> torch.rand(2, generator=generator)
    tensor([0.7576, 0.2793])
    >>> torch.equal(torch.rand(2, generator=generator.manual_seed(1)), torch.rand(2, generator=generator.manual_seed(1)))
    True
    """

    def __init__(self, device: Any = "cpu"):
        self._device = registry.placed(to_device(device))
        if self._device.type == "cuda":
            registry.backend_for(self._device)  # says so where there is none
            from ..backends.cuda.philox import Engine
        elif self._device.type == "cpu":
            Engine = _cpu.Engine
        else:
            raise RuntimeError(f"Generator: flambeau has generators for cpu and cuda, not for '{self._device}'")
        self._engine = Engine()
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
            fresh = type(self._engine)()
            fresh.seed(seed)
            self._words.copy_(wrap(fresh.words))
            if self._device.type == "cpu" and self._engine._seed != fresh.initial_seed:
                not_repeatable("a random generator gets another seed")  # which is not among the words
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
        not_repeatable("the state of a random generator was read")
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

    def get_offset(self) -> int:
        """How many words each stream of a CUDA generator has given."""
        return int(self._philox("get_offset").words[1])

    def set_offset(self, offset: int) -> None:
        from ..backends.cuda.philox import check_offset
        engine = self._philox("set_offset")
        check_offset(offset)
        engine.words[1] = offset

    def _philox(self, what: str) -> Any:
        if self._device.type != "cuda":
            raise RuntimeError(f"Generator.{what} is of CUDA generators only; this one is on {self._device}")
        return self._engine

    def clone_state(self) -> Generator:
        """Another generator that goes on from here on its own."""
        return Generator(self._device).set_state(self.get_state())

    def __reduce__(self):
        return _restored, (self.get_state(), str(self._device))

    def __repr__(self) -> str:
        return f"<torch.Generator object on {self._device}>"


def _restored(saved: Tensor, device: str = "cpu") -> Generator:
    return Generator(device).set_state(saved)


default_generator = Generator()
default_generator.seed()  # an unseeded program draws other numbers each time it runs


class _Devices:
    """The default generators of CUDA devices, made when they are first asked for."""

    def __init__(self) -> None:
        self.made: dict[int, Generator] = {}
        self.chosen: int | None = None  # the seed of those to come

    def of(self, index: int) -> Generator:
        found = self.made.get(index)
        if found is None:
            found = Generator(_device("cuda", index))
            found.manual_seed(int.from_bytes(os.urandom(7), "little") if self.chosen is None else self.chosen)
            found = self.made.setdefault(index, found)
        return found

    def ready(self) -> None:
        """Makes the current device's, if CUDA is in use: a call that is captured shall find it, and not make one each time."""
        for backend in set(registry.ARRAY_TYPES.values()):
            if backend.NAME == "cuda":
                with contextlib.suppress(registry.MissingDevice):  # the backend is there, a device need not be
                    self.of(backend.current_device().index)

    def seed(self, seed: int) -> None:
        self.chosen = seed
        for generator in self.made.values():
            generator.manual_seed(seed)

    def mark(self) -> Any:
        """What `back` takes to come back to here."""
        return self.chosen, {index: generator.get_state() for index, generator in self.made.items()}

    def back(self, mark: Any) -> None:
        self.chosen, states = mark
        for index in list(self.made):
            if index in states:
                self.made[index].set_state(states[index])
            else:  # made since then: it starts anew
                del self.made[index]


device_generators = _Devices()


def manual_seed(seed: int) -> Generator:
    """Seeds the default generators, those of devices too."""
    made = default_generator.manual_seed(seed)
    device_generators.seed(int(seed))
    return made


def seed() -> int:
    """Seeds the default generators from the operating system.

    >>> isinstance(torch.seed(), int)
    True
    """
    chosen = default_generator.seed()
    device_generators.seed(chosen)
    return chosen


def initial_seed() -> int:
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
             device_type: str = "cuda") -> _Iterator[None]:
    """What is drawn in the block leaves the default generators as they were."""
    if not enabled:
        yield
        return
    before, of_devices = default_generator.mark(), device_generators.mark()
    if devices is not None:
        numbers = [_number_of(d) for d in devices]
        of_devices = (of_devices[0], {i: device_generators.of(i).get_state() for i in numbers})
    try:
        yield
    finally:
        set_rng_state(before)
        if devices is None:
            device_generators.back(of_devices)
        else:
            for index, saved in of_devices[1].items():
                device_generators.of(index).set_state(saved)


def _number_of(device: Any) -> int:
    return device if device.__class__ is int else registry.placed(to_device(device)).index


# ------------------------------------------------------------------------------------------------------------ drawing
def source_of(name: str, generator: Any) -> Generator | None:
    """A generator that was given; None: the default one of the device that is drawn on."""
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator


def generator_of(device: str, generator: Generator | None, index: int = 0) -> Generator:
    """The generator for draws on a kind of device: the given one if it is of that kind."""
    if generator is None:
        return default_generator if device == "cpu" else device_generators.of(index)
    if generator._device.type != device:
        raise RuntimeError(f"Expected a '{device}' device type for generator but found '{generator._device.type}'")
    return generator


def call(generator: Generator | None, kernel: str, *args: Any) -> Any:
    """A draw: one kernel of whatever backend the generator's words are on now."""
    args = registry.pending.resolved(args)
    if type(args[0]) is not registry.CPU_ARRAY and hasattr(args[0], "ndim") and registry.backend_of(args[0]).NAME == "cuda":
        backend = registry.backend_of(args[0])
        return call_on(backend.on(backend.device_of(args[0]).index), generator, kernel, *args)
    generator = generator_of("cpu", generator)
    if state.mode & BATCHED and state.levels:
        from . import batched
        return batched.call(generator, kernel, args)
    words = generator._words._array
    with generator._lock:
        return registry.backend_of(words).call(kernel, (words, *args))


def call_on(backend: Any, generator: Generator | None, kernel: str, *args: Any) -> Any:
    """A draw on the current device of the CUDA backend."""
    generator = generator_of("cuda", generator, backend.current_device().index)
    with generator._lock:
        return backend.call(kernel, (generator._words._array, *args))


def draw(array: Any, generator: Generator | None, kernel: str, *args: Any, keep: bool = False) -> Any:
    """Draws for an array, in the order of its memory: the array itself, filled, or (unless `keep`) another one like it.

    Arrays without memory stay as they are.
    """
    if state.mode & BATCHED and state.levels:
        from . import batched
        return batched.draw(array, generator, kernel, args, keep)
    backend, args = registry.backend_of(array), registry.pending.resolved(args)
    if backend is registry.pending:
        made = draw(backend.empty_like(array), generator, kernel, *args)
        return backend.write(array, made) or array if keep else made
    if backend is registry.cpu:
        generator = generator_of("cpu", generator)
        if array.size:
            with generator._lock:
                _fill(generator._engine.words, array, kernel, args)
        return array
    if backend.NAME == "cuda":
        index = backend.device_of(array).index
        generator = generator_of("cuda", generator, index)
        if array.size:
            with generator._lock:
                backend.on(index).draw_into(generator._words._array, array, kernel, args)
        return array
    if backend.NAME != "cpu" or not array.size:
        return array
    shape, order, back = array.shape, *memory_order(array)
    if order is not None:
        args = tuple([backend.call("permute", (backend.call("expand", (a, shape)), order)) if hasattr(a, "ndim") else a
                      for a in args])
        shape = tuple([shape[i] for i in order])
    made = call(generator, kernel, shape, array.dtype, *args)
    if order is None and not keep:
        return made
    backend.write(array, made if order is None else backend.call("permute", (made, back)))
    return array


def fresh(shape: tuple[int, ...], native: Any, device: Any, generator: Generator | None, kernel: str, *args: Any) -> Any:
    """A new contiguous array of draws."""
    backend = place(device)
    if backend.NAME == "cuda":
        return draw(backend.empty(shape, native), generator, kernel, *args)
    if backend.NAME != "cpu" or 0 in shape:
        return backend.empty(shape, native)
    registry.cpu.check_bytes(numel(shape) * native.itemsize, shape)
    return call(generator, kernel, shape, native, *args)


def check_real(name: str, d: _dtypes.dtype, complex_ok: bool = True, error: type = NotImplementedError) -> None:
    if not (d.is_floating_point or (d.is_complex and complex_ok)):
        raise error(f'"{name}" not implemented for \'{_type_word(d)}\'')
