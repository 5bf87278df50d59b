"""DLPack under the name that older programs import."""

from ..tensors.interop import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
