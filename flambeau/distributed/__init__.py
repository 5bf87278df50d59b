"""`torch.distributed`: several processes are not implemented; the questions programs ask first say so."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Whether processes can work together: not yet."""
    return False


def is_initialized() -> bool:
    return False


def is_torchelastic_launched() -> bool:
    return False


def is_nccl_available() -> bool:
    return False


def is_gloo_available() -> bool:
    return False


def is_mpi_available() -> bool:
    return False


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from .. import MissingName
    raise MissingName(f"flambeau.distributed.{name}: training with several processes is not implemented in flambeau")
