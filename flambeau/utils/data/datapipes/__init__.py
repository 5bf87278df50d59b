"""DataPipes: datasets that are chained by methods (`pipe.map(f).filter(g).batch(8)`). The frequent ones only."""

from __future__ import annotations

from . import iter, map

__all__ = ["iter", "map"]
