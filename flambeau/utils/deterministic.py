"""`torch.utils.deterministic`: whether `empty` and its kin fill their memory under use_deterministic_algorithms."""

from __future__ import annotations

fill_uninitialized_memory = True
