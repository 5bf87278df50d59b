"""torch.cpu.amp and torch.cuda.amp: the older names of autocast and GradScaler, one set for each device."""

from __future__ import annotations

import functools
import sys
import types
import warnings
from typing import Any

from . import autocast_mode, grad_scaler


def module_for(device: str, name: str) -> types.ModuleType:
    """A module `name` (flambeau.cuda.amp, say) with autocast and GradScaler for one type of device."""
    made = types.ModuleType(name, f"autocast and GradScaler for {device} (deprecated in favour of flambeau.amp).")

    def old(what: str) -> None:
        warnings.warn(f"`torch.{device}.amp.{what}(args...)` is deprecated. Please use `torch.amp.{what}('{device}', "
                      "args...)` instead.", FutureWarning, stacklevel=3)

    class autocast(autocast_mode.autocast):
        """flambeau.amp.autocast for one type of device."""

        def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True):
            old("autocast")
            default = autocast_mode._dtypes.bfloat16 if device == "cpu" else autocast_mode._dtypes.float16
            super().__init__(device, enabled=enabled, dtype=dtype or default, cache_enabled=cache_enabled)

    class GradScaler(grad_scaler.GradScaler):
        """flambeau.amp.GradScaler for one type of device."""

        def __init__(self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
                     growth_interval: int = 2000, enabled: bool = True):
            old("GradScaler")
            super().__init__(device, init_scale=init_scale, growth_factor=growth_factor, backoff_factor=backoff_factor,
                             growth_interval=growth_interval, enabled=enabled)

    for kind in (autocast, GradScaler):
        kind.__module__, kind.__qualname__ = name, kind.__name__
    made.autocast, made.GradScaler = autocast, GradScaler
    made.custom_fwd = functools.partial(autocast_mode.custom_fwd, device_type=device)
    made.custom_bwd = functools.partial(autocast_mode.custom_bwd, device_type=device)
    made.__all__ = ["autocast", "GradScaler", "custom_fwd", "custom_bwd"]
    made.__path__ = []
    sys.modules[name] = made
    for part in ("autocast_mode", "grad_scaler"):
        sys.modules[f"{name}.{part}"] = made
    return made
