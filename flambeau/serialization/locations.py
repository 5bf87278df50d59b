"""Where a loaded storage goes: `map_location`, and the tags that say where a saved one was."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..backends import registry
from ..tensors.device import META, device
from ..tensors.dtypes import uint8
from ..tensors.storage import UntypedStorage

_CPU_HINT = ("If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to "
             "map your storages to the CPU.")
_packages: list[tuple[int, Callable[[Any], str | None], Callable[[Any, str], Any]]] = []


def storage_over(raw: Any) -> UntypedStorage:
    """A storage over an array of bytes."""
    made = object.__new__(UntypedStorage)
    made._bytes, made._tensor = raw, None
    return made


def meta_storage(nbytes: int) -> UntypedStorage:
    return storage_over(registry.backend_for(META).empty((nbytes,), uint8.native))


def register_package(priority: int, tagger: Callable[[Any], str | None],
                     deserializer: Callable[[Any, str], Any]) -> None:
    """Adds a kind of location: `tagger(storage)` names it or returns None, `deserializer(storage, tag)` moves a storage
    there or returns None. Lower priorities are asked first."""
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The name of a storage's place in a checkpoint."""
    for _, tagger, _ in _packages:
        found = tagger(storage)
        if found:
            return found
    raise RuntimeError(f"don't know how to determine data location of {type(storage).__name__}")


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage at the place that a tag names."""
    if isinstance(location, bytes):
        location = location.decode("ascii", "replace")
    for _, _, deserializer in _packages:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {location})")


def _cpu_tag(storage: Any) -> str | None:
    return "cpu" if storage.device.type == "cpu" else None


def _to_cpu(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _meta_tag(storage: Any) -> str | None:
    return "meta" if storage.device.type == "meta" else None


def _to_meta(storage: Any, location: str) -> Any:
    return meta_storage(storage.nbytes()) if location == "meta" else None


def _accelerator_tag(storage: Any) -> str | None:
    return None if storage.device.type in ("cpu", "meta") else str(storage.device)


def _to_accelerator(storage: Any, location: str) -> Any:
    kind = location.partition(":")[0]
    if kind == "cuda":
        return validate_cuda_device(location) or _moved(storage, location)
    if kind in ("mps", "xpu", "hpu", "xla", "npu", "privateuseone", "mtia"):
        raise RuntimeError(f"Attempting to deserialize object on a {kind.upper()} device, which flambeau has no "
                           f"backend for. {_CPU_HINT}")
    return None


def _moved(storage: Any, location: str) -> Any:
    backend = registry.backend_for(device(location))
    return storage_over(registry.move(storage._bytes, backend))


def validate_cuda_device(location: str) -> None:
    """RuntimeError where a CUDA device cannot be used."""
    try:
        registry.backend_for(device(location))
    except AssertionError:
        raise RuntimeError("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
                           + _CPU_HINT) from None


def validate_hpu_device(location: str) -> None:
    raise RuntimeError(f"The HPU device module is not registered. {_CPU_HINT}")


register_package(10, _cpu_tag, _to_cpu)
register_package(20, _accelerator_tag, _to_accelerator)
register_package(22, _meta_tag, _to_meta)


def restorer(map_location: Any) -> Callable[[Any, str], Any]:
    """The function (storage, saved tag) -> storage that a `map_location` stands for."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        table = {_text(k): _text(v) for k, v in map_location.items()}
        return lambda storage, tag: default_restore_location(storage, table.get(tag, tag))
    if isinstance(map_location, (str, bytes, device)):
        goal = _text(map_location)
        return lambda storage, tag: default_restore_location(storage, goal)
    if not callable(map_location):
        raise TypeError(f"map_location must be a device, a string, a dict or a function, got {type(map_location).__name__}")

    def restore(storage: Any, tag: str) -> Any:
        found = map_location(storage, tag)
        return default_restore_location(storage, tag) if found is None else found

    return restore


def is_meta(map_location: Any) -> bool:
    return isinstance(map_location, (str, bytes, device)) and _text(map_location) == "meta"


def _text(place: Any) -> str:
    return place.decode("ascii") if isinstance(place, bytes) else str(place)


def needs_swap(byteorder: bytes | None) -> bool:
    return byteorder is not None and byteorder.decode() != sys.byteorder
