"""Which CUDA devices there are, what they can do, and which one a thread uses."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from ..backends import registry
from ..backends.cuda import driver as _driver
from ..backends.registry import MissingDevice
from ..tensors.device import device as _device


def is_available() -> bool:
    """Whether tensors can be made on a CUDA device."""
    return device_count() > 0


def device_count() -> int:
    """How many CUDA devices there are: 0 without a driver."""
    return registry.cuda_count()


def machine(what: str) -> Any:
    """The driver, for the function of this name; raises where there is none."""
    try:
        return _driver.machine()
    except _driver.Unavailable as error:
        raise MissingDevice(f"Torch not compiled with CUDA enabled: cuda.{what} needs a CUDA device. {error}.") from None


def current() -> Any:
    """The thread's choice of device and stream."""
    from ..backends.cuda.streams import current
    return current


class InvalidDevice(AssertionError, RuntimeError):
    """A device number that there is none of. (PyTorch raises either, by function.)"""


def index_of(device: Any, what: str) -> int:
    """The number of a device given in any form; None: the current one."""
    found = machine(what)
    if isinstance(device, str):
        device = _device(device)
    if isinstance(device, _device):
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        device = device.index
    if device is None:
        return current().device
    if not 0 <= device < found.count:
        raise InvalidDevice(f"CUDA error: invalid device ordinal. Invalid device id: {device}, there are {found.count}")
    return device


def is_initialized() -> bool:
    """Whether the driver has been asked for."""
    return _driver._machine is not None


def init() -> None:
    """Makes the device ready; the first use does that, too."""
    machine("init").activate(current().device)


def current_device() -> int:
    """The number of the device that new tensors are made on."""
    machine("current_device")
    return current().device


def set_device(device: Any) -> None:
    """Makes a device the current one of this thread; a negative number changes nothing."""
    if device.__class__ is not int or device >= 0:
        switch(index_of(device, "set_device"))


def switch(index: int) -> None:
    from ..backends.cuda import launch
    chosen = current()
    chosen.device = index
    launch.choose_stream(chosen.stream)


class device:
    """A block in which another device is the current one; -1 and None choose nothing."""

    def __init__(self, device: Any):
        self.idx = -1 if device is None or (device.__class__ is int and device < 0) else index_of(device, "device")
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current().device
            switch(self.idx)

    def __exit__(self, *exc: Any) -> bool:
        if self.idx >= 0:
            switch(self.prev_idx)
        return False


class device_of(device):
    """A block in which the device of a tensor is the current one; one on the CPU chooses nothing."""

    def __init__(self, obj: Any):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


class Properties(NamedTuple):
    """What `get_device_properties` tells."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    shared_memory_per_block: int
    L2_cache_size: int
    is_integrated: bool
    uuid: UUID
    is_multi_gpu_board: bool = False


def get_device_properties(device: Any = None) -> Properties:
    """Name, memory and abilities of a device."""
    index = index_of(device, "get_device_properties")
    found = machine("get_device_properties")
    found.activate(index)
    wanted = ("multiprocessors", "warp", "threads_per_multiprocessor", "shared_per_block", "l2")
    return Properties(found.name(index), *get_device_capability(index), found.room()[1],
                      *[found.attribute(name, index) for name in wanted], bool(found.attribute("integrated", index)),
                      UUID(bytes=found.identity(index)))


def get_device_name(device: Any = None) -> str:
    """What the driver calls a device."""
    return machine("get_device_name").name(index_of(device, "get_device_name"))


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The version of a device's instruction set: (9, 0) for Hopper."""
    index = index_of(device, "get_device_capability")
    found = machine("get_device_capability")
    return found.attribute("capability_major", index), found.attribute("capability_minor", index)


def synchronize(device: Any = None) -> None:
    """Waits until a device has done all that it was asked for."""
    index = index_of(device, "synchronize")
    found = machine("synchronize")
    found.activate(index)
    found.synchronize()
    from ..backends.cuda import faults
    faults.check()


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether there is a device that computes in bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether single-precision products can be rounded to TF32."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """The architectures that kernels are built for: those of the devices here."""
    return sorted({_driver.machine().architecture(i) for i in range(device_count())})


def get_gencode_flags() -> str:
    """The flags with which nvcc would build for them."""
    return " ".join([f"-gencode compute={a.replace('sm', 'compute')},code={a}" for a in get_arch_list()])


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device can read another's memory: not arranged for here."""
    index_of(device, "can_device_access_peer"), index_of(peer_device, "can_device_access_peer")
    return False
