"""`flambeau.viz`: the graph drawn (`make_dot`), played (`explore`) and counted (`summary`)."""

from __future__ import annotations

from .dot import Dot, make_dot

__all__ = ["Dot", "make_dot"]
