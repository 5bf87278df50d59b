"""Names around scaled dot-product attention that programs import. On the CPU there is one kernel; the choice of another
is remembered and changes nothing."""

from __future__ import annotations

from typing import Any

from ...backends.flags import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel  # noqa: F401

__all__ = ["SDPBackend", "sdpa_kernel", "WARN_FOR_UNFUSED_KERNELS"]

WARN_FOR_UNFUSED_KERNELS = False


def __getattr__(name: str) -> Any:
    if name in ("bias", "flex_attention"):
        import importlib
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'flambeau.nn.attention' has no attribute '{name}'")
