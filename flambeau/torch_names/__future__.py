"""Choices that PyTorch made switchable before making them the default."""

from __future__ import annotations

_overwrite = False
_swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether Module.to and its kin make new Parameters instead of changing the data of the old ones."""
    global _overwrite
    _overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What set_overwrite_module_params_on_conversion said."""
    return _overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether Module.to and load_state_dict exchange whole tensors (utils.swap_tensors) instead of their data."""
    global _swap
    _swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What set_swap_module_params_on_conversion said."""
    return _swap
