"""Tensors on disk and in pickles: `save` and `load` in PyTorch's own format, both ways.

archive (the zip container), pickler and unpickler (what is inside), names (PyTorch's names for flambeau's objects),
rebuild (what makes tensors), locations (map_location), legacy (files before PyTorch 1.6), safetensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..tensors.device import device
from .loading import get_unsafe_globals_in_checkpoint, load
from .locations import (
    default_restore_location,
    location_tag,
    register_package,
    validate_cuda_device,
    validate_hpu_device,
)
from .names import StorageType
from .names import get_layout as _get_layout  # noqa: F401  (the name that files call)
from .options import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from .safe_globals import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from .saving import DEFAULT_PROTOCOL, MAGIC_NUMBER, PROTOCOL_VERSION, save

MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | device | str | dict[str, str] | None


class SourceChangeWarning(Warning):
    """The source of a saved class has changed. (flambeau does not compare sources.)"""


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[int, ...],
                                          error_if_malformed: bool = True) -> bool:
    """Whether a module's __version__ is at least the given one."""
    try:
        version = tuple(type(part)(text) for part, text in zip(req_version_tuple, module.__version__.split(".")))
    except (AttributeError, ValueError) as error:
        if error_if_malformed:
            raise RuntimeError(f"'{module.__name__}' module version string is malformed") from error
        return True
    return version >= req_version_tuple


def mkdtemp() -> Any:
    """A temporary folder, for a `with` block."""
    import tempfile
    return tempfile.TemporaryDirectory()


def normalize_storage_type(storage_type: type) -> type:
    from ..tensors import storage
    return getattr(storage, storage_type.__name__)


def storage_to_tensor_type(storage: Any) -> type:
    import flambeau
    return getattr(flambeau, type(storage).__name__.replace("Storage", "Tensor"))


__all__ = ["SourceChangeWarning", "mkdtemp", "register_package", "check_module_version_greater_or_equal",
           "validate_cuda_device", "validate_hpu_device", "location_tag", "default_restore_location",
           "normalize_storage_type", "storage_to_tensor_type", "save", "load", "StorageType", "LoadEndianness",
           "get_crc32_options", "set_crc32_options", "get_default_load_endianness", "set_default_load_endianness",
           "get_default_mmap_options", "set_default_mmap_options", "clear_safe_globals", "get_safe_globals",
           "add_safe_globals", "safe_globals", "get_unsafe_globals_in_checkpoint", "skip_data", "DEFAULT_PROTOCOL",
           "MAGIC_NUMBER", "PROTOCOL_VERSION"]
