"""Choices that PyTorch made switchable before making them the default."""

from __future__ import annotations

_overwrite = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether Module.to and its kin make new Parameters instead of changing the data of the old ones."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Swapping tensors on conversion is not offered; turning it off is a no-op."""
    if value:
        raise NotImplementedError("set_swap_module_params_on_conversion(True): swapping parameters is not implemented")


def get_swap_module_params_on_conversion() -> bool:
    return False
