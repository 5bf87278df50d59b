"""`torch.utils._foreach_utils`: private in PyTorch, but optimizers sort their tensors with it for `torch._foreach_*` calls."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor

Lists = list[list[Any]]


def _get_foreach_kernels_supported_devices() -> list[str]:
    """The device types with such kernels, apart from the CPU."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """The device types with optimizers in one kernel."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


_foreach_supported_types = [Tensor]


def _group_tensors_by_device_and_dtype(tensorlistlist: Lists, with_indices: bool = False) -> dict[Any, tuple[Lists, list[int]]]:
    """Sorts parallel lists by the device and dtype of the first one's tensors: (device, dtype) -> (lists, places)."""
    first = tensorlistlist[0]
    if any(entries and len(entries) != len(first) for entries in tensorlistlist):
        raise RuntimeError("Expected all lists to be empty or as long as the first one, but got lengths "
                           f"{[len(entries) for entries in tensorlistlist]}")
    groups: dict[Any, tuple[Lists, list[int]]] = {}
    for place, tensor in enumerate(first):
        if tensor is None:
            raise RuntimeError("Tensors of the first list of nested Tensor lists are supposed to be defined but the "
                               f"{place}-th Tensor is not.")
        lists, places = groups.setdefault((tensor.device, tensor.dtype), ([[] for _ in tensorlistlist], []))
        for into, entries in zip(lists, tensorlistlist):
            if entries:
                into.append(entries[place])
        if with_indices:
            places.append(place)
    return groups


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors: list[Any], device: Any) -> bool:
    return _device_has_foreach_support(device) and all(t is None or type(t) in _foreach_supported_types for t in tensors)
