"""`SummaryWriter`: logs that TensorBoard shows. Nothing has to be installed to write them."""

from __future__ import annotations

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
