"""Page-locked memory of the host, from which a device copies without waiting for the host's pages."""

from __future__ import annotations

from typing import Any

from ..backends import registry


def _module() -> Any:
    """The part of the CUDA backend; raises where there is no device."""
    try:
        registry.cuda()
    except registry.MissingDevice:
        raise RuntimeError("Cannot access accelerator device when none is available: pin_memory() is for copies to a "
                           "GPU.") from None
    from ..backends.cuda import pinned
    return pinned


def has_device() -> bool:
    """Whether there is a device to copy to."""
    from ..backends.cuda import driver
    try:
        return driver.machine().count > 0
    except driver.Unavailable:
        return False


def is_pinned(array: Any) -> bool:
    if type(array) is not registry.CPU_ARRAY or not registry.cuda_was_used():
        return False
    from ..backends.cuda import pinned
    return pinned.is_pinned(array)


def pinned(array: Any) -> Any:
    """A copy in page-locked memory, of the same strides where that is possible."""
    array = registry.pending.resolved(array)
    if registry.backend_of(array).NAME != "cpu":
        raise RuntimeError(f"cannot pin a tensor of device '{registry.backend_of(array).NAME}': only dense CPU tensors can be "
                           "pinned")
    return _module().copied(array)
