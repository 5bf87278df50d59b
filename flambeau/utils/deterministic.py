"""`torch.utils.deterministic`: a switch that is remembered. All operations here are deterministic anyway."""

from __future__ import annotations

fill_uninitialized_memory = True
