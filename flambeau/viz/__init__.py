"""`flambeau.viz`: the graph drawn (`make_dot`), played (`explore`) and counted (`summary`)."""

from __future__ import annotations

from .dot import Dot, make_dot
from .explorer import Explored, explore
from .model_summary import Summary, summary
from .recorder import recording

__all__ = ["Dot", "Explored", "Summary", "explore", "make_dot", "recording", "summary"]
