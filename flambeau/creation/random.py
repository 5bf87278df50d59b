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
def source_of(name: str, generator: Any) -> Generator:
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator


def call(generator: Generator, kernel: str, *args: Any) -> Any:
    """A draw: one kernel of whatever backend the generator's words are on now."""
    if state.mode & BATCHED and state.levels:
        from . import batched
        return batched.call(generator, kernel, args)
    words = generator._words._array
    with generator._lock:
        return registry.backend_of(words).call(kernel, (words, *args))


def draw(array: Any, generator: Generator, kernel: str, *args: Any, keep: bool = False) -> Any:
    """Draws for an array, in the order of its memory: the array itself, filled, or (unless `keep`) another one like it.

    Arrays without memory stay as they are.
    """
    if state.mode & BATCHED and state.levels:
        from . import batched
        return batched.draw(array, generator, kernel, args, keep)
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
    made = call(generator, kernel, shape, array.dtype, *args)
    if order is None and not keep:
        return made
    backend.write(array, made if order is None else backend.call("permute", (made, back)))
    return array


def fresh(shape: tuple[int, ...], native: Any, device: Any, generator: Generator, kernel: str, *args: Any) -> Any:
    """A new contiguous array of draws."""
    backend = place(device)
    if backend.NAME != "cpu" or 0 in shape:
        return backend.empty(shape, native)
    registry.cpu.check_bytes(numel(shape) * native.itemsize, shape)
    return call(generator, kernel, shape, native, *args)


def check_real(name: str, d: _dtypes.dtype, complex_ok: bool = True, error: type = NotImplementedError) -> None:
    if not (d.is_floating_point or (d.is_complex and complex_ok)):
        raise error(f'"{name}" not implemented for \'{_type_word(d)}\'')
