"""Settings of PyTorch's compiler that programs set. They are remembered and have no effect."""

from __future__ import annotations

job_id: str | None = None
cache_key_tag: str = ""
dynamic_sources: str = ""
unbacked_sources: str = ""
force_disable_caches: bool = False
