"""Random numbers of the devices: their default generators, seeded, saved and set back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..creation.random import Generator, device_generators
from ..tensors.tensor import Tensor
from .devices import current, device_count, index_of


class _Defaults(Sequence):
    """The default generator of each device; none where there is no device."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        if not -len(self) <= index < len(self):
            raise IndexError("tuple index out of range")
        return device_generators.of(index % len(self))

    def __iter__(self) -> Iterator[Generator]:
        return iter([device_generators.of(index) for index in range(len(self))])

    def __repr__(self) -> str:
        return repr(tuple(self))


default_generators: Sequence[Generator] = _Defaults()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a device's generator: 16 bytes on the CPU."""
    return device_generators.of(index_of(device, "get_rng_state")).get_state()


def get_rng_state_all() -> list[Tensor]:
    """One state per device."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Sets a device's generator back to a state."""
    device_generators.of(index_of(device, "set_rng_state")).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Sets the generators of all devices back."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device; without a device, those to come."""
    if device_count():
        device_generators.of(current().device).manual_seed(int(seed))
    else:
        device_generators.seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices."""
    device_generators.seed(int(seed))


def seed() -> None:
    """Gives the current device's generator a seed from the operating system."""
    if device_count():
        device_generators.of(current().device).seed()


def seed_all() -> None:
    """Gives the generators of all devices one seed from the operating system."""
    for index in range(device_count()):
        if index == 0:
            chosen = device_generators.of(0).seed()
        device_generators.of(index).manual_seed(chosen)


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return device_generators.of(index_of(None, "initial_seed")).initial_seed()
