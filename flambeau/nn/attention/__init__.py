"""Names around scaled dot-product attention that programs import. On the CPU there is one kernel; the choice of another
is remembered and changes nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

__all__ = ["SDPBackend", "sdpa_kernel", "WARN_FOR_UNFUSED_KERNELS"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """The implementations of attention that PyTorch knows."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_chosen = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
           SDPBackend.OVERRIDEABLE]


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return list(_chosen)


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[str, Any]]:
    """A block in which only the given implementations count as allowed."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    before = list(_chosen)
    _chosen[:] = dict.fromkeys([backends] if isinstance(backends, SDPBackend) else backends)
    try:
        yield {}
    finally:
        _chosen[:] = before


def __getattr__(name: str) -> Any:
    if name in ("bias", "flex_attention"):
        import importlib
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'flambeau.nn.attention' has no attribute '{name}'")
